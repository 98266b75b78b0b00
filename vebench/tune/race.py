"""The race of a tuning: settings get passes within a budget, until it is known which one to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from vebench.analysis.answer import affordable, level_of_look, standing
from vebench.analysis.cell import CellSummary
from vebench.analysis.forecast import AROUND_S, END_S, FORK_S, LOAD_S
from vebench.analysis.rules import unusable
from vebench.analysis.summary import by_cell, next_repeats, summarise
from vebench.backends import registry
from vebench.child.answers import Cause, Failure, Timed
from vebench.child.equality.stepping import ENDS, TIMES_LONGER
from vebench.child.request import Timing
from vebench.commands import planning, proving
from vebench.commands.session import Session, World
from vebench.engine.interface import CellError, InterruptedCellError
from vebench.errors import InterruptedRunError
from vebench.interpreters.process_guard import Interrupts
from vebench.plan.cells import Cell, CellKey, Plan, in_groups, next_pass, without
from vebench.plan.spec import RunSpec
from vebench.results.records import CellRecord, Run, with_current_verdicts
from vebench.tune.choice import Choice, Constraints, choose, too_large
from vebench.tune.page import TunePage

_NANO = 1e-9
_TOGETHER = 8  # cells that are alive at the same time, at most
_SETTLED = 6  # passes of what is recommended, so that the interval of its rate is useful
# Seconds for which steps of one environment are timed, and after which that is given up.
_TIMING_S, _LONGEST_TIMING = 1.0, 10.0
_ANSWERING_S = 1.0  # to start the command and to answer
_MOST_SLOWDOWN = 10.0  # more was a pause, which does not predict what follows
# Batches that a cell makes at least: while it warms up, and in each turn, with those before the window.
_WARMUP_BATCHES, _TURN_BATCHES = 9, 3
# A cell is given up after this many times its expected time or this share of the budget, the first one after another
# share, and none before these seconds.
_PATIENCE, _PATIENT_SHARE, _FIRST_PATIENT_SHARE, _LEAST_PATIENCE = 4.0, 0.15, 0.5, 5.0
# The share of the budget that trying every setting once may take; the share of a single setting, or as a multiple of
# what the cheapest takes.
_FIRST_PASS, _MOST_SHARE, _TIMES_CHEAPEST = 0.6, 0.1, 2.0
# A comparison of work may take this share of the seconds that are left, if they are at least so many.
_COMPARING, _LEAST_COMPARING = 0.25, 5.0
# A comparison makes about this number of steps of one environment for each that it is asked for; and the fewest.
_STEPS_FOR_EACH, _FEWEST_STEPS = 20, 20


class TuneBudget:
    """The seconds of a command, from its ``start`` to its last line.

    How long cells take is known from their own ``records``; before that, from the ``steps`` of one environment.
    """

    def __init__(self, spec: RunSpec, start: float, clock: Callable[[], float]) -> None:
        self._spec = spec
        self._clock = clock
        self._end = start + spec.budget
        self.seconds = spec.budget
        self.slowdown = 1.0  # how many times as long as expected the last cells took
        self.steps: Timed | None = None
        self.records: Mapping[CellKey, Sequence[CellRecord]] = {}

    @property
    def race_end(self) -> float:
        """When the race is over."""
        return self._end - _ANSWERING_S * self.slowdown

    @property
    def left(self) -> float:
        """The seconds that are left to race."""
        return self.race_end - self._clock()

    def learn(self, began: float, expected: float) -> None:
        """Estimate how slow the machine is from work that ``began`` then and was expected to take these seconds."""
        if expected:
            self.slowdown = min(_MOST_SLOWDOWN, max(1.0, (self._clock() - began) / expected))

    def cost(self, cell: Cell) -> float:
        """Return about how many seconds a pass of ``cell`` takes: the time of its last one, if there was one."""
        known = [record for record in self.records.get(cell.key.without_repeat, ()) if record.status == "ok"]
        return (known[-1].took_ns or 0) * _NANO if known else self.slowdown * self.expected(cell)

    def expected(self, cell: Cell) -> float:
        """Return about how many seconds a pass of ``cell`` takes on an idle machine."""
        spec, shape, steps = self._spec, cell.shape, self.steps
        at_once = max(1, min(shape.processes * shape.threads, len(cell.cpus)))
        each, batch = 0.0, 0.0
        if steps is not None:
            each = (steps.make_ns + steps.reset_p50_ns) * _NANO
            batch = steps.step_p50_ns * _NANO * shape.batch_size / at_once
        seen = [
            record.startup_ns * _NANO * max(1.0, shape.processes / max(1, record.processes))
            for record in chain.from_iterable(self.records.values())
            if record.startup_ns is not None and record.label == cell.backend.label
        ]
        # The first cell of a backend waits until its libraries are imported, in the process that it is forked from.
        start = max((FORK_S if seen else LOAD_S) + each * shape.num_envs / at_once, min(seen, default=0.0))
        # Where steps are slow, the fewest batches take longer than the durations asked for.
        turns = spec.windows * (max(spec.duration, _TURN_BATCHES * batch) + AROUND_S)
        return start + max(spec.warmup, _WARMUP_BATCHES * batch) + turns + END_S

    def patience(self, cell: Cell, share: float = _PATIENT_SHARE) -> float:
        """Return after how many seconds ``cell`` is given up. It may always take this ``share`` of the budget."""
        most = max(_PATIENCE * self.cost(cell), share * self.seconds)
        return max(_LEAST_PATIENCE, min(most, self.left))

    def fitting(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return which of these cells, the likeliest first, are tried next. None takes too much of the budget."""
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
        """Return why ``cell`` is not started: a cell of its backend that is no larger failed, or several did."""
        records = [one for one in chain.from_iterable(self.records.values()) if one.label == cell.backend.label]
        failed = [one for one in records if one.status == "failed" and one.cause is None]
        alike = [record for record in failed if record.num_envs <= cell.shape.num_envs or len(failed) > 1]
        if not alike:
            return None
        return f"its setting {alike[0].workers}x{alike[0].envs_per_worker} failed: {alike[0].reason}"


class Race:
    """One race, written to one run file."""

    def __init__(self, plan: Plan, session: Session, wanted: Constraints, world: World, budget: TuneBudget) -> None:
        self._plan = plan
        self._session = session
        self._wanted = wanted
        self._world = world
        self._budget = budget
        self._budget.records = by_cell(session.run)
        self._knowledge = planning.known()
        self._looks = 1
        self._compared: set[str] = set()  # backends whose work was compared by this race
        self._passed_over: dict[str, str] = {}  # why a setting was not tried, by place, unless there was no time

    def run_to_end(self) -> TunePage:
        """Measure until it is known what to use, or the time is spent. Returns what to use, as far as is known."""
        self._time_steps()
        self._try_each()
        found = self._raced()
        tried = {cell.label for cell in self._run.cells if cell.windows or cell.cause is not Cause.GIVEN_UP}
        found = replace(found, untried=any(cell.backend.label not in tried for cell in self._plan.cells))
        path = str(self._session.path)
        return TunePage(path, self._run, found, self._wanted, self._budget.steps, self._passed_over)

    @property
    def _run(self) -> Run:
        """All measured so far, with the current verdicts on backends' work."""
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
        left = without(self._plan, planning.measured(self._plan, self._session.run))
        if cannot := [cell for cell in left.cells if cell.skip is not None]:
            self._measure(cannot)
        untried = [cell for cell in left.cells if cell.skip is None]
        budget = self._budget
        while untried:
            group, share = budget.fitting(untried), _PATIENT_SHARE
            if not any(record.status == "ok" for record in chain.from_iterable(budget.records.values())):
                # The smallest cell probably starts the soonest, and shows how long others take.
                group = [min(untried, key=lambda cell: (cell.shape.num_envs, cell.shape.processes))]
                share = _FIRST_PATIENT_SHARE
            if not group:
                break
            self._measure(group, share)
            untried = [cell for cell in untried if cell not in group]
            self._passed_over |= {cell.key.place: why for cell in untried if (why := budget.refusal(cell))}
            untried = [cell for cell in untried if cell.key.place not in self._passed_over]

    def _raced(self) -> Choice:
        """Give settings further passes until the race is decided, or the time is spent."""
        while True:
            cells = summarise(self._run, str(self._session.path))
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
        """Return whether a cell may be chosen, now or once its work is known to be the same."""
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
        """Give these, the likeliest first, another pass. Returns whether there was time for it."""
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
            # Episodes are cut where so few steps would see no end.
            if not timed.ends or timed.steps / timed.ends > steps * TIMES_LONGER / ENDS:
                episode = steps // (ENDS + 1)
        backends = (unknown[0].built.choice,)
        spec = replace(self._plan.spec, only=(), backends=backends, envs_per_worker=(1,), timeout=seconds)
        proving.learn(spec, self._knowledge, self._world, steps=steps, episode=episode)
        return True

    def _measure(self, cells: Sequence[Cell], share: float = _PATIENT_SHARE) -> None:
        """Measure a pass of these cells, interleaved. A cell may always take this share of the budget."""
        budget, began = self._budget, self._world.clock()
        expected = sum(budget.expected(cell) for cell in cells if cell.skip is None)
        patient = [replace(cell, patience=budget.patience(cell, share)) for cell in cells]
        together = replace(self._plan, cells=in_groups([patient], self._world.memory_available()))
        self._session.one_pass(together, deadline=budget.race_end, keeps_to_it=True)
        budget.learn(began, expected)
        budget.records = by_cell(self._session.run)
