"""``vebench tune``: choose settings of backends to try. ``race`` measures them and chooses the one to recommend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from vebench.backends import registry
from vebench.backends.entry import BackendEntry
from vebench.commands.session import World, plan_here, plan_to_finish, refuse_useless, session
from vebench.errors import UsageError
from vebench.plan.cells import Plan, placement_of
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import FORK, RunSpec, check_spec
from vebench.reports.console import Outlet
from vebench.results import store
from vebench.results.records import RunRecord
from vebench.results.store import RunWriter
from vebench.tune.page import TunePage
from vebench.tune.race import Constraints, TuneBudget, TuneRace

_DONE, _UNDECIDED = 0, 3
_WINDOW_S, _WARMUP_S, _WINDOWS = 0.2, 0.2, 2  # passes are short, because processes differ more than windows do
_USUAL_ENVS = (1, 4, 16)  # the numbers of environments per worker to try, without --batch
_MOST_ENVS = 1 << 12  # more environments in one process take too long to build
_HALVINGS = 4  # numbers of workers: all CPUs, a half, a quarter and an eighth of them


def start_tuning(spec: RunSpec, wanted: Constraints, path: Path | None, outlet: Outlet, world: World) -> int:
    """Race the backends of ``spec``, by default all, on its task, and recommend a setting. Returns the exit status.

    The run file is ``path``, by default a new file in ``.vebench/``. Raises UsageError if nothing can be tried, and
    InterruptedRunError if the user interrupts the race.
    """
    began = world.clock()
    plan, head = settings_to_try(spec, wanted, world)
    refuse_useless(plan)
    path = path or store.default_path(world.now(), spec.envs)
    file = RunWriter.create(path, msgspec.structs.replace(head, cells=None))
    return _race(file, plan, wanted, began, outlet, world)


def resume_tuning(
    path: Path, wanted: Constraints, budget: float, outlet: Outlet, world: World, *, allowed: bool
) -> int:
    """Continue the race in the file ``path``. Returns the exit status. ``allowed``: see ``plan_to_finish``."""
    began = world.clock()
    plan, _ = plan_to_finish(path, world, allowed=allowed, dry_run=False)
    if not plan.spec.only:
        raise UsageError(f"--resume {path}: is not a run of vebench tune: finish it with vebench run --resume")
    plan = _in_order(replace(plan, spec=replace(plan.spec, budget=budget)))
    return _race(RunWriter.resume(path), plan, wanted, began, outlet, world)


def _race(file: RunWriter, plan: Plan, wanted: Constraints, began: float, outlet: Outlet, world: World) -> int:
    budget = TuneBudget(plan.spec, began, world.clock)
    with session(file, world, quiet=False, outlet=outlet) as measuring:
        race = TuneRace(plan, measuring, wanted, world, budget)
        found = race.run_to_end()
        outlet.publish(TunePage(str(measuring.path), race.run, found, wanted, budget.steps, race.passed_over))
    return _DONE if found.decided else _UNDECIDED


def settings_to_try(spec: RunSpec, wanted: Constraints, world: World) -> tuple[Plan, RunRecord]:
    """Return the plan of all settings to try, the most promising first, and the header of its run."""
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
        raise UsageError("--async no: all backends named with -b are asynchronous: name another one")
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
    plan, head = plan_here(spec, world)
    return _in_order(plan), head


def _in_order(plan: Plan) -> Plan:
    """Return the plan in the order of ``only``, without the yardstick. The loop that speedups need comes first."""
    order = {place: number for number, place in enumerate(plan.spec.only)}
    raced = (cell for cell in plan.cells if cell.backend.name != registry.YARDSTICK)
    cells = sorted(raced, key=lambda cell: order.get(cell.key.place, -1))
    return replace(plan, cells=tuple(replace(cell, group=None) for cell in cells))


class Setting(NamedTuple):
    """A backend with its size."""

    choice: BackendChoice
    workers: int
    envs_per_worker: int

    @property
    def place(self) -> str:
        """The setting in the notation of ``RunSpec.only``."""
        return f"{self.choice.label}:{self.workers}x{self.envs_per_worker}"


def settings(
    choices: Sequence[BackendChoice], cpus: int, batch: int | None = None, cores: int | None = None
) -> tuple[Setting, ...]:
    """Return the settings to try on ``cpus`` CPUs, which belong to ``cores`` cores, the most promising first.

    One of the numbers of workers is the number of cores. If a backend has no options from the user, settings with the
    options that are worth trying use all CPUs.
    """
    counts = {max(1, cpus >> halvings) for halvings in range(_HALVINGS)}
    if cores is not None and 0 < cores < cpus:
        counts.add(cores)
    found = [setting for choice in choices for setting in _sizes(choice, sorted(counts, reverse=True), batch)]
    for choice in choices:
        if not choice.options:
            for options in choice.entry.worth_trying:
                found += _sizes(replace(choice, options=dict(options)), [max(counts)], batch)
    given = {choice.label for choice in choices}

    def order(one: Setting) -> tuple[bool, bool, bool, int]:
        # Try every backend, even if time is short: settings without further options first, then settings on all CPUs.
        # Of the environments per worker, 4 and 16 precede 1.
        all_cpus = _steps_in_caller(one.choice.entry) or one.workers >= cpus
        return one.choice.label not in given, not all_cpus, one.envs_per_worker == 1, one.envs_per_worker

    return tuple(sorted(found, key=order))


def _sizes(choice: BackendChoice, counts: Sequence[int], batch: int | None) -> Iterator[Setting]:
    for workers in [1] if _steps_in_caller(choice.entry) else counts:
        if batch is None:
            for envs in _USUAL_ENVS:
                yield Setting(choice, workers, envs)
        elif batch % workers == 0 and batch // workers <= _MOST_ENVS:
            yield Setting(choice, workers, batch // workers)


def _steps_in_caller(entry: BackendEntry) -> bool:
    """Return whether the calling process makes all steps, so that more workers would not help."""
    shape = entry.shape_of(2, 1, 2, {})
    return shape.processes == 1 and shape.threads == 1
