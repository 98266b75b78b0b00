"""The engine's interface: a running cell as the runner sees it, and the events that the runner yields.

Answers of a cell are checked when they are read, so that no absurd value gets into a run file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import msgspec

from vebench.child.answers import KINDS, Answer, Cause, CellProof, Done, Layout, Window
from vebench.child.request import Recording
from vebench.plan.cells import Cell, Plan

_UNKNOWN = Done()
_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANSWERS = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


class CellError(Exception):
    """The cell cannot go on. The text is stored as the reason in the cell's record."""


class InterruptedCellError(CellError):
    """The user ended the run while the cell was measuring."""

    def __init__(self) -> None:
        super().__init__(Cause.INTERRUPTED.reason)


class Conversation(ABC):
    """A running cell: its answers, and its turns if it takes turns with other cells."""

    @abstractmethod
    def messages(self) -> Iterator[Answer]:
        """Yield the cell's answers up to ``Done``, ``Failure`` or a proof. Raises CellError if it cannot go on."""

    def take_turn(self) -> None:  # noqa: B027 - replicas take no turns
        """Let a cell that takes turns run until the end of its next window."""

    def rest(self) -> None:  # noqa: B027 - replicas take no turns
        """Stop the cell until its next turn."""

    @abstractmethod
    def log(self) -> str:
        """Return the end of the log of the cell's processes."""


# Starts a cell. When the context ends, all its processes have ended.
Launch = Callable[[Cell], AbstractContextManager[Conversation]]


def decode(text: bytes) -> Answer:
    """Return the answer that a line of JSON encodes. Raises ValueError if the line is invalid."""
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
    """How a cell ended. A failed cell keeps the windows that it has measured."""

    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    layout: Layout | None = None  # None, as ``startup_ns`` and ``reset_ns``, if the cell was never ready
    startup_ns: int | None = None
    windows: tuple[Window, ...] = ()
    done: Done = _UNKNOWN  # without facts if the cell did not finish
    log: str = ""  # the end of a failed cell's output
    reset_ns: int | None = None
    cause: Cause | None = None


@dataclass(frozen=True)
class RunStarted:
    """The first event."""

    plan: Plan
    done: int = 0  # the number of cells that an earlier run has measured


@dataclass(frozen=True)
class CellWarm:
    """A cell that takes turns is warm, and waits for its first turn."""

    cell: Cell


@dataclass(frozen=True)
class WindowDone:
    """A window of a cell has been measured."""

    cell: Cell
    window: Window


@dataclass(frozen=True)
class CellFinished:
    """A cell has ended or was skipped. ``run`` yields one for each cell, unless it is interrupted."""

    cell: Cell
    outcome: Outcome

    @property
    def needs_proof(self) -> bool:
        """Whether the cell's recording is to be compared with the reference."""
        return self.outcome.status == "ok" and isinstance(self.cell.job, Recording) and self.cell.job.compared


@dataclass(frozen=True)
class FirstLook:
    """Preliminary results of cells that take turns, sent once each cell has a few windows. The cells go on."""

    cells: tuple[CellFinished, ...]


@dataclass(frozen=True)
class ProofStarted:
    """The comparison of a finished cell's recording with the reference begins."""

    cell: Cell


@dataclass(frozen=True)
class ProofDone:
    """The comparison of a cell's recording has ended. ``proof`` has the verdict, or the reason why there is none."""

    cell: Cell
    proof: CellProof


Event = RunStarted | CellWarm | WindowDone | CellFinished | ProofStarted | ProofDone
