"""The commands run, report, install and doctor."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from vebench import interpreters
from vebench.analysis.rules import Surroundings, of_host
from vebench.backends.packages import Installation
from vebench.backends.registry import ENTRIES, INSTALLATIONS, missing_packages, standings
from vebench.commands import proving, session
from vebench.commands.session import Session, World, known, plan_here, plan_to_finish, refuse_idle, refuse_useless
from vebench.errors import InterruptedRunError, UsageError, did_you_mean, one_line, shown
from vebench.interpreters import packages_here
from vebench.machine import kernel
from vebench.machine.host import LIVE, Host, memory_available, order_of, place, read_host
from vebench.plan.cells import Plan, placement_of
from vebench.plan.grammar import Pinning
from vebench.plan.spec import OPTIONS, RunSpec, suite_named
from vebench.process_guard import terminable
from vebench.reports import console
from vebench.reports.console import Outlet, show
from vebench.reports.document import View
from vebench.reports.formats import TERMINAL, Format
from vebench.reports.overview import Machine, machine_page, plan_page
from vebench.reports.run import RunPage
from vebench.results import records, store
from vebench.results.records import Run, with_current_verdicts
from vebench.results.store import RunWriter


def start(
    spec: RunSpec, output: Path | None, world: World, *, outlet: Outlet, verify: bool, dry_run: bool, quiet: bool
) -> int:
    """Measure a new run into ``output``, by default a new file in ``.vebench/``. Returns the exit status.

    With ``verify``, every backend is compared with the reference first. With ``dry_run``, only the plan is shown.
    The name of a suite in ``spec`` stands for the suite's plan.
    """
    if verify and spec.hosts is not None:
        raise UsageError("--verify: compares on this machine: leave it out with --hosts, and run vebench verify there")
    if spec.suite:
        suite = suite_named(spec.suite)
        spec = suite.spec(placement_of(suite.spec(1), world.read_host()).usable, spec.backends)
    plan, head = plan_here(spec, world)
    if dry_run:
        return _shown(plan)
    refuse_useless(plan)
    plan, head = session.plan_for_waiting(plan, head, world)
    if verify:
        knowledge = known()
        try:
            proving.learn(plan.spec, knowledge, world)
        except KeyboardInterrupt:
            raise InterruptedRunError("interrupted while backends were compared: nothing has been measured") from None
        plan = plan.informed(knowledge)
    path = output or store.default_path(world.now(), spec.envs)
    return _measured(RunWriter.create(path, head), plan, plan, world, outlet, quiet=quiet)


def resume(
    path: Path, budget: float | None, world: World, *, outlet: Outlet, dry_run: bool, allowed: bool, quiet: bool
) -> int:
    """Measure the missing cells of the run file ``path``: those without a line, or failed. Returns the exit status.

    ``budget``: None for the budget of the run. With ``dry_run``, only the plan of the missing cells is shown.
    ``allowed``: see ``plan_to_finish``, also for its errors.
    """
    plan, left = plan_to_finish(path, world, allowed=allowed, dry_run=dry_run)
    if budget is not None:
        spec = replace(plan.spec, budget=budget)
        plan, left = replace(plan, spec=spec), replace(left, spec=spec)
    if dry_run:
        return _shown(left, f"{path}: ")
    return _measured(RunWriter.resume(path), plan, left, world, outlet, quiet=quiet)


def _shown(plan: Plan, whose: str = "") -> int:
    show(plan_page(plan))
    refuse_idle(plan, whose)
    return 0


def _measured(file: RunWriter, plan: Plan, left: Plan, world: World, outlet: Outlet, *, quiet: bool) -> int:
    """Measure the cells that are ``left`` of a plan, and show the run. Show it also at the first look and on Ctrl-C.

    The exit status is 1 if a cell failed or did different work, 3 if the run is unusable or has no rate, otherwise 0.
    """

    def page(run: Run, *, early: bool = False) -> RunPage:
        return RunPage.of([(str(file.path), run)], View(early=early))

    with Session(file, world, quiet=quiet, outlet=outlet) as measuring:
        try:
            status = measuring.measure(plan, left, partial(page, early=True))
        except InterruptedRunError:
            if any(cell.windows for cell in measuring.run.cells):
                outlet.publish(page(measuring.run), quiet=quiet)
            raise
    whole = page(measuring.run)
    outlet.publish(whole, quiet=quiet)
    (section,) = whole.sections
    if other := next((cell for cell in section.cells if cell.work.found_to_differ), None):
        console.note(one_line(f"{other.label} with {other.key.size} did different work: its rate is struck out"))
        return 1
    useless = section.notice or not any(cell.rate for cell in section.cells)
    return 3 if status == 0 and useless else status


def report(files: Sequence[Path], outlet: Outlet, view: View) -> None:
    """Render runs, by default the newest in ``.vebench/``.

    Several runs are shown side by side. Each run is also shown separately. On the terminal, this needs ``--all``,
    ``--columns`` or ``--forecast``. Raises RunFileError for a file that is not a run file.
    """
    sources = store.run_files(files) if files else [store.run_files_in()[-1]]
    knowledge = known()
    of_each_run = view.every_finding or view.columns or view.forecast is not None
    short = outlet.printed is TERMINAL and not of_each_run
    runs = ((str(path), with_current_verdicts(store.read(path), knowledge)) for path in sources)
    outlet.publish(RunPage.of(runs, replace(view, each_run=not short)))


def install(names: Sequence[str]) -> int:
    """Make the environments of these backends or installations, or of ``all``. Returns the exit status."""
    of_backends = {one.name: one.library.installation for one in ENTRIES if one.library.installation is not None}
    named = of_backends | {one.name: one for one in INSTALLATIONS}
    for name in names:
        if name not in named and name != "all":
            near = did_you_mean(name, named)
            raise UsageError(f"{shown(name)}: no such installation{near}; vebench list shows them")
    chosen = INSTALLATIONS if "all" in names else {named[name].name: named[name] for name in names}.values()
    with terminable():
        return max(map(_set_up, chosen))


def _set_up(one: Installation) -> int:
    if interpreters.is_made(one):
        console.note(f"{one.name}: is already set up: {interpreters.python_of(one.name)}")
        return 0
    try:
        path = interpreters.set_up(one, console.note)
    except interpreters.NotHadError as error:
        console.note(f"{one.name}: cannot be set up: {error}")
        return 1
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted: {one.name} is not set up; run the same command to continue") from None
    console.note(f"{one.name}: set up: {path}{f'; {one.note}' if one.note else ''}")
    return 0


def doctor(sysroot: Path | None, workers: int | None, pin: Pinning, form: Format) -> None:
    """Print the facts of this machine, or of the machine whose files are in ``sysroot``. Raises UsageError."""
    OPTIONS["pin"].check(pin)
    root = LIVE if sysroot is None else sysroot
    host = read_host(root)
    allowed, whole = frozenset(host.cpus_allowed), host.topology
    placement = place(pin.cpus, allowed, host.quota_cpus, topology=whole, smt=pin.smt, reserve=pin.reserve)
    here, now = root == LIVE, Surroundings()
    if here:
        now = Surroundings(_others_share(host), _shared_memory(), missing_packages(), standings())
    machine = Machine(
        host=host,
        placement=placement,
        orders={policy: order_of(whole, host.cpus_allowed, policy) for policy in ("compact", "scatter")},
        workers=workers,
        versions=packages_here() if here else {},
        memory_available=memory_available(root),
        findings=tuple(of_host(records.host_record(host, placement), now)),
        standings=now.standings,
    )
    show(machine_page(machine), form)


def _others_share(host: Host) -> float | None:
    """Return the share of the allowed CPUs' time that other processes use, None if unknown."""
    cpus = list(host.cpus_allowed)
    before, start = kernel.busy_ns(cpus), time.monotonic_ns()
    time.sleep(0.2)  # about twenty ticks of the kernel's clock
    after, end = kernel.busy_ns(cpus), time.monotonic_ns()
    if before is None or after is None:
        return None
    return max(0.0, min(1.0, (after - before) / (len(cpus) * (end - start))))


def _shared_memory() -> int | None:
    with suppress(OSError):
        return shutil.disk_usage("/dev/shm").free  # noqa: S108 - only its free space is read
    return None
