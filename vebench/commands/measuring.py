"""What the commands that measure have in common: a plan for this machine, and cells measured into run files."""

from __future__ import annotations

import math
import shlex
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vebench.analysis.precision import another_pass
from vebench.backends.registry import find
from vebench.child.windows import MOST_TRIES
from vebench.engine.events import CellFinished, CellStarted
from vebench.engine.interrupts import Interrupts
from vebench.engine.launcher import Launcher
from vebench.engine.runner import run as measure
from vebench.errors import InterruptedRunError, UsageError
from vebench.machine.host import memory_available, read_host
from vebench.plan.cells import expand, informed, placement_of
from vebench.plan.interleaving import interleaved
from vebench.plan.known_work import Knowledge
from vebench.plan.tasks import resolve
from vebench.reports import console
from vebench.reports.live import screen
from vebench.results import header, logs, store
from vebench.results.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vebench.engine.conversation import Launch
    from vebench.plan.cells import Cell, CellKey, Plan
    from vebench.plan.spec import RunSpec
    from vebench.results.records import CellRecord, RunRecord
    from vebench.results.store import RunWriter

DONE, FAILED = 0, 1
MOST_REASONS = 3  # in one line
# The most that a cell's line in the run file takes: its windows, and the rest of it.
BYTES_PER_WINDOW, BYTES_PER_CELL, BYTES_PER_SEAT = 384, 8192, 64


def prepare(spec: RunSpec) -> tuple[Plan, RunRecord]:
    """Return the plan on this machine, and the header of its run. Raises UsageError if nothing of it can run."""
    host = read_host()
    placement = placement_of(spec, host)
    tasks = resolve(spec.envs, spec.backends)
    room = memory_available()
    plan = informed(expand(spec, tasks, placement, room), Knowledge.load())
    if spec.interleave:
        plan = interleaved(plan, room)
    # Reference rows alone answer nothing, unless they are all that was asked for.
    wanted = [cell for cell in plan.cells if not find(cell.backend.name).reference_row] or plan.cells
    if wanted and all(cell.skip for cell in wanted):
        reasons = sorted({str(cell.skip) for cell in wanted})
        more = "; ..." if len(reasons) > MOST_REASONS else ""
        raise UsageError(f"nothing of this can run here: {'; '.join(reasons[:MOST_REASONS])}{more}")
    command = shlex.join(["vebench", *sys.argv[1:]])
    return plan, header.gather(plan, host, placement, command, datetime.now(UTC))


def into(path: Path, plan: Plan, head: RunRecord, *, quiet: bool) -> int:
    """Measure a prepared plan into a new run file, and show no table. Returns the exit status."""
    with store.RunWriter.create(path, head) as writer:
        return measure_all(plan, plan, writer, quiet=quiet)


def measure_all(plan: Plan, left: Plan, writer: RunWriter, *, quiet: bool) -> int:
    """Measure what is left of the plan, then pass after pass what ``--until`` asks for. Returns the exit status."""
    done = len(plan.cells) - len(left.cells)
    status = _measure(left, writer, done=done, quiet=quiet)
    deadline = time.monotonic() + plan.spec.budget
    while plan.spec.until is not None and time.monotonic() < deadline:
        run = store.read(writer.path)
        more = another_pass(plan, run)
        if not more.cells:
            break
        status = max(status, _measure(more, writer, done=len(run.cells), quiet=quiet, deadline=deadline))
    return status


def _measure(plan: Plan, writer: RunWriter, *, done: int, quiet: bool, deadline: float = math.inf) -> int:
    """Measure the plan's cells until the deadline, each on disk as soon as it ends. Returns the exit status.

    Raises InterruptedRunError if the user ends it.
    """
    kept: list[CellRecord] = []
    try:
        with Interrupts() as interrupts, Launcher(plan.spec, interrupts) as launch:
            for cell in follow(plan, launch, lambda _: writer, done=done, quiet=quiet, deadline=deadline):
                kept.append(cell)  # noqa: PERF402 - what came before an interrupt counts
    except KeyboardInterrupt:
        here = done + sum(not cell.interrupted for cell in kept)
        raise InterruptedRunError(
            f"interrupted: {here} of {done + len(plan.cells)} cells are in {writer.path}; "
            f"to go on: vebench run --resume {shlex.quote(str(writer.path))}"
        ) from None
    return FAILED if any(cell.status == "failed" for cell in kept) else DONE


def follow(  # noqa: PLR0913 - what a run is made of
    plan: Plan,
    launch: Launch,
    writer_of: Callable[[Cell], RunWriter],
    *,
    done: int,
    quiet: bool,
    deadline: float = math.inf,
) -> Iterator[CellRecord]:
    """Measure the plan's cells until the deadline, each in the file that is its own; yield each once it is on disk.

    Raises KeyboardInterrupt if the user ends it.
    """
    owed: dict[tuple[str, CellKey], int] = {}  # bytes of the lines of all cells that run
    with (
        screen(console.for_progress(), time.monotonic, quiet=quiet) as display,
        closing(measure(plan, launch, done)) as events,
    ):
        for event in events:
            finished = None
            if isinstance(event, CellStarted):
                side = event.cell.side
                owed[side, event.cell.key] = _line_bytes(event.cell, plan.spec.rounds)
                writer_of(event.cell).reserve(sum(size for (whose, _), size in owed.items() if whose == side))
            elif isinstance(event, CellFinished):
                owed.pop((event.cell.side, event.cell.key), None)
                writer = writer_of(event.cell)
                finished = writer.append(record(event.cell, event.outcome))
                logs.keep(writer.path, event.cell.key, event.outcome.log)
            display.show(event)
            if finished is not None:
                yield finished
                if not owed and time.monotonic() > deadline:
                    return


def _line_bytes(cell: Cell, rounds: int) -> int:
    """Return the most bytes that the cell's line takes: every window tried as often as may be, and its seats."""
    seats = cell.shape.processes * cell.shape.threads
    return BYTES_PER_CELL + BYTES_PER_WINDOW * MOST_TRIES * rounds + BYTES_PER_SEAT * seats
