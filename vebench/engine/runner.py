"""Goes through the plan, one cell after another, and tells what happens as a stream of events.

The runner neither prints nor stores: whoever iterates over it does. A cell's failure never ends the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.events import (
    CellFinished,
    CellReady,
    CellStarted,
    Layout,
    Outcome,
    RunStarted,
    Window,
    WindowDone,
)
from vebench.engine.messages import Done, Failure, Ready

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from vebench.engine.conversation import Conversation, Launch
    from vebench.engine.events import Event
    from vebench.plan.cells import Cell, Plan


def run(plan: Plan, launch: Launch, done: int = 0) -> Generator[Event]:
    """Measure the plan's cells in order, and yield events.

    ``done`` is the number of cells that an earlier run has measured. A cell that the user interrupts is finished as
    failed, with the windows that it has; then KeyboardInterrupt is raised.
    """
    yield RunStarted(plan, done)
    for cell in plan.cells:
        if cell.skip is not None:
            yield CellFinished(cell, Outcome("skipped", cell.skip))
            continue
        yield CellStarted(cell)
        progress = Progress(cell)
        try:
            with launch(cell) as conversation:
                yield from progress.follow(conversation)
        except InterruptedCellError as error:
            if progress.windows:
                yield CellFinished(cell, progress.outcome(str(error)))
            raise KeyboardInterrupt from None
        except OSError as error:
            progress.reason = f"its process could not be started: {error}"
        yield CellFinished(cell, progress.outcome())


class Progress:
    """What is known of a cell so far."""

    def __init__(self, cell: Cell) -> None:
        self.reason: str | None = None
        self._cell = cell
        self._layout: Layout | None = None
        self._startup_ns: int | None = None
        self._done = Done(None)
        self.windows: list[Window] = []
        self._log = ""

    def follow(self, conversation: Conversation) -> Iterator[Event]:
        """Yield an event for each message, until the cell is done or has failed."""
        try:
            for message in conversation.messages():
                match message:
                    case Ready():
                        self._layout, self._startup_ns = message.layout, message.startup_ns
                        yield CellReady(self._cell, message.startup_ns)
                    case Window():
                        self.windows.append(message)
                        yield WindowDone(self._cell, message)
                    case Done():
                        self._done = message
                        return
                    case Failure():
                        self.reason = message.reason
                        break
        except InterruptedCellError:
            raise
        except CellError as error:
            self.reason = str(error)
        self._log = conversation.log()

    def outcome(self, reason: str | None = None) -> Outcome:
        """Return how the cell ended; ``reason`` overrides what the cell itself said."""
        why = reason or self.reason
        return Outcome(
            status="ok" if why is None else "failed",
            reason=why,
            layout=self._layout,
            startup_ns=self._startup_ns,
            peak_rss_bytes=self._done.peak_rss_bytes,
            windows=tuple(self.windows),
            log=self._log,
            seats=self._done.seats,
            memory_by_node=self._done.memory_by_node,
            warmup_ns=self._done.warmup_ns,
            settled=self._done.settled,
        )
