"""The race of ``vebench tune``: settings of backends get passes within a budget, until one can be recommended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from vebench.analysis.answer import affordable, level_of_look, standing
from vebench.analysis.cell import CellSummary
from vebench.analysis.rules import unusable
from vebench.analysis.statistics import Sample
from vebench.analysis.summary import next_repeats, summarise
from vebench.backends import registry
from vebench.backends.packages import TORCH, how_to_install, importable
from vebench.backends.training import LIBRARIES, Training
from vebench.child.actions import TAPED, parse_policy
from vebench.child.answers import Cause, Timed, UpdateTimes
from vebench.child.equality.recorder import ENDS, TIMES_LONGER
from vebench.child.request import Updating
from vebench.commands import proving, session
from vebench.commands.session import Session, World
from vebench.errors import UsageError
from vebench.plan.cells import FORK_S, LOAD_S, MOST_PROCESSES, Cell, CellKey, Plan, in_groups, next_pass, placement_of
from vebench.plan.grammar import BackendChoice, LearnerStep
from vebench.plan.spec import FORK, RunSpec, check_spec
from vebench.reports.console import Outlet
from vebench.results import store
from vebench.results.records import CellRecord, Run, with_current_verdicts
from vebench.results.store import RunWriter
from vebench.tune.choice import LEARNER, Choice, TunePage, choose, too_large

_NANO = 1e-9
_SETTLED = 6  # passes of the recommended setting, so that the interval of its rate is useful
_MOST_ENVS = 16  # the most environments for each CPU, unless the user states the batch
_TOGETHER = 8  # the largest number of cells in one interleaved group
_LEAST_S = 5.0  # no cell is given up before these seconds, and no work is compared in less
_LEARNING_S = 1.0  # the seconds for which updates are timed with each number of threads
_TORCH_S = 1.3  # the CPU seconds to import torch
_COMPARING = 0.15  # the share of the budget for a comparison with the usual backend
_PASSES_OF_USUAL = 4  # the passes of that comparison
_FEWEST_STEPS = 20  # a comparison of work requests at least this number of steps of each environment


def start_tuning(
    spec: RunSpec,
    margin: float,
    batch: int | None,
    path: Path | None,
    outlet: Outlet,
    world: World,
    *,
    asynchronous: bool,
) -> int:
    """Race the backends of ``spec``, by default all, on its task, and recommend a setting. Returns the exit status.

    With an algorithm, its policy acts in all cells, and its learner is measured first. A simpler setting is preferred
    if its rate is at most the share ``margin`` below the highest. Batches have ``batch`` rows, by default any number.
    With ``asynchronous``, backends may take part whose batches have the first rows that are ready.
    """
    began = world.clock()
    # Passes are short, because processes differ more than windows do.
    spec = replace(spec, duration=0.2, warmup=0.2, windows=2, base=True, interleave=True, isolation=FORK)
    check_spec(spec)
    if len(spec.envs) != 1:
        raise UsageError(f"--env: tune answers for one environment, not {len(spec.envs)}: run it once for each")
    host = world.read_host()
    placement = placement_of(spec, host)
    cpus = placement.usable
    cores = sum(not set(core).isdisjoint(placement.owned(cpus)) for core in host.topology.cores)
    training, library = Training(spec.algorithm, spec.library), LIBRARIES.get(spec.library or "")
    if spec.algorithm and library and spec.algorithm not in library.settings:
        raise UsageError(f"--for {spec.algorithm}: {library.title} has only {', '.join(library.settings)}")
    for choice in spec.backends:
        if why := training.refusal(choice.entry):
            raise UsageError(f"--backend {choice.label}: {why}")
    loop = BackendChoice(registry.REFERENCE)
    loops, _ = session.plan_here(replace(spec, backends=(loop,), workers=(cpus,)), world)
    choices, why_not = spec.backends, {}
    if not choices:
        task = loops.cells[0].task
        usual = [entry for entry in registry.ENTRIES if entry.is_peer and entry.is_usual_for(task)]
        choices = tuple(BackendChoice(entry.name) for entry in usual if not training.refusal(entry))
        found = (entry for entry in usual if training.refusal(entry) and entry.library.installation is None)
        why_not = {entry.name: training.refusal(entry) for entry in found}
    choices = tuple(choice for choice in choices if asynchronous or not choice.entry.asynchronous)
    if not choices:
        raise UsageError("--async no: all backends named with -b are asynchronous: name another one")
    if spec.algorithm:
        spec, why_not[LEARNER] = measured_learner(spec, loops, world)
    budget = TuneBudget(spec, began, world.clock)
    budget.time_steps(loops.cells[0], world)
    spec, most = budget.spec, 0
    if (steps := budget.steps) is not None and steps.waits:
        most = min(MOST_PROCESSES, int(2 * cpus * steps.per_cpu))  # twice the number that keeps the CPUs busy
        several = tuple(choice for choice in choices if choice.entry.steppers != "caller") or choices
        why_not |= {one.label: "steps wait, and are made one after another" for one in choices if one not in several}
        choices = several
    apart = spec.learner is not None and spec.learner.overlaps and not spec.pin.reserve
    tried = settings(choices, cpus, batch, cores, apart=apart, most=most)
    if not tried:
        raise UsageError(f"--batch {batch}: no backend can have batches of this size on {cpus} CPUs")
    spec = replace(
        spec,
        backends=tuple({one.choice.label: one.choice for one in tried}.values()),
        workers=tuple(sorted({one.workers for one in tried})),
        envs_per_worker=tuple(sorted({one.envs_per_worker for one in tried})),
        only=tuple(f"{one.choice.label}:{one.workers}x{one.envs_per_worker}" for one in tried),
    )
    plan, head = session.plan_here(spec, world)
    session.refuse_useless(plan)
    path = path or store.default_path(world.now(), spec.envs)
    file = RunWriter.create(path, msgspec.structs.replace(head, cells=None))
    return _race(file, plan, margin, budget, outlet, world, why_not)


def resume_tuning(path: Path, margin: float, budget: float, outlet: Outlet, world: World, *, allowed: bool) -> int:
    """Continue the race in the file ``path``. Returns the exit status. ``allowed``: see ``plan_to_finish``."""
    began = world.clock()
    plan, _ = session.plan_to_finish(path, world, allowed=allowed, dry_run=False)
    if not plan.spec.only:
        raise UsageError(f"--resume {path}: is not a run of vebench tune: finish it with vebench run --resume")
    plan = replace(plan, spec=replace(plan.spec, budget=budget))
    time = TuneBudget(plan.spec, began, world.clock)
    time.time_steps(plan.cells[0], world)
    return _race(RunWriter.resume(path), plan, margin, time, outlet, world, {})


def _race(
    file: RunWriter, plan: Plan, margin: float, time: TuneBudget, outlet: Outlet, world: World, why_not: dict[str, str]
) -> int:
    # The loop that speedups need comes first, then the settings in the order of ``only``. The yardstick is left out.
    order = {place: number for number, place in enumerate(plan.spec.only)}
    raced = (cell for cell in plan.cells if cell.backend.name != registry.YARDSTICK)
    cells = sorted(raced, key=lambda cell: order.get(cell.key.place, -1))
    plan = replace(plan, cells=tuple(replace(cell, group=None) for cell in cells))
    # The learner and steps were measured before.
    now = world.clock()
    time.spec = replace(plan.spec, budget=max(0.0, time.start + plan.spec.budget - now))
    time.start = now
    with session.Session(file, world, quiet=False, outlet=outlet) as measuring:
        race = TuneRace(plan, measuring, margin, world, time)
        found = race.run_to_end()
        why_not.update(race.passed_over)
        outlet.publish(TunePage(str(measuring.path), race.run, found, margin, time.steps, why_not))
    return 0 if found.decided else 3


class Setting(NamedTuple):
    """A backend with its size."""

    choice: BackendChoice
    workers: int
    envs_per_worker: int


def measured_learner(spec: RunSpec, loops: Plan, world: World) -> tuple[RunSpec, str]:
    """Return ``spec`` with the policy of its algorithm, and the time of its learner, unless the user has stated it.

    If they cannot be measured, ``spec`` does not change, and the second result says why. Raises UsageError if the
    algorithm does not fit the task. ``loops`` has a plain loop on all CPUs.
    """
    why = "" if importable(TORCH.module) else f"torch is missing ({how_to_install([TORCH])})"
    if spec.policy != TAPED and not spec.policy.is_network:
        why = f"{spec.policy.label} is not a network"
    overlaps = Training(spec.algorithm).method.overlaps
    if spec.learner is not None:
        spec = replace(spec, learner=replace(spec.learner, overlaps=overlaps))
    session.refuse_idle(loops)
    widest = max(loops.cells, key=lambda cell: len(cell.cpus))
    job = Updating(str(spec.algorithm), 0.0 if why else _LEARNING_S)
    found = session.ask(replace(widest, job=job, patience=60.0), loops.spec, world)
    if isinstance(found, UpdateTimes) and found.refusal:
        raise UsageError(f"--for {spec.algorithm}: {found.refusal}")
    if why or not isinstance(found, UpdateTimes):
        return spec, why or str(found)
    policy = parse_policy(found.policy)
    method = Training(spec.algorithm, pictures=policy.kind == "nature-cnn").method
    times = [round(method.gradient_steps * fmean(each) * _NANO, 9) for each in found.update_ns]
    fastest = times.index(min(times))
    if not overlaps and spec.policy == TAPED:  # workers wait while the policy acts
        policy = replace(policy, threads=1 << fastest)
    stretches = Sample(tuple(1 / ns for ns in found.update_ns[fastest]), one_process=True)
    error = sqrt(stretches.own_error.variance)
    learner = LearnerStep(times[fastest], method.env_steps, 1 << fastest, tuple(times[:fastest]), error, overlaps)
    return replace(spec, policy=policy, learner=spec.learner or learner), ""


def settings(
    choices: Sequence[BackendChoice], cpus: int, batch: int | None, cores: int | None, *, apart: bool, most: int
) -> tuple[Setting, ...]:
    """Return the settings to try on ``cpus`` CPUs, which belong to ``cores`` cores, the most promising first.

    Options that are worth trying are tried on all CPUs, for backends to which the user gave no options. ``apart``:
    leave 1, 2, 4 ... CPUs to the learner, at most half of them. ``most``: the most workers if steps wait, otherwise 0.
    """
    counts = {max(1, cpus >> halvings) for halvings in range(4)}  # all CPUs, a half, a quarter and an eighth of them
    if cores is not None and 0 < cores < cpus:
        counts.add(cores)
    if apart:
        counts = {max(1, cpus - (1 << power)) for power in range(max(1, cpus.bit_length() - 1))}
    if most:
        batch = batch or _MOST_ENVS * cpus
        divisors = [count for count in range(min(most, batch), 0, -1) if batch % count == 0]
        counts = set(divisors[:3])
    found = [setting for choice in choices for setting in _sizes(choice, sorted(counts, reverse=True), batch, cpus)]
    for choice in choices:
        if not choice.options and not most:
            for options in choice.entry.worth_trying:
                found += _sizes(replace(choice, options=dict(options)), [max(counts)], batch, cpus)
    given = {choice.label for choice in choices}

    def order(one: Setting) -> tuple[bool, bool, bool, int]:
        # Try every backend, even if time is short: settings without further options first, then settings on all CPUs.
        # Of the environments per worker, 4 and 16 precede 1.
        all_cpus = one.choice.entry.steppers == "caller" or one.workers >= max(counts)
        return one.choice.label not in given, not all_cpus, one.envs_per_worker == 1, one.envs_per_worker

    return tuple(sorted(found, key=order))


def _sizes(choice: BackendChoice, counts: Sequence[int], batch: int | None, cpus: int) -> Iterator[Setting]:
    if choice.entry.steppers == "caller":  # more workers would not help
        counts = [1]
    elif choice.entry.steppers == "process each":  # more workers than CPUs would not add processes
        counts = [count for count in counts if count <= cpus] or counts[:1]
    for workers in counts:
        if batch is None:
            for envs in (1, 4, _MOST_ENVS):
                yield Setting(choice, workers, envs)
        elif batch % workers == 0 and batch // workers <= 1 << 12:  # more environments take too long to build
            yield Setting(choice, workers, batch // workers)


@dataclass
class TuneBudget:
    """The seconds of a command, from its ``start`` to its last line.

    A cell's ``records`` show how long a pass takes. Before its first pass, the ``steps`` of one environment do.
    """

    spec: RunSpec
    start: float
    clock: Callable[[], float]
    slowdown: float = 1.0  # the time that the last cells took, divided by the expected time
    kept: float = 0.0  # seconds that the race leaves to what follows it
    steps: Timed | None = None
    records: Sequence[CellRecord] = ()

    @property
    def load(self) -> float:
        """The seconds to load the libraries of the process that cells are forked from, on an idle machine."""
        return LOAD_S + (_TORCH_S if self.spec.policy.is_network else 0.0)

    @property
    def race_end(self) -> float:
        """When the race is over, by the clock. A second, times ``slowdown``, is kept for starting and answering."""
        return self.start + self.spec.budget - self.slowdown

    @property
    def left(self) -> float:
        """The seconds that are left for the race."""
        return self.race_end - self.kept - self.clock()

    def learn(self, began: float, expected: float) -> None:
        """Set ``slowdown``, given the start and the expected seconds of work that ends now."""
        if expected:
            # A larger slowdown was a pause, which predicts nothing.
            self.slowdown = min(10.0, max(1.0, (self.clock() - began) / expected))

    def time_steps(self, cell: Cell, world: World) -> None:
        """Time steps of one environment of the cell's task. Learn whether they wait, and how slow the machine is."""
        began = self.clock()
        self.steps = timed = session.timed_steps(cell, self.spec, world)
        if timed is not None:
            resets = timed.make_ns + timed.resets * timed.reset_p50_ns
            spent = max(session.TIMING_S, timed.steps * timed.step_p50_ns * _NANO)
            self.learn(began, self.load + spent + resets * _NANO)
            if timed.waits:
                self.spec = replace(self.spec, waiting=(cell.task.id,))

    def cost(self, cell: Cell) -> float:
        """Return the estimated seconds of a pass of ``cell``: the time of its last successful pass, if there is one."""
        own = [one for one in self.records if one.key.without_repeat == cell.key.without_repeat and one.status == "ok"]
        return (own[-1].took_ns or 0) * _NANO if own else self.slowdown * self.expected(cell)

    def expected(self, cell: Cell) -> float:
        """Return the estimated seconds of a pass of ``cell`` on an idle machine."""
        spec, shape, steps = self.spec, cell.shape, self.steps
        cpus, at_work = len(cell.cpus), cell.entry.at_work(shape.processes, shape.threads, cell.backend.options)
        made = batch = 0.0
        if steps is not None:
            at_once = max(1, min(at_work, cpus * steps.per_cpu if steps.waits else cpus))
            made = (steps.make_ns / max(1, min(at_work, cpus)) + steps.reset_p50_ns / at_once) * _NANO * shape.num_envs
            batch = steps.step_p50_ns * _NANO * shape.batch_size / at_once
        # The first cell of a backend waits until the process that it is forked from has imported its libraries.
        labels = {record.label for record in self.records}
        start = (FORK_S if cell.backend.label in labels else self.load) + made
        # A cell makes at least 9 batches while it warms up, and 3 in each turn. The rest is for counters and the end.
        return start + max(spec.warmup, 9 * batch) + spec.windows * max(spec.duration, 3 * batch) + 0.1

    def patience(self, cell: Cell) -> float:
        """Return the seconds after which ``cell`` is given up: four times its cost, or a share of the budget if longer.

        Until a cell has a rate, cells are measured alone, and may take half of the budget.
        """
        known = any(record.status == "ok" for record in self.records)
        share = 0.15 if known else 0.5
        return max(_LEAST_S, min(max(4 * self.cost(cell), share * self.spec.budget), self.left))

    def fitting(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells to try next. ``cells`` are sorted, the most promising first. Costly cells are left out."""
        room = self.left - 0.4 * (self.spec.budget - self.kept)  # the rest is for further passes
        costs = [self.cost(cell) for cell in cells]
        largest = max(0.1 * self.spec.budget, 2 * min(costs, default=0.0))
        chosen: list[Cell] = []
        for cell, cost in zip(cells, costs, strict=True):
            if len(chosen) < _TOGETHER and cost <= min(largest, room):
                chosen.append(cell)
                room -= cost
        return chosen

    def refusal(self, cell: Cell) -> str | None:
        """Return why not to start ``cell``: a smaller one, or several, of its backend failed. None if it may start."""
        records = [one for one in self.records if one.label == cell.backend.label]
        failed = [one for one in records if one.status == "failed" and one.cause is None]
        alike = [record for record in failed if record.num_envs <= cell.shape.num_envs or len(failed) > 1]
        if not alike:
            return None
        return f"its setting {alike[0].workers}x{alike[0].envs_per_worker} failed: {alike[0].reason}"


class TuneRace:
    """One race, written to one run file."""

    def __init__(self, plan: Plan, measuring: Session, margin: float, world: World, budget: TuneBudget) -> None:
        self._plan, self._session, self._margin, self._budget = plan, measuring, margin, budget
        host = world.read_host()  # during the race, this process is kept off the CPUs of cells
        self._world = replace(world, read_host=lambda: host)
        self._budget.records = measuring.run.cells
        self._knowledge = session.known()
        self._looks = 1
        self._compared: set[str] = set()  # backends whose work this race has compared
        self.passed_over: dict[str, str] = {}  # why a setting was not tried, by place; lack of time is not included

    @property
    def run(self) -> Run:
        """The run so far, with the current verdicts on backends' work."""
        return with_current_verdicts(self._session.run, self._knowledge)

    def run_to_end(self) -> Choice:
        """Measure until the race is decided or the time is spent. Returns the choice."""
        self._budget.kept = _COMPARING * self._budget.spec.budget if self._plan.spec.learner else 0.0
        self._try_each()
        while True:
            cells = self._cells()
            by_key = {cell.key: cell for cell in cells}
            rates = {cell.key: cell.sample for cell in cells if self._may_win(cell)}
            race = standing(rates, self._looks, self._margin)
            if self._compare_work([by_key[key] for key in race.alive]):
                continue
            found = self._choice(cells)
            close = [cell for cell in (found.best, found.fastest, *found.tied) if cell is not None]
            close += [cell for cell in cells if cell.key in found.contenders and self._may_win(cell)]
            few = dict.fromkeys(cell.key for cell in close if cell.repeats < _SETTLED)
            wanted = tuple(few) if race.decided else race.alive
            if not wanted or not self._another_pass(wanted, by_key):
                break
            self._looks += 1
        tried = {cell.label for cell in self.run.cells if cell.windows or cell.cause is not Cause.GIVEN_UP}
        untried = any(cell.backend.label not in tried for cell in self._plan.cells)
        chosen = replace(self._choice(cells, last=True), untried=untried)
        self._measure_usual(chosen)
        return chosen

    def _cells(self) -> tuple[CellSummary, ...]:
        """Return the cells so far. If sampling and learning overlap, no rate is above the learner's."""
        cells, learner = summarise(self.run, str(self._session.path)), self._plan.spec.learner
        if learner is None or not learner.overlaps:
            return cells
        capped = []
        for cell in cells:
            trained = cell.figures.learning
            most = trained.steps_per_second * trained.at_most * cell.built.frame_skip if trained else 0.0
            rates = tuple(min(rate, most) for rate in cell.sample.rates)
            capped.append(replace(cell, sample=replace(cell.sample, rates=rates)))
        return tuple(capped)

    def _measure_usual(self, found: Choice) -> None:
        """Measure the recommended setting along with the usual backend with the same number of environments."""
        spec, key = self._plan.spec, found.chosen and found.chosen.key
        chosen = next((cell for cell in self._plan.cells if cell.key.without_repeat == key), None)
        if spec.learner is None or chosen is None or chosen.backend.name == registry.USUAL:
            return
        self._budget.kept = 0.0
        number, most = chosen.shape.num_envs, self._session.run.header.usable_cpus
        if spec.learner.overlaps and not spec.pin.reserve:
            most = max(1, most - 1)  # the learner needs a CPU of its own
        workers = max(count for count in range(1, most + 1) if number % count == 0)
        alone = replace(spec, backends=(BackendChoice(registry.USUAL),), only=(), base=False)
        alone = replace(alone, workers=(workers,), envs_per_worker=(number // workers,))
        plan, _ = session.plan_here(alone, self._world)
        usual = plan.cells[0]
        if usual.skip is not None or number > MOST_PROCESSES:
            return
        first = max(next_repeats(self._session.run).values())
        for repeat in range(first, first + _PASSES_OF_USUAL):
            pair = [replace(cell, repeat=repeat) for cell in (chosen, usual)]
            if sum(map(self._budget.cost, pair)) > self._budget.left:
                break
            self._measure(pair)

    def _try_each(self) -> None:
        """Give each setting its first pass, as far as there is time."""
        left = session.unmeasured(self._plan, self._session.run)
        if cannot := [cell for cell in left.cells if cell.skip is not None]:
            self._measure(cannot)
        untried = [cell for cell in left.cells if cell.skip is None]
        while untried:
            group = self._budget.fitting(untried)
            if not any(record.status == "ok" for record in self._session.run.cells):
                # The smallest cell probably starts first, and shows how long other cells take.
                group = [min(untried, key=lambda cell: (cell.shape.num_envs, cell.shape.processes))]
            if not group:
                break
            self._measure(group)
            untried = [cell for cell in untried if cell not in group]
            self.passed_over |= {cell.key.place: why for cell in untried if (why := self._budget.refusal(cell))}
            untried = [cell for cell in untried if cell.key.place not in self.passed_over]

    def _may_win(self, cell: CellSummary) -> bool:
        """Return whether a cell may be chosen, now or after its work was found to be the same."""
        cannot_be_compared = cell.verdict == "unverified" and (bool(cell.work.reason) or cell.label in self._compared)
        large = too_large(cell, self._plan.spec.memory)
        return cell.key.place in self._plan.spec.only and not (cell.exclusion or cannot_be_compared or large)

    def _choice(self, cells: Sequence[CellSummary], *, last: bool = False) -> Choice:
        return choose(
            [cell for cell in cells if cell.key.place in self._plan.spec.only],
            self._margin,
            level_of_look(self._looks),
            usable=unusable(cells) is None,
            memory=self._plan.spec.memory,
            open_work={cell.label for cell in cells if not cell.work.reason} | self._compared,
            last=last,
        )

    def _another_pass(self, wanted: tuple[CellKey, ...], cells: dict[CellKey, CellSummary]) -> bool:
        """Give the best of these cells another pass. Returns whether there was time for it."""
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

    def _compare_work(self, alive: Sequence[CellSummary]) -> bool:
        """Compare the work of the fastest backend whose work is unknown. Returns whether that was done."""
        unknown = [cell for cell in alive if cell.verdict == "unverified" and cell.label not in self._compared]
        seconds = self._budget.left / 4
        if not unknown or seconds < _LEAST_S:
            return False
        self._compared.add(unknown[0].label)
        steps, episode, timed = _FEWEST_STEPS, None, self._budget.steps
        if timed is not None:
            step = timed.step_p50_ns + timed.reset_p50_ns * timed.resets / timed.steps
            # For each step that is requested, a comparison makes about 20 steps.
            fit = int(seconds / (20 * self._budget.slowdown * step * _NANO))
            steps = max(_FEWEST_STEPS, min(proving.SHORT_STEPS, fit))
            # With so few steps, no episode would end, so shorten episodes.
            if not timed.ends or timed.steps / timed.ends > steps * TIMES_LONGER / ENDS:
                episode = steps // (ENDS + 1)
        spec = replace(self._plan.spec, only=(), backends=(unknown[0].built.choice,), envs_per_worker=(1,))
        proving.learn(replace(spec, timeout=seconds), self._knowledge, self._world, steps=steps, episode=episode)
        return True

    def _measure(self, cells: Sequence[Cell]) -> None:
        """Measure a pass of these cells, interleaved."""
        budget, began = self._budget, self._world.clock()
        expected = sum(budget.expected(cell) for cell in cells if cell.skip is None)
        patient = [replace(cell, patience=budget.patience(cell)) for cell in cells]
        together = replace(self._plan, cells=in_groups([patient], self._world.memory_available()))
        self._session.one_pass(together, deadline=budget.race_end)
        budget.learn(began, expected)
        budget.records = self._session.run.cells
