"""The cells of two runs side by side: which make a pair, what prevents the others, and what a ratio is made of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import exp
from typing import TYPE_CHECKING, Literal, NamedTuple

from vebench.analysis.cell import ABOVE_CEILING, CONTESTED, OTHER_WORK, base_of, yardstick_of
from vebench.analysis.findings import Code
from vebench.analysis.pooling import pooled_alone
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Sample, contrast
from vebench.backends.registry import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.pooling import Condition
    from vebench.analysis.statistics import Estimate
    from vebench.plan.cells import CellKey

SpeedVerdict = Literal["faster", "same", "slower", "inconclusive", "missing", "not comparable"]
# What a rate is divided by: nothing, the reference, or the yardstick, of the same run.
Metric = Literal["fps", "speedup", "yardstick"]
Term = tuple[float, Sample]  # a sample, and the power with which it enters a product

# Cells that differ in one of these do not do the same work on the same resources.
DECISIVE = ("num_envs", "batch_size", "frame_skip", "cpus_owned", "replicas")
_WORST_LAST: tuple[Condition, ...] = ("overhead", "calm", "crowded", "disturbed")
_NO_REASON = "no reason was recorded"
HOW_TO_HAVE = "vebench run measures it with every plan, unless --set base=false is given"


class Names(NamedTuple):
    """The command that compares, and what it calls the first side, the second, and where left-out cells lack.

    ``article`` is what comes before the name of a side within a sentence.
    """

    command: str
    baseline: str
    candidate: str
    left_out: str
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
    """One cell of the baseline compared with the candidate's. ``why`` explains a verdict that needs a reason.

    ``key`` is the identity of both. ``levels`` are the two values that ``ratio`` divides, the baseline's first.
    ``failed`` is how the candidate's cell failed, in all repeats or in some, or which other work it did, where the
    baseline's did not.
    """

    key: CellKey
    baseline: CellSummary
    candidate: CellSummary | None
    verdict: SpeedVerdict
    ratio: Estimate | None = None
    levels: tuple[float, float] | None = None
    why: str | None = None
    failed: str | None = None


@dataclass(frozen=True)
class Pair:
    """Two cells that can be compared: the samples behind their ratio, each with its power, and the two levels."""

    terms: tuple[Term, ...]
    levels: tuple[float, float]


def _by_pass(above: Sample, below: Sample) -> Sample:
    """Return the ratio in each pass that both have."""
    rates, others = above.by_pass, below.by_pass
    common = tuple(number for number in rates if others.get(number, 0) > 0)
    return Sample(tuple(rates[number] / others[number] for number in common), one_process=False, passes=common)


def _terms(key: CellKey, cells: Mapping[CellKey, CellSummary], metric: Metric) -> tuple[Term, ...]:
    """Return what one run adds to a ratio, each sample with its power: the cell's rate, and what divides it."""
    base = denominator(key, metric)
    return ((1.0, cells[key].sample), *(() if base is None else ((-1.0, cells[base].sample),)))


def denominator(key: CellKey, metric: Metric) -> CellKey | None:
    """Return the cell by whose rate that of a cell is divided, None if it stands alone.

    Speedups are relative to the reference. It is relative to the yardstick itself: what slows the environment slows
    both, and would cancel.
    """
    if metric == "fps":
        return None
    return yardstick_of(key) if metric == "yardstick" or key.backend == REFERENCE else base_of(key)


def was_skipped(cell: CellSummary | None) -> bool:
    """Return whether there is no cell, or one that could not run."""
    return cell is None or cell.status == "skipped"


@dataclass(frozen=True)
class Sides:
    """The cells of both sides by their keys, and how they are compared.

    Cells that differ in one of the fields ``decisive`` are no pair.
    """

    before: Mapping[CellKey, CellSummary]
    after: Mapping[CellKey, CellSummary]
    metric: Metric
    in_turn: bool
    names: Names
    decisive: tuple[str, ...] = DECISIVE

    def pairs(self, keys: Sequence[CellKey]) -> dict[CellKey, Pair]:
        """Return what can be compared, given the cells that nothing prevents from it."""
        if self.in_turn and self.metric == "fps":
            return self._pairs_in_turn(keys)
        return {key: self._pair(key) for key in keys}

    def _pair(self, key: CellKey) -> Pair:
        below, above = (_terms(key, cells, self.metric) for cells in (self.before, self.after))
        one, other = contrast(below), contrast(above)
        if one is None or other is None:
            raise ValueError("a pair is made of samples that have an interval")
        return Pair((*above, *((-power, sample) for power, sample in below)), (exp(one.log), exp(other.log)))

    def _pairs_in_turn(self, keys: Sequence[CellKey]) -> dict[CellKey, Pair]:
        both = [(self.before[key], self.after[key]) for key in keys]
        ratios = [_by_pass(new.sample, old.sample) for old, new in both]
        worse = [max(old.condition, new.condition, key=_WORST_LAST.index) for old, new in both]
        return {
            key: Pair(
                ((1.0, ratio),),
                (old.sample.of_passes(ratio.passes).level, new.sample.of_passes(ratio.passes).level),
            )
            for key, ratio, (old, new) in zip(keys, pooled_alone(ratios, worse), both, strict=True)
        }

    def beside(self, key: CellKey) -> CellComparison:
        """Return the cell with what prevents a verdict; ``inconclusive`` without a reason if nothing does."""
        old, new = self.before[key], self.after.get(key)
        nothing: tuple[SpeedVerdict, str | None] = ("inconclusive", None)
        verdict, why = next(chain(self._prevents_ratio(key), self._doubts(old, new)), nothing)
        return CellComparison(key, old, new, verdict, why=why, failed=self._failed(key))

    def has_ratio(self, key: CellKey) -> bool:
        """Return whether the two cells have a ratio, even if conditions allow no verdict on it."""
        return next(self._prevents_ratio(key), None) is None

    def _prevents_ratio(self, key: CellKey) -> Iterator[tuple[SpeedVerdict, str]]:
        old, new = self.before[key], self.after.get(key)
        return chain(self._gaps(old, new), self._bases(key), self._weak(old, new))

    def _failed(self, key: CellKey) -> str | None:
        """Return how the new cell, or what its speedup is relative to, failed where the old one did not."""
        found = _how_failed(self.before[key], self.after.get(key))
        if found is None and (base := denominator(key, self.metric)) is not None and base in self.before:
            found = _how_failed(self.before[base], self.after.get(base), f"{base.backend} with one worker ")
        return None if found is None else f"{self.names.candidate}: {found}"

    def _gaps(self, old: CellSummary, new: CellSummary | None) -> Iterator[tuple[SpeedVerdict, str]]:
        """Yield why the two cells are no pair."""
        names = self.names
        if (lack := _lack(old)) is not None:
            yield "missing" if old.status == "skipped" else "not comparable", f"{names.baseline}: {lack}"
        if new is None:
            yield "missing", f"not in {names.the_candidate}"
            return
        if (lack := _lack(new)) is not None:
            yield "missing", f"{names.candidate}: {lack}"
        for name, cell in ((names.baseline, old), (names.candidate, new)):
            if cell.unsound or (cell.struck and old.struck != new.struck):
                yield "not comparable", f"{name}: {_why_struck(cell)}"
        for field in self.decisive:
            one, other = getattr(old, field), getattr(new, field)
            if one != other:
                what = field.replace("_", " ")
                yield "not comparable", f"{what}: {one} in {names.the_baseline}, {other} in {names.the_candidate}"

    def _bases(self, key: CellKey) -> Iterator[tuple[SpeedVerdict, str]]:
        """Yield that a run lacks the cell that its rates are relative to."""
        base = denominator(key, self.metric)
        for name, cells in ((self.names.baseline, self.before), (self.names.candidate, self.after)):
            if base is None:
                continue
            if base not in cells:
                yield "not comparable", f"{name}: {base.backend} with one worker is not in it; {HOW_TO_HAVE}"
            elif not cells[base].sample.measurable:
                yield "not comparable", f"{name}: {base.backend} with one worker has no rate with an interval"
            elif cells[base].struck:
                yield "not comparable", f"{name}: {base.backend} with one worker: {_why_struck(cells[base])}"

    def _weak(self, old: CellSummary, new: CellSummary | None) -> Iterator[tuple[SpeedVerdict, str]]:
        """Yield that a cell has no interval."""
        for name, cell in self._both(old, new):
            if not cell.sample.measurable:
                yield "inconclusive", f"{name}: one window, no interval; measure with --repeats 5"
        if self.in_turn and new is not None and len(_by_pass(new.sample, old.sample).rates) < FEWEST_FOR_INTERVAL:
            yield "inconclusive", "fewer than two passes have both; measure with --repeats 5"

    def _doubts(self, old: CellSummary, new: CellSummary | None) -> Iterator[tuple[SpeedVerdict, str]]:
        """Yield that a cell was measured under conditions in which its rate says little of the code."""
        codes = [(name, code) for name, cell in self._both(old, new) for code in doubts(cell, self.in_turn)]
        base = denominator(old.key, self.metric)
        if base is not None and not codes:
            for name, cells in ((self.names.baseline, self.before), (self.names.candidate, self.after)):
                codes += [(f"{name}'s {base.backend}", code) for code in doubts(cells[base], self.in_turn)]
        if codes:
            what = ", ".join(f"{name} {code}" for name, code in codes)
            yield "inconclusive", f"{what}: such a rate says little of the code; measure again on an idle machine"

    def _both(self, old: CellSummary, new: CellSummary | None) -> list[tuple[str, CellSummary]]:
        """Return the cells that there are, each with the name of its side."""
        sides = ((self.names.baseline, old), (self.names.candidate, new))
        return [(name, cell) for name, cell in sides if cell is not None]


def _how_failed(old: CellSummary, new: CellSummary | None, which: str = "") -> str | None:
    """Return how the new cell failed if the old one did not, or not in all repeats as the new one; None otherwise.

    One that was found to do other work has failed, too. ``which`` cell it is comes before that. What the user ended did
    not fail.
    """
    if old.status != "ok" or new is None:
        return None
    if new.found_to_differ and not old.found_to_differ:
        return f"{which}{_why_struck(new)}"
    if not new.faulty_repeats:
        return None
    if new.status == "failed":
        return f"{which}{_lack(new)}"
    if old.faulty_repeats:
        return None
    return f"{which}{new.faulty_repeats} of {new.repeats} repeats failed: {new.reason or _NO_REASON}"


def doubts(cell: CellSummary, in_turn: bool) -> Iterator[str]:
    """Yield what makes a cell's rate doubtful. What changes slowly is no doubt if both sides took turns."""
    if cell.disturbed:
        yield Code.DISTURBED
    if cell.throttled:
        yield Code.THROTTLED
    if in_turn:
        return
    # The rate of a single process that was not warm yet hardly changes the level of many.
    if cell.stability.drifts or 0 < cell.sample.processes <= 2 * cell.stability.unsettled:
        yield Code.DRIFTING


def _why_struck(cell: CellSummary) -> str:
    """Return in words why the rate of a cell is struck."""
    if cell.why_struck == OTHER_WORK:
        return f"other work than {REFERENCE} ({cell.verdict_reason or 'rows differ'})"
    if cell.why_struck == ABOVE_CEILING:
        return "faster than the bare simulator, which no backend can be"
    if cell.why_struck == CONTESTED:
        return "it polls on CPUs that others had, too"
    return "not held to the CPUs that it owns"


def _lack(cell: CellSummary) -> str | None:
    """Return why a cell has no rate, None if it has."""
    if cell.status != "ok":
        return f"{cell.status}: {cell.reason or _NO_REASON}"
    if not cell.sample.rates:
        return "no window was measured"
    if min(cell.sample.rates) <= 0:
        return "a window without any step"
    return None
