"""Settings of backends: which to try, which to use, and what training gains. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.answer import fastest_first, first_of_each
from vebench.analysis.cell import Doubt
from vebench.analysis.race import FEWEST_PASSES, contenders
from vebench.analysis.rules import WIDE
from vebench.analysis.spending import AROUND_S, END_S, FORK_S, LOAD_S
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Error, Estimate, contrast, ratio
from vebench.analysis.windows import learning
from vebench.backends.registry import REFERENCE
from vebench.engine.runner import GIVEN_UP
from vebench.plan.cells import rank

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.backends.entry import BackendEntry
    from vebench.child.answers import Timed
    from vebench.plan.cells import Cell, CellKey
    from vebench.plan.grammar import BackendChoice, LearnerStep
    from vebench.plan.spec import RunSpec
    from vebench.results.records import CellRecord

# Environments of a worker that are tried if no batch is asked for.
_USUAL_ENVS = (1, 4, 16)
# More environments than that in one process take too long to build.
_MOST_ENVS = 1 << 12
_NANO = 1e-9
# Batches that a cell makes at least: while it warms up, and in each turn, with those before the window.
_WARMUP_BATCHES, _TURN_BATCHES = 9, 3
# A cell is given up after this many times its expected time, or this share of the whole budget.
PATIENCE, PATIENT_SHARE = 4.0, 0.15
_LEAST_PATIENCE = 5.0
MOST_SLOWDOWN = 10.0  # more was a pause, which does not predict what follows
# Measuring a cell for the first time may take this share of the budget, or twice what the cheapest takes.
_MOST_SHARE, _TIMES_CHEAPEST = 0.1, 2.0


class Setting(NamedTuple):
    """A backend with its size."""

    choice: BackendChoice
    workers: int
    envs_per_worker: int

    @property
    def place(self) -> str:
        """The setting as ``RunSpec.only`` has it."""
        return f"{self.choice.label}:{self.workers}x{self.envs_per_worker}"


def settings(
    choices: Sequence[BackendChoice], cpus: int, batch: int | None = None, cores: int | None = None
) -> tuple[Setting, ...]:
    """Return the settings to try with ``cpus`` CPUs, those first that are the likeliest to be fast.

    With ``batch``, a batch of every setting has this many rows. ``cores``: how many cores these CPUs are of, where some
    are second threads: with as many workers, no core has two. Where the user gave options, no others are tried.
    """
    # All CPUs, one worker for each core, and half of the CPUs, down to an eighth.
    each_core = {cores} if cores is not None and 0 < cores < cpus else set()
    counts = sorted({max(1, cpus >> halvings) for halvings in range(4)} | each_core, reverse=True)
    found = [setting for choice in choices for setting in _of(choice, counts, batch)]
    plain = [choice for choice in choices if not choice.options]
    others = [replace(choice, options=dict(options)) for choice in plain for options in choice.entry.worth_trying]
    found += [setting for choice in others for setting in _of(choice, counts[:1], batch)]
    # All CPUs first, then half of them, and few environments, which start sooner: of each backend, so that none is left
    # out for want of time. Other options than the defaults change less than the rest does.
    given = {choice.label for choice in choices}

    def order(one: Setting) -> tuple[bool, bool, bool, int]:
        whole = _in_caller(one.choice.entry) or one.workers >= cpus
        return one.choice.label not in given, not whole, one.envs_per_worker == 1, one.envs_per_worker

    return tuple(sorted(found, key=order))


def _of(choice: BackendChoice, counts: Sequence[int], batch: int | None) -> Iterator[Setting]:
    entry = choice.entry
    for workers in (1,) if _in_caller(entry) else counts:
        for envs in _USUAL_ENVS if batch is None else (batch // workers,):
            if envs and (batch is None or workers * envs == batch) and envs <= _MOST_ENVS:
                yield Setting(choice, workers, envs)


def _in_caller(entry: BackendEntry) -> bool:
    """Return whether more workers are of no use to a backend: all steps are made by the calling process."""
    shape = entry.shape_of(2, 1, 2, {})
    return shape.processes == 1 and shape.threads == 1


@dataclass(frozen=True)
class Costs:
    """What is known of how long cells take: by ``steps`` of one environment, and by the ``records`` so far."""

    spec: RunSpec
    steps: Timed | None = None
    records: Mapping[CellKey, Sequence[CellRecord]] = field(default_factory=dict)
    slowdown: float = 1.0

    @property
    def measured(self) -> bool:
        """Whether any cell was measured."""
        return any(record.status == "ok" for record in chain.from_iterable(self.records.values()))

    def of(self, cell: Cell) -> float:
        """Return about how many seconds a pass of ``cell`` takes: as many as its last one did."""
        known = [record for record in self.records.get(cell.key.without_repeat, ()) if record.status == "ok"]
        return (known[-1].took_ns or 0) * _NANO if known else self.slowdown * self.foreseen(cell)

    def foreseen(self, cell: Cell) -> float:
        """Return about how many seconds a pass of ``cell`` takes on an idle machine."""
        # Where steps are slow, a few batches take longer than the times that were asked for.
        spec, shape = self.spec, cell.shape
        at_once = max(1, min(shape.processes * shape.threads, len(cell.cpus)))
        batch = 0.0 if self.steps is None else self.steps.step_p50_ns * _NANO * shape.batch_size / at_once
        turns = spec.windows * (max(spec.duration, _TURN_BATCHES * batch) + AROUND_S)
        return self._start(cell) + max(spec.warmup, _WARMUP_BATCHES * batch) + turns + END_S

    def patience(self, cell: Cell, left: float, share: float = PATIENT_SHARE) -> float:
        """Return after how many seconds the cell is given up: it may always take this ``share`` of the whole budget."""
        most = max(PATIENCE * self.of(cell), share * self.spec.budget)
        return max(_LEAST_PATIENCE, min(most, left))

    def refused(self, cell: Cell) -> str | None:
        """Return why a cell is not even started, None if it is: one of its backend, no larger, or several failed."""
        failed = [
            record
            for record in chain.from_iterable(self.records.values())
            if record.label == cell.backend.label and record.status == "failed"
            if not record.interrupted and record.reason != GIVEN_UP
        ]
        alike = [record for record in failed if record.num_envs <= cell.shape.num_envs or len(failed) > 1]
        if not alike:
            return None
        return f"its setting {alike[0].workers}x{alike[0].envs_per_worker} failed: {alike[0].reason}"

    def why_not(self, cell: Cell) -> str:
        """Return why there was no time for a cell."""
        if self._start(cell) > _MOST_SHARE * self.spec.budget:
            return f"startup takes more than {_MOST_SHARE:.0%} of the time: use a larger --budget"
        return GIVEN_UP

    def _start(self, cell: Cell) -> float:
        shape = cell.shape
        at_once = max(1, min(shape.processes, len(cell.cpus)))
        started = [
            (record, record.startup_ns * _NANO)
            for record in chain.from_iterable(self.records.values())
            if record.startup_ns is not None
        ]
        if self.steps is not None:
            each = (self.steps.make_ns + self.steps.reset_p50_ns) * _NANO
        else:
            each = min((seconds / max(1, record.num_envs) for record, seconds in started), default=0.0)
        seen = [
            seconds * max(1.0, shape.processes / max(1, record.processes))
            + each * max(0, shape.num_envs - record.num_envs) / at_once
            for record, seconds in started
            if record.label == cell.backend.label
        ]
        # The first cell of a backend waits until what it is forked from has imported its libraries.
        return max((FORK_S if seen else LOAD_S) + each * shape.num_envs / at_once, min(seen, default=0.0))


def fitting(costs: Sequence[float], room: float, budget: float, most: int) -> list[int]:
    """Return which of the cells with these costs, the likeliest first, are measured next: ``most`` at the most.

    They take no more than ``room`` seconds together, and none of them too large a share of the ``budget``.
    """
    largest = max(_MOST_SHARE * budget, _TIMES_CHEAPEST * min(costs, default=0.0))
    chosen: list[int] = []
    for number, cost in enumerate(costs):
        if len(chosen) < most and cost <= largest and sum(costs[one] for one in chosen) + cost <= room:
            chosen.append(number)
    return chosen


@dataclass(frozen=True)
class Rival:
    """A cell beside the best: its rate over that one's, None if it has none, and why it may not be offered."""

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

    ``best`` is what is chosen, or would be. ``fastest`` has the highest rate of those that may be offered; something
    simpler is ``best`` if not distinguishable from that and within the tolerance. ``contenders`` may be faster than
    ``best`` by more than the tolerance: of those that may be offered, or may turn out so. In each pair of ``told``, the
    second is not: once a look has told, later ones need not. ``rivals``: the best cell of each other backend, the
    fastest first. ``faster``: those that are faster than ``best`` by more than their interval, and may not be offered.
    ``tied``: those that do as well as the fastest, as far as is known, without ``best``, the simplest first.
    ``disturbed``: what may be faster than ``best``, since others took time of its CPUs; or ``best``, if its rate is
    uncertain for that reason.
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
    untried: bool = False  # there was no time to try any setting of some backend

    @property
    def decided(self) -> bool:
        """Whether nothing that counts is faster than what is chosen by more than the tolerance."""
        return self.lack is None and not (self.contenders or self.untried)

    @property
    def chosen(self) -> CellSummary | None:
        """The setting to recommend."""
        return self.best if self.lack is None else None


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
    was planned. ``open_work``: labels of backends whose work a longer comparison could show to be the same. ``told`` is
    that of the look before.
    """
    rated = fastest_first(cells)
    small = [cell for cell in rated if not too_large(cell, memory)]
    offered = [cell for cell in small if cell.doubt is None]
    good = [  # not slower than another, beyond the interval of their ratio
        cell
        for cell in offered
        if not any((found := ratio(cell.sample, other.sample)) and (found.high or 1.0) < 1 for other in offered)
    ]
    if not good:
        return Choice(rivals=tuple(_rival(cell, None, memory) for cell in first_of_each(rated)))
    enough = min(FEWEST_PASSES, max(cell.repeats for cell in good))  # a race may be decided before that
    fastest = next(cell for cell in good if cell.repeats >= enough)
    known = [
        cell
        for cell in good
        if cell is fastest
        or (
            cell.repeats >= max(enough, FEWEST_FOR_INTERVAL)
            and (share := ratio(cell.sample, fastest.sample))
            and share.median >= 1 - tolerance
        )
    ]
    # What more measuring, or comparing, may show to be one that can be offered.
    unknown = {
        cell.key
        for cell in small
        if cell.doubt is Doubt.NO_INTERVAL or (cell.doubt is Doubt.UNVERIFIED and cell.label in open_work)
    }
    counted = unknown.union(cell.key for cell in offered)
    rates = {cell.key: cell.sample for cell in rated if cell.key in counted and cell.sample.positive}
    told |= {
        (cell.key, other) for cell in known for other in rates.keys() - contenders(rates, cell.key, tolerance, level)
    }
    above = {cell.key: {other for other in rates if (cell.key, other) not in told} for cell in known}
    best, *tied = sorted(
        known, key=lambda cell: (last and bool(above[cell.key]), rank(cell.backend), bool(cell.options), -cell.rate)
    )
    rivals = [_rival(cell, best, memory) for cell in rated]
    faster = tuple(
        rival
        for rival in rivals
        if rival.ratio
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
    firsts = [cell.key for cell in first_of_each(rated) if cell.label != best.label]
    others = tuple(rival for rival in rivals if rival.cell.key in firsts)
    return Choice(best, fastest, lack, others, faster, tuple(tied), frozenset(above[best.key]), told, disturbed)


def too_large(cell: CellSummary, memory: int | None) -> bool:
    """Return whether a cell was seen to take more than ``memory`` bytes."""
    return memory is not None and cell.peak_rss_bytes is not None and cell.peak_rss_bytes > memory


def _rival(cell: CellSummary, best: CellSummary | None, memory: int | None) -> Rival:
    beside = None if best is None else ratio(cell.sample, best.sample)
    return Rival(cell, beside, cell.doubt, too_large(cell, memory))


class Bend(NamedTuple):
    """A cell like the one that is chosen but for one number: ``share`` is its rate over that one's."""

    cell: CellSummary
    share: float


def bends(cells: Iterable[CellSummary], chosen: CellSummary) -> tuple[list[Bend], list[Bend]]:
    """Return what other numbers of workers reach, and other numbers of environments for each, the most first."""
    rest = [
        Bend(cell, cell.rate / chosen.rate)
        for cell in sorted(cells, key=lambda cell: (-cell.workers, -cell.envs_per_worker))
        if cell.label == chosen.label and cell.key != chosen.key and cell.rate
    ]
    workers = [bend for bend in rest if bend.cell.envs_per_worker == chosen.envs_per_worker]
    return workers, [bend for bend in rest if bend.cell.workers == chosen.workers]


@dataclass(frozen=True)
class Latency:
    """How long a batch is waited for by a caller that acts at once: the median, and what 99 of 100 do not exceed."""

    p50_ns: int
    p99_ns: int


def training_gain(chosen: CellSummary, loop: CellSummary, learner: LearnerStep | None) -> float | None:
    """Return how many times as fast training is as it would be with a plain loop; None without a learner."""
    one = learning(learner, chosen.steps_per_second, chosen.batch_size)
    other = learning(learner, loop.steps_per_second, chosen.batch_size)
    return None if one is None or other is None else one.steps_per_second / other.steps_per_second


@dataclass(frozen=True)
class Exchange:
    """What ``cell`` takes beside the steps of a plain loop, if ``at_once`` of its environments step at a time.

    ``step``: seconds of a step in the loop. ``hand_over``: seconds of a batch, beside steps. ``break_even``: the step
    time in seconds below which the loop is faster. Both may begin at nothing.
    """

    cell: CellSummary
    at_once: int
    step: float
    hand_over: Estimate
    break_even: Estimate


def exchange(cell: CellSummary, loops: Iterable[CellSummary]) -> Exchange | None:
    """Return what handing over takes a cell, relative to the one of the ``loops`` that is nearest to it in size.

    The share of a plain loop's time that a step takes with a backend is what handing over takes for each step, over
    the step time, plus 1 / the environments that step at the same time: a line over 1 / step time. Where it is 1, both
    are as fast: that step time is the break-even. An error of the step time counts as well: by the slope, it becomes
    one of the share (the effective variance of J. Orear, American Journal of Physics 50, 1982).

    One run has one step time, so that the environments that step at a time are taken from the cell's own counts: all
    that its processes and threads lose by waiting for each other counts as handing over. None where nothing is handed
    over, where environments are not those of the loop, and without intervals.
    """
    at_once = min(cell.at_work, cell.cpus_owned, cell.batch_size)
    near = [loop for loop in loops if loop.label == REFERENCE and loop.workers == 1 and loop.steps_per_second]
    if at_once < 2 or not near or not cell.entry.steps_gymnasium or cell.steps_own_classes:  # noqa: PLR2004 - one at a time is a loop
        return None
    loop = min(near, key=lambda loop: abs(loop.num_envs - cell.batch_size))
    share, level = contrast([(1.0, loop.sample), (-1.0, cell.sample)]), contrast([(1.0, loop.sample)])
    rate = loop.steps_per_second
    if share is None or level is None:
        return None
    value = share.estimate.median
    # The share is a constant plus the part that falls with the step time; of that, all above 1 / CPUs at most.
    falling = max(0.0, value - 1 / max(1, cell.cpus_owned))
    error = Error(value**2 * share.error.variance + falling**2 * level.error.variance, share.error.freedom)
    step = 1 / rate.median if rate is not None and rate.median > 0 else 0.0
    taken, half = (value - 1 / at_once) * step, error.half_width() * step  # by handing over, for each step
    per_step = Estimate(max(0.0, taken), max(0.0, taken - half), max(0.0, taken + half))
    # Where the line crosses 1. It begins at a number that is known, so that the slope alone makes the interval.
    return Exchange(cell, at_once, step, per_step.scaled(cell.batch_size), per_step.scaled(1 / (1 - 1 / at_once)))
