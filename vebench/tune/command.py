"""``vebench tune``: race settings of backends against each other, and say which one to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from vebench.analysis.answer import affordable, level_of_look, standing
from vebench.analysis.cell import CellSummary
from vebench.analysis.forecast import LOAD_S
from vebench.analysis.rules import unusable
from vebench.analysis.summary import by_cell, next_repeats, summarise
from vebench.backends import registry
from vebench.child.actions import PolicyChoice
from vebench.child.answers import Cause, Done, Failure, Timed, Window
from vebench.child.equality.stepping import ENDS, TIMES_LONGER
from vebench.child.request import Timing
from vebench.commands import planning, proving
from vebench.commands.session import Session, World, session
from vebench.engine.interface import CellError, InterruptedCellError
from vebench.errors import InterruptedRunError, UsageError
from vebench.interpreters.process_guard import Interrupts
from vebench.plan.cells import Cell, CellKey, Plan, in_groups, next_pass, placement_of, without
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import FORK, RunSpec, check_spec
from vebench.reports.console import Outlet
from vebench.results import store
from vebench.results.records import Run, RunRecord, with_current_verdicts
from vebench.results.store import RunWriter
from vebench.tune.budget import PATIENT_SHARE, Budget
from vebench.tune.choice import Choice, Pairs, choose, too_large
from vebench.tune.page import Latency, TunePage
from vebench.tune.settings import Constraints, settings

_DONE, _UNDECIDED = 0, 3
_WINDOW_S, _WARMUP_S, _WINDOWS = 0.2, 0.2, 2  # many short passes: processes differ more than windows do
_SETTLED = 6  # passes of what is recommended, so that the interval of its rate is useful
# The latency of a batch is seen with a policy that acts at once.
_AT_ONCE, _LATENCY_S = PolicyChoice("sleep", pause="0.001ms"), 0.3
# Steps of one environment are timed for a second. With a slow start, that may take a share of the budget, and always
# the last number of seconds.
_TIMING_S, _TIMING_SHARE, _LEAST_TIMING = 1.0, 0.25, 10.0
_TOGETHER = 8  # cells that are alive at the same time, at most
# The share of the budget that trying every setting once may take.
_FIRST_PASS = 0.6
# The share that the first group may take, before it is known how slow the machine is; and for how much of the budget
# the first cell is waited for if nothing is known of starts.
_FIRST_GROUP, _PATIENT_AT_FIRST = 0.2, 0.5
# Comparisons of work may take this share of the seconds that are left, for at most this number of backends, each with
# one environment per worker.
_COMPARING, _MOST_COMPARED, _FEW_ENVS = 0.5, 3, 1
# A comparison makes about this number of steps of one environment for each that it is asked for; the fewest that it is
# asked for; and the seconds that it may always take.
_STEPS_FOR_EACH, _FEWEST_STEPS, _LEAST_COMPARING = 20, 20, 5.0
_NANO = 1e-9

T = TypeVar("T")


def start(spec: RunSpec, wanted: Constraints, path: Path | None, outlet: Outlet, world: World) -> int:
    """Race the backends of ``spec``, by default all, on its task, and say what to use. Returns the exit status.

    The run file is ``path``, by default a new one in ``.vebench/``. Raises UsageError if nothing can be tried,
    InterruptedRunError if the user interrupts it.
    """
    began = world.clock()
    plan, head = settings_to_try(spec, wanted, world)
    planning.refuse_useless(plan)
    path = path or store.default_path(world.now(), spec.envs)
    file = RunWriter.create(path, msgspec.structs.replace(head, cells=None))
    return _race(file, plan, wanted, began, outlet, world)


def resume(path: Path, wanted: Constraints, budget: float, outlet: Outlet, world: World, *, allowed: bool) -> int:
    """Continue the race in the run file ``path`` for ``budget`` seconds, and say what to use. Returns the exit status.

    ``allowed``: see ``planning.plan_to_finish``, also for the errors.
    """
    began = world.clock()
    plan, _ = planning.plan_to_finish(path, world, allowed=allowed, dry_run=False)
    if not plan.spec.only:
        raise UsageError(f"--resume {path}: is no run of vebench tune: vebench run --resume finishes it")
    plan = _in_order(replace(plan, spec=replace(plan.spec, budget=budget)))
    return _race(RunWriter.resume(path), plan, wanted, began, outlet, world)


def _race(file: RunWriter, plan: Plan, wanted: Constraints, began: float, outlet: Outlet, world: World) -> int:
    budget = Budget(plan.spec, began, world.clock)
    with session(file, world, quiet=False, outlet=outlet) as measuring:
        page = _Race(plan, measuring, wanted, world, budget).run_to_end()
        outlet.publish(page)
    return _DONE if page.choice.decided else _UNDECIDED


def settings_to_try(spec: RunSpec, wanted: Constraints, world: World) -> tuple[Plan, RunRecord]:
    """Return a plan of every setting that is tried, the likeliest first, and the header of its run."""
    spec = replace(spec, duration=_WINDOW_S, warmup=_WARMUP_S, windows=_WINDOWS)
    spec = replace(spec, base=True, interleave=True, isolation=FORK)
    check_spec(spec)
    if len(spec.envs) != 1:
        raise UsageError(f"--env: tune answers for one environment, not {len(spec.envs)}: run it once for each")
    host = world.read_host()
    placement = placement_of(spec, host)
    cpus = placement.usable
    cores = sum(not set(core).isdisjoint(placement.owned(cpus)) for core in host.topology.cores)
    choices = spec.backends
    if not choices:
        (task,) = world.resolve(spec.envs, ())
        entries = (entry for entry in registry.ENTRIES if entry.is_peer and not entry.means_nothing_for(task))
        choices = tuple(BackendChoice(entry.name) for entry in entries)
    choices = tuple(choice for choice in choices if wanted.asynchronous or not choice.entry.asynchronous)
    if not choices:
        raise UsageError("--async no: every backend that was named returns whichever environments are ready")
    tried = settings(choices, cpus, wanted.batch, cores)
    if not tried:
        raise UsageError(f"--batch {wanted.batch}: no backend can have batches of this size on {cpus} CPUs")
    spec = replace(
        spec,
        backends=tuple({one.choice.label: one.choice for one in tried}.values()),
        workers=tuple(sorted({one.workers for one in tried})),
        envs_per_worker=tuple(sorted({one.envs_per_worker for one in tried})),
        only=tuple(one.place for one in tried),
    )
    plan, head = planning.plan_here(spec, world)
    return _in_order(plan), head


def _in_order(plan: Plan) -> Plan:
    """Return the plan with its cells in the order of ``only``, after the loop that speedups are relative to.

    A race needs no yardstick. Which cells are interleaved is decided pass by pass.
    """
    order = {place: number for number, place in enumerate(plan.spec.only)}
    raced = (cell for cell in plan.cells if cell.backend.name != registry.YARDSTICK)
    cells = sorted(raced, key=lambda cell: order.get(cell.key.place, -1))
    return replace(plan, cells=tuple(replace(cell, group=None) for cell in cells))


class _Race:
    """One race, written to one run file."""

    def __init__(self, plan: Plan, session: Session, wanted: Constraints, world: World, budget: Budget) -> None:
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
        latency = None if found.best is None else self._latency(found.best)
        path = str(self._session.path)
        return TunePage(path, self._run, found, self._wanted, self._budget.steps, self._passed_over, latency)

    @property
    def _run(self) -> Run:
        """All measured so far, with the current verdicts on backends' work."""
        return with_current_verdicts(self._session.run, self._knowledge)

    def _time_steps(self) -> None:
        """Time steps of one environment, which also shows how slow the machine is."""
        loops = [cell for cell in self._plan.cells if cell.backend.label == registry.REFERENCE and cell.workers == 1]
        if not loops:
            return
        patience = max(_LEAST_TIMING, _TIMING_SHARE * self._budget.seconds)
        loop = replace(loops[0], job=Timing(_TIMING_S), envs_per_worker=1, patience=patience)
        began = self._world.clock()
        for timed in self._answers(self._plan.spec, loop, Timed):
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
            refused = {cell.key.place: why for cell in untried if (why := budget.refusal(cell))}
            self._passed_over |= refused
            untried = [cell for cell in untried if cell.key.place not in refused]
            room, share = budget.left - (1 - _FIRST_PASS) * budget.seconds, PATIENT_SHARE
            if not budget.knows_starts:
                room = _FIRST_GROUP * budget.seconds
            group = budget.fitting(untried, room, _TOGETHER)
            if untried and not budget.knows_starts and (budget.steps is None or not group):
                # There has to be an answer. The smallest cell probably starts the soonest.
                group = [min(untried, key=lambda cell: (cell.shape.num_envs, cell.shape.processes))]
                share = _PATIENT_AT_FIRST
            if not group:
                break
            self._measure(group, share)
            untried = [cell for cell in untried if cell not in group]
        self._passed_over |= {cell.key.place: why for cell in untried if (why := budget.slow_start(cell))}

    def _raced(self) -> Choice:
        """Give settings further passes until the race is decided, or the time is spent."""
        ruled_out: Pairs = frozenset()
        while True:
            cells = summarise(self._run, str(self._session.path))
            rates = {cell.key: cell.sample for cell in cells if self._may_win(cell)}
            race = standing(rates, self._looks, self._wanted.tolerance)
            by_key = {cell.key: cell for cell in cells}
            if self._compare_work([by_key[key] for key in race.alive]):
                continue
            found = self._choice(cells, ruled_out)
            close = [cell for cell in (found.best, found.fastest, *found.tied) if cell is not None]
            close += [cell for cell in cells if cell.key in found.contenders and self._may_win(cell)]
            few = dict.fromkeys(cell.key for cell in close if cell.repeats < _SETTLED)
            wanted = tuple(few) if race.decided else race.alive
            if not wanted or not self._another_pass(wanted, by_key):
                return self._choice(cells, found.ruled_out, last=True)
            ruled_out = found.ruled_out
            self._looks += 1

    def _may_win(self, cell: CellSummary) -> bool:
        """Return whether a cell may be chosen. Its work need not be known to be the same yet.

        The loop that is measured for speedups alone may not.
        """
        cannot_be_compared = cell.verdict == "unverified" and (bool(cell.work.reason) or cell.label in self._compared)
        large = too_large(cell, self._plan.spec.memory)
        return cell.key.place in self._plan.spec.only and not (cell.excluded or cannot_be_compared or large)

    def _choice(self, cells: Sequence[CellSummary], ruled_out: Pairs, *, last: bool = False) -> Choice:
        return choose(
            [cell for cell in cells if cell.key.place in self._plan.spec.only],
            self._wanted.tolerance,
            level_of_look(self._looks),
            usable=unusable(cells) is None,
            memory=self._plan.spec.memory,
            open_work={cell.label for cell in cells if not cell.work.reason} | self._compared,
            ruled_out=ruled_out,
            last=last,
        )

    def _another_pass(self, wanted: tuple[CellKey, ...], cells: dict[CellKey, CellSummary]) -> bool:
        """Give these, the likeliest first, another pass. Returns whether there was time for it."""
        left = self._budget.left
        costs = {cell.key.without_repeat: self._budget.cost(cell) for cell in self._plan.cells}
        alive = affordable(wanted, {key: cell.repeats for key, cell in cells.items()}, costs, left)
        if sum(costs[key] for key in alive) > left:
            alive = alive[:1]
        more = next_pass(self._plan, frozenset(alive), next_repeats(self._session.run))
        if not more.cells or sum(costs[key] for key in alive) > left:
            return False
        self._measure(more.cells)
        return True

    def _compare_work(self, cells: Sequence[CellSummary]) -> bool:
        """Compare the work of the fastest backends whose work is unknown. Returns whether anything was compared."""
        fastest = {cell.label: cell for cell in reversed(cells) if cell.verdict == "unverified"}
        asked = [cell for label, cell in reversed(fastest.items()) if label not in self._compared]
        room = _COMPARING * self._budget.left
        if room < _LEAST_COMPARING:
            return False
        timed = self._budget.steps
        each = _LEAST_COMPARING / _FEWEST_STEPS  # seconds for each step that is asked for
        if timed is not None:
            step = timed.step_p50_ns + timed.reset_p50_ns * timed.resets / timed.steps
            each = _STEPS_FOR_EACH * self._budget.slowdown * step * _NANO
        most = int(room / max(_FEWEST_STEPS * each, _LEAST_COMPARING))
        asked = asked[: max(1, min(_MOST_COMPARED, most))]
        for cell in asked:
            seconds = room / len(asked)
            self._compared.add(cell.label)
            steps = max(_FEWEST_STEPS, min(proving.SHORT_STEPS, int(seconds / each)))
            # Episodes are cut where so few steps would see no end.
            ends = timed is not None and timed.ends and timed.steps / timed.ends <= steps * TIMES_LONGER / ENDS
            episode = None if timed is None or ends else steps // (ENDS + 1)
            backends = (cell.built.choice,)
            spec = replace(self._plan.spec, only=(), backends=backends, envs_per_worker=(_FEW_ENVS,), timeout=seconds)
            proving.learn(spec, self._knowledge, self._world, steps=steps, episode=episode)
        return bool(asked)

    def _measure(self, cells: Sequence[Cell], share: float = PATIENT_SHARE) -> None:
        """Measure a pass of these cells, interleaved. A cell may always take this share of the budget."""
        budget, began = self._budget, self._world.clock()
        expected = sum(budget.expected(cell) for cell in cells if cell.skip is None)
        patient = [replace(cell, patience=budget.patience(cell, share)) for cell in cells]
        together = replace(self._plan, cells=in_groups([patient], self._world.memory_available()))
        self._session.one_pass(together, deadline=budget.race_end, keeps_to_it=True)
        budget.learn(began, expected)
        budget.records = by_cell(self._session.run)

    def _latency(self, best: CellSummary) -> Latency | None:
        """Return how long a policy that acts at once waits for a batch of ``best``; None if there is no time."""
        cell = next(one for one in self._plan.cells if one.key.without_repeat == best.key)
        left = self._budget.left_afterwards
        if best.figures.acting is not None or cell.skip is not None or left <= 0:
            return None
        acting = replace(self._plan.spec, policy=_AT_ONCE, windows=1, warmup=_WARMUP_S, duration=_LATENCY_S)
        for window in self._answers(acting, replace(cell, patience=max(1.0, left)), Window):
            if window.latency_p50_ns is not None and window.latency_p99_ns is not None:
                return Latency(window.latency_p50_ns, window.latency_p99_ns)
        return None

    def _answers(self, spec: RunSpec, cell: Cell, kind: type[T]) -> list[T]:
        """Return the answers of this kind of a cell that is no part of the run; none if it fails."""
        found: list[T] = []
        try:
            with (
                Interrupts() as interrupts,
                self._world.start(spec, interrupts) as launch,
                launch(cell) as conversation,
            ):
                for answer in conversation.messages():
                    if isinstance(answer, kind):
                        found.append(answer)
                    if isinstance(answer, Done | Timed | Failure):  # the last answer
                        break
        except InterruptedCellError:
            raise InterruptedRunError(f"interrupted: {self._session.go_on}") from None
        except (CellError, OSError):
            return []
        return found
