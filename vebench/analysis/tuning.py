"""What a race between settings answers: which to use, which do as well, and what training gains. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from vebench.analysis.answer import Doubt, doubt_of
from vebench.analysis.racing import FEWEST_PASSES, contenders
from vebench.analysis.rules import WIDE
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Error, Estimate, contrast, ratio
from vebench.analysis.windows import learning
from vebench.backends.registry import ENTRIES, REFERENCE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.child.answers import Timed
    from vebench.plan.cells import CellKey
    from vebench.plan.spec import LearnerStep

# Resets are met as often as in the long run in windows that hold so many episodes of each environment.
EPISODES = 2
# What a user has already comes before what he would have to add: the registry begins with Gymnasium's own.
_SIMPLEST_FIRST = {entry.name: rank for rank, entry in enumerate(ENTRIES)}


@dataclass(frozen=True)
class Rival:
    """A cell beside the best: its rate over that one's, None if it has none, and why it is in doubt.

    ``too_large``: it takes more memory than it may.
    """

    cell: CellSummary
    ratio: Estimate | None
    doubt: Doubt | None
    too_large: bool = False


class Lack(Enum):
    """Why no setting can be recommended."""

    UNUSABLE = auto()  # others, or a quota, had the CPUs of most cells
    NOTHING_OFFERED = auto()  # no setting has a rate, or none that has one may be offered
    FASTER = auto()  # a faster one may turn out to do the same work, or is hardly known
    DISTURBED = auto()  # one that others kept from its CPUs may be faster
    WIDE = auto()  # the rate of the one to recommend is hardly known


@dataclass(frozen=True)
class Choice:
    """What to use: ``chosen``; None if nothing can be recommended, for the reason ``lack``.

    ``best`` is what is chosen, or would be. ``fastest`` has the highest rate of those that may be offered. They differ
    where something simpler cannot be told from the fastest and is within the tolerance. ``contenders`` may be faster
    than ``best`` by more than the tolerance: of those that may be offered, or may turn out so. In each pair of
    ``told``, the second is not: once a look has told, later ones need not.
    ``disturbed``: what may be faster than ``best``, since others took time of its CPUs; or ``best``, if its rate is
    little more than a guess for that reason.
    ``rivals``: the best cell of each other backend beside ``best``, the fastest first. ``faster``: those that are
    faster than ``best`` by more than their interval, and may not be offered. ``tied``: those that do as well as the
    fastest, as far as is known, without ``best``, the simplest first.
    """

    best: CellSummary | None = None
    fastest: CellSummary | None = None
    lack: Lack | None = Lack.NOTHING_OFFERED
    rivals: tuple[Rival, ...] = ()
    faster: tuple[Rival, ...] = ()
    tied: tuple[CellSummary, ...] = ()
    contenders: frozenset[CellKey] = frozenset()
    told: frozenset[tuple[CellKey, CellKey]] = frozenset()
    disturbed: CellSummary | None = None

    @property
    def decided(self) -> bool:
        """Whether nothing that counts is faster than what is chosen by more than the tolerance."""
        return self.lack is None and not self.contenders

    @property
    def chosen(self) -> CellSummary | None:
        """The setting to recommend."""
        return self.best if self.lack is None else None


@dataclass(frozen=True)
class Latency:
    """How long a batch is waited for by a caller that acts at once: the median, and what 99 of 100 do not exceed."""

    p50_ns: int
    p99_ns: int


@dataclass(frozen=True)
class Bend:
    """A cell like the one that is chosen but for one number: ``share`` is its rate over that one's."""

    cell: CellSummary
    share: float


def choose(  # noqa: PLR0913 - what a choice depends on
    cells: Sequence[CellSummary],
    tolerance: float,
    level: float,
    *,
    usable: bool = True,
    memory: int | None = None,
    open_work: Collection[str] = (),
    told: frozenset[tuple[CellKey, CellKey]] = frozenset(),
    last: bool = False,
) -> Choice:
    """Return what to use of the cells of one task. ``level``: the error that ``decided`` may make.

    Of those that do as well as the fastest it is the simplest; with ``last``, one of which ``decided`` can be said.
    ``usable``: the run is not too disturbed. What was seen to take more than ``memory`` bytes is not offered, whatever
    was planned. ``open_work``: backends, by their labels, whose work a longer comparison could show to be the same.
    ``told`` is that of the choice at the look before.

    No setting is chosen that is slower than another which may be offered, beyond the interval of their ratio.
    """
    rated = sorted(
        (cell for cell in cells if not cell.reference_row and cell.rate), key=lambda cell: cell.rate, reverse=True
    )
    offered = [cell for cell in rated if doubt_of(cell) is None and not too_large(cell, memory)]
    good = [
        cell
        for cell in offered
        if not any((found := ratio(cell.sample, other.sample)) and (found.high or 1.0) < 1 for other in offered)
    ]
    if not good:
        return Choice(rivals=tuple(_rivals(rated, None, memory)))
    enough = min(FEWEST_PASSES, max(cell.repeats for cell in good))  # a race may be decided before that
    fastest = next(cell for cell in good if cell.repeats >= enough)
    known = [
        cell
        for cell in good
        if cell is fastest
        or (cell.repeats >= max(enough, FEWEST_FOR_INTERVAL) and _share_of(cell, fastest) >= 1 - tolerance)
    ]
    # What more measuring, or comparing, may show to be one that can be offered.
    unknown = {
        cell.key
        for cell in rated
        if (doubt := doubt_of(cell)) is Doubt.NO_INTERVAL or (doubt is Doubt.UNVERIFIED and cell.label in open_work)
        if not too_large(cell, memory)
    }
    counted = unknown.union(cell.key for cell in offered)
    rates = {cell.key: cell.sample for cell in rated if cell.key in counted and min(cell.sample.rates) > 0}
    told |= {
        (cell.key, other) for cell in known for other in rates.keys() - contenders(rates, cell.key, tolerance, level)
    }
    above = {cell.key: {other for other in rates if (cell.key, other) not in told} for cell in known}
    best, *tied = sorted(
        known,
        key=lambda cell: (
            last and bool(above[cell.key]),
            _SIMPLEST_FIRST.get(cell.backend, len(_SIMPLEST_FIRST)),
            bool(cell.options),
            -cell.rate,
        ),
    )
    faster = tuple(
        rival
        for cell in rated
        if (rival := _rival(cell, best, memory)).ratio
        and (rival.doubt or rival.too_large)
        # Of a ratio without an interval, its median counts.
        and (rival.ratio.median if rival.ratio.low is None else rival.ratio.low) > 1
    )
    disturbed = next(
        (
            cell
            for cell in rated
            if cell.disturbed and cell.key in counted
            if cell.rate > best.rate * (1 + (WIDE if cell is best else tolerance)) * cell.share_left
        ),
        None,
    )
    lack = None
    if not usable:
        lack = Lack.UNUSABLE
    elif any(rival.cell.key in unknown for rival in faster):
        lack = Lack.FASTER
    elif disturbed is not None:
        lack = Lack.DISTURBED
    elif best.half_width is None or best.half_width > WIDE:
        lack = Lack.WIDE
    rivals = tuple(_rivals(rated, best, memory))
    return Choice(best, fastest, lack, rivals, faster, tuple(tied), frozenset(above[best.key]), told, disturbed)


def bends(cells: Iterable[CellSummary], chosen: CellSummary) -> tuple[list[Bend], list[Bend]]:
    """Return what other numbers of workers reach, and other numbers of environments for each, the most first.

    Point estimates: they show where a curve bends, and decide nothing.
    """
    rest = [
        Bend(cell, cell.rate / chosen.rate)
        for cell in cells
        if cell.label == chosen.label and cell.key != chosen.key and cell.rate
    ]
    workers = [bend for bend in rest if bend.cell.envs_per_worker == chosen.envs_per_worker]
    envs = [bend for bend in rest if bend.cell.workers == chosen.workers]
    return (
        sorted(workers, key=lambda bend: -bend.cell.workers),
        sorted(envs, key=lambda bend: -bend.cell.envs_per_worker),
    )


@dataclass(frozen=True)
class MissedResets:
    """What windows that are shorter than episodes leave out: the resets.

    ``share``: how much of an environment's time its resets take in the long run, at the most. ``seconds``: how long a
    window would have to be to hold ``EPISODES`` of each environment, at the least if no episode's end was seen.
    """

    share: float
    seconds: float


def missed_resets(steps: Timed, cell: CellSummary, tolerance: float) -> MissedResets | None:
    """Return what the windows of a cell miss of the resets; None if those are met, or take less than the tolerance."""
    length = steps.steps / max(1, steps.ends)
    share = steps.reset_p50_ns / (steps.reset_p50_ns + length * steps.step_p50_ns)
    seen = cell.rows / cell.num_envs / max(1, cell.repeats)  # of each environment: every pass begins anew
    if share <= tolerance or seen >= EPISODES * length or cell.steps_per_second is None:
        return None
    return MissedResets(share, EPISODES * length * cell.num_envs / cell.steps_per_second.median)


def training_gain(chosen: CellSummary, loop: CellSummary, learner: LearnerStep | None) -> float | None:
    """Return how many times as fast training is as it would be with a plain loop; None without a learner."""
    one = learning(learner, chosen.steps_per_second, chosen.batch_size)
    other = learning(learner, loop.steps_per_second, chosen.batch_size)
    return None if one is None or other is None else one.steps_per_second / other.steps_per_second


def _share_of(cell: CellSummary, fastest: CellSummary) -> float:
    found = ratio(cell.sample, fastest.sample)
    return found.median if found else 0.0


def too_large(cell: CellSummary, memory: int | None) -> bool:
    """Return whether a cell was seen to take more than ``memory`` bytes."""
    return memory is not None and cell.peak_rss_bytes is not None and cell.peak_rss_bytes > memory


def _rivals(cells: Iterable[CellSummary], best: CellSummary | None, memory: int | None) -> Iterable[Rival]:
    seen = set() if best is None else {best.label}
    for cell in cells:
        if cell.label not in seen:
            seen.add(cell.label)
            yield _rival(cell, best, memory)


def _rival(cell: CellSummary, best: CellSummary | None, memory: int | None) -> Rival:
    beside = None if best is None else ratio(cell.sample, best.sample)
    return Rival(cell, beside, doubt_of(cell), too_large(cell, memory))


@dataclass(frozen=True)
class Exchange:
    """What ``cell`` takes beside the steps of a plain ``loop``, if ``at_once`` of its environments step at a time.

    ``step``: seconds of a step in the loop. ``hand_over``: seconds of a batch, beside steps. ``break_even``: the step
    time in seconds below which the loop is faster. Both may begin at nothing.
    """

    cell: CellSummary
    loop: CellSummary
    at_once: int
    step: float
    hand_over: Estimate
    break_even: Estimate


def exchange(cell: CellSummary, loops: Iterable[CellSummary]) -> Exchange | None:
    """Return what handing over takes a cell, relative to the one of the ``loops`` that is nearest to it in size.

    The share of a plain loop's time that a step takes with a backend is what handing over takes for each step, over
    the step time, plus 1 / the environments that step at the same time: a line over 1 / step time. Where it is 1, both
    are as fast: that step time is the break-even.

    One run has one step time, so that the environments that step at a time are taken from the cell's own counts: all
    that its processes and threads lose by waiting for each other counts as handing over. None where nothing is handed
    over, and where environments are not those of the loop.
    """
    at_once = min(cell.at_work, cell.cpus_owned, cell.batch_size)
    near = [loop for loop in loops if loop.label == REFERENCE and loop.workers == 1 and loop.steps_per_second]
    if at_once < 2 or not near or not cell.entry.steps_gymnasium or cell.steps_own_classes:  # noqa: PLR2004 - one at a time is a loop
        return None
    loop = min(near, key=lambda loop: abs(loop.num_envs - cell.batch_size))
    share = _share_of_loop(cell, loop)
    if share is None:
        return None
    rate, (value, error) = loop.steps_per_second, share
    step = 1 / rate.median if rate is not None and rate.median > 0 else 0.0
    taken, half = (value - 1 / at_once) * step, error.half_width() * step  # by handing over, for each step
    per_step = Estimate(max(0.0, taken), max(0.0, taken - half), max(0.0, taken + half))
    return Exchange(
        cell,
        loop,
        at_once,
        step,
        per_step.scaled(cell.batch_size),
        # Where the line crosses 1. It begins at a number that is known, so that the slope alone makes the interval.
        per_step.scaled(1 / (1 - 1 / at_once)),
    )


def _share_of_loop(cell: CellSummary, loop: CellSummary) -> tuple[float, Error] | None:
    """Return the share of the loop's time that a step takes, with its error; None if either has no interval.

    An error of the step time counts as well: by the slope, it becomes one of the share (the effective variance of
    J. Orear, American Journal of Physics 50, 1982).
    """
    share, level = contrast([(1.0, loop.sample), (-1.0, cell.sample)]), contrast([(1.0, loop.sample)])
    if share is None or level is None:
        return None
    value = share.estimate.median
    # The share is a constant plus the part that falls with the step time; of that, all above 1 / CPUs at most.
    falling = max(0.0, value - 1 / max(1, cell.cpus_owned))
    variance = value**2 * share.error.variance + falling**2 * level.error.variance
    return value, Error(variance, share.error.freedom)
