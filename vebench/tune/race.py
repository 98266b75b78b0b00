"""The race of ``vebench tune``: settings get passes within a budget, until one can be recommended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain

from vebench.analysis.answer import (
    PASSES_TO_COMPARE,
    affordable,
    contenders,
    fastest_first,
    first_of_each,
    level_of_look,
    standing,
)
from vebench.analysis.cell import CellSummary, Exclusion
from vebench.analysis.rules import WIDE, unusable
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Estimate, ratio
from vebench.analysis.summary import by_cell, next_repeats, summarise
from vebench.backends import registry
from vebench.child.answers import Cause, Failure, Timed
from vebench.child.equality.recorder import ENDS, TIMES_LONGER
from vebench.child.request import Timing
from vebench.commands import proving
from vebench.commands.session import Session, World, known, measured
from vebench.engine.interface import CellError, InterruptedCellError
from vebench.errors import InterruptedRunError
from vebench.interpreters.process_guard import Interrupts
from vebench.plan.cells import AROUND_S, END_S, FORK_S, LOAD_S, Cell, CellKey, Plan, in_groups, next_pass, rank, without
from vebench.plan.spec import RunSpec
from vebench.results.records import CellRecord, Run, with_current_verdicts

_NANO = 1e-9
_TOGETHER = 8  # the largest number of cells in one interleaved group
_SETTLED = 6  # passes of the recommended setting, so that the interval of its rate is useful
_TIMING_S = 1.0  # the seconds for which steps of one environment are timed
_LONGEST_TIMING = 10.0  # the time limit of this timing in seconds
_ANSWERING_S = 1.0  # the seconds to start the command and to answer
_MOST_SLOWDOWN = 10.0  # a larger slowdown was a pause, which predicts nothing
_WARMUP_BATCHES = 9  # a cell makes at least this number of batches while it warms up
_TURN_BATCHES = 3  # a cell makes at least this number of batches in each turn, including those before the window
# A cell is given up after the larger of these: a multiple of its expected time, and a share of the budget.
_PATIENCE = 4.0
_PATIENT_SHARE = 0.15
_FIRST_PATIENT_SHARE = 0.5  # the share for the first cell
_LEAST_PATIENCE = 5.0  # no cell is given up before these seconds
_FIRST_PASS = 0.6  # the share of the budget for trying settings once
# A setting is tried if its pass takes at most this share of the budget, or this multiple of the cheapest pass.
_MOST_SHARE = 0.1
_TIMES_CHEAPEST = 2.0
_COMPARING = 0.25  # a comparison of work may take this share of the seconds that are left
_LEAST_COMPARING = 5.0  # no work is compared if that share is less than these seconds
_STEPS_FOR_EACH = 20  # for each step that is requested, a comparison makes about this number of steps
_FEWEST_STEPS = 20  # a comparison requests at least this number of steps


@dataclass(frozen=True)
class Constraints:
    """The limits of the recommended setting."""

    batch: int | None = None  # the number of rows in a batch; None: any number
    asynchronous: bool = True  # batches may consist of the rows that are ready first
    tolerance: float = 0.05  # the share of the highest rate that a simpler setting may lack


class NoChoiceReason(Enum):
    """Why no setting can be recommended."""

    UNUSABLE = auto()  # other processes or a quota slowed most cells
    NOTHING_OFFERED = auto()  # no setting has a rate and may be recommended
    FASTER = auto()  # a faster setting may turn out to do the same work, or has no interval yet
    DISTURBED = auto()  # a setting whose CPUs other processes used may be faster
    WIDE = auto()  # the rate of the best setting is too uncertain


@dataclass(frozen=True)
class Choice:
    """A recommendation, and its certainty."""

    best: CellSummary | None = None  # the recommended cell, unless there is a ``reason`` against it
    fastest: CellSummary | None = None  # the fastest cell that may be recommended
    reason: NoChoiceReason | None = NoChoiceReason.NOTHING_OFFERED  # why nothing is recommended
    others: tuple[CellSummary, ...] = ()  # the fastest cell of each other backend, in order of their rates
    # Cells that are faster than ``best`` but may not be recommended, with their ratios to ``best``.
    faster: tuple[tuple[CellSummary, Estimate], ...] = ()
    tied: tuple[CellSummary, ...] = ()  # cells within the tolerance of ``fastest``, without ``best``
    contenders: frozenset[CellKey] = frozenset()  # cells that may exceed ``best`` by more than the tolerance
    untried: bool = False  # there was no time to try any setting of some backend

    @property
    def decided(self) -> bool:
        """Whether no other setting may be faster than the chosen one by more than the tolerance."""
        return self.reason is None and not (self.contenders or self.untried)

    @property
    def chosen(self) -> CellSummary | None:
        """The setting to recommend; None if there is a reason against it."""
        return self.best if self.reason is None else None


def choose(
    cells: Iterable[CellSummary],
    tolerance: float,
    level: float,
    *,
    usable: bool = True,
    memory: int | None = None,
    open_work: Collection[str] = (),
    last: bool = False,
) -> Choice:
    """Return the choice among the cells of one task: the simplest cell that may be as fast as the fastest.

    ``level`` is the error level of ``decided`` at this look. ``usable``: the run was not too disturbed. Cells that used
    more than ``memory`` bytes are never recommended. ``open_work``: backends whose work a longer comparison could show
    to be the same. ``last``: prefer a cell without contenders.
    """
    rated = fastest_first(cells)
    firsts = first_of_each(rated)
    small = [cell for cell in rated if not too_large(cell, memory)]
    offered = [cell for cell in small if cell.objection is None]
    fastest, known = _known(offered, tolerance)
    if fastest is None:
        return Choice(others=tuple(firsts))
    # Further passes or comparisons may show that these cells can be recommended.
    unknown = [
        cell
        for cell in small
        if cell.objection is Exclusion.NO_INTERVAL
        or (cell.objection is Exclusion.UNVERIFIED and cell.label in open_work)
    ]
    rates = {cell.key: cell.sample for cell in (*offered, *unknown) if cell.sample.positive}
    above = {cell.key: contenders(rates, cell.key, tolerance, level) for cell in known}

    def simplest_first(cell: CellSummary) -> tuple[bool, tuple[bool, int], bool, float]:
        return last and bool(above[cell.key]), rank(cell.backend), bool(cell.built.choice.options), -cell.rate

    best, *tied = sorted(known, key=simplest_first)
    ratios = [(cell, ratio(cell.sample, best.sample)) for cell in rated if cell not in offered]
    faster = [(cell, over) for cell, over in ratios if over and (over.median if over.low is None else over.low) > 1]
    reason = None
    if not usable:
        reason = NoChoiceReason.UNUSABLE
    elif any(cell in unknown for cell, _ in faster):
        reason = NoChoiceReason.FASTER
    elif any(_is_disturbed(cell, best, tolerance) for cell in (*offered, *unknown)):
        reason = NoChoiceReason.DISTURBED
    elif best.half_width is None or best.half_width > WIDE:
        reason = NoChoiceReason.WIDE
    others = tuple(cell for cell in firsts if cell.label != best.label)
    return Choice(best, fastest, reason, others, tuple(faster), tuple(tied), frozenset(above[best.key]))


def _is_disturbed(cell: CellSummary, best: CellSummary, tolerance: float) -> bool:
    """Return whether a disturbed cell might be faster than ``best`` if other processes had not used its CPUs."""
    margin = WIDE if cell is best else tolerance
    return cell.conditions.disturbed and cell.rate > best.rate * (1 + margin) * cell.conditions.share_left


def too_large(cell: CellSummary, memory: int | None) -> bool:
    """Return whether a cell used more than ``memory`` bytes."""
    used = cell.figures.peak_rss_bytes
    return memory is not None and used is not None and used > memory


def _known(offered: Sequence[CellSummary], tolerance: float) -> tuple[CellSummary | None, list[CellSummary]]:
    """Return the fastest cell with enough passes, and the cells within the tolerance of it, itself included."""
    good = []
    for cell in offered:
        ratios = [ratio(cell.sample, other.sample) for other in offered]
        if not any(found and (found.high or 1.0) < 1 for found in ratios):
            good.append(cell)
    if not good:
        return None, []
    enough = min(PASSES_TO_COMPARE, max(cell.repeats for cell in good))  # a decided race may have fewer passes
    fastest = next(cell for cell in good if cell.repeats >= enough)
    known = [fastest]
    for cell in good:
        share = ratio(cell.sample, fastest.sample)
        seen = cell.repeats >= max(enough, FEWEST_FOR_INTERVAL)
        if cell is not fastest and seen and share and share.median >= 1 - tolerance:
            known.append(cell)
    return fastest, known


class TuneBudget:
    """The seconds of a command, from its ``start`` to its last line.

    The ``records`` of a cell show how long a pass takes. Before its first pass, the ``steps`` of one environment do.
    """

    def __init__(self, spec: RunSpec, start: float, clock: Callable[[], float]) -> None:
        self._spec = spec
        self._clock = clock
        self._end = start + spec.budget
        self.seconds = spec.budget
        self.slowdown = 1.0  # the time that the last cells took, divided by the expected time
        self.steps: Timed | None = None
        self.records: Mapping[CellKey, Sequence[CellRecord]] = {}

    @property
    def race_end(self) -> float:
        """The time on the clock at which the race is over."""
        return self._end - _ANSWERING_S * self.slowdown

    @property
    def left(self) -> float:
        """The seconds that are left for the race."""
        return self.race_end - self._clock()

    def learn(self, began: float, expected: float) -> None:
        """Set ``slowdown``, given the start and the expected seconds of work that ends now."""
        if expected:
            self.slowdown = min(_MOST_SLOWDOWN, max(1.0, (self._clock() - began) / expected))

    def cost(self, cell: Cell) -> float:
        """Return the estimated seconds of a pass of ``cell``: the time of its last successful pass, if there is one."""
        known = [record for record in self.records.get(cell.key.without_repeat, ()) if record.status == "ok"]
        return (known[-1].took_ns or 0) * _NANO if known else self.slowdown * self.expected(cell)

    def expected(self, cell: Cell) -> float:
        """Return the estimated seconds of a pass of ``cell`` on an idle machine."""
        spec, shape, steps = self._spec, cell.shape, self.steps
        at_once = max(1, min(shape.processes * shape.threads, len(cell.cpus)))
        each, batch = 0.0, 0.0
        if steps is not None:
            each = (steps.make_ns + steps.reset_p50_ns) * _NANO
            batch = steps.step_p50_ns * _NANO * shape.batch_size / at_once
        # The first cell of a backend waits until the process that it is forked from has imported its libraries.
        known = {record.label for record in chain.from_iterable(self.records.values())}
        start = (FORK_S if cell.backend.label in known else LOAD_S) + each * shape.num_envs / at_once
        # If steps are slow, the smallest number of batches takes longer than the window.
        turns = spec.windows * (max(spec.duration, _TURN_BATCHES * batch) + AROUND_S)
        return start + max(spec.warmup, _WARMUP_BATCHES * batch) + turns + END_S

    def patience(self, cell: Cell, share: float = _PATIENT_SHARE) -> float:
        """Return the seconds after which ``cell`` is given up, at least the ``share`` of the budget if it is left."""
        most = max(_PATIENCE * self.cost(cell), share * self.seconds)
        return max(_LEAST_PATIENCE, min(most, self.left))

    def fitting(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells to try next. ``cells`` are sorted, the most promising first. Costly cells are left out."""
        room = self.left - (1 - _FIRST_PASS) * self.seconds
        costs = [self.cost(cell) for cell in cells]
        largest = max(_MOST_SHARE * self.seconds, _TIMES_CHEAPEST * min(costs, default=0.0))
        chosen: list[Cell] = []
        for cell, cost in zip(cells, costs, strict=True):
            if len(chosen) < _TOGETHER and cost <= min(largest, room):
                chosen.append(cell)
                room -= cost
        return chosen

    def refusal(self, cell: Cell) -> str | None:
        """Return why ``cell`` is not started; None if it is. A smaller cell of its backend failed, or several cells."""
        records = [one for one in chain.from_iterable(self.records.values()) if one.label == cell.backend.label]
        failed = [one for one in records if one.status == "failed" and one.cause is None]
        alike = [record for record in failed if record.num_envs <= cell.shape.num_envs or len(failed) > 1]
        if not alike:
            return None
        return f"its setting {alike[0].workers}x{alike[0].envs_per_worker} failed: {alike[0].reason}"


class TuneRace:
    """One race, written to one run file."""

    def __init__(self, plan: Plan, session: Session, wanted: Constraints, world: World, budget: TuneBudget) -> None:
        self._plan = plan
        self._session = session
        self._wanted = wanted
        self._world = world
        self._budget = budget
        self._budget.records = by_cell(session.run)
        self._knowledge = known()
        self._looks = 1
        self._compared: set[str] = set()  # backends whose work this race has compared
        self.passed_over: dict[str, str] = {}  # why a setting was not tried, by place; lack of time is not included

    def run_to_end(self) -> Choice:
        """Measure until the race is decided or the time is spent. Returns the choice."""
        self._time_steps()
        self._try_each()
        found = self._raced()
        tried = {cell.label for cell in self.run.cells if cell.windows or cell.cause is not Cause.GIVEN_UP}
        return replace(found, untried=any(cell.backend.label not in tried for cell in self._plan.cells))

    @property
    def run(self) -> Run:
        """The run so far, with the current verdicts on backends' work."""
        return with_current_verdicts(self._session.run, self._knowledge)

    def _time_steps(self) -> None:
        """Time steps of one environment, which also shows how slow the machine is."""
        loops = [cell for cell in self._plan.cells if cell.backend.label == registry.REFERENCE and cell.workers == 1]
        if not loops:
            return
        loop = replace(loops[0], job=Timing(_TIMING_S), envs_per_worker=1, patience=_LONGEST_TIMING)
        began = self._world.clock()
        try:
            with (
                Interrupts() as interrupts,
                self._world.start(self._plan.spec, interrupts) as launch,
                launch(loop) as child,
            ):
                timed = next((one for one in child.messages() if isinstance(one, Timed | Failure)), None)
        except InterruptedCellError:
            raise InterruptedRunError(f"interrupted: {self._session.go_on}") from None
        except (CellError, OSError):
            return
        if isinstance(timed, Timed):
            resets = timed.make_ns + timed.resets * timed.reset_p50_ns
            self._budget.learn(began, LOAD_S + _TIMING_S + resets * _NANO)
            self._budget.steps = timed

    def _try_each(self) -> None:
        """Give each setting its first pass, as far as there is time."""
        left = without(self._plan, measured(self._plan, self._session.run))
        if cannot := [cell for cell in left.cells if cell.skip is not None]:
            self._measure(cannot)
        untried = [cell for cell in left.cells if cell.skip is None]
        budget = self._budget
        while untried:
            group, share = budget.fitting(untried), _PATIENT_SHARE
            if not any(record.status == "ok" for record in chain.from_iterable(budget.records.values())):
                # The smallest cell probably starts first, and shows how long other cells take.
                group = [min(untried, key=lambda cell: (cell.shape.num_envs, cell.shape.processes))]
                share = _FIRST_PATIENT_SHARE
            if not group:
                break
            self._measure(group, share)
            untried = [cell for cell in untried if cell not in group]
            self.passed_over |= {cell.key.place: why for cell in untried if (why := budget.refusal(cell))}
            untried = [cell for cell in untried if cell.key.place not in self.passed_over]

    def _raced(self) -> Choice:
        """Give settings further passes until the race is decided, or the time is spent."""
        while True:
            cells = summarise(self.run, str(self._session.path))
            by_key = {cell.key: cell for cell in cells}
            rates = {cell.key: cell.sample for cell in cells if self._may_win(cell)}
            race = standing(rates, self._looks, self._wanted.tolerance)
            if self._compare_work([by_key[key] for key in race.alive]):
                continue
            found = self._choice(cells)
            close = [cell for cell in (found.best, found.fastest, *found.tied) if cell is not None]
            close += [cell for cell in cells if cell.key in found.contenders and self._may_win(cell)]
            few = dict.fromkeys(cell.key for cell in close if cell.repeats < _SETTLED)
            wanted = tuple(few) if race.decided else race.alive
            if not wanted or not self._another_pass(wanted, by_key):
                return self._choice(cells, last=True)
            self._looks += 1

    def _may_win(self, cell: CellSummary) -> bool:
        """Return whether a cell may be chosen, now or after its work was found to be the same."""
        cannot_be_compared = cell.verdict == "unverified" and (bool(cell.work.reason) or cell.label in self._compared)
        large = too_large(cell, self._plan.spec.memory)
        return cell.key.place in self._plan.spec.only and not (cell.excluded or cannot_be_compared or large)

    def _choice(self, cells: Sequence[CellSummary], *, last: bool = False) -> Choice:
        return choose(
            [cell for cell in cells if cell.key.place in self._plan.spec.only],
            self._wanted.tolerance,
            level_of_look(self._looks),
            usable=unusable(cells) is None,
            memory=self._plan.spec.memory,
            open_work={cell.label for cell in cells if not cell.work.reason} | self._compared,
            last=last,
        )

    def _another_pass(self, wanted: tuple[CellKey, ...], cells: dict[CellKey, CellSummary]) -> bool:
        """Give the best of these cells another pass. Returns whether there was time for it."""
        left, run = self._budget.left, self._session.run
        costs = {cell.key.without_repeat: self._budget.cost(cell) for cell in self._plan.cells}
        alive = affordable(wanted, {key: cell.repeats for key, cell in cells.items()}, costs, left)
        if sum(costs[key] for key in alive) > left:
            alive = alive[:1]
        more = next_pass(self._plan, frozenset(alive), next_repeats(run))
        if not more.cells or sum(costs[key] for key in alive) > left:
            return False
        self._measure(more.cells)
        return True

    def _compare_work(self, alive: Sequence[CellSummary]) -> bool:
        """Compare the work of the fastest backend whose work is unknown. Returns whether that was done."""
        unknown = [cell for cell in alive if cell.verdict == "unverified" and cell.label not in self._compared]
        seconds = _COMPARING * self._budget.left
        if not unknown or seconds < _LEAST_COMPARING:
            return False
        self._compared.add(unknown[0].label)
        steps, episode, timed = _FEWEST_STEPS, None, self._budget.steps
        if timed is not None:
            step = timed.step_p50_ns + timed.reset_p50_ns * timed.resets / timed.steps
            fit = int(seconds / (_STEPS_FOR_EACH * self._budget.slowdown * step * _NANO))
            steps = max(_FEWEST_STEPS, min(proving.SHORT_STEPS, fit))
            # With so few steps, no episode would end, so shorten episodes.
            if not timed.ends or timed.steps / timed.ends > steps * TIMES_LONGER / ENDS:
                episode = steps // (ENDS + 1)
        backends = (unknown[0].built.choice,)
        spec = replace(self._plan.spec, only=(), backends=backends, envs_per_worker=(1,), timeout=seconds)
        proving.learn(spec, self._knowledge, self._world, steps=steps, episode=episode)
        return True

    def _measure(self, cells: Sequence[Cell], share: float = _PATIENT_SHARE) -> None:
        """Measure a pass of these cells, interleaved. ``share``: see ``TuneBudget.patience``."""
        budget, began = self._budget, self._world.clock()
        expected = sum(budget.expected(cell) for cell in cells if cell.skip is None)
        patient = [replace(cell, patience=budget.patience(cell, share)) for cell in cells]
        together = replace(self._plan, cells=in_groups([patient], self._world.memory_available()))
        self._session.one_pass(together, deadline=budget.race_end, keeps_to_it=True)
        budget.learn(began, expected)
        budget.records = by_cell(self._session.run)
