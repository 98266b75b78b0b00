"""Summaries of cells in the order in which reports list them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.plan.cells import report_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.analysis.cell import CellSummary
    from vebench.plan.spec import RunSpec


def in_report_order(cells: Iterable[CellSummary], spec: RunSpec) -> tuple[CellSummary, ...]:
    """Return ``cells`` of a run of ``spec`` by task, then by backend, then by size."""

    def key(cell: CellSummary) -> tuple[object, ...]:
        return *report_order(cell.env, cell.choice, spec), cell.workers, cell.envs_per_worker

    return tuple(sorted(cells, key=key))
