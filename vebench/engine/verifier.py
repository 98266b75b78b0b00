"""Gets the proofs of one backend after another. Like the runner, it neither prints nor stores anything.

One process steps a backend and writes what it returns to files. Another, which does not load the adapter, compares.
"""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.backends.environments.suites import SUITES
from vebench.child.answers import Comparing, Done, Failure, Proof
from vebench.child.request import Proving, Replaying
from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.plan.spec import BackendChoice

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from vebench.backends.interface import Task
    from vebench.child.answers import Answer
    from vebench.engine.conversation import Launch
    from vebench.plan.cells import Cell

_LOOP_STEPS = 10  # of the plain loop, before several backends are compared on an environment that vebench does not know


@dataclass(frozen=True)
class Printed:
    """What a backend has printed that could not be compared to the end: the end of its log."""

    text: str


def prove(cells: Sequence[Cell], launch: Launch) -> Generator[tuple[Cell, Proof | Comparing | Printed]]:
    """Yield each cell with its proof, and before that how far it is.

    Right before the proof of a cell that failed comes what it printed. A cell that fails or cannot run is
    ``unverified``, with the reason. Where several backends are to be compared on an environment that vebench does not
    know, the plain loop is tried first: what it cannot step would hang or fail with each of them. Raises
    KeyboardInterrupt if the user interrupts.
    """
    backends = Counter(cell.task for cell in cells if cell.skip is None)
    tried: dict[Task, Proof] = {}
    for cell in cells:
        task = cell.task
        if cell.skip is not None:
            yield cell, Proof("unverified", reason=cell.skip, failed=True)
            continue
        chance = registry.find(cell.backend.name).chance(replace(task, exact=True))
        if chance is not None:
            yield cell, Proof("unverified", reason=chance)
            continue
        if backends[task] > 1 and not SUITES[task.suite].ours and task not in tried:
            *_, (_, found) = _proven(_plain_loop(cell), launch)
            tried[task] = found if isinstance(found, Proof) else Proof("unverified")
        if task in tried and tried[task].failed:
            why = f"not compared, as {registry.REFERENCE} cannot step {task.id}: {tried[task].reason}"
            yield cell, Proof("unverified", reason=why, failed=True)
        else:
            yield from _proven(cell, launch)


def _plain_loop(cell: Cell) -> Cell:
    """Return the comparison of the reference itself over a few steps, in place of that of a cell."""
    target = registry.find(registry.REFERENCE).target
    proving = Proving(_LOOP_STEPS) if cell.proving is None else replace(cell.proving, steps=_LOOP_STEPS)
    return replace(cell, backend=BackendChoice(registry.REFERENCE), target=target, python="", proving=proving)


def _proven(cell: Cell, launch: Launch) -> Iterator[tuple[Cell, Proof | Comparing | Printed]]:
    """Let one process step a cell's backend, and another compare what it has returned, even if it has failed."""
    path = f"{secrets.token_hex(8)}.rows"
    failed = printed = ""
    for answer in _answers(replace(cell, proving=cell.proving and replace(cell.proving, path=path)), launch):
        if isinstance(answer, Comparing):
            yield cell, answer
        elif isinstance(answer, Failure):
            failed = answer.reason
        elif isinstance(answer, Printed):
            printed = answer.text
    found = Proof("unverified", reason=failed or "it gave no answer", failed=True)
    for answer in _answers(replace(cell, replaying=Replaying(path, failed=failed)), launch):
        if isinstance(answer, Proof):
            found = answer
        elif isinstance(answer, Failure):
            found = replace(found, reason=failed or answer.reason)
        elif isinstance(answer, Printed) and not failed:
            printed = answer.text
    if found.failed:
        yield cell, Printed(printed)
    yield cell, found


def _answers(cell: Cell, launch: Launch) -> Iterator[Answer | Printed]:
    """Yield the answers of a cell's process, a ``Failure`` if it breaks off, and last what it has printed."""
    printed = ""
    try:
        with launch(cell) as conversation:
            try:
                for answer in conversation.messages():
                    yield answer
                    if isinstance(answer, (Done, Failure)) or (
                        cell.replaying is not None and isinstance(answer, Proof)
                    ):
                        break
            finally:
                printed = conversation.log()
    except InterruptedCellError:
        raise KeyboardInterrupt from None
    except (CellError, OSError) as error:
        yield Failure(str(error))
    yield Printed(printed)
