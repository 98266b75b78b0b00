"""A run from beginning to end: plan, engine and results composed, the screen told, a table at the end."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console

from vebench.engine.events import CellFinished, CellStarted
from vebench.engine.interrupts import Interrupts
from vebench.engine.launcher import Launcher
from vebench.engine.runner import run as measure
from vebench.errors import NotComparableError, UsageError
from vebench.machine.host import memory_available, read_host
from vebench.machine.placement import place
from vebench.plan.cells import expand, without
from vebench.plan.tasks import resolve
from vebench.reports import as_terminal
from vebench.reports.live import screen
from vebench.reports.plan_table import plan_document
from vebench.reports.tables import Report
from vebench.results import header, logs, store
from vebench.results.records import record

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.plan.cells import CellKey, Plan
    from vebench.plan.spec import RunSpec
    from vebench.results.records import Run, RunRecord
    from vebench.results.store import RunWriter

DONE, FAILED = 0, 1
# The most that a cell's line in the run file takes: its windows, and the rest of it.
BYTES_PER_WINDOW, BYTES_PER_CELL = 256, 8192


def start(spec: RunSpec, output: Path | None, *, dry_run: bool, quiet: bool) -> int:
    """Plan and measure a new run, into ``output`` or a file of its own name. Returns the exit status."""
    plan, head = _prepare(spec)
    if dry_run:
        return _show(plan)
    path = output or store.default_path(datetime.now(UTC), spec.envs)
    with store.RunWriter.create(path, head) as writer:
        return _measure(plan, writer, done=0, quiet=quiet)


def resume(path: Path, *, dry_run: bool, quiet: bool) -> int:
    """Measure what is missing in the run file ``path``: cells without a line, and failed ones. Returns the exit status.

    Raises NotComparableError if this machine or its packages are not those of the run.
    """
    run = store.read(path)
    plan, head = _prepare(run.header.spec)
    if differences := header.what_differs(run.header, head):
        raise NotComparableError(f"{path} was measured elsewhere ({'; '.join(differences)}): start a run of its own")
    left = without(plan, _settled(plan, run))
    if dry_run:
        return _show(left)
    with store.RunWriter.resume(path) as writer:
        return _measure(left, writer, done=len(plan.cells) - len(left.cells), quiet=quiet)


def _prepare(spec: RunSpec) -> tuple[Plan, RunRecord]:
    """Return the plan on this machine, and the header of its run. Raises UsageError if nothing of it can run."""
    host = read_host()
    placement = place(spec.pin, frozenset(host.cpus_allowed), host.quota_cpus)
    tasks = resolve(spec.envs, spec.backends)
    plan = expand(spec, tasks, placement, memory_available())
    if plan.cells and all(cell.skip for cell in plan.cells):
        raise UsageError(f"nothing of this can run here: {plan.cells[0].skip}")
    command = shlex.join(["vebench", *sys.argv[1:]])
    return plan, header.gather(spec, host, placement, command, datetime.now(UTC))


def _settled(plan: Plan, run: Run) -> set[CellKey]:
    """Return the keys of the cells that need no measuring: done, or skipped as they were before."""
    before = {cell.key: cell for cell in run.cells}
    return {
        cell.key
        for cell in plan.cells
        if (known := before.get(cell.key)) and (known.status == "ok" or (known.status == "skipped" and cell.skip))
    }


def _show(plan: Plan) -> int:
    as_terminal.write_document(plan_document(plan), Console(highlight=False))
    return DONE


def _measure(plan: Plan, writer: RunWriter, *, done: int, quiet: bool) -> int:
    """Measure the plan's cells, each on disk as soon as it ends; show the table, also of an interrupted run."""
    errors = Console(stderr=True, highlight=False)
    failed = False
    try:
        with (
            Interrupts() as interrupts,
            Launcher(plan.spec, interrupts) as launch,
            screen(errors, time.monotonic, quiet=quiet) as display,
            closing(measure(plan, launch, done)) as events,
        ):
            for event in events:
                if isinstance(event, CellStarted):
                    writer.reserve(BYTES_PER_CELL + BYTES_PER_WINDOW * plan.spec.rounds)
                elif isinstance(event, CellFinished):
                    writer.append(record(event.cell, event.outcome))
                    logs.keep(writer.path, event.cell.key, event.outcome.log)
                    failed |= event.outcome.status == "failed"
                display.show(event)
    except KeyboardInterrupt:
        where = shlex.quote(str(writer.path))
        errors.print(f"What was measured is in {where}; to go on: vebench run --resume {where}", soft_wrap=True)
        raise
    if not quiet:
        as_terminal.write(Report.of([(str(writer.path), store.read(writer.path))]), Console(highlight=False))
    return FAILED if failed else DONE
