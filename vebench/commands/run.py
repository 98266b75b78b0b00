"""``vebench run``: make a plan, measure its cells into a run file, and print a table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.commands import planning, proving
from vebench.commands.session import session
from vebench.errors import InterruptedRunError, UsageError
from vebench.plan.cells import informed, placement_of
from vebench.plan.spec import suite_named
from vebench.reports import console
from vebench.reports.console import other_work, show
from vebench.reports.overview import plan_page
from vebench.reports.run import EarlyPage, RunPage
from vebench.results import store
from vebench.results.store import RunWriter

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.commands.session import World
    from vebench.plan.cells import Plan
    from vebench.plan.grammar import BackendChoice
    from vebench.plan.spec import RunSpec
    from vebench.reports.console import Outlet
    from vebench.results.records import Run

_DONE, _OTHER_WORK, _UNDECIDED = 0, 1, 3


def start(
    spec: RunSpec, output: Path | None, world: World, *, outlet: Outlet, verify: bool, dry_run: bool, quiet: bool
) -> int:
    """Measure a new run into ``output``, by default a new file in ``.vebench/``. Returns the exit status.

    With ``verify``, every backend is compared with the reference first. With ``dry_run``, only the plan is shown.
    Raises UsageError if no cell can run. Without ``dry_run``, also if only reference rows of a larger plan can.
    """
    if verify and spec.hosts is not None:
        raise UsageError("--verify: compares on this machine: leave it out with --hosts, and run vebench verify there")
    plan, head = planning.plan_here(spec, world)
    if dry_run:
        return _shown(plan)
    planning.refuse_useless(plan)
    if verify:
        knowledge = planning.known()
        try:
            proving.learn(plan.spec, knowledge, world)
        except KeyboardInterrupt:
            raise InterruptedRunError("interrupted while backends were compared: nothing has been measured") from None
        plan = informed(plan, knowledge)
    path = output or store.default_path(world.now(), spec.envs)
    return _measured(RunWriter.create(path, head), plan, plan, world, outlet, quiet=quiet)


def of_suite(name: str, backends: tuple[BackendChoice, ...], world: World) -> RunSpec:
    """Return the plan of a suite for this machine. Raises UsageError if there is no suite of this name."""
    suite = suite_named(name)
    return suite.spec(placement_of(suite.spec(1), world.read_host()).usable, backends)


def resume(path: Path, world: World, *, outlet: Outlet, dry_run: bool, allowed: bool, quiet: bool) -> int:
    """Measure the missing cells of the run file ``path``: those without a line, or failed. Returns the exit status.

    With ``dry_run``, only the plan of the missing cells is shown. ``allowed``: see ``planning.plan_to_finish``, also
    for its errors.
    """
    plan, left = planning.plan_to_finish(path, world, allowed=allowed, dry_run=dry_run)
    if dry_run:
        return _shown(left, f"{path}: ")
    return _measured(RunWriter.resume(path), plan, left, world, outlet, quiet=quiet)


def _shown(plan: Plan, whose: str = "") -> int:
    show(plan_page(plan))
    planning.refuse_idle(plan, whose)
    return _DONE


def _measured(file: RunWriter, plan: Plan, left: Plan, world: World, outlet: Outlet, *, quiet: bool) -> int:
    """Measure the cells that are ``left`` of a plan, and show the run. Show it also at the first look and on Ctrl-C.

    The exit status is 1 if a cell failed or did other work, 3 if the run is unusable, otherwise 0.
    """

    def first_look(run: Run) -> RunPage:
        return EarlyPage.of([(str(file.path), run)])

    def found() -> RunPage:
        return RunPage.of([(str(file.path), measuring.run)])

    with session(file, world, quiet=quiet, outlet=outlet) as measuring:
        try:
            status = measuring.measure(plan, left, first_look)
        except InterruptedRunError as interrupt:
            try:
                if any(cell.windows for cell in measuring.run.cells):
                    outlet.publish(found(), quiet=quiet)
            finally:  # even if the page cannot be written
                raise interrupt
    page = found()
    outlet.publish(page, quiet=quiet)
    (section,) = page.sections
    if other := [cell for cell in section.cells if cell.work.found_to_differ]:
        console.note(other_work(other))
        return _OTHER_WORK
    return _UNDECIDED if status == _DONE and section.notice else status
