"""What a rule looks at: a cell, and the run that it is part of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from vebench.analysis.cell import CellSummary, Finding, base_of, ceiling_of, null_of
from vebench.analysis.contrasts import LEVEL, contrast, rejected
from vebench.analysis.curves import curves, of_key
from vebench.backends.registry import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vebench.analysis.contrasts import Contrast
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
        return self._curves[of_key(cell.key)]

    @cached_property
    def above_ceiling(self) -> frozenset[CellKey]:
        """The cells that seem faster than the bare simulator, beyond doubt."""
        return self._beyond_doubt(
            (cell, contrast([(1.0, bare.sample), (-1.0, cell.sample)]))
            for cell in self.cells
            if cell.of_ceiling is not None and (bare := self._by_key.get(ceiling_of(cell.key)))
        )

    @cached_property
    def below_loop(self) -> frozenset[CellKey]:
        """The cells that are slower than a plain loop with one worker, beyond doubt."""
        return self._beyond_doubt(
            (cell, contrast([(1.0, cell.sample), (-1.0, loop.sample)]))
            for cell in self.cells
            if cell.speedup is not None and not cell.reference_row and cell.label != REFERENCE
            if (loop := self._by_key.get(base_of(cell.key)))
        )

    @cached_property
    def retrograde(self) -> frozenset[CellKey]:
        """The cells that are slower than with fewer workers, beyond doubt, though each worker has a CPU."""
        return self._beyond_doubt(
            (cell, contrast([(1.0, cell.sample), (-1.0, fewer.sample)]))
            for cell in self.cells
            if _has_cpus_for_all(cell)
            for fewer in self.curve(cell)
            if fewer.workers < cell.workers
        )

    @staticmethod
    def _beyond_doubt(ratios: Iterable[tuple[CellSummary, Contrast | None]]) -> frozenset[CellKey]:
        """Return the cells that have a ratio below 1, of all those that were looked at, tested together."""
        known = [(cell, found) for cell, found in ratios if found is not None]
        verdicts = rejected([found.chance_above(1.0) for _, found in known], LEVEL)
        return frozenset(cell.key for (cell, _), below in zip(known, verdicts, strict=True) if below)

    @cached_property
    def _by_key(self) -> Mapping[CellKey, CellSummary]:
        return {cell.key: cell for cell in self.cells}

    @cached_property
    def _curves(self) -> Mapping[CellKey, Sequence[CellSummary]]:
        return {of_key(curve.cells[0].key): curve.cells for curve in curves(self.cells)}


def _has_cpus_for_all(cell: CellSummary) -> bool:
    """Return whether several processes or threads step environments, each with a CPU of its own."""
    alone = cell.processes * cell.threads <= 1
    return not (alone or cell.reference_row or cell.oversubscribed or cell.crowded)


# Returns the finding about a cell of the sweep, None if there is none.
Rule = Callable[[CellSummary, Sweep], Finding | None]
