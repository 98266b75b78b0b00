"""The events that the runner reports to its listeners (the screen, the run file), as immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from vebench.child.answers import Done

if TYPE_CHECKING:
    from vebench.child.answers import CellProof, Layout
    from vebench.child.window import Window
    from vebench.plan.cells import Cell, Plan


_NOTHING_SEEN = Done()


@dataclass(frozen=True)
class Outcome:
    """How a cell ended. A failed cell keeps the windows that it has measured.

    ``layout`` and ``startup_ns`` are None if it never got ready. ``done`` has only unknown values if the cell did not
    finish. ``log`` is the end of what a failed cell printed.
    """

    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    layout: Layout | None = None
    startup_ns: int | None = None
    windows: tuple[Window, ...] = ()
    done: Done = _NOTHING_SEEN
    log: str = ""


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
    """A cell that takes turns is warm and waits for its first turn."""

    cell: Cell


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
