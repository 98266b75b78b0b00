"""Facts from all cells of a run together: cells that are slower or faster than others, and environments that age."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.cell import CellSummary, Exclusion, base_of, curves, of_key
from vebench.analysis.statistics import Contrast, contrast, verdicts
from vebench.analysis.windows import DRIFT, trend
from vebench.backends.registry import CEILING, REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vebench.analysis.statistics import Sample
    from vebench.plan.cells import CellKey
    from vebench.results.records import RunRecord

# A step takes this share of the bare simulator's CPU time at least: caches and resets differ, and CPUs' speeds change.
LEAST_CPU_TIME = 2 / 3
_AGEING_LEVEL = 0.005  # one-sided, of the plain loop's trend


class Ageing(NamedTuple):
    """How a rate changes with the steps that an environment has made."""

    slope: Contrast  # of log rates over log steps
    first: float  # the fewest steps that were seen
    last: float

    @property
    def words(self) -> str:
        """By how much the environment slows down, or speeds up."""
        span = log(self.last / self.first)
        change = Contrast(self.slope.log * span, self.slope.error.times(span**2)).estimate
        middle, *ends = (f"{value - 1:+.0%}" for value in (change.median, change.low or 0.0, change.high or 0.0))
        verb = "slows down" if self.slope.log < 0 else "speeds up"
        return f"the environment {verb}: {middle} ({' to '.join(ends)}) from step {self.first:,.0f} to {self.last:,.0f}"


def ageing(cells: Iterable[CellSummary]) -> Ageing | None:
    """Return how the rate of similar cells changes with the steps of an environment, None if it does not."""
    aged = tuple(each for cell in cells if not cell.conditions.disturbed for each in cell.figures.stability.aged)
    slope, ages = trend(aged), [age for _, points in aged for age, _ in points]
    if slope is None or min(slope.chance_above(1.0), slope.chance_below(1.0)) > _AGEING_LEVEL:
        return None
    found = Ageing(slope, min(ages), max(ages))
    return found if abs(slope.log) * log(found.last / found.first) > log(1 + DRIFT) else None


@dataclass(frozen=True)
class Sweep:
    """All cells of a run."""

    cells: tuple[CellSummary, ...]
    head: RunRecord
    file: str  # the name of the run file, which remedies quote
    _ratios: dict[tuple[CellKey, CellKey], Contrast | None] = field(default_factory=dict)

    @cached_property
    def by_key(self) -> Mapping[CellKey, CellSummary]:
        """All cells by their keys."""
        return {cell.key: cell for cell in self.cells}

    @cached_property
    def resume(self) -> str:
        """The command that goes on with the run."""
        return self.head.resume_command(self.file)

    def all_fail(self, env: str) -> bool:
        """Return whether several backends were to step a task, the reference among them, and all have failed."""
        cells = [cell for cell in self.cells if cell.env == env and not cell.reference_row and cell.status != "skipped"]
        labels = {cell.label for cell in cells if cell.faulty_repeats and cell.status == "failed"}
        return len(labels) > 1 and REFERENCE in labels and labels == {cell.label for cell in cells}

    @cached_property
    def ageing(self) -> Mapping[str, Ageing]:
        """The tasks whose environments change with the steps that they have made, as the plain loop shows."""
        loops = [cell for cell in self.cells if cell.label == REFERENCE]
        by_env = {env: ageing(one for one in loops if one.env == env) for env in {cell.env for cell in loops}}
        return {env: found for env, found in by_env.items() if found is not None}

    def ratio(self, cell: CellSummary, other: CellSummary) -> Contrast | None:
        """Return the rate of ``cell`` over another's, None if one has no interval. It is computed once."""
        if (cell.key, other.key) not in self._ratios:
            self._ratios[cell.key, other.key] = contrast([(1.0, cell.sample), (-1.0, other.sample)])
        return self._ratios[cell.key, other.key]

    @cached_property
    def above_ceiling(self) -> frozenset[CellKey]:
        """The cells that seem significantly faster than the bare simulator."""
        above = {}
        for cell in self.cells:
            bare = self.ceiling_of(cell)
            if bare is not None and (found := self.ratio(cell, bare)) is not None:
                above[cell.key] = found.inverse
        return frozenset(key for key, verdict in verdicts(above).items() if verdict == "slower")

    @cached_property
    def below_simulator(self) -> frozenset[CellKey]:
        """The cells whose steps take significantly less than ``LEAST_CPU_TIME`` of the bare simulator's CPU time."""
        found = _slower(
            (cell.key, bare.key, bare.by_cpu_time.scaled(1 / LEAST_CPU_TIME), cell.by_cpu_time)
            for cell in self.cells
            # The cell may be disturbed: processes that work for it count as others.
            if (bare := self.ceiling_of(cell)) and not bare.conditions.disturbed
        )
        slow = {
            key.env for key in found if key.backend == REFERENCE
        }  # if even the loop is below, the ceiling was disturbed
        return frozenset(key for key in found if key.env not in slow)

    def ceiling_of(self, cell: CellSummary) -> CellSummary | None:
        """Return the bare simulator on the same CPUs, None if the cell is not compared with it, or both are not."""
        if cell.reference_row or cell.exclusion not in (None, Exclusion.ABOVE_CEILING):
            return None
        bare = self.by_key.get(cell.key.beside(CEILING, cell.workers))
        return None if bare is None or bare.excluded else bare

    @cached_property
    def below_loop(self) -> frozenset[CellKey]:
        """The cells that are significantly slower than a plain loop with one worker."""
        speedups = {
            cell.key: found
            for cell in self.cells
            if cell.speedup is not None and not cell.reference_row and cell.label != REFERENCE
            if (found := self.ratio(cell, self.by_key[base_of(cell.key)])) is not None
        }
        return frozenset(key for key, verdict in verdicts(speedups).items() if verdict == "slower")

    @cached_property
    def retrograde(self) -> frozenset[CellKey]:
        """The cells that are significantly slower than with fewer workers, although each worker has a CPU."""
        by_curve = {of_key(curve[0].key): curve for curve in curves(self.cells)}
        return _slower(
            (cell.key, fewer.key, cell.sample, fewer.sample)
            for cell in self.cells
            if cell.built.processes * cell.built.threads > 1
            if not (cell.reference_row or cell.conditions.oversubscribed)
            for fewer in by_curve[of_key(cell.key)]
            if fewer.workers < cell.workers
        )


def _slower(tests: Iterable[tuple[CellKey, CellKey, Sample, Sample]]) -> frozenset[CellKey]:
    """Return the first key of each test whose first sample is slower than its second; all are tested together.

    The second key tells apart several tests of one cell.
    """
    ratios = {}
    for key, other, one, against in tests:
        if one.measurable and against.measurable:
            # A cell at least as fast in the same passes cannot be significantly slower. Skip the test, but count it in
            # the Holm correction.
            as_fast = one.passes == against.passes and one.level >= against.level
            ratios[key, other] = None if as_fast else contrast([(1.0, one), (-1.0, against)])
    judged = verdicts(ratios)
    return frozenset(key for (key, _), verdict in judged.items() if verdict == "slower")
