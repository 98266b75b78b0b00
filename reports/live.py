"""Progress of a run or a comparison on standard error: a line for each cell, and on a terminal a bar below the lines.

The bar is drawn only at an event, because drawing takes CPU time from the measured cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from vebench.analysis.cell import CellSummary
from vebench.analysis.statistics import estimate
from vebench.analysis.summary import batch_times, frame_rates, proof_difference
from vebench.backends.registry import NULL
from vebench.engine.runner import CellFinished, Event, ProofDone, ProofStarted, RunStarted, WindowDone
from vebench.errors import one_line
from vebench.plan.cells import Cell
from vebench.reports import figures
from vebench.reports.console import discard
from vebench.reports.document import Page
from vebench.reports.formats import TERMINAL
from vebench.results.records import record

_BAR_WIDTH = 12


class Screen:
    """Lines that stay, and on a terminal a bar below them. The bar disappears at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        if console.is_terminal and not console.is_dumb_terminal and not console.quiet:
            # If the bar's line wrapped, a part of it would stay.
            words = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
            self._bar = Progress(BarColumn(_BAR_WIDTH), words, console=console, auto_refresh=False, transient=True)
            self._bar.add_task("", visible=False)

    def __enter__(self) -> Self:
        with self._drawing():
            if self._bar is not None:
                self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar, because a table follows."""
        with self._drawing():
            if self._bar is not None:
                self._bar.stop()

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Stop writing after the reader is gone or the disk is full. The run continues."""
        try:
            yield
        except OSError:
            self._console.quiet = True
            discard(self._console.file)

    def say(self, text: str, style: str = "", *, lead: str = "") -> None:
        """Print a line that stays. Only the terminal wraps it. ``lead`` is printed unchanged before the text."""
        with self._drawing():
            self._console.print(Text(f"{lead}{one_line(text)}", style=style), soft_wrap=True)

    def draw(self, done: float, total: float, words: str) -> None:
        """Draw the bar."""
        with self._drawing():
            if self._bar is not None:
                (task,) = self._bar.task_ids
                self._bar.update(task, total=total, completed=done, description=words, visible=True, refresh=True)


class RunScreen(Screen):
    """The screen of a run: a line for each finished cell, each cell with other work, and each reason to skip cells.

    ``before`` is the number of windows measured earlier. ``later`` is the number of cells that follow the plan's cells.
    """

    def __init__(self, console: Console, *, before: int = 0, later: int = 0) -> None:
        super().__init__(console)
        self._done, self._windows, self._later = before, before, later
        self._finished = self._total = 0  # numbers of cells
        self._skipped: set[str | None] = set()
        # The rates of windows, by task, then by setting.
        self._rates: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def show(self, event: Event) -> None:
        """Print the lines of an event of the runner, and draw the bar once."""
        if isinstance(event, RunStarted):
            plan = event.plan
            self._finished, self._total = event.done, len(plan.cells) + event.done + self._later
            cells = sum(cell.skip is None for cell in plan.cells) + self._later
            self._windows += plan.spec.windows * cells
            self.draw(self._done, self._windows, f"0 of {figures.counted(self._windows, 'window')}")
            return
        cell, rates, words = event.cell, self._rates[event.cell.task.id], ""
        if isinstance(event, WindowDone):
            self._done = min(self._done + 1, self._windows)  # disturbed windows are measured again
            if not cell.entry.reference_row:
                frames = cell.task.frame_skip * event.window.transitions
                rates[_setting(cell)].append(frames * 1e9 / max(event.window.ns, 1))
        elif isinstance(event, CellFinished):
            self._finish(event)
        elif isinstance(event, ProofStarted):
            words = ", comparing rows with the reference"
        elif isinstance(event, ProofDone) and event.proof.verdict == "different":
            rates.pop(_setting(cell), None)
            why = f"{_name(cell)}: other work while it was measured: {proof_difference(event.proof)}"
            self.say(why, "yellow")
        best = max(((median(found), setting) for setting, found in rates.items()), default=None)
        if best is not None:
            words += f", best so far {figures.number(best[0])} frames/s: {best[1]}"
        whole = figures.counted(self._windows, "window")
        self.draw(self._done, self._windows, f"{self._done:,} of {whole}{words}")

    def show_page(self, page: Callable[[], Page]) -> None:
        """Print the results so far as a page."""
        with self._drawing():
            rendered = TERMINAL.render(page())
            self._console.rule("first look; the run goes on", characters="-")
            self._console.print(rendered, crop=False)
            self._console.rule(characters="-")

    def _finish(self, event: CellFinished) -> None:
        self._finished += 1
        status, reason = event.outcome.status, event.outcome.reason
        number = f"[{self._finished:>{len(str(self._total))}}/{self._total}]"
        if status == "ok":
            self.say(_name(event.cell), lead=f"{number} {_rate(event):>18}  ")
            return
        self._rates[event.cell.task.id].pop(_setting(event.cell), None)
        if reason not in self._skipped:
            why = f"{_name(event.cell)}: {reason or 'no reason was given'}"
            self.say(why, "yellow", lead=f"{number} {status:>18}  ")
        if status == "skipped":
            self._skipped.add(reason)


def _name(cell: Cell) -> str:
    repeat = f", repeat {cell.repeat + 1}" if cell.repeat else ""
    side = f", {cell.side}" if cell.side else ""
    return one_line(f"{cell.task.id}, {cell.backend.label}, {cell.key.size}{repeat}{side}")


def _setting(cell: Cell) -> str:
    return one_line(f"{cell.backend.label} with {cell.key.size}{f', {cell.side}' if cell.side else ''}")


def _rate(event: CellFinished) -> str:
    """Return the rate of one process, without an interval. The table has the interval over all processes."""
    cell = record(event.cell, event.outcome)
    loop = estimate(batch_times(cell)) if cell.backend == NULL else None
    frames = estimate(frame_rates(cell))
    if loop is not None:
        return f"{figures.short_time(loop.median)} a batch"
    return "no window" if frames is None else f"{figures.number(frames.median)} frames/s"


def other_work(cells: Sequence[CellSummary]) -> str:
    """Return a note that these cells, at least one, did other work while they were measured."""
    first, *others = cells
    more = f", and so did {figures.counted(len(others), 'more cell')}" if others else ""
    why = "rows differ" if first.work.proof is None else proof_difference(first.work.proof)
    what = f"{first.label} with {first.key.size} on {first.env} did other work while it was measured{more}: {why}"
    return one_line(f"{what}; {'these rates are' if others else 'its rate is'} struck, not removed")
