"""``vebench tune``: race settings of backends against each other, and say which one to use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from vebench.analysis.race import affordable, level_of_look, standing
from vebench.analysis.rules import unusable
from vebench.analysis.spending import LOAD_S
from vebench.analysis.statistics import Sample, ratio
from vebench.analysis.summary import by_cell, next_repeats, summarise
from vebench.backends import registry
from vebench.child.answers import Done, Failure, Timed
from vebench.child.policy import PolicyChoice
from vebench.child.request import Timing
from vebench.child.trials import ENDS, TIMES_LONGER
from vebench.child.window import Window
from vebench.commands import planning, verdicts
from vebench.commands.session import session
from vebench.engine.interface import CellError, InterruptedCellError
from vebench.engine.runner import GIVEN_UP
from vebench.errors import InterruptedRunError, UsageError
from vebench.interpreters.waiting import Interrupts
from vebench.plan.cells import in_groups, next_pass, placement_of, without
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import FORK, PER_NODE, check_spec
from vebench.results import paths
from vebench.results.records import with_current_verdicts
from vebench.results.store import RunWriter
from vebench.tune.choice import (
    MOST_SLOWDOWN,
    PATIENT_SHARE,
    Costs,
    Latency,
    choose,
    fitting,
    settings,
    too_large,
)
from vebench.tune.page import TunePage, Wish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.commands.session import Session, World
    from vebench.plan.cells import Cell, CellKey, Plan
    from vebench.plan.spec import RunSpec
    from vebench.reports.console import Outlet
    from vebench.results.records import Run, RunRecord
    from vebench.tune.choice import Choice

_DONE, _UNDECIDED = 0, 3
_WINDOW_S, _WARMUP_S, _ROUNDS = 0.2, 0.2, 2
_SETTLED = 6  # passes of what is recommended, so that its rate has an interval that can be used
# To see how long a batch is waited for, by what acts at once: of what is recommended, and of this many others.
_AT_ONCE, _LATENCY_S, _MOST_TIMED = PolicyChoice("sleep", pause="0.001ms"), 0.3, 3
_PROBES = 3  # processes of what is looked at once there is a winner
_TIMING_S = 1.0  # to time steps of one environment
# What that may take with a start that is slow: a share of the budget, but always at least this many seconds.
_TIMING_SHARE, _LEAST_TIMING = 0.25, 10.0
# Cells that are alive at the same time, at the most. After each such group the time is looked at.
_TOGETHER = 8
# The share of the budget that trying every setting once may take; the likeliest come first.
_FIRST_PASS = 0.6
# The share that the first group may take by all that is foreseen, before it is known how slow the machine is, and for
# how much of the budget a first cell is waited for if nothing is known of what starts take.
_FIRST_GROUP, _PATIENT_AT_FIRST = 0.2, 0.5
# The share that is left for what comes after the race, and, of what is left when a comparison of work begins, the share
# that comparisons may take: this many backends, with this many environments for each worker.
_AFTERWARDS, _COMPARING = 0.08, 0.5
_ANSWERING_S = 1.0  # to start the command, and to write its answer
_MOST_COMPARED, _FEW_ENVS = 3, 1
# A comparison makes about this many steps of one environment for each that it is asked for. What it is asked for at
# least, and the seconds that it may always take.
_STEPS_FOR_EACH = 20
_FEWEST_STEPS, _LEAST_COMPARING = 20, 5.0
_NANO = 1e-9

T = TypeVar("T")


def start(spec: RunSpec, wish: Wish, path: Path | None, outlet: Outlet, world: World) -> int:
    """Race the backends of ``spec``, by default all, on its task, and say what to use. Returns the exit status.

    The run file is ``path``, by default a new one in ``.vebench/``. Raises UsageError if nothing can be tried,
    InterruptedRunError if the user interrupts.
    """
    budget = _Budget(spec.budget, world.clock)
    plan, head = settings_to_try(spec, wish, world)
    planning.refuse_useless(plan)
    file = RunWriter.create(
        path or paths.default_path(world.now(), spec.envs), msgspec.structs.replace(head, cells=None)
    )
    return _race(file, plan, wish, budget, outlet, world)


def resume(  # noqa: PLR0913 - one parameter for each decision
    path: Path, wish: Wish, budget: float, outlet: Outlet, world: World, *, allowed: bool
) -> int:
    """Go on with the race in the run file ``path`` for as long again, and say what to use. Returns the exit status.

    ``allowed``: see ``planning.plan_to_finish``, also for what it raises.
    """
    whole = _Budget(budget, world.clock)
    plan, _ = planning.plan_to_finish(path, world, allowed=allowed, dry_run=False)
    if not plan.spec.only:
        raise UsageError(f"--resume {path}: is no run of vebench tune: vebench run --resume finishes it")
    plan = _in_order(replace(plan, spec=replace(plan.spec, budget=budget)))
    return _race(RunWriter.resume(path), plan, wish, whole, outlet, world)


def _race(  # noqa: PLR0913, PLR0917 - what a race needs
    file: RunWriter, plan: Plan, wish: Wish, budget: _Budget, outlet: Outlet, world: World
) -> int:
    with session(file, world, quiet=False, outlet=outlet) as measuring:
        page = _Racing(plan, measuring, wish, world, budget).over()
        outlet.publish(page)
    return _DONE if page.choice.decided else _UNDECIDED


def settings_to_try(spec: RunSpec, wish: Wish, world: World) -> tuple[Plan, RunRecord]:
    """Return every setting that is to be tried as a plan, the likeliest first, and the header of its run."""
    # Many short windows: processes differ more than windows do.
    spec = replace(spec, duration=_WINDOW_S, warmup=_WARMUP_S, windows=_ROUNDS, base=True, interleave=True)
    spec = replace(spec, isolation=FORK)
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
    choices = tuple(choice for choice in choices if wish.asynchronous or not choice.entry.asynchronous)
    if not choices:
        raise UsageError("--async no: every backend that was named returns whichever environments are ready")
    tried = settings(choices, cpus, wish.batch, cores)
    if not tried:
        raise UsageError(f"--batch {wish.batch}: no backend can have batches of this size on {cpus} CPUs")
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

    A race needs no yardstick. Which cells take turns is decided pass by pass.
    """
    order = {place: number for number, place in enumerate(plan.spec.only)}
    raced = (cell for cell in plan.cells if cell.backend.name != registry.YARDSTICK)
    cells = sorted(raced, key=lambda cell: order.get(cell.key.place, -1))
    return replace(plan, cells=tuple(replace(cell, group=None) for cell in cells))


class _Budget:
    """The seconds of a command, from its start to its last line, and how slow the machine is."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self.seconds, self._clock = seconds, clock
        self._end = clock() + seconds
        self.slowdown = 1.0  # by how much longer than foreseen took what was measured last

    @property
    def race_end(self) -> float:
        """When the race is over: what shows how long batches are waited for comes after it."""
        return self._end - max(_AFTERWARDS * self.seconds, _ANSWERING_S * self.slowdown)

    @property
    def left(self) -> float:
        """The seconds that are left to race."""
        return self.race_end - self._clock()

    @property
    def left_afterwards(self) -> float:
        """The seconds that are left after the race, without those that the answer takes."""
        return self._end - _ANSWERING_S * self.slowdown - self._clock()

    def learn(self, began: float, foreseen: float) -> None:
        """Estimate how slow the machine is from work that ``began`` then and should have taken this many seconds."""
        if foreseen:
            self.slowdown = min(MOST_SLOWDOWN, max(1.0, (self._clock() - began) / foreseen))


class _Racing:
    """The passes of one race, written to one run file."""

    def __init__(self, plan: Plan, session: Session, wish: Wish, world: World, budget: _Budget) -> None:
        self._plan, self._session, self._wish, self._world, self._budget = plan, session, wish, world, budget
        self._knowledge = planning.known()
        self._steps: Timed | None = None  # how long those of one environment take, if that could be seen
        self._looks = 1
        self._compared: set[str] = set()  # labels of backends whose work was compared by this race
        self._passed_over: dict[str, str] = {}  # by place: why a setting has not been tried

    def over(self) -> TunePage:
        """Measure until it is known what to use, or the time is spent. Returns what to use, as far as is known."""
        self._time_steps()
        self._try_each()
        found = self._raced()
        tried = {cell.label for cell in self._run.cells if cell.windows or cell.reason != GIVEN_UP}
        found = replace(found, untried=any(cell.backend.label not in tried for cell in self._plan.cells))
        rivals = (rival.cell for rival in found.rivals[:_MOST_TIMED])
        latencies = self._latencies([cell for cell in (found.best, *rivals) if cell is not None])
        pools = None if found.chosen is None else self._pools(found.chosen)
        path = str(self._session.path)
        return TunePage(path, self._run, found, self._wish, self._steps, self._passed_over, latencies, pools)

    def _raced(self) -> Choice:
        """Give settings further passes until the race is decided, or the time is spent."""
        told: frozenset[tuple[CellKey, CellKey]] = frozenset()
        while True:
            cells = summarise(self._run, str(self._session.path))
            rates = {cell.key: cell.sample for cell in cells if self._may_win(cell)}
            race = standing(rates, self._looks, self._wish.tolerance)
            if self._compare_work([cell for key in race.alive for cell in cells if cell.key == key]):
                continue
            found = self._choice(cells, told)
            close = [cell for cell in (found.best, found.fastest, *found.tied) if cell is not None]
            # What is named gets as many passes as rates need, and so does what may be faster than that.
            close += [cell for cell in cells if cell.key in found.contenders and self._may_win(cell)]
            few = dict.fromkeys(cell.key for cell in close if cell.repeats < _SETTLED)
            wanted = tuple(few) if race.decided else race.alive
            if not wanted or not self._another_pass(wanted, cells):
                return self._choice(cells, found.told, last=True)
            told, self._looks = found.told, self._looks + 1

    @property
    def _run(self) -> Run:
        """What was measured so far, with what is known of the work."""
        return with_current_verdicts(self._session.run, self._knowledge)

    def _choice(
        self, cells: Sequence[CellSummary], told: frozenset[tuple[CellKey, CellKey]], *, last: bool = False
    ) -> Choice:
        return choose(
            [cell for cell in cells if cell.key.place in self._plan.spec.only],
            self._wish.tolerance,
            level_of_look(self._looks),
            usable=unusable(cells) is None,
            memory=self._plan.spec.memory,
            open_work={cell.label for cell in cells if not cell.verdict_reason} | self._compared,
            told=told,
            last=last,
        )

    def _asked(self, spec: RunSpec, cell: Cell, kind: type[T]) -> list[T]:
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
                    if isinstance(answer, Done | Timed | Failure):  # after which nothing comes
                        break
        except InterruptedCellError:
            raise InterruptedRunError(f"interrupted: {self._session.go_on}") from None
        except (CellError, OSError):
            return []
        return found

    def _time_steps(self) -> None:
        """See how long steps of one environment take, and how slow the machine is."""
        loops = [cell for cell in self._plan.cells if cell.backend.label == registry.REFERENCE and cell.workers == 1]
        if not loops:
            return
        patience = max(_LEAST_TIMING, _TIMING_SHARE * self._budget.seconds)
        loop = replace(loops[0], job=Timing(_TIMING_S), envs_per_worker=1, patience=patience)
        began = self._world.clock()
        for timed in self._asked(self._plan.spec, loop, Timed):
            resets = timed.make_ns + timed.resets * timed.reset_p50_ns
            self._budget.learn(began, LOAD_S + _TIMING_S + resets * _NANO)
            self._steps = timed

    def _latencies(self, cells: Sequence[CellSummary]) -> dict[CellKey, Latency]:
        """Return how long each of these waits for a batch, as far as there is time: what acts does so at once."""
        acting = replace(self._plan.spec, policy=_AT_ONCE, windows=1, warmup=_WARMUP_S, duration=_LATENCY_S)
        planned = {cell.key.without_repeat: cell for cell in self._plan.cells}
        found = {}
        for number, summary in enumerate(cells):
            if summary.acting is not None:  # a policy has shown it
                found[summary.key] = Latency(round(summary.acting.latency_p50_ns), round(summary.acting.latency_p99_ns))
                continue
            cell = planned[summary.key]
            left = self._budget.left_afterwards
            if cell.skip is not None or left <= 0 or (number and self._costs().of(cell) > left):
                break
            for window in self._asked(acting, replace(cell, patience=max(1.0, left)), Window)[:1]:
                if window.latency_p50_ns is not None and window.latency_p99_ns is not None:
                    found[summary.key] = Latency(window.latency_p50_ns, window.latency_p99_ns)
        return found

    def _pools(self, chosen: CellSummary) -> Estimate | None:
        """Return the rate of a pool on each memory node over that of one pool; None with one node, or no time left.

        They are no part of the run: its cells have one pool each.
        """
        spec = replace(
            self._plan.spec,
            backends=(chosen.choice,),
            workers=(chosen.workers,),
            envs_per_worker=(chosen.envs_per_worker,),
            only=(),
            base=False,
            interleave=False,
            replicas=PER_NODE,
        )
        (cell,) = planning.plan_here(spec, self._world)[0].cells
        cost = self._costs().of(replace(cell, replicas=()))
        if not cell.replicas or cell.skip is not None or _PROBES * cost > self._budget.left_afterwards:
            return None
        counts = {}
        for number in range(_PROBES):
            windows = self._asked(spec, replace(cell, repeat=number, patience=_LEAST_TIMING + cost), Window)
            counts[number] = [(cell.task.frame_skip * (one.rows - one.resets), one.ns * _NANO) for one in windows]
        return ratio(Sample.of(counts), chosen.sample)

    def _try_each(self) -> None:
        """Give each setting its first pass, as far as the time suffices."""
        left = without(self._plan, planning.measured(self._plan, self._session.run))
        if cannot := [cell for cell in left.cells if cell.skip is not None]:
            self._measure(cannot)
        tried = [cell for cell in left.cells if cell.skip is None]
        while tried:
            costs = self._costs()
            refused = {cell.key.place: why for cell in tried if (why := costs.refused(cell))}
            self._passed_over |= refused
            tried = [cell for cell in tried if cell.key.place not in refused]
            room = self._budget.left - (1 - _FIRST_PASS) * self._budget.seconds
            if not costs.measured:
                room = _FIRST_GROUP * self._budget.seconds
            chosen = fitting([costs.of(cell) for cell in tried], room, self._budget.seconds, _TOGETHER)
            share = PATIENT_SHARE
            if tried and not costs.measured and (self._steps is None or not chosen):
                # Whatever it takes, there has to be an answer: by the cell that starts the soonest, as far as is known.
                sizes = [(cell.shape.num_envs, cell.shape.processes) for cell in tried]
                chosen, share = [sizes.index(min(sizes))], _PATIENT_AT_FIRST
            if not chosen:
                break
            self._measure([tried[number] for number in chosen], share)
            tried = [cell for number, cell in enumerate(tried) if number not in chosen]
        self._passed_over |= {cell.key.place: costs.why_not(cell) for cell in tried}

    def _another_pass(self, wanted: tuple[CellKey, ...], cells: Sequence[CellSummary]) -> bool:
        """Give these, the likeliest first, another pass. Returns whether there was time for it."""
        known, left = self._costs(), self._budget.left
        costs = {cell.key.without_repeat: known.of(cell) for cell in self._plan.cells}
        alive = affordable(wanted, {cell.key: cell.repeats for cell in cells}, costs, left)
        if sum(costs[key] for key in alive) > left:
            alive = alive[:1]
        more = next_pass(self._plan, frozenset(alive), next_repeats(self._session.run))
        if not more.cells or sum(costs[key] for key in alive) > left:
            return False
        self._measure(more.cells)
        return True

    def _compare_work(self, cells: Sequence[CellSummary]) -> bool:
        """Compare what these return, the fastest first, as far as nothing is known of it, before they race on.

        Returns whether anything was compared.
        """
        unknown = {cell.label: cell for cell in reversed(cells) if cell.verdict == "unverified"}
        asked = [cell for label, cell in reversed(unknown.items()) if label not in self._compared]
        room = _COMPARING * self._budget.left
        if room < _LEAST_COMPARING:
            return False
        # About how long a comparison takes for each step that it is asked for.
        each = _LEAST_COMPARING / _FEWEST_STEPS
        if (timed := self._steps) is not None:
            step = timed.step_p50_ns + timed.reset_p50_ns * timed.resets / timed.steps
            each = _STEPS_FOR_EACH * self._budget.slowdown * step * _NANO
        most = int(room / max(_FEWEST_STEPS * each, _LEAST_COMPARING))
        asked = asked[: max(1, min(_MOST_COMPARED, most))]
        for cell in asked:
            seconds = room / len(asked)
            self._compared.add(cell.label)
            steps = max(_FEWEST_STEPS, min(verdicts.SHORT_STEPS, int(seconds / each)))
            # Episodes are cut where a comparison of this length would see no end.
            ends = timed is not None and timed.ends and timed.steps / timed.ends <= steps * TIMES_LONGER / ENDS
            episode = None if timed is None or ends else steps // (ENDS + 1)
            spec = replace(
                self._plan.spec, only=(), backends=(cell.choice,), envs_per_worker=(_FEW_ENVS,), timeout=seconds
            )
            verdicts.learn(spec, self._knowledge, self._world, steps=steps, episode=episode)
        return bool(asked)

    def _measure(self, cells: Sequence[Cell], share: float = PATIENT_SHARE) -> None:
        """Measure a pass of these cells in turn. A cell may always take this share of the budget before it is ended."""
        costs, began = self._costs(), self._world.clock()
        patient = [replace(cell, patience=costs.patience(cell, self._budget.left, share)) for cell in cells]
        together = replace(self._plan, cells=in_groups([patient], self._world.memory_available()))
        self._session.one_pass(together, deadline=self._budget.race_end, keeps_to_it=True)
        self._budget.learn(began, sum(costs.foreseen(cell) for cell in cells if cell.skip is None))

    def _costs(self) -> Costs:
        return Costs(self._plan.spec, self._steps, by_cell(self._session.run), self._budget.slowdown)

    def _may_win(self, cell: CellSummary) -> bool:
        """Return whether a cell may be chosen, as far as is known: its work need not be known to be the same yet.

        The loop that is there for speedups alone may not.
        """
        cannot_be_proven = cell.verdict == "unverified" and (bool(cell.verdict_reason) or cell.label in self._compared)
        large = too_large(cell, self._plan.spec.memory)
        return cell.key.place in self._plan.spec.only and not (cell.struck or cannot_be_proven or large)
