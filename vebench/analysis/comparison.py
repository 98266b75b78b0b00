"""Two runs compared: slower, not slower, or inconclusive; and side by side, by how much. Pure functions.

The verdict is on the ratio of the candidate's rate to the baseline's, with a tolerance. It is given for each group
first, a backend on a task, on the geometric mean of its ratios over all numbers of workers:

    slower         the group, or one of its cells, is below 1 - tolerance
    faster         the same above 1 + tolerance
    same           not below 1 - tolerance, and no cell of the group looks as if it were
    inconclusive   the data cannot decide

For ``slower``, and for ``faster``, the tests of all groups together, and those of all cells together, must hold (Holm),
each with half of 5 %: in 95 % of comparisons, no group is called slower that is not. ``same`` is a one-sided test
at 5 %, as for the equivalence of two drugs (D. Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987).
It needs no correction: to pass wrongly, the very group that is slower must be missed (R. Berger, Multiparameter
hypothesis testing and acceptance sampling, Technometrics 24, 1982).

Only the cells of a slower or faster group are then tested individually, together; all others have the verdict of
their group. What holds in 95 % is what is said of groups.

Side by side, the ratios and their intervals are the same. A check asks whether code became slower, so it takes no cells
that own different numbers of CPUs; side by side, the machines themselves are compared. Such a cell has a ratio, but
does not count in the mean of a task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from vebench.analysis.cell import Exclusion
from vebench.analysis.pairing import CHECK, DECISIVE, CellComparison, Names, Pair, Sides, doubts, was_skipped
from vebench.analysis.rules import WIDE
from vebench.analysis.statistics import (
    LEVEL,
    WIDEST_LOG,
    Contrast,
    Error,
    power_product,
    student_quantile,
    summed,
    verdicts,
)
from vebench.backends.registry import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.pairing import Metric, SpeedVerdict
    from vebench.analysis.statistics import Estimate
    from vebench.plan.cells import CellKey

    Pairs = Mapping[CellKey, Pair]

Verdict = TypeVar("Verdict", "CellComparison", "GroupComparison")

FAMILY_LEVEL = 0.05  # of the tests of all groups and all cells together
SAME_LEVEL = 0.05  # of the one-sided test by which a group is the same
_NOT_SLOWER = ("same", "faster")
POWER = 0.8  # with which a difference that can be resolved is found
# By how much runs of the same code differ, as standard deviations of log rates, and their degrees of freedom: each
# as a whole, since what else runs on the host, clocks and temperature change from day to day; and each cell by itself,
# since memory is laid out anew. ``--history`` replaces both by what it shows. The first is that of seven runs of one
# plan on a shared machine of two CPUs, by what the kernel's counters do not show.
FPS_SPREAD, _FPS_FREEDOM = 0.15, 6
CELL_SPREAD, _CELL_FREEDOM = 0.02, 20
_UNKNOWN_REFERENCE = (
    f"its reference, {REFERENCE}, may itself have become slower; "
    f"see the verdict on {REFERENCE}, or compare with --metric yardstick"
)
_AS_A_WHOLE = "the backend as a whole, but no single number of workers, differs; measure both with more --passes"
_SEEMS_SLOWER = "slower if tested alone, but not among so many comparisons; measure both with more --passes"
# What two cells side by side must have in common: the machines may differ. Reference rows run on every CPU that they
# own, whatever that makes of their environments.
_WORK, _WORK_OF_REFERENCE = tuple(name for name in DECISIVE if name != "cpus_owned"), ("frame_skip",)


class GroupKey(NamedTuple):
    """A backend, options included, on a task."""

    env: str
    backend: str


@dataclass(frozen=True)
class GroupComparison:
    """The cells of one backend on one task, compared as a whole, of which ``judged`` can be.

    ``ratio`` is the geometric mean over these, ``error`` the variance of its logarithm. ``resolves`` is the share by
    which the backend must be slower to be found in 80 % of such comparisons.
    """

    key: GroupKey
    verdict: SpeedVerdict
    cells: int
    judged: int = 0
    ratio: Estimate | None = None
    why: str | None = None
    error: float | None = None
    resolves: float | None = None


@dataclass(frozen=True)
class Comparison:
    """All cells of the baseline that can be gated, in its order, and their groups.

    ``overall`` is the geometric mean of all ratios that are known. ``run_spread`` is by how much runs of the same code
    differ, None if both sides were measured in turn. ``skipped`` cells could not run in the baseline, or, of two sides
    that were measured in turn, on either. ``new`` ones are in the candidate only, ``references`` are reference rows of
    both. None of these are compared.
    """

    metric: Metric
    tolerance: float
    cells: tuple[CellComparison, ...]
    groups: tuple[GroupComparison, ...]
    overall: Estimate | None
    run_spread: RunSpread | None = None
    skipped: tuple[CellKey, ...] = ()
    new: tuple[CellKey, ...] = ()
    references: tuple[CellKey, ...] = ()
    names: Names = CHECK

    @property
    def paired(self) -> bool:
        """Whether both sides were measured in turn, so that what slowed one slowed the other."""
        return self.run_spread is None


@dataclass(frozen=True)
class RunSpread:
    """By how much runs of the same code differ: as a whole, and each cell beside that, as errors of log rates.

    What a run as a whole does cancels from ratios within it; ``shared`` is then None. What cells have in common, such
    as what all speedups of a task are relative to, is not lost: the error of a mean of ratios is that of its cells.
    """

    shared: Error | None
    own: Error

    def of(self, pairs: Sequence[Pair]) -> Error:
        """Return the error that it adds to the mean of ratios of two runs."""
        weights: dict[int, float] = {}
        for weight, sample in (term for pair in pairs for term in pair.terms):
            weights[sample.id] = weights.get(sample.id, 0.0) + weight / len(pairs)
        own = self.own.times(sum(weight**2 for weight in weights.values()))
        return own if self.shared is None else summed((own, self.shared.times(2)))


def prior_run_spread(metric: Metric) -> RunSpread:
    """Return by how much runs are taken to differ where no history shows it."""
    shared = Error(FPS_SPREAD**2, _FPS_FREEDOM) if metric == "fps" else None
    return RunSpread(shared, Error(CELL_SPREAD**2, _CELL_FREEDOM))


def compare_runs(  # noqa: PLR0913 - how to compare
    baseline: Sequence[CellSummary],
    candidate: Sequence[CellSummary],
    *,
    metric: Metric,
    tolerance: float,
    in_turn: bool = False,
    run_spread: RunSpread | None = None,
    part: float = 1.0,
    names: Names = CHECK,
) -> Comparison:
    """Return the verdicts on every cell of ``baseline`` that is no reference row, and on their groups.

    ``tolerance`` is a share, 0 to 1. ``in_turn``: each pass of the two was measured at the same time. Otherwise two
    runs also differ by what separates runs of the same code: ``run_spread``, by default a documented one. ``part`` of
    the error that is allowed may be made by these tests.
    """
    before, after = ({cell.key: cell for cell in cells} for cells in (baseline, candidate))
    judged_keys = [key for key, cell in before.items() if not cell.reference_row]
    left_out = {key for key in judged_keys if was_skipped(before[key]) and (not in_turn or was_skipped(after.get(key)))}
    sides = Sides(before, after, metric, in_turn, names)
    cells = [sides.beside(key) for key in judged_keys if key not in left_out]
    unpaired = None if in_turn else run_spread or prior_run_spread(metric)
    pairs = sides.pairs([cell.key for cell in cells if cell.why is None])
    judge = _Judge(pairs, unpaired, tolerance, part)
    judged = {cell.key: judge.cell(cell) for cell in cells}
    # Conditions that allow no verdict do not hide the ratio: it is shown with its interval, however wide.
    for key, pair in sides.pairs([cell.key for cell in cells if cell.why and sides.has_ratio(cell.key)]).items():
        judged[key] = replace(judged[key], ratio=mean_ratio([pair], unpaired).estimate, levels=pair.levels)
    groups = dict.fromkeys(group_of(key) for key in judged)
    return Comparison(
        metric,
        tolerance,
        tuple(judged.values()),
        tuple(judge.group(group, [cell for key, cell in judged.items() if group_of(key) == group]) for group in groups),
        mean_ratio(list(pairs.values()), unpaired).estimate if pairs else None,
        unpaired,
        skipped=tuple(key for key in judged_keys if key in left_out),
        new=tuple(key for key, cell in after.items() if not cell.reference_row and key not in before),
        references=tuple(key for key, cell in before.items() if cell.reference_row and key in after),
        names=names,
    )


def without_unknown_reference(found: Comparison) -> Comparison:
    """Return verdicts on speedups without those that stand on a reference that may have become slower itself."""
    known = {group.key.env for group in found.groups if group.key.backend == REFERENCE and group.verdict in _NOT_SLOWER}

    def held(one: Verdict) -> Verdict:
        stands = one.verdict not in _NOT_SLOWER or one.key.backend == REFERENCE or one.key.env in known
        return one if stands else replace(one, verdict="inconclusive", why=_UNKNOWN_REFERENCE)

    if found.metric != "speedup":
        return found
    return replace(found, cells=tuple(map(held, found.cells)), groups=tuple(map(held, found.groups)))


class _Judge:
    def __init__(self, pairs: Pairs, unpaired: RunSpread | None, tolerance: float, part: float) -> None:
        self._pairs = pairs
        self._unpaired = unpaired
        self._level, self._same = FAMILY_LEVEL * part / 2, SAME_LEVEL * part
        self._low, self._high = 1 - tolerance, 1 + tolerance
        self._ratios = {key: mean_ratio([pair], unpaired) for key, pair in pairs.items()}
        self._members: dict[GroupKey, list[CellKey]] = {}
        for key in pairs:
            self._members.setdefault(group_of(key), []).append(key)
        self._means = {of: mean_ratio([pairs[key] for key in keys], unpaired) for of, keys in self._members.items()}
        groups, cells = (
            verdicts(ratios, low=self._low, high=self._high, level=self._level, same=self._same)
            for ratios in (self._means, self._ratios)
        )
        self._verdicts = {
            group: self._of_group(group, groups[group], *[cells[key] for key in keys])
            for group, keys in self._members.items()
        }

    def cell(self, cell: CellComparison) -> CellComparison:
        """Return a cell with its verdict, if it can be compared."""
        if cell.key not in self._pairs:
            return cell
        verdict, why = self._verdicts[group_of(cell.key)]
        if verdict in ("slower", "faster"):
            verdict, why = self._inside(cell.key, verdict)
        levels = self._pairs[cell.key].levels
        return replace(cell, verdict=verdict, ratio=self._ratios[cell.key].estimate, levels=levels, why=why)

    def group(self, key: GroupKey, cells: Sequence[CellComparison]) -> GroupComparison:
        """Return the verdict on a group, given all its cells."""
        judged = len(self._members.get(key, ()))
        unknown = next((cell for cell in cells if cell.key not in self._pairs), None)
        verdict, why = self._verdicts.get(key, ("inconclusive", None))
        if unknown is not None and (not judged or (2 * judged < len(cells) and verdict != "slower")):
            return GroupComparison(key, unknown.verdict, len(cells), judged, why=unknown.why)
        mean, reach = self._means[key], 0.0
        if error := mean.error.variance:  # how far from the bound a ratio must be to be found with ``POWER``
            level, freedom = self._level / len(self._members), mean.error.freedom
            quantiles = student_quantile(1 - level, freedom) + student_quantile(POWER, freedom)
            reach = min(quantiles * sqrt(error), WIDEST_LOG)
        resolves = 1 - self._low * exp(-reach)
        return GroupComparison(key, verdict, len(cells), judged, mean.estimate, why, error, resolves)

    def _of_group(
        self, group: GroupKey, of_mean: SpeedVerdict, *cells: SpeedVerdict
    ) -> tuple[SpeedVerdict, str | None]:
        verdicts = of_mean, *cells
        if "slower" in verdicts:
            return "slower", None
        if any(self._ratios[key].chance_above(self._low) <= SAME_LEVEL for key in self._members[group]):
            return "inconclusive", _SEEMS_SLOWER
        if "faster" in verdicts:
            return "faster", None
        return of_mean, self._doubt(self._means[group], self._members[group]) if of_mean == "inconclusive" else None

    def _inside(self, key: CellKey, verdict: SpeedVerdict) -> tuple[SpeedVerdict, str | None]:
        """Return the verdict on a cell of a group that is slower or faster, tested with the others of its group."""
        ratios = {one: self._ratios[one] for one in self._members[group_of(key)]}
        high = self._high if verdict == "faster" else None
        found = verdicts(ratios, low=self._low, high=high, level=self._level, same=self._same)
        seems_so = ratios[key].log < log(self._low) if high is None else ratios[key].log >= log(high)
        if seems_so and verdict not in found.values():  # none of them can be singled out
            return verdict, None if len(ratios) == 1 else _AS_A_WHOLE
        return found[key], self._doubt(ratios[key], [key]) if found[key] == "inconclusive" else None

    def _doubt(self, found: Contrast, keys: Sequence[CellKey]) -> str:
        if found.chance_above(self._low) <= LEVEL:
            return _SEEMS_SLOWER
        spread = self._unpaired
        if spread is not None and 2 * spread.of([self._pairs[key] for key in keys]).variance > found.error.variance:
            instead = "" if spread.shared is None else "compare with --metric yardstick, or "
            return (
                "two runs of the same code may differ by this much; "
                f"{instead}use vebench compare, give --history, or allow a larger --tolerance"
            )
        return "the interval includes the tolerance; measure with more --passes, or a larger --budget"


def mean_ratio(pairs: Sequence[Pair], run_spread: RunSpread | None) -> Contrast:
    """Return the geometric mean of the ratios of one pair or more, with what separates the two runs in its error."""
    found = power_product((weight / len(pairs), sample) for pair in pairs for weight, sample in pair.terms)
    return found if run_spread is None else Contrast(found.log, summed((found.error, run_spread.of(pairs))))


def group_of(key: CellKey) -> GroupKey:
    """Return the group that a cell belongs to."""
    return GroupKey(key.env, key.backend)


@dataclass(frozen=True)
class Best:
    """The fastest cell of each run, which may be of different backends and sizes, and the ratio of their rates."""

    one: CellSummary
    other: CellSummary
    ratio: Estimate


@dataclass(frozen=True)
class TaskBeside:
    """One task of both runs, the cells of the first run first, each with its ratio, or why it has none.

    ``mean`` is the geometric mean of the ratios of the cells ``counted``: those of the same backend, size and CPUs in
    both runs, without reference rows. ``lacking`` says in which runs no cell can stand for its best, by 0 and 1.
    """

    env: str
    places: tuple[CellComparison, ...]
    mean: Estimate | None = None
    counted: tuple[CellComparison, ...] = ()
    best: Best | None = None
    lacking: tuple[int, ...] = ()


def beside(
    first: Sequence[CellSummary], second: Sequence[CellSummary], names: Names, *, in_turn: bool
) -> tuple[TaskBeside, ...]:
    """Return the tasks that both runs have, in the order of the first. ``in_turn``: they are of one ``compare``."""
    # What the measuring loop costs is no rate of a task.
    before, after = ({cell.key: cell for cell in cells if cell.loop_ns_per_batch is None} for cells in (first, second))
    spread = None if in_turn else prior_run_spread("fps")
    all_keys = dict.fromkeys((*before, *after))
    keys = [key for key in all_keys if not (was_skipped(before.get(key)) and was_skipped(after.get(key)))]
    places = {key: CellComparison(key, before.get(key), after.get(key), "missing") for key in keys}
    pairs: dict[CellKey, Pair] = {}
    for reference_row, decisive in ((False, _WORK), (True, _WORK_OF_REFERENCE)):
        sides = Sides(before, after, "fps", in_turn, names, decisive)
        common = [key for key in keys if key in before and key in after]
        found = {key: sides.beside(key) for key in common if before[key].reference_row == reference_row}
        known = sides.pairs([key for key, one in found.items() if one.why is None])
        ratios = {key: mean_ratio([pair], spread).estimate for key, pair in known.items()}
        places |= {key: replace(one, ratio=ratios.get(key)) for key, one in found.items()}
        pairs |= {} if reference_row else known
    tasks = dict.fromkeys(cell.env for cell in before.values())
    common_tasks = [env for env in tasks if any(key.env == env for key in after)]
    return tuple(_task(env, [places[key] for key in keys if key.env == env], pairs, spread) for env in common_tasks)


def best_of(cells: Sequence[CellSummary], *, in_turn: bool = False) -> CellSummary | None:
    """Return the fastest of ``cells`` that a ratio can stand on, of those with useful intervals if there are any."""
    known = [
        cell
        for cell in cells
        if cell.sample.measurable and cell.objection in (None, Exclusion.UNVERIFIED)
        if not cell.reference_row and not any(doubts(cell, in_turn))
    ]
    precise = [cell for cell in known if cell.half_width is not None and cell.half_width <= WIDE]
    return max(precise or known, key=lambda cell: cell.sample.level, default=None)


def _task(env: str, places: Sequence[CellComparison], pairs: Pairs, spread: RunSpread | None) -> TaskBeside:
    paired = (place for place in places if place.key in pairs)
    counted = tuple(
        one for one in paired if len({cell.built.cpus_owned for cell in one.cells if cell is not None}) == 1
    )
    mean = mean_ratio([pairs[place.key] for place in counted], spread).estimate if counted else None
    of_runs = [[cell for place in places if (cell := place.cells[run]) is not None] for run in (0, 1)]
    one, other = (best_of(cells, in_turn=spread is None) for cells in of_runs)
    if one is not None and other is not None and one.label != other.label:
        # One that may do other work can be compared with itself, but with no other.
        sure = [[cell for cell in cells if cell.objection is None] for cells in of_runs]
        one, other = (best_of(cells, in_turn=spread is None) for cells in sure)
    lacking = tuple(run for run, cell in enumerate((one, other)) if cell is None)
    best = None
    if one is not None and other is not None and one.built.frame_skip == other.built.frame_skip:
        pair = pairs.get(one.key)
        if one.key != other.key:
            pair = Pair(((1.0, other.sample), (-1.0, one.sample)), (one.sample.level, other.sample.level))
        best = None if pair is None else Best(one, other, mean_ratio([pair], spread).estimate)
    return TaskBeside(env, tuple(places), mean, counted, best, lacking)
