"""The runner's view of a running cell: the interface between the runner and operating-system processes.

Answers of a cell are checked when they are read, so that no absurd value gets into a run file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

import msgspec

from vebench.child.answers import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from vebench.child.answers import Answer
    from vebench.plan.cells import Cell

_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANSWERS = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


class CellError(Exception):
    """The cell cannot go on. The text is the reason for its record."""


class InterruptedCellError(CellError):
    """The user ended the run while the cell was measuring."""


class Conversation(ABC):
    """A running cell: its answers, and its turns if it takes turns with other cells."""

    @abstractmethod
    def messages(self) -> Iterator[Answer]:
        """Yield the cell's answers up to ``Done``, ``Failure`` or a proof.

        Raises CellError if it cannot go on.
        """

    def take_turn(self) -> None:  # noqa: B027 - replicas take no turns
        """Let a cell that takes turns run until the end of its next window."""

    def rest(self) -> None:  # noqa: B027 - likewise
        """Stop the cell until its next turn."""

    @abstractmethod
    def log(self) -> str:
        """Return the end of what the cell's processes printed."""


class Launch(Protocol):
    """How the runner starts a cell."""

    def __call__(self, cell: Cell) -> AbstractContextManager[Conversation]:
        """Return the running cell. When the context is left, all its processes have ended."""


def decode(text: bytes) -> Answer:
    """Return the answer on a line. Raises ValueError if it is invalid."""
    try:
        line = _LINE.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if len(line) != 1 or not line.keys() <= _ANSWERS.keys():
        raise ValueError(f"an answer must have one key, one of {', '.join(_ANSWERS)}")
    ((name, body),) = line.items()
    answer: Answer = _ANSWERS[name].decode(body)
    return answer
