"""Gets the proofs of one backend after another. Like the runner, it neither prints nor stores anything."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.child.answers import Comparing, Failure, Proof
from vebench.engine.conversation import CellError, InterruptedCellError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from vebench.child.answers import Answer
    from vebench.engine.conversation import Launch
    from vebench.plan.cells import Cell


@dataclass(frozen=True)
class Printed:
    """What a backend has printed that could not be compared to the end: the end of its log."""

    text: str


def prove(cells: tuple[Cell, ...], launch: Launch) -> Generator[tuple[Cell, Proof | Comparing | Printed]]:
    """Yield each cell with its proof, and before that how far it is, a difference without a name among it.

    Right before the proof of a cell that failed comes what it printed. A cell that fails or cannot run is
    ``unverified``, with the reason; but if a difference was shown before it failed, it is ``different``. Raises
    KeyboardInterrupt if the user interrupts.
    """
    for _, group in groupby(cells, key=_process):
        left = deque(group)
        while left and left[0].skip is not None:
            cell = left.popleft()
            yield cell, Proof("unverified", reason=cell.skip, failed=True)
        while left:
            yield from _launched(left, launch)


def _process(cell: Cell) -> tuple[object, ...]:
    """Return what the cells have in common that one process compares.

    An adapter that is not our own has one for itself, as whatever it leaves or breaks is to be its own.
    """
    return cell.task, cell.skip is None, None if cell.backend.name in registry.BY_NAME else cell.key


def _launched(left: deque[Cell], launch: Launch) -> Generator[tuple[Cell, Proof | Comparing | Printed]]:
    """Let one process compare the cells that are left, up to the first after which it cannot go on."""
    first, *others = left
    so_far, printed, why = _SoFar(), "", "it gave no answer"
    try:
        with launch(replace(first, then=tuple(others))) as conversation:
            try:
                for message in conversation.messages():
                    so_far.take(message)
                    if so_far.result is not None:
                        yield from _ended(left.popleft(), so_far.result, conversation.log())
                        so_far = _SoFar()
                    elif isinstance(message, (Comparing, Proof)):
                        yield left[0], message
                    if not left:
                        return
            finally:
                printed = conversation.log()
    except InterruptedCellError:
        if left and so_far.difference is not None:
            yield left[0], so_far.ended("interrupted")
        raise KeyboardInterrupt from None
    except (CellError, OSError) as error:
        why = str(error)
    if left and (so_far.begun or left[0] is first):  # otherwise it is not its fault: it gets a process of its own
        yield from _ended(left.popleft(), so_far.ended(why), printed)


def _ended(cell: Cell, proof: Proof, printed: str) -> Iterator[tuple[Cell, Proof | Printed]]:
    """Yield a cell's proof, and before it what was printed if the cell failed."""
    if proof.failed:
        yield cell, Printed(printed)
    yield cell, proof


class _SoFar:
    """What is known of a cell: whether it has ``begun``, its ``result``, before that a difference without a name."""

    def __init__(self) -> None:
        self.begun = False
        self.result: Proof | None = None
        self.difference: Proof | None = None
        self._rows, self._place = 0, ""

    def take(self, message: Answer) -> None:
        """Learn from an answer."""
        self.begun = True
        if isinstance(message, Failure):
            self.result = self.ended(message.reason)
        elif isinstance(message, Comparing):
            self._rows, self._place = message.rows, message.place
        elif isinstance(message, Proof) and message.unnamed:
            self.difference = message
        elif isinstance(message, Proof):
            self.result = message

    def ended(self, why: str) -> Proof:
        """Return the proof of a cell that has ended without one."""
        if self.difference is not None:
            return replace(self.difference, unnamed=False, fault=f"no name was found for its fault: {why}")
        reason = f"{why}, {self._place}" if self._place else why
        return Proof("unverified", reason=reason, rows=self._rows, failed=True)
