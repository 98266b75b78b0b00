"""Curves: the cells of one task and backend over the number of workers. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.analysis.cell import CellSummary
    from vebench.plan.cells import CellKey


@dataclass(frozen=True)
class Curve:
    """Cells that differ in their number of workers alone, fewest workers first. There is at least one."""

    cells: tuple[CellSummary, ...]

    @property
    def env(self) -> str:
        """The task's full name."""
        return self.cells[0].env

    @property
    def label(self) -> str:
        """The backend as a user writes it, options included."""
        return self.cells[0].label

    @property
    def envs_per_worker(self) -> int:
        """How many environments each worker was asked to have."""
        return self.cells[0].envs_per_worker

    @property
    def reference_row(self) -> bool:
        """Whether it is there to be compared with, and is no backend to choose."""
        return self.cells[0].reference_row


def of_key(key: CellKey) -> CellKey:
    """Return what all cells of one curve have in common."""
    return replace(key, workers=0)


def curves(cells: Iterable[CellSummary]) -> tuple[Curve, ...]:
    """Return the curves of ``cells``, in the order in which they first appear."""
    by_key: dict[CellKey, list[CellSummary]] = {}
    for cell in cells:
        by_key.setdefault(of_key(cell.key), []).append(cell)
    return tuple(Curve(tuple(sorted(members, key=lambda cell: cell.workers))) for members in by_key.values())
