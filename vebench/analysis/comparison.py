"""The comparison of two runs: verdicts on their ratios, and the ratios side by side. Pure functions.

A verdict is on the candidate's rate divided by the baseline's rate, with a tolerance. Groups get their verdicts first.
A group is a backend on a task, and its ratio is the geometric mean over all numbers of workers:

    slower         the group, or one of its cells, is below 1 - tolerance
    faster         the group, or one of its cells, is above 1 + tolerance
    same           not below 1 - tolerance, and no cell of the group seems to be below it
    inconclusive   the data cannot decide

A larger ratio of startup times or memory is worse, so its bounds are 1 + tolerance and 1 - tolerance.
Each metric is tested by itself, and spends an equal part of the level.

For ``slower`` and for ``faster``, all groups are tested together at half of 5 %, and so are all cells (Holm). So in
95 % of comparisons, no group is wrongly called slower. ``same`` is a one-sided test at 5 % without a correction
(docs/reference/statistics.md). Then only the cells of a slower or faster group are tested individually. All other
cells get the verdict of their group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import exp, log, sqrt
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from vebench.analysis import statistics
from vebench.analysis.cell import NO_REASON, CellSummary, Code, Exclusion, base_of, yardstick_of
from vebench.analysis.rules import WIDE
from vebench.analysis.statistics import Contrast, Error, Estimate, Sample, Term, power_product, rejected, summed
from vebench.backends.registry import REFERENCE
from vebench.machine.host import grouped
from vebench.plan.cells import CellKey
from vebench.plan.grammar import COSTS, Tolerance

SpeedVerdict = Literal["slower", "faster", "same", "inconclusive", "missing", "not comparable", "advisory"]
# A rate is divided by nothing (fps), or the rate of the reference or of the yardstick of the same run. A startup time
# is multiplied by the rate of the yardstick, unless the sides are interleaved.
Metric = Literal["fps", "speedup", "yardstick", "startup", "memory"]
_Cells = Mapping[CellKey, CellSummary]
_Pairs = Mapping[CellKey, "CellComparison"]
_Verdict = tuple[SpeedVerdict, str | None]  # with the reason, if the verdict needs one

_LEVEL = 0.05  # the level of the tests of all groups and all cells together, and of the test for ``same``
POWER = 0.8  # the probability of finding a difference that a comparison can resolve
# Standard deviations of log rates between runs of the same code. Runs as a whole differ because load, clocks and
# temperature change from day to day. Seven runs of one plan on a shared machine of two CPUs showed this. Each cell
# differs because its memory is laid out anew. ``--history`` replaces both numbers.
FPS_SPREAD, CELL_SPREAD = 0.15, 0.02
_ADVISORY = "not judged, because its --tolerance is off; to judge it, give a share such as 5%"
_SEEMS_SLOWER = "worse if tested alone, but not among so many comparisons; measure both with more --passes"


class Names(NamedTuple):
    """The words for the two sides of a comparison."""

    command: str
    baseline: str
    candidate: str


CHECK = Names("check", "baseline", "candidate")
COMPARE = Names("compare", "A", "B")


class GroupKey(NamedTuple):
    """A metric of a backend, options included, on a task."""

    env: str
    backend: str
    metric: Metric


@dataclass(frozen=True)
class CellComparison:
    """A cell of the baseline compared with the same cell of the candidate."""

    key: CellKey
    cells: tuple[CellSummary | None, CellSummary | None]  # in the baseline and in the candidate
    verdict: SpeedVerdict
    ratio: Estimate | None = None
    levels: tuple[float, float] | None = None  # the divisor and the dividend of the ratio: baseline, then candidate
    why: str | None = None  # the reason for the verdict, if the verdict needs one
    failed: str | None = None  # why only the candidate's cell failed; different work or a leak is a failure, too
    terms: tuple[Term, ...] = ()  # the samples of the ratio with their powers; empty without a ratio
    metric: Metric = "fps"

    @property
    def group(self) -> GroupKey:
        """The group that the cell belongs to."""
        return GroupKey(self.key.env, self.key.backend, self.metric)


@dataclass(frozen=True)
class GroupComparison:
    """The cells of one backend on one task, compared as a whole."""

    key: GroupKey
    verdict: SpeedVerdict
    cells: int
    judged: int = 0  # the number of cells that can be compared
    ratio: Estimate | None = None  # the geometric mean of the ratios of the judged cells
    why: str | None = None  # the reason for the verdict, if the verdict needs one
    error: float | None = None  # the variance of the logarithm of ``ratio``
    resolves: float | None = None  # the change for the worse, as a share, that 80 % of such comparisons find
    # The smallest tolerance with which unchanged code passes, here and in 95 % of such comparisons of all groups.
    holds: float | None = None


@dataclass(frozen=True)
class Comparison:
    """All cells of the baseline, without skipped cells and reference rows, and their groups, for each metric."""

    metrics: tuple[Metric, ...]
    tolerance: Tolerance
    cells: tuple[CellComparison, ...]
    groups: tuple[GroupComparison, ...]
    overall: Estimate | None  # the geometric mean of all known ratios of rates
    run_spread: RunSpread | None = None  # how runs of the same code differ; None if both sides were interleaved
    names: Names = CHECK


@dataclass(frozen=True)
class RunSpread:
    """The differences between runs of the same code, as errors of log rates."""

    shared: Error | None  # the error of the run as a whole; None if it cancels, as in ratios within a run
    own: Error  # the additional error of each cell

    def of(self, cells: Sequence[CellComparison]) -> Error:
        """Return the error that differences between two runs add to the mean ratio of ``cells``."""
        weights: dict[int, float] = defaultdict(float)
        for weight, sample in chain.from_iterable(cell.terms for cell in cells):
            weights[sample.id] += weight / len(cells)
        own = self.own.times(sum(weight**2 for weight in weights.values()))
        return own if self.shared is None else summed((own, self.shared.times(2)))


def prior_run_spread(metric: Metric) -> RunSpread:
    """Return the difference between runs that is assumed without a history."""
    shared = Error(FPS_SPREAD**2, 6) if metric == "fps" else None
    return RunSpread(shared, Error(CELL_SPREAD**2, 20))


def denominator(key: CellKey, metric: Metric) -> CellKey | None:
    """Return the cell whose rate divides a cell's rate; None if the rate is not divided."""
    if metric in ("fps", "memory"):
        return None
    # A slower environment slows every cell of the reference. Within the reference, the slowdown would cancel.
    return base_of(key) if metric == "speedup" and key.backend != REFERENCE else yardstick_of(key)


def compare_runs(
    baseline: Sequence[CellSummary],
    candidate: Sequence[CellSummary],
    *,
    metrics: Sequence[Metric],
    tolerance: Tolerance,
    in_turn: bool = False,
    run_spreads: Mapping[Metric, RunSpread] = MappingProxyType({}),
    part: float = 1.0,
    names: Names = CHECK,
) -> Comparison:
    """Return the verdicts on every cell of ``baseline``, without reference rows, and on their groups.

    ``in_turn``: the two sides were interleaved. If not, runs of the same code differ by ``run_spreads``, or by a
    documented default. ``part``: the part of the error level that these tests may spend.
    """
    before, after = ({cell.key: cell for cell in cells} for cells in (baseline, candidate))
    cells: list[CellComparison] = []
    groups: list[GroupComparison] = []
    overall = None
    spreads = {one: run_spreads.get(one) or prior_run_spread(one) for one in metrics}
    for metric in metrics:
        sides = _Sides(_judged_by(metric, before), _judged_by(metric, after), metric, in_turn, names)
        found = {}
        for key, old in before.items():
            could_run = not _skipped(old) or (in_turn and not _skipped(after.get(key)))
            if could_run and not old.reference_row:
                cell = sides.compared(key)
                if tolerance.of(key.env) is None:
                    cell = replace(cell, verdict="advisory", why=cell.why or _ADVISORY, failed=None)
                found[key] = cell
        spread = None if in_turn else spreads[metric]
        pairs = sides.pooled(cell for cell in found.values() if cell.why is None)
        judge = _Judge(metric, pairs, spread, tolerance, part / len(metrics))
        # If conditions allow no verdict, still show the ratio with its interval.
        doubtful = sides.pooled(cell for cell in found.values() if cell.why is not None and cell.terms)
        found |= {key: replace(cell, ratio=mean_ratio([cell], spread).estimate) for key, cell in doubtful.items()}
        found |= {key: judge.cell(key) for key in pairs}
        cells += found.values()
        groups += [judge.group(each[0].group, each) for each in grouped(found.values(), lambda cell: cell.group)]
        if pairs and metric not in COSTS:
            overall = mean_ratio([*pairs.values()], spread).estimate
    first = None if in_turn else spreads[metrics[0]]
    return Comparison(tuple(metrics), tolerance, tuple(cells), tuple(groups), overall, first, names)


def _judged_by(metric: Metric, cells: _Cells) -> _Cells:
    """Return cells whose samples are of the metric. Reference rows keep their rates."""
    if metric not in COSTS:
        return cells
    return {k: cell if cell.reference_row else replace(cell, sample=getattr(cell, metric)) for k, cell in cells.items()}


def without_unknown_reference(found: Comparison) -> Comparison:
    """Return ``found``. Verdicts on speedups are inconclusive if the reference itself may have become slower."""
    passing = ("same", "faster")
    known = {one.key.env for one in found.groups if one.key.backend == REFERENCE and one.verdict in passing}
    why = (
        f"its reference, {REFERENCE}, may itself have become slower; "
        f"see the verdict on {REFERENCE}, or compare with --metric yardstick"
    )

    def changes(group: GroupKey, verdict: SpeedVerdict) -> dict[str, Any]:
        itself = group.metric != "speedup" or group.backend == REFERENCE
        stands = itself or verdict not in passing or group.env in known
        return {} if stands else {"verdict": "inconclusive", "why": why}

    cells = tuple(replace(cell, **changes(cell.group, cell.verdict)) for cell in found.cells)
    groups = tuple(replace(group, **changes(group.key, group.verdict)) for group in found.groups)
    return replace(found, cells=cells, groups=groups)


def mean_ratio(cells: Sequence[CellComparison], run_spread: RunSpread | None) -> Contrast:
    """Return the geometric mean of ratios. Its error includes the difference between runs."""
    found = power_product((weight / len(cells), sample) for cell in cells for weight, sample in cell.terms)
    return found if run_spread is None else Contrast(found.log, summed((found.error, run_spread.of(cells))))


class _Judge:
    """The tests of all pairs of cells that can be compared by a metric, and of their groups."""

    def __init__(self, metric: Metric, pairs: _Pairs, spread: RunSpread | None, most: Tolerance, part: float) -> None:
        self._pairs, self._spread, self._tolerance = pairs, spread, most
        self._sign = -1 if metric in COSTS else 1  # costs are judged by the inverse of their ratio
        self._level = max(_LEVEL * part / 2, 1e-12)  # above 0, so that its quantile is finite
        self._members: dict[GroupKey, list[CellComparison]] = defaultdict(list)
        for pair in pairs.values():
            self._members[pair.group].append(pair)
        self._ratios = {key: self._signed(mean_ratio([pair], spread)) for key, pair in pairs.items()}
        self._means = {group: self._signed(mean_ratio(its, spread)) for group, its in self._members.items()}
        of_cells, of_means = self._verdicts_on(self._ratios), self._verdicts_on(self._means)
        self._verdicts = {
            group: self._of_group(group, of_means[group], [of_cells[pair.key] for pair in its])
            for group, its in self._members.items()
        }

    def _signed(self, ratio: Contrast) -> Contrast:
        return Contrast(self._sign * ratio.log, ratio.error)

    def _bound(self, key: CellKey | GroupKey, change: int) -> float:
        """Return the bound of ratios for the worse (``change`` -1) or the better (1)."""
        most = self._tolerance.of(key.env) or 0.0  # advisory tasks have no pairs
        return float((1 + self._sign * change * most) ** self._sign)

    def _verdicts_on(self, ratios: Mapping[Any, Contrast], *, faster: bool = True) -> dict[Any, Any]:
        """Return the verdicts on ratios that are tested together."""
        low = {key: self._bound(key, -1) for key in ratios}
        worse = rejected({key: ratio.chance_above(low[key]) for key, ratio in ratios.items()}, self._level)
        above = {key: ratio.chance_below(self._bound(key, 1)) for key, ratio in ratios.items() if faster}
        same = [key for key, ratio in ratios.items() if ratio.chance_below(low[key]) <= 2 * self._level]
        found: dict[Any, Any] = dict.fromkeys(ratios, "inconclusive") | dict.fromkeys(same, "same")
        return found | dict.fromkeys(rejected(above, self._level), "faster") | dict.fromkeys(worse, "slower")

    def _of_group(self, group: GroupKey, of_mean: SpeedVerdict, of_cells: Sequence[SpeedVerdict]) -> _Verdict:
        low, its = self._bound(group, -1), self._members[group]
        if "slower" in (of_mean, *of_cells):
            return "slower", None
        if any(self._ratios[pair.key].chance_above(low) <= _LEVEL for pair in its):
            return "inconclusive", _SEEMS_SLOWER
        if "faster" in (of_mean, *of_cells):
            return "faster", None
        return of_mean, self._doubt(self._means[group], its) if of_mean == "inconclusive" else None

    def cell(self, key: CellKey) -> CellComparison:
        """Return a cell with its ratio and verdict. Cells of a slower or faster group are tested together."""
        pair, ratio = self._pairs[key], self._ratios[key]
        verdict, why = self._verdicts[pair.group]
        if verdict in ("slower", "faster"):
            better = verdict == "faster"
            together = {one.key: self._ratios[one.key] for one in self._members[pair.group]}
            found = self._verdicts_on(together, faster=better)
            bound = log(self._bound(key, 1 if better else -1))
            # If no single cell is significant, a cell whose ratio fits keeps the verdict of its group.
            if verdict in found.values() or (ratio.log >= bound) != better:
                verdict = found[key]
                why = self._doubt(ratio, [pair]) if verdict == "inconclusive" else None
        return replace(pair, verdict=verdict, ratio=self._signed(ratio).estimate, why=why)

    def group(self, key: GroupKey, cells: Sequence[CellComparison]) -> GroupComparison:
        """Return the verdict on a group, given all its cells, including cells that cannot be compared."""
        judged = len(self._members.get(key, ()))
        unknown = next((cell for cell in cells if cell.key not in self._pairs), None)
        verdict, why = self._verdicts.get(key, ("inconclusive", None))
        if unknown is not None and (not judged or (2 * judged < len(cells) and verdict != "slower")):
            return GroupComparison(key, unknown.verdict, len(cells), judged, why=unknown.why)
        mean, groups, error = self._means[key], len(self._members), self._means[key].error
        # The distances that logarithms exceed by chance with these probabilities.
        found, power, same, hold = (
            min(statistics.student_quantile(1 - level, error.freedom) * sqrt(error.variance), statistics.WIDEST_LOG)
            for level in (self._level / groups, 1 - POWER, 2 * self._level, 2 * self._level / groups)
        )
        # The share by which a rate falls, or a cost rises, if its logarithm becomes worse by a distance.
        resolves, holds = (
            self._sign * (1 - exp(-self._sign * distance))
            for distance in (found + power - log(self._bound(key, -1)), max(same - mean.log, same + hold))
        )
        ratio = self._signed(mean).estimate
        return GroupComparison(key, verdict, len(cells), judged, ratio, why, error.variance, resolves, holds)

    def _doubt(self, found: Contrast, pairs: Sequence[CellComparison]) -> str:
        if found.chance_above(self._bound(pairs[0].key, -1)) <= statistics.SIDE_LEVEL:
            return _SEEMS_SLOWER
        spread = self._spread
        if spread is not None and 2 * spread.of(pairs).variance > found.error.variance:
            history = "" if pairs[0].metric in COSTS else "--history or "
            remedy = f"use vebench compare, or give {history}a larger --tolerance"
            return f"two runs of the same code may differ by this much; {remedy}"
        return "the interval includes the tolerance; measure with more --passes, or a larger --budget"


@dataclass(frozen=True)
class _Sides:
    """The cells of both sides, and the reasons why some of them cannot be compared."""

    before: _Cells
    after: _Cells
    metric: Metric
    in_turn: bool
    names: Names
    same_cpus: bool = True  # whether cells must own the same number of CPUs

    def compared(self, key: CellKey) -> CellComparison:
        """Return the comparison of a cell, before a verdict: the ``terms`` of its ratio, or why it has none."""
        old, new = self.before[key], self.after.get(key)
        base = None if self.in_turn else denominator(key, self.metric)
        how = _how_failed(old, new)
        if how is None and base is not None and base in self.before:
            how = _how_failed(self.before[base], self.after.get(base))
            how = how and f"{base.backend} with one worker {how}"
        if how is None and new is not None and self.metric == "memory":
            was, now = old.figures.growth, new.figures.growth
            if was and now and (now.bytes_per_step.low or 0.0) > (was.bytes_per_step.high or 0.0):
                how = next((f"{one.message}; {one.remedy}" for one in new.findings if one.code is Code.LEAK), None)
        failed = None if how is None else f"{self.names.candidate}: {how}"
        prevented = next(self._prevents_ratio(key, base), None)
        if new is None or prevented is not None:
            verdict, why = prevented or ("missing", "")
            return CellComparison(key, (old, new), verdict, why=why, failed=failed, metric=self.metric)
        if self.in_turn:
            levels = old.sample.level, new.sample.level
            terms: list[Term] = [(1.0, self._by_pass(new.sample, old.sample))]
        else:
            above, below = [(1.0, new.sample)], [(1.0, old.sample)]
            if base is not None:
                power = 1.0 if self.metric in COSTS else -1.0
                above.append((power, self.after[base].sample))
                below.append((power, self.before[base].sample))
            logs = [sum(power * log(sample.level) for power, sample in side) for side in (below, above)]
            levels = exp(logs[0]), exp(logs[1])
            terms = [*above, *((-power, sample) for power, sample in below)]
        # Disturbed windows say nothing about memory, and little about starts. The interval shows how starts differ.
        sure = COSTS if self.in_turn else ("memory",)
        doubt = None if self.metric in sure else self._doubt(key, base)
        found = CellComparison(key, (old, new), "inconclusive", metric=self.metric, levels=levels, terms=tuple(terms))
        return replace(found, why=doubt, failed=failed)

    def pooled(self, cells: Iterable[CellComparison]) -> dict[CellKey, CellComparison]:
        """Return the pairs by key. For interleaved sides, their ratios get pools, which show how ratios vary."""
        pairs = {cell.key: cell for cell in cells}
        if not self.in_turn:
            return pairs
        both = {key: (self.before[key].condition, self.after[key].condition) for key in pairs}
        worst_last: list[statistics.Condition] = ["overhead", "undisturbed", "oversubscribed", "disturbed"]
        worse = {key: max(conditions, key=worst_last.index) for key, conditions in both.items()}
        ratios = statistics.pooled_alone({key: cell.terms[0][1] for key, cell in pairs.items()}, worse)
        return {key: replace(pairs[key], terms=((1.0, ratio),)) for key, ratio in ratios.items()}

    def _by_pass(self, new: Sample, old: Sample) -> Sample:
        """Return a ratio for each pass.

        The side that starts first alternates by pass, and a process may start more slowly while the other side's
        process rests. So a cost is divided by the other side's cost in the neighbouring pass, where that side had the
        same place. The last of an odd number of passes has no neighbour.
        """
        others = {number ^ (self.metric in COSTS): rate for number, rate in old.by_pass.items()}
        ratios = {number: rate / others[number] for number, rate in new.by_pass.items() if others.get(number, 0) > 0}
        return Sample(tuple(ratios.values()), one_process=False, passes=tuple(ratios))

    def _named(self, key: CellKey) -> list[tuple[str, CellSummary]]:
        sides = ((self.names.baseline, self.before), (self.names.candidate, self.after))
        return [(name, cells[key]) for name, cells in sides if key in cells]

    def _prevents_ratio(self, key: CellKey, base: CellKey | None) -> Iterator[_Verdict]:
        """Yield why a cell has no ratio, the most important reason first."""
        names, old, new = self.names, self.before[key], self.after.get(key)
        if (lack := _lack(old)) is not None:
            yield "missing" if old.status == "skipped" else "not comparable", f"{names.baseline}: {lack}"
        lack = "no such cell" if new is None else _lack(new)
        if new is None or lack is not None:
            yield "missing", f"{names.candidate}: {lack}"
            return
        yield from self._differ(key, old, new)
        for name, cells in ((names.baseline, self.before), (names.candidate, self.after)):
            if base is not None and (lack := _lacks_base(cells.get(base))) is not None:
                yield "not comparable", f"{name}: {base.backend} with one worker {lack}"
        for name, cell in self._named(key):
            if not cell.sample.measurable:
                yield "inconclusive", f"{name}: one window or pass, no interval; measure with --passes 5"
        if self.in_turn and len(self._by_pass(new.sample, old.sample).rates) <= 1:
            yield "inconclusive", "fewer than two passes measured both sides; measure with --passes 5"

    def _differ(self, key: CellKey, old: CellSummary, new: CellSummary) -> Iterator[_Verdict]:
        """Yield the differences between the two sides of a cell that prevent a comparison."""
        both_excluded = old.exclusion and new.exclusion  # work that is known to differ is the same on both sides
        for name, cell in self._named(key):
            if cell.excluded_for or cell.work.found_to_differ or (cell.exclusion and not both_excluded):
                yield "not comparable", f"{name}: {_why_excluded(cell)}"
        decisive = dict(old.shape)
        if not self.same_cpus:
            # Reference rows use every CPU that they own, and may have any number of environments.
            decisive = {"frame_skip": old.built.frame_skip} if old.reference_row else decisive
            decisive.pop("cpus_owned", None)
        for field, count in decisive.items():
            if count != new.shape[field]:
                sides = f"{self.names.baseline} {count}, {self.names.candidate} {new.shape[field]}"
                yield "not comparable", f"{field.replace('_', ' ')}: {sides}"

    def _doubt(self, key: CellKey, base: CellKey | None) -> str | None:
        """Return the conditions that allow no verdict on a ratio; None if there are none."""
        sides = self._named(key)
        codes = [(name, code) for name, cell in sides for code in _doubts(cell, self.in_turn)]
        taken = {name: cell.conditions.stolen_share + cell.conditions.others_share for name, cell in sides}
        uneven = max(taken.values()) - min(taken.values())
        low, high = sorted(cell.rate for _, cell in sides)
        by_chance = 0.2  # a smaller difference between the sides may be chance
        # Other processes also use CPUs that a side leaves idle. They cannot slow the side by more than they use.
        if self.in_turn and uneven > by_chance and low > high * (1 - uneven) / 2:
            codes.append((max(taken, key=taken.__getitem__), Code.DISTURBED))
        if base is not None and not codes:
            of_base = [(f"{name}'s {base.backend}", cell) for name, cell in self._named(base)]
            codes = [(name, code) for name, cell in of_base for code in _doubts(cell, self.in_turn)]
        found = ", ".join(f"{name} {code}" for name, code in codes)
        return f"{found}: such a rate says little about the code; measure again on an idle machine" if codes else None


def _skipped(cell: CellSummary | None) -> bool:
    return cell is None or cell.status == "skipped"


def _how_failed(old: CellSummary, new: CellSummary | None) -> str | None:
    """Return how the new cell failed; None if it did not fail, or if the old cell has failed in the same way.

    A cell that was found to do different work has failed. A cell that the user interrupted has not.
    """
    if old.status != "ok" or new is None:
        return None
    if new.work.found_to_differ and not old.work.found_to_differ:
        return _why_excluded(new)
    if new.faulty_repeats and new.status == "failed":
        return _lack(new)
    if new.faulty_repeats and not old.faulty_repeats:
        return f"{new.faulty_repeats} of {new.repeats} passes failed: {new.reason or NO_REASON}"
    return None


def _doubts(cell: CellSummary, in_turn: bool) -> Iterator[str]:
    """Yield the codes of findings that make a rate doubtful. Disturbances affect both interleaved sides."""
    if cell.conditions.throttled:
        yield Code.THROTTLED
    if in_turn:
        return
    if cell.conditions.disturbed:
        yield Code.DISTURBED
    # One unsettled process hardly changes the level of many processes.
    if cell.figures.stability.drifts or 0 < cell.sample.processes <= 2 * cell.figures.stability.unsettled:
        yield Code.DRIFTING


def _why_excluded(cell: CellSummary) -> str:
    if cell.exclusion is Exclusion.OTHER_WORK:
        return f"not the same work as {REFERENCE} ({cell.work.reason or 'rows differ'})"
    return f"excluded from comparisons: {cell.exclusion}"


def _lacks_base(cell: CellSummary | None) -> str | None:
    """Return why the divisor of a rate cannot be used; None if it can."""
    if cell is None:
        return "is missing; measure again without --no-base"
    if not cell.sample.measurable:
        return "has no rate with an interval"
    return f"is {_why_excluded(cell)}" if cell.exclusion else None


def _lack(cell: CellSummary) -> str | None:
    """Return why a cell has no rate; None if it has one."""
    if cell.status != "ok":
        return f"{cell.status}: {cell.reason or NO_REASON}"
    if not cell.sample.rates:
        return "nothing was measured"
    return None if cell.sample.positive else "a window without a step"


@dataclass(frozen=True)
class TaskComparison:
    """One task of both runs."""

    env: str
    places: tuple[CellComparison, ...]  # all cells, in the order of the first run, each with its ratio or a reason
    mean: Estimate | None = None  # the geometric mean of the ratios in ``counted``
    counted: tuple[CellComparison, ...] = ()  # cells with a ratio and the same CPUs in both runs; no reference rows
    # The fastest cell of each run, whose backends and sizes may differ, and the ratio of their rates.
    best: tuple[CellSummary, CellSummary, Estimate] | None = None


def compared_tasks(
    first: Sequence[CellSummary], second: Sequence[CellSummary], names: Names, *, in_turn: bool
) -> tuple[TaskComparison, ...]:
    """Return the tasks of both runs, in the order of the first. ``in_turn``: one ``compare`` measured both runs.

    A cell with other numbers of CPUs has a ratio, too, because the machines themselves are compared.
    """
    # Leave out the cost of the measuring loop, which is not a rate of a task.
    before, after = ({cell.key: cell for cell in cells if cell.loop_ns_per_batch is None} for cells in (first, second))
    spread = None if in_turn else prior_run_spread("fps")
    sides = _Sides(before, after, "fps", in_turn, names, same_cpus=False)
    places: dict[CellKey, CellComparison] = {}
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if not (_skipped(old) and _skipped(new)):
            in_both = old is not None and new is not None
            places[key] = sides.compared(key) if in_both else CellComparison(key, (old, new), "missing")
    for reference_rows in (True, False):
        comparable = [one for key, one in places.items() if one.terms and one.why is None]
        of_kind = [one for one in comparable if before[one.key].reference_row == reference_rows]
        for key, pair in sides.pooled(of_kind).items():
            places[key] = replace(pair, ratio=mean_ratio([pair], spread).estimate)
    tasks = dict.fromkeys(cell.env for cell in before.values())
    common_tasks = [env for env in tasks if any(key.env == env for key in after)]
    return tuple(_task(env, [one for key, one in places.items() if key.env == env], spread) for env in common_tasks)


def _task(env: str, places: Sequence[CellComparison], spread: RunSpread | None) -> TaskComparison:
    in_turn = spread is None
    pairs = [one for one in places if one.ratio and not any(cell.reference_row for cell in one.cells if cell)]
    counted = tuple(one for one in pairs if len({cell.cpus_owned for cell in one.cells if cell}) == 1)
    mean = mean_ratio(counted, spread).estimate if counted else None
    of_runs = [[cell for place in places if (cell := place.cells[run]) is not None] for run in (0, 1)]
    one, other = (best_of(cells, in_turn=in_turn) for cells in of_runs)
    if one is not None and other is not None and one.label != other.label:
        # A backend that may do other work can be compared only with itself.
        sure = [[cell for cell in cells if cell.objection is None] for cells in of_runs]
        one, other = (best_of(cells, in_turn=in_turn) for cells in sure)
    best = None
    if one is not None and other is not None and one.built.frame_skip == other.built.frame_skip:
        pair = next((pair for pair in pairs if pair.key == one.key), None)
        if one.key != other.key:
            terms = (1.0, other.sample), (-1.0, one.sample)
            pair = CellComparison(one.key, (one, other), "inconclusive", terms=terms)
        best = None if pair is None else (one, other, mean_ratio([pair], spread).estimate)
    return TaskComparison(env, tuple(places), mean, counted, best)


def best_of(cells: Sequence[CellSummary], *, in_turn: bool = False) -> CellSummary | None:
    """Return the fastest cell whose rate can be compared. Cells with a useful interval have precedence."""
    known = [
        cell
        for cell in cells
        if cell.sample.measurable and cell.objection in (None, Exclusion.UNVERIFIED)
        if cell.entry.candidate and not any(_doubts(cell, in_turn))
    ]
    precise = [cell for cell in known if cell.half_width is not None and cell.half_width <= WIDE]
    return max(precise or known, key=lambda cell: cell.sample.level, default=None)
