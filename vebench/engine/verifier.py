"""Gets the proofs of one backend after another. Like the runner, it neither prints nor stores anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.child.answers import Comparing, Failure, Proof
from vebench.engine.conversation import CellError, InterruptedCellError

if TYPE_CHECKING:
    from collections.abc import Generator

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
    for cell in cells:
        if cell.skip is not None:
            yield cell, Proof("unverified", reason=cell.skip, failed=True)
            continue
        so_far = _SoFar()
        try:
            with launch(cell) as conversation:
                try:
                    for message in conversation.messages():
                        so_far.take(message)
                        if so_far.proof is not None or so_far.failure is not None:
                            break
                        if isinstance(message, (Comparing, Proof)):
                            yield cell, message
                finally:
                    so_far.printed = conversation.log()
        except InterruptedCellError:
            if so_far.difference is not None:
                yield cell, so_far.ended("interrupted")
            raise KeyboardInterrupt from None
        except (CellError, OSError) as error:
            so_far.failure = str(error)
        proof = so_far.proof or so_far.ended(so_far.failure or "it gave no answer")
        if proof.failed or so_far.failure is not None:
            yield cell, Printed(so_far.printed)
        yield cell, proof


class _SoFar:
    """What is known of a cell: its proof or why it failed, before that a difference without a name."""

    def __init__(self) -> None:
        self.proof: Proof | None = None
        self.failure: str | None = None
        self.difference: Proof | None = None
        self.printed = ""
        self._rows, self._place = 0, ""

    def take(self, message: Answer) -> None:
        """Learn from an answer."""
        if isinstance(message, Failure):
            self.failure = message.reason
        elif isinstance(message, Comparing):
            self._rows, self._place = message.rows, message.place
        elif isinstance(message, Proof) and message.unnamed:
            self.difference = message
        elif isinstance(message, Proof):
            self.proof = message

    def ended(self, why: str) -> Proof:
        """Return the proof of a cell that has ended without one."""
        if self.difference is not None:
            return replace(self.difference, unnamed=False, fault=f"no name was found for its fault: {why}")
        reason = f"{why}, {self._place}" if self._place else why
        return Proof("unverified", reason=reason, rows=self._rows, failed=True)
