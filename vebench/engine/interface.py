"""What the engine shows: how the runner sees a running cell, and the events that it reports to screen and run file.

Answers of a cell are checked when they are read, so that no absurd value gets into a run file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from vebench.child.answers import KINDS, Done
from vebench.child.request import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from vebench.child.answers import Answer, CellProof, Layout
    from vebench.child.window import Window
    from vebench.plan.cells import Cell, Plan

    # How the runner starts a cell. When the context is left, all its processes have ended.
    Launch = Callable[[Cell], AbstractContextManager["Conversation"]]

_NOTHING_SEEN = Done()
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

    def rest(self) -> None:  # noqa: B027 - same reason
        """Stop the cell until its next turn."""

    @property
    def fault(self) -> str | None:
        """In words why the windows so far are not to be trusted, None if nothing can be said against them."""
        return None

    @abstractmethod
    def log(self) -> str:
        """Return the end of what the cell's processes printed."""


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


@dataclass(frozen=True)
class Outcome:
    """How a cell ended. A failed cell keeps the windows that it has measured.

    ``layout``, ``startup_ns`` and ``reset_ns`` are None if it never got ready. ``done`` has only unknown values if the
    cell did not finish. ``log`` is the end of what a failed cell printed.
    """

    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    layout: Layout | None = None
    startup_ns: int | None = None
    windows: tuple[Window, ...] = ()
    done: Done = _NOTHING_SEEN
    log: str = ""
    reset_ns: int | None = None


@dataclass(frozen=True)
class RunStarted:
    """The first event. The run that this one resumes has already measured ``done`` cells."""

    plan: Plan
    done: int = 0


@dataclass(frozen=True)
class CellStarted:
    """A cell's interpreter starts."""

    cell: Cell


@dataclass(frozen=True)
class CellReady:
    """A cell's environments are built and reset, which took ``startup_ns``. Its warm-up begins."""

    cell: Cell
    startup_ns: int


@dataclass(frozen=True)
class CellWarm:
    """A cell that takes turns is warm and waits for its first turn. The rate is in rows, None if unknown."""

    cell: Cell
    rows_per_second: float | None = None


@dataclass(frozen=True)
class WindowDone:
    """A window of a cell has been measured."""

    cell: Cell
    window: Window


@dataclass(frozen=True)
class CellFinished:
    """A cell has ended, for any reason. Each cell of the plan has exactly one such event, unless interrupted."""

    cell: Cell
    outcome: Outcome

    @property
    def is_proven(self) -> bool:
        """Whether what the cell has recorded is compared."""
        return self.outcome.status == "ok" and isinstance(self.cell.job, Recording) and self.cell.job.compared


@dataclass(frozen=True)
class FirstLook:
    """What is known of cells that take turns, once each has a few windows. They go on."""

    cells: tuple[CellFinished, ...]


@dataclass(frozen=True)
class ProofStarted:
    """What a cell returned while it was measured begins to be compared with the reference. It is over by then.

    Its steps are made again for ``seconds`` at most, which may be far more than they take.
    """

    cell: Cell
    seconds: float = 0.0


@dataclass(frozen=True)
class ProofDone:
    """What a cell returned has been compared, or could not be."""

    cell: Cell
    proof: CellProof


Event = RunStarted | CellStarted | CellReady | CellWarm | WindowDone | CellFinished | ProofStarted | ProofDone
