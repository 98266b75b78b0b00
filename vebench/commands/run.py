"""A run from beginning to end: plan, engine and results composed, the screen told, a table at the end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vebench.commands import measuring, proving
from vebench.errors import InterruptedRunError, NotComparableError, RunFileError, UsageError
from vebench.plan.cells import informed, without
from vebench.plan.grammar import check_choices
from vebench.plan.known_work import Knowledge
from vebench.plan.spec import check
from vebench.reports.output import show
from vebench.reports.pages.plan import PlanPage
from vebench.reports.pages.run import RunPage
from vebench.results import header, paths, store

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.plan.cells import CellKey, Plan
    from vebench.plan.spec import RunSpec
    from vebench.results.records import Run

DONE, FAILED = 0, 1


def start(spec: RunSpec, output: Path | None, *, verify: bool, dry_run: bool, quiet: bool) -> int:
    """Plan and measure a new run, into ``output`` or a file of its own name. Returns the exit status.

    With ``verify`` every backend is compared with the reference first.
    """
    plan, head = measuring.prepare(spec)
    if dry_run:
        return _show(plan)
    if verify:
        plan = _verified(plan)
    path = output or paths.default_path(datetime.now(UTC), spec.envs)
    status = measuring.into(path, plan, head, quiet=quiet)
    if not quiet:
        _show_table(path)
    return status


def resume(path: Path, *, dry_run: bool, quiet: bool) -> int:
    """Measure what is missing in the run file ``path``: cells without a line, and failed ones. Returns the exit status.

    Raises RunFileError if the file asks for what nobody can have asked for, and NotComparableError if this machine or
    its packages are not those of the run.
    """
    run = store.read(path)
    header.refuse_foreign(run.header, path)
    try:
        check(run.header.spec)
        check_choices(run.header.spec.backends)
        plan, head = measuring.prepare(run.header.spec)
    except UsageError as error:
        raise RunFileError(f"{path}, line 1: {error}") from None
    if differences := header.what_differs(run.header, head):
        raise NotComparableError(f"{path} was measured elsewhere ({'; '.join(differences)}): start a run of its own")
    left = without(plan, _settled(plan, run))
    if dry_run:
        return _show(left)
    with store.RunWriter.resume(path) as writer:
        status = measuring.measure_all(plan, left, writer, quiet=quiet)
    if not quiet:
        _show_table(path)
    return status


def _verified(plan: Plan) -> Plan:
    """Return ``plan`` with verdicts found now. Raises InterruptedRunError if the user does not wait for them."""
    knowledge = Knowledge.load()
    try:
        proving.learn(plan.spec, knowledge)
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted while backends were compared: nothing has been measured") from None
    return informed(plan, knowledge)


def _settled(plan: Plan, run: Run) -> set[CellKey]:
    """Return the keys of the cells that need no measuring: done, or skipped as they were before."""
    before = {cell.key: cell for cell in run.cells}
    return {
        cell.key
        for cell in plan.cells
        if (known := before.get(cell.key)) and (known.status == "ok" or (known.status == "skipped" and cell.skip))
    }


def _show(plan: Plan) -> int:
    show(PlanPage(plan))
    return DONE


def _show_table(path: Path) -> None:
    show(RunPage.of([(str(path), store.read(path))]))
