"""Gets the proofs of one backend after another. Like the runner, it neither prints nor stores anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.child.answers import Failure, Proof
from vebench.engine.conversation import CellError, InterruptedCellError

if TYPE_CHECKING:
    from collections.abc import Generator

    from vebench.engine.conversation import Launch
    from vebench.plan.cells import Cell


def prove(cells: tuple[Cell, ...], launch: Launch) -> Generator[tuple[Cell, Proof]]:
    """Yield each cell with its proof. A cell that fails or cannot run is ``unverified``, with the reason.

    Raises KeyboardInterrupt if the user interrupts.
    """
    for cell in cells:
        if cell.skip is not None:
            yield cell, Proof("unverified", reason=cell.skip, failed=True)
            continue
        try:
            with launch(cell) as conversation:
                proof = Proof("unverified", reason="it gave no answer", failed=True)
                for message in conversation.messages():
                    if isinstance(message, Proof):
                        proof = message
                        break
                    if isinstance(message, Failure):
                        proof = Proof("unverified", reason=message.reason, failed=True)
                        break
        except InterruptedCellError:
            raise KeyboardInterrupt from None
        except (CellError, OSError) as error:
            proof = Proof("unverified", reason=str(error), failed=True)
        yield cell, proof
