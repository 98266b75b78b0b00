"""What the commands that measure share: they measure cells into run files, and show progress on the screen."""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.analysis.precision import next_repeats, wide_cells
from vebench.engine import runner
from vebench.engine.events import CellFinished, CellStarted, ProofDone
from vebench.engine.replayer import BROKEN_OFF
from vebench.errors import InterruptedRunError, StorageError
from vebench.interpreters.interrupts import Interrupts
from vebench.plan.passes import next_pass
from vebench.reports import console
from vebench.reports.live import screen
from vebench.results import logs, store
from vebench.results.records import MOST_PROOF_BYTES, most_bytes, proof_record, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from vebench.commands.world import World
    from vebench.engine.conversation import Launch
    from vebench.plan.cells import Cell, CellKey, Plan
    from vebench.results.records import CellRecord, RunRecord
    from vebench.results.store import RunWriter

DONE, FAILED = 0, 1


def measure_into(path: Path, plan: Plan, head: RunRecord, world: World, *, quiet: bool) -> int:
    """Measure a plan into a new run file. Returns the exit status."""
    with kept(store.RunWriter.create(path, head)) as writer:
        return measure(plan, plan, writer, world, quiet=quiet)


@contextmanager
def kept(writer: RunWriter) -> Iterator[RunWriter]:
    """Close the run file in the end, and say if it had to be written again.

    Raises StorageError if what was measured is in another file in the end.
    """
    try:
        with writer:
            yield writer
    except BaseException:
        _say(writer.moved or writer.note)
        raise
    if writer.moved:
        raise StorageError(writer.moved)
    _say(writer.note)


def _say(note: str) -> None:
    if note:
        with suppress(OSError):
            sys.stderr.write(f"vebench: {note}\n")


def measure(  # noqa: PLR0913 - a run needs all of these
    plan: Plan, left: Plan, writer: RunWriter, world: World, *, quiet: bool, go_on: str = ""
) -> int:
    """Measure the cells ``left`` of the plan, then further passes for ``--until``. Returns the exit status.

    Raises InterruptedRunError if the user interrupts it; it names ``go_on``, by default the command that finishes the
    file.
    """
    done = len(plan.cells) - len(left.cells)
    status = measure_pass(left, writer, world, done=done, quiet=quiet, go_on=go_on)
    until, deadline = plan.spec.until, world.clock() + plan.spec.budget
    while until is not None and world.clock() < deadline:
        writer.secure()
        run = store.read(writer.path)
        more = next_pass(plan, wide_cells(run, until), next_repeats(run))
        if not more.cells:
            break
        status = max(status, measure_pass(more, writer, world, done=len(run.cells), quiet=quiet, deadline=deadline))
    return status


def measure_pass(  # noqa: PLR0913 - a pass needs all of these
    plan: Plan,
    writer: RunWriter,
    world: World,
    *,
    done: int,
    quiet: bool,
    deadline: float = math.inf,
    keeps_to_it: bool = False,
    go_on: str = "",
) -> int:
    """Measure the plan's cells, but start none after the deadline. Returns the exit status; ``go_on``: as above.

    With ``keeps_to_it``, cells that take turns are given up at the deadline.
    """
    kept: dict[CellKey, CellRecord] = {}

    def out_of_time() -> bool:
        return keeps_to_it and world.clock() > deadline

    try:
        with Interrupts() as interrupts, world.start(plan.spec, interrupts) as launch:
            for cell in follow(plan, launch, lambda _: writer, world, done=done, quiet=quiet, out_of_time=out_of_time):
                kept[cell.key] = cell
                if not writer.expects and world.clock() > deadline:
                    break
    except KeyboardInterrupt:
        writer.secure()
        here, planned = done + sum(not cell.interrupted for cell in kept.values()), done + len(plan.cells)
        file = str(writer.path)
        then = f"to go on: {go_on or writer.run.header.resume_command(file)}"
        if here == planned and not go_on:
            then = f"to see them: vebench report {shlex.quote(file)}"
        what = f"{here} of {planned} cells are in {writer.path}{without_proof(kept.values())}"
        raise InterruptedRunError(f"interrupted: {what}; {then}") from None
    return FAILED if any(cell.status == "failed" for cell in kept.values()) else DONE


def without_proof(cells: Iterable[CellRecord]) -> str:
    """Return in words how many of these cells an interrupt has left without a proof; empty if it has left none."""
    count = sum(cell.proof is not None and cell.proof.reason == BROKEN_OFF for cell in cells)
    if not count:
        return ""
    return f" ({count} without proof of the same work: what they had recorded is gone, and --resume does not redo them)"


def follow(  # noqa: PLR0913 - a run needs all of these
    plan: Plan,
    launch: Launch,
    writer_of: Callable[[Cell], RunWriter],
    world: World,
    *,
    done: int = 0,
    quiet: bool,
    out_of_time: Callable[[], bool] = runner.never,
) -> Iterator[CellRecord]:
    """Measure the plan's cells, each into the file of ``writer_of(cell)``, and yield each once it is on disk.

    A cell is yielded again once its proof is there, too.
    ``done`` cells were measured before; ``out_of_time``: see ``runner.run``. Raises KeyboardInterrupt if the user
    interrupts it.
    """
    measured: dict[tuple[CellKey, str], CellRecord] = {}
    with (
        screen(console.for_progress(), world.clock, quiet=quiet) as display,
        closing(runner.run(plan, launch, done, out_of_time=out_of_time)) as events,
    ):
        for event in events:
            finished = None
            if isinstance(event, CellStarted):
                writer_of(event.cell).expect(event.cell.key, most_bytes(event.cell.shape, plan.spec.rounds))
            elif isinstance(event, CellFinished):
                writer = writer_of(event.cell)
                finished = writer.append(record(event.cell, event.outcome))
                logs.keep(writer.path, event.cell.key, event.outcome.log)
                if event.cell.recording is not None and event.outcome.status == "ok":
                    measured[event.cell.key, event.cell.side] = finished
                    writer.expect(event.cell.key, MOST_PROOF_BYTES)
            elif isinstance(event, ProofDone):
                writer_of(event.cell).append_proof(proof_record(event.cell, event.proof))
                finished = replace(measured.pop((event.cell.key, event.cell.side)), proof=event.proof)
            display.show(event)
            if finished is not None:
                yield finished
