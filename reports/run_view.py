"""What a terminal shows of a run while it measures: a table of the task that fills, what runs now, what is left.

Nothing in it moves: rows, columns and widths follow from the plan.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from vebench.engine.events import (
    CellFinished,
    CellReady,
    CellStarted,
    CellWarm,
    ProofDone,
    ProofStarted,
    RunStarted,
    WindowDone,
)
from vebench.reports import figures
from vebench.reports.board import Board
from vebench.reports.cell_words import name, one_row, padded, proven, result, widths
from vebench.reports.time_left import TimeLeft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.engine.events import Event
    from vebench.plan.cells import Cell, CellKey

FOOT = 4  # lines below the table, and one for the cursor
# What a cell does after an event, in words, and in a word for the table.
STATES: dict[type, tuple[str, str]] = {
    CellStarted: ("starting", "starts"),
    CellReady: ("warming up", "warms"),
    CellWarm: ("warm, waits for its turn", "warm"),
    ProofStarted: ("proving that it did the same work", "proving"),
}


class RunView:
    """Follows the events of one run on a terminal of ``width`` columns and ``height`` lines."""

    def __init__(self, started: RunStarted, now: float, width: int, height: int) -> None:
        plan = started.plan
        self._time = TimeLeft(plan, now)
        self._spec = plan.spec
        self._width = width
        self._total, self._finished = len(plan.cells) + started.done, started.done
        self._to_prove = 0
        self._widths = widths([name(cell)[:2] for cell in plan.cells])
        self._size_width = max((len(cell.key.size) for cell in plan.cells), default=0)
        self._passes = max((cell.repeat for cell in plan.cells), default=0) + 1
        boards = [Board(env, plan) for env in dict.fromkeys(cell.task.id for cell in plan.cells)]
        fit = all(board.fits(width, height - FOOT) for board in boards if board.rows)
        self._boards = {board.env: board for board in boards if board.rows} if fit else {}
        self._board: Board | None = None
        self._open = Counter(cell.task.id for cell in plan.cells)
        self._windows: Counter[tuple[CellKey, str]] = Counter()
        self._current: Cell | None = None
        self._state = ""

    def note(self, event: Event, now: float, *, news: bool) -> Iterator[Text]:
        """Note an event. Yield lines that stay above the view; ``news``: how its cell ended has not been said yet."""
        self._time.note(event, now)
        if isinstance(event, RunStarted):
            return
        yield from self._turned_to(event.cell)
        self._follow(event)
        if isinstance(event, CellFinished):
            self._finished += 1
            self._to_prove += event.cell.recording is not None and event.outcome.status == "ok"
            self._open[event.cell.task.id] -= 1
            if news and not (event.outcome.status == "ok" and event.cell.task.id in self._boards):
                style = "" if event.outcome.status == "ok" else "yellow"
                size = name(event.cell)[2]
                line = f"{padded(name(event.cell)[:2], self._widths)}  {size:{self._size_width}}  {result(event)}"
                yield one_row(Text(line, style=style))
        if isinstance(event, ProofDone):
            self._to_prove -= 1
        if isinstance(event, ProofDone) and event.proof.verdict == "different":
            size = name(event.cell)[2]
            line = f"{padded(name(event.cell)[:2], self._widths)}  {size:{self._size_width}}  {proven(event)}"
            yield one_row(Text(line, style="yellow"))

    def _turned_to(self, cell: Cell) -> Iterator[Text]:
        """Show the table of the cell's task, and yield that of the task before if nothing more will come into it."""
        before, self._board = self._board, self._boards.get(cell.task.id)
        if before is not None and before is not self._board and not self._open[before.env]:
            yield from before.lines(self._width)

    def _follow(self, event: Event) -> None:
        """Note what the event's cell does."""
        if isinstance(event, RunStarted):
            return
        cell, key = event.cell, (event.cell.key, event.cell.side)
        self._current = cell
        if isinstance(event, WindowDone):
            self._windows[key] += 1
            done, rounds = self._windows[key], self._spec.rounds
            # A window that a quota held back, or that others disturbed, is measured again.
            again = f", {done - rounds} again" if done > rounds else ""
            self._state, word = f"window {min(done, rounds)} of {rounds}{again}", ""
            if self._board is not None:
                self._board.add(cell, event.window)
        elif isinstance(event, CellFinished):
            self._state, word = f"ended: {event.outcome.status}", event.outcome.status
        elif isinstance(event, ProofDone):
            self._state, word = proven(event), event.proof.verdict
        else:
            self._state, word = STATES[type(event)]
            if isinstance(event, ProofStarted) and event.seconds:
                self._state += f", about {figures.duration(event.seconds)} at most"
        if self._board is not None:
            self._board.note(cell, word)

    def lines(self) -> Iterator[Text]:
        """Yield the view."""
        if self._board is not None:
            yield from map(one_row, self._board.lines(self._width, self._current))
        if self._current is not None:
            turn = f"pass {self._current.repeat + 1} of {self._passes}  " if self._passes > 1 else ""
            labels = padded(name(self._current)[:2], self._widths)
            line = Text(f"{turn}{labels}  {self._current.key.size:{self._size_width}}  {self._state}")
            yield one_row(line)
        prove = f" measured, {self._to_prove} to prove" if self._to_prove else ""
        done = f"{self._finished} of {self._cells()}{prove}"
        yield one_row(Text(f"{figures.bar(self._time.share)} {done}{self._left()}"))

    def _cells(self) -> str:
        return figures.counted(self._total, "cell")

    def _left(self) -> str:
        """Return how long it will still take. What --until adds is not known before."""
        seconds = self._time.whole_seconds
        more = " in these passes" if self._spec.until is not None else ""
        return f", about {figures.duration(seconds)} left{more}" if seconds else ""
