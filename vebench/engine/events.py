"""What the runner reports to its listeners (the screen, the run file) while it measures. Plain immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from vebench.child.answers import Done

if TYPE_CHECKING:
    from vebench.child.answers import Layout
    from vebench.child.window import Window
    from vebench.plan.cells import Cell, Plan


NOTHING_SEEN = Done()


@dataclass(frozen=True)
class Outcome:
    """How a cell ended. A failed cell keeps the windows that it had measured.

    ``layout`` and ``startup_ns`` are None if it never got ready; ``done`` holds nothing if it did not get to its end.
    ``log`` is the end of what a failed cell printed.
    """

    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    layout: Layout | None = None
    startup_ns: int | None = None
    windows: tuple[Window, ...] = ()
    done: Done = NOTHING_SEEN
    log: str = ""


@dataclass(frozen=True)
class RunStarted:
    """The first event. ``done`` cells of the plan were measured before, by the run that this one resumes."""

    plan: Plan
    done: int = 0


@dataclass(frozen=True)
class CellStarted:
    """A cell's interpreter is being started."""

    cell: Cell


@dataclass(frozen=True)
class CellReady:
    """A cell's environments are built and reset, which took ``startup_ns``; warm-up begins."""

    cell: Cell
    startup_ns: int


@dataclass(frozen=True)
class CellWarm:
    """A cell that takes turns with others is warm, and waits for its first turn."""

    cell: Cell


@dataclass(frozen=True)
class WindowDone:
    """A window of a cell has been measured."""

    cell: Cell
    window: Window


@dataclass(frozen=True)
class CellFinished:
    """A cell has ended, one way or another. Every cell of the plan gets exactly one of these, unless interrupted."""

    cell: Cell
    outcome: Outcome


Event = RunStarted | CellStarted | CellReady | CellWarm | WindowDone | CellFinished
