"""What a rule looks at: a cell, and the run that it is part of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from vebench.analysis.cell import CellSummary, Finding, null_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.plan.cells import CellKey
    from vebench.plan.spec import RunSpec
    from vebench.results.records import RunRecord


@dataclass(frozen=True)
class Sweep:
    """All cells of a run, its header, and the name of the run file, which remedies quote."""

    cells: tuple[CellSummary, ...]
    head: RunRecord
    file: str

    @property
    def spec(self) -> RunSpec:
        """What was asked for."""
        return self.head.spec

    def null_beside(self, cell: CellSummary) -> CellSummary | None:
        """Return the cell that shows what the measuring loop costs for batches as large; None if there is none."""
        return self._by_key.get(null_of(cell.key))

    def curve(self, cell: CellSummary) -> Sequence[CellSummary]:
        """Return all cells that differ from ``cell`` in the number of workers alone, itself among them."""
        return self._curves[_any_workers(cell.key)]

    @cached_property
    def _by_key(self) -> Mapping[CellKey, CellSummary]:
        return {cell.key: cell for cell in self.cells}

    @cached_property
    def _curves(self) -> Mapping[CellKey, Sequence[CellSummary]]:
        curves: dict[CellKey, list[CellSummary]] = {}
        for cell in self.cells:
            curves.setdefault(_any_workers(cell.key), []).append(cell)
        return curves


def _any_workers(key: CellKey) -> CellKey:
    return replace(key, workers=0)


# Returns the finding about a cell of the sweep, None if there is none.
Rule = Callable[[CellSummary, Sweep], Finding | None]
