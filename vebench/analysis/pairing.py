"""The cells of two runs side by side: which make a pair, what prevents the others, and what a ratio is made of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import exp, log
from typing import TYPE_CHECKING, Literal, NamedTuple

from vebench.analysis.cell import Exclusion, base_of, yardstick_of
from vebench.analysis.findings import NO_REASON, Code
from vebench.analysis.pooling import pooled_alone
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Outcome, Sample
from vebench.backends.registry import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.pooling import Condition
    from vebench.analysis.statistics import Estimate, Term
    from vebench.plan.cells import CellKey

SpeedVerdict = Outcome | Literal["missing", "not comparable"]
# The divisor of a rate: nothing, the reference, or the yardstick, of the same run.
Metric = Literal["fps", "speedup", "yardstick"]

# Cells that differ in one of these do not do the same work on the same resources.
DECISIVE = ("num_envs", "batch_size", "frame_skip", "cpus_owned", "replicas")
_WORST_LAST: tuple[Condition, ...] = ("overhead", "undisturbed", "oversubscribed", "disturbed")
# The shares of CPU time that others took from interleaved sides may differ by this much; less comes by chance.
_UNEVEN = 0.2
HOW_TO_HAVE = "vebench run always measures it, unless --no-base is given"


class Names(NamedTuple):
    """The words for the two sides of a comparison."""

    command: str
    baseline: str
    candidate: str
    left_out: str  # where cells that were left out could not run
    article: str = ""

    @property
    def the_baseline(self) -> str:
        """The first side within a sentence."""
        return self.article + self.baseline

    @property
    def the_candidate(self) -> str:
        """The second side within a sentence."""
        return self.article + self.candidate


CHECK = Names("check", "baseline", "candidate", "in the baseline", "the ")
COMPARE = Names("compare", "A", "B", "on either side")


@dataclass(frozen=True)
class CellComparison:
    """One cell of the baseline compared with the candidate's."""

    key: CellKey
    baseline: CellSummary | None
    candidate: CellSummary | None
    verdict: SpeedVerdict
    ratio: Estimate | None = None
    levels: tuple[float, float] | None = None  # the values that the ratio divides, the baseline's first
    why: str | None = None  # the reason of the verdict, if it needs one
    failed: str | None = None  # how the candidate's cell failed, or does other work, where the baseline's does not

    @property
    def cells(self) -> tuple[CellSummary | None, CellSummary | None]:
        """The cell in the baseline and in the candidate."""
        return self.baseline, self.candidate


@dataclass(frozen=True)
class Pair:
    """Two cells that can be compared: the samples behind their ratio, each with its power, and the two levels."""

    terms: tuple[Term, ...]
    levels: tuple[float, float]


def denominator(key: CellKey, metric: Metric) -> CellKey | None:
    """Return the cell whose rate is the divisor of a cell's rate, None if the rate stands alone."""
    if metric == "fps":
        return None
    # A slower environment slows every cell of the reference, and would cancel.
    return yardstick_of(key) if metric == "yardstick" or key.backend == REFERENCE else base_of(key)


def was_skipped(cell: CellSummary | None) -> bool:
    """Return whether there is no cell, or one that could not run."""
    return cell is None or cell.status == "skipped"


@dataclass(frozen=True)
class Sides:
    """The cells of both sides. Cells that differ in one of the fields ``decisive`` cannot be compared."""

    before: Mapping[CellKey, CellSummary]
    after: Mapping[CellKey, CellSummary]
    metric: Metric
    in_turn: bool
    names: Names
    decisive: tuple[str, ...] = DECISIVE

    def pairs(self, keys: Sequence[CellKey]) -> dict[CellKey, Pair]:
        """Return the pairs of cells that nothing prevents from being compared."""
        if not self.in_turn or self.metric != "fps":
            return {key: self._pair(key) for key in keys}
        both = {key: (self.before[key], self.after[key]) for key in keys}
        ratios = {key: _by_pass(new.sample, old.sample) for key, (old, new) in both.items()}
        worse = {key: max(old.condition, new.condition, key=_WORST_LAST.index) for key, (old, new) in both.items()}
        found = {}
        for key, ratio in pooled_alone(ratios, worse).items():
            old, new = (cell.sample.of_passes(ratio.passes).level for cell in both[key])
            found[key] = Pair(((1.0, ratio),), (old, new))
        return found

    def _pair(self, key: CellKey) -> Pair:
        base = denominator(key, self.metric)
        below, above = (
            [(1.0, cells[key].sample), *([] if base is None else [(-1.0, cells[base].sample)])]
            for cells in (self.before, self.after)
        )
        terms = (*above, *((-power, sample) for power, sample in below))
        return Pair(
            terms,
            (
                exp(sum(power * log(sample.level) for power, sample in below)),
                exp(sum(power * log(sample.level) for power, sample in above)),
            ),
        )

    def beside(self, key: CellKey) -> CellComparison:
        """Return the cell with what prevents a verdict; ``inconclusive`` without a reason if nothing does."""
        nothing: tuple[SpeedVerdict, str | None] = ("inconclusive", None)
        verdict, why = next(chain(self._prevents_ratio(key), self._doubts(key)), nothing)
        old, new = self.before[key], self.after.get(key)
        failed = _how_failed(old, new)
        base = denominator(key, self.metric)
        if failed is None and base is not None and base in self.before:
            failed = _how_failed(self.before[base], self.after.get(base), f"{base.backend} with one worker ")
        return CellComparison(key, old, new, verdict, why=why, failed=failed and f"{self.names.candidate}: {failed}")

    def has_ratio(self, key: CellKey) -> bool:
        """Return whether the two cells have a ratio, even if conditions allow no verdict on it."""
        return next(self._prevents_ratio(key), None) is None

    def _named(self, key: CellKey) -> list[tuple[str, CellSummary]]:
        sides = ((self.names.baseline, self.before), (self.names.candidate, self.after))
        return [(name, cells[key]) for name, cells in sides if key in cells]

    def _prevents_ratio(self, key: CellKey) -> Iterator[tuple[SpeedVerdict, str]]:
        names, old, new = self.names, self.before[key], self.after.get(key)
        if (lack := _lack(old)) is not None:
            yield "missing" if old.status == "skipped" else "not comparable", f"{names.baseline}: {lack}"
        if new is None:
            yield "missing", f"not in {names.the_candidate}"
            return
        if (lack := _lack(new)) is not None:
            yield "missing", f"{names.candidate}: {lack}"
        for name, cell in self._named(key):
            # Known other work is the same other work in both.
            if cell.excluded_for or cell.work.found_to_differ or (cell.excluded and old.excluded != new.excluded):
                yield "not comparable", f"{name}: {_why_excluded(cell)}"
        for field in self.decisive:
            one, other = getattr(old.built, field), getattr(new.built, field)
            if one != other:
                what = field.replace("_", " ")
                yield "not comparable", f"{what}: {one} in {names.the_baseline}, {other} in {names.the_candidate}"
        yield from self._prevents_interval(key, denominator(key, self.metric))

    def _prevents_interval(self, key: CellKey, base: CellKey | None) -> Iterator[tuple[SpeedVerdict, str]]:
        for name, cells in ((self.names.baseline, self.before), (self.names.candidate, self.after)):
            if base is None:
                break
            what = f"{name}: {base.backend} with one worker"
            if base not in cells:
                yield "not comparable", f"{what} is missing; {HOW_TO_HAVE}"
            elif not cells[base].sample.measurable:
                yield "not comparable", f"{what} has no rate with an interval"
            elif cells[base].excluded:
                yield "not comparable", f"{what}: {_why_excluded(cells[base])}"
        for name, cell in self._named(key):
            if not cell.sample.measurable:
                yield "inconclusive", f"{name}: one window, no interval; measure with --passes 5"
        ratios = _by_pass(self.after[key].sample, self.before[key].sample)
        if self.in_turn and len(ratios.rates) < FEWEST_FOR_INTERVAL:
            yield "inconclusive", "fewer than two passes measured both sides; measure with --passes 5"

    def _doubts(self, key: CellKey) -> Iterator[tuple[SpeedVerdict, str]]:
        codes = [(name, code) for name, cell in self._named(key) for code in doubts(cell, self.in_turn)]
        taken = {name: cell.conditions.stolen_share + cell.conditions.others_share for name, cell in self._named(key)}
        uneven = max(taken.values()) - min(taken.values())
        rates = sorted(cell.sample.middle or 0.0 for _, cell in self._named(key))
        # Others also take CPUs that a side leaves idle; but they cannot slow it by more than they take.
        if self.in_turn and uneven > _UNEVEN and rates[0] > rates[-1] * (1 - uneven) / 2:
            codes.append((max(taken, key=lambda name: taken[name]), Code.DISTURBED))
        base = denominator(key, self.metric)
        if base is not None and not codes:
            of_base = [(f"{name}'s {base.backend}", cell) for name, cell in self._named(base)]
            codes = [(name, code) for name, cell in of_base for code in doubts(cell, self.in_turn)]
        if codes:
            what = ", ".join(f"{name} {code}" for name, code in codes)
            yield "inconclusive", f"{what}: such a rate says little about the code; measure again on an idle machine"


def _by_pass(above: Sample, below: Sample) -> Sample:
    rates, others = above.by_pass, below.by_pass
    common = tuple(number for number in rates if others.get(number, 0) > 0)
    return Sample(tuple(rates[number] / others[number] for number in common), one_process=False, passes=common)


def _how_failed(old: CellSummary, new: CellSummary | None, which: str = "") -> str | None:
    """Return how the new cell failed, None if it did not, or if the old one failed in the same way.

    A cell that was found to do other work has failed; one that the user interrupted has not.
    """
    if old.status != "ok" or new is None:
        return None
    if new.work.found_to_differ and not old.work.found_to_differ:
        return f"{which}{_why_excluded(new)}"
    if new.faulty_repeats and new.status == "failed":
        return f"{which}{_lack(new)}"
    if new.faulty_repeats and not old.faulty_repeats:
        return f"{which}{new.faulty_repeats} of {new.repeats} passes failed: {new.reason or NO_REASON}"
    return None


def doubts(cell: CellSummary, in_turn: bool) -> Iterator[str]:
    """Yield the codes of findings that make a rate doubtful. Disturbances of interleaved sides hit both alike."""
    if cell.conditions.throttled:
        yield Code.THROTTLED
    if in_turn:
        return
    if cell.conditions.disturbed:
        yield Code.DISTURBED
    # The rate of a single process that was not warm yet hardly changes the level of many.
    if cell.figures.stability.drifts or 0 < cell.sample.processes <= 2 * cell.figures.stability.unsettled:
        yield Code.DRIFTING


def _why_excluded(cell: CellSummary) -> str:
    words: dict[Exclusion | None, str] = {
        Exclusion.OTHER_WORK: f"not the same work as {REFERENCE} ({cell.work.reason or 'rows differ'})",
        Exclusion.ABOVE_CEILING: "significantly faster than the bare simulator",
        Exclusion.CONTESTED: "it busy-waits on CPUs that other processes used, too",
        Exclusion.NOT_PINNED: "not pinned to its CPUs",
    }
    return words[cell.exclusion]


def _lack(cell: CellSummary) -> str | None:
    """Return why a cell has no rate, None if it has."""
    if cell.status != "ok":
        return f"{cell.status}: {cell.reason or NO_REASON}"
    if not cell.sample.rates:
        return "no window was measured"
    if not cell.sample.positive:
        return "a window without a step"
    return None
