"""Curves in figures and tables: what each is called, and the line of one of its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.registry import CEILING
from vebench.errors import one_line
from vebench.reports.chart import Series
from vebench.reports.figures import times_envs

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.analysis.cell import CellSummary, Curve
    from vebench.analysis.statistics import Estimate


def curve_name(curve: Curve, *, several: bool) -> str:
    """Return what a curve is called among others, ``several`` of which differ in their environments per worker."""
    return one_line(curve.label) + (times_envs(curve.envs_per_worker) if several else "")


def line_of(curve: Curve, name: str, value: Callable[[CellSummary], Estimate | None]) -> Series:
    """Return one line; cells without the value, and those of other work, have no point."""
    points = tuple(
        (float(cell.workers), estimate)
        for cell in curve.cells
        if not cell.struck and (estimate := value(cell)) is not None and estimate.median > 0
    )
    return Series(name, points, "bound" if curve.cells[0].backend == CEILING else "measured")
