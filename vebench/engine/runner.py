"""Goes through the plan, cell by cell, and reports what happens as a stream of events.

The runner neither prints nor stores anything: its caller does. A failed cell never ends the run.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from vebench.child.answers import Done, Failure, Ready, Warm
from vebench.child.window import Window
from vebench.engine.interface import (
    CellError,
    CellFinished,
    CellReady,
    CellStarted,
    CellWarm,
    InterruptedCellError,
    Outcome,
    RunStarted,
    WindowDone,
)
from vebench.engine.proofs import SEED_BITS, broken_off, replayed, with_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from vebench.child.answers import Layout
    from vebench.engine.interface import Event, Launch
    from vebench.plan.cells import Cell, Plan


# Why a task is not measured, by its name and side: the plain loop with one worker could not step it.
_Over = dict[tuple[str, str], str]

# The reason of a cell that was at work when there was no time any more.
GIVEN_UP = "no time was left: give a larger --budget"


def _never() -> bool:
    """Say that there is time."""
    return False


def run(
    plan: Plan, launch: Launch, done: int = 0, *, out_of_time: Callable[[], bool] = _never, gives_up: bool = False
) -> Generator[Event]:
    """Measure the plan's cells in order, and yield events.

    ``done`` is the number of cells that an earlier run has measured. If the user interrupts a cell that has windows,
    it is finished as failed with these windows. Then KeyboardInterrupt is raised. What cells have recorded is compared
    with the reference once they have finished, and those that they take turns with; if the user interrupts, that is
    reported as broken off.

    Once the plain loop with one worker has failed in its first repeat before its first window, all other cells of its
    task fail with its reason: an environment that hangs would hang in each of them until its ``--timeout``.

    Once ``out_of_time`` returns true, no cell is started any more but those that take turns with one that has. With
    ``gives_up``, these are not started either, and all that still have windows to measure finish as failed.
    """
    yield RunStarted(plan, done)
    chooser = secrets.randbits(SEED_BITS)
    over: _Over = {}
    cells = [with_recording(cell, plan.spec, chooser) for cell in plan.cells]
    for number, group in groupby(cells, key=attrgetter("group")):
        for part in [tuple(group)] if number is not None else [(cell,) for cell in group]:
            if part[0].skip is None and out_of_time():
                continue
            measured: list[CellFinished] = []
            try:
                for event in _measured(part, launch, plan.spec.rounds, out_of_time if gives_up else _never, over):
                    if isinstance(event, CellFinished):
                        measured.append(event)
                    yield event
                while measured:
                    yield from replayed(measured[0].cell, measured[0].outcome, launch, plan.spec)
                    del measured[0]
            except KeyboardInterrupt:
                for finished in measured:
                    yield from broken_off(finished.cell, finished.outcome)
                raise


def _measured(
    cells: Sequence[Cell], launch: Launch, rounds: int, out_of_time: Callable[[], bool], over: _Over
) -> Iterator[Event]:
    """Start the cells one after another, then let each measure a window in turn: forwards, backwards, forwards ...

    So each cell comes before another as often as after it, and what slows the machine for a while slows them all. A
    cell that takes no turns is measured once it is started.
    """
    all_cells = tuple(_CellAtWork(cell, over) for cell in cells)
    try:
        with ExitStack() as stack:
            for number, cell in enumerate(all_cells):
                if number and out_of_time():
                    break
                yield from cell.start(launch, stack)
            yield from _turns(all_cells, rounds, out_of_time)
        for cell in all_cells:
            if cell.at_work:
                yield CellFinished(cell.cell, cell.outcome(GIVEN_UP))
    except InterruptedCellError as error:
        for cell in all_cells:
            if cell.at_work and cell.windows:
                yield CellFinished(cell.cell, cell.outcome(str(error)))
        raise KeyboardInterrupt from None


def _turns(cells: Sequence[_CellAtWork], rounds: int, out_of_time: Callable[[], bool]) -> Iterator[Event]:
    """Let cells take turns until all have ended, or there is no time for those that lack windows."""

    def goes_on(cell: _CellAtWork) -> bool:
        return cell.at_work and (len(cell.windows) >= rounds or not out_of_time())

    while order := [cell for cell in cells if goes_on(cell)]:
        for cell in (*order, *reversed(order)):
            if goes_on(cell):
                yield from cell.take_turn()


class _CellAtWork:
    """A cell with what it has reported so far, and whether it is still at work."""

    def __init__(self, cell: Cell, over: _Over) -> None:
        self.cell = cell
        self.at_work = False
        self.windows: list[Window] = []
        self._over = over
        self._reason: str | None = None
        self._layout: Layout | None = None
        self._startup_ns: int | None = None
        self._done = Done()
        self._log = ""
        self._own = ExitStack()

    def start(self, launch: Launch, stack: ExitStack) -> Iterator[Event]:
        """Follow the cell from its start until its first turn, or its end. It ends with ``stack`` at the latest."""
        cell = self.cell
        if cell.skip is not None:
            yield CellFinished(cell, Outcome("skipped", cell.skip))
            return
        if (why := self._over.get((cell.task.id, cell.side))) is not None:
            yield CellFinished(cell, Outcome("failed", why))
            return
        stack.push(self._own)
        yield CellStarted(cell)
        try:
            self._conversation = self._own.enter_context(launch(cell))
        except OSError as error:
            self._reason = f"its process could not be started: {error}"
            yield CellFinished(cell, self.outcome())
            return
        self.at_work = True
        self._events = self._followed()
        yield from self._until(CellWarm)

    def take_turn(self) -> Iterator[Event]:
        """Let the cell run until the end of its next window, or until it ends."""
        self._conversation.take_turn()
        yield from self._until(WindowDone)

    def _until(self, kind: type[Event]) -> Iterator[Event]:
        for event in self._events:
            if isinstance(event, kind):
                self._conversation.rest()
                yield event
                return
            yield event
        self.at_work = False
        self._own.close()  # what is left of it must not disturb the others
        yield CellFinished(self.cell, self.outcome())

    def _followed(self) -> Iterator[Event]:
        """Yield an event for each message, until the cell is done or has failed."""
        cell = self.cell
        try:
            for message in self._conversation.messages():
                match message:
                    case Ready():
                        self._layout, self._startup_ns = message.layout, message.startup_ns
                        yield CellReady(cell, message.startup_ns)
                    case Warm():
                        yield CellWarm(cell)
                    case Window():
                        self.windows.append(message)
                        yield WindowDone(cell, message)
                    case Done():
                        self._done = message
                        return
                    case Failure():
                        self._reason = message.reason
                        break
        except InterruptedCellError:
            raise
        except CellError as error:
            self._reason = str(error)
        self._log = self._conversation.log()
        if cell.is_base and not (cell.repeat or cell.replicas or self.windows):
            why = f"not measured, as {cell.backend.label} with one worker cannot step {cell.task.id}: {self._reason}"
            self._over.setdefault((cell.task.id, cell.side), why)

    def outcome(self, reason: str | None = None) -> Outcome:
        """Return how the cell ended. ``reason`` overrides the cell's own."""
        why = reason or self._reason
        return Outcome(
            status="ok" if why is None else "failed",
            reason=why,
            layout=self._layout,
            startup_ns=self._startup_ns,
            windows=tuple(self.windows),
            done=self._done,
            log=self._log,
        )
