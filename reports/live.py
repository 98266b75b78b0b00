"""Shows how a run or a comparison goes, on standard error: a line for each cell, and on a terminal a bar below them.

The bar is drawn only when an event comes, because drawing takes CPU time from what is measured.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from vebench.analysis.statistics import estimate
from vebench.analysis.summary import batch_times, frame_rates, proof_difference
from vebench.backends.registry import NULL
from vebench.engine.interface import CellFinished, ProofDone, ProofStarted, RunStarted, WindowDone
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.console import discard
from vebench.reports.formats import TERMINAL
from vebench.results.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from vebench.analysis.cell import CellSummary
    from vebench.engine.interface import Event
    from vebench.plan.cells import Cell, CellKey
    from vebench.reports.document import Page

_BAR_WIDTH = 12


class _Screen:
    """Lines that stay and, where lines can be written over, a bar below them. It leaves the terminal as it was."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        if console.is_terminal and not console.is_dumb_terminal and not console.quiet:
            # A line that wraps would stay in part.
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
        """Write nothing more once the reader is gone or the disk is full: the work goes on."""
        try:
            yield
        except OSError:
            self._console.quiet = True
            discard(self._console.file)

    def _print(self, line: str, style: str = "", *, cut: bool = False) -> None:
        """Print a line that stays: whole on a terminal, unless it may be ``cut``, and never wrapped elsewhere."""
        if self._bar is None:
            self._console.print(Text(line), soft_wrap=True)
        else:
            self._console.print(Text(line, style=style), no_wrap=cut, overflow="ellipsis")

    def _draw(self, done: float, total: float, words: str) -> None:
        if self._bar is not None:
            (task,) = self._bar.task_ids
            self._bar.update(task, total=total, completed=done, description=words, visible=True, refresh=True)


class RunScreen(_Screen):
    """A line for each cell that ends or is found to do other work, and for each reason why cells are skipped.

    ``before`` windows were measured earlier, and ``later`` cells follow the cells of the plan.
    """

    def __init__(self, console: Console, *, before: int = 0, later: int = 0) -> None:
        super().__init__(console)
        self._done, self._later = before, later
        self._skipped: set[str | None] = set()
        self._total = self._finished = self._to_compare = self._windows_of_each = 0
        self._windows = before
        self._widths: list[int] = []
        self._measured: defaultdict[tuple[CellKey, str], int] = defaultdict(int)
        # By task, then by setting.
        self._rates: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def show(self, event: Event) -> None:
        """Print what stays of an event of the runner, and draw the bar once."""
        with self._drawing():
            if isinstance(event, RunStarted):
                self._start(event)
                return
            if isinstance(event, WindowDone):
                self._count(event.cell, 1)
                self._note_rate(event)
            elif isinstance(event, CellFinished):
                self._finish(event)
            elif isinstance(event, ProofDone):
                self._to_compare -= 1
                if event.proof.verdict == "different":
                    self._rates[event.cell.task.id].pop(_setting(event.cell), None)
                    number = " " * (2 * len(str(self._total)) + 3)
                    words = one_line(f"other work while it was measured: {proof_difference(event.proof)}")
                    self._print(f"{number} {_padded(_name(event.cell), self._widths)}  {words}", "yellow")
            comparing = isinstance(event, ProofStarted)
            self._draw(self._done, self._windows, self._words(event.cell.task.id, comparing=comparing))

    def show_page(self, page: Callable[[], Page]) -> None:
        """Print what is known so far."""
        with self._drawing():
            rendered = TERMINAL.render(page())
            self._console.rule("first look; the run goes on", characters="-")
            self._console.print(rendered, crop=False)
            self._console.rule(characters="-")

    def _start(self, event: RunStarted) -> None:
        plan = event.plan
        self._total, self._finished = len(plan.cells) + event.done + self._later, event.done
        self._windows_of_each = plan.spec.windows
        cells = sum(cell.skip is None for cell in plan.cells) + self._later
        self._windows += self._windows_of_each * cells
        self._widths = _widths([_name(cell) for cell in plan.cells])
        self._draw(self._done, self._windows, self._words(""))

    def _finish(self, event: CellFinished) -> None:
        self._finished += 1
        self._to_compare += event.is_proven
        status, reason = event.outcome.status, event.outcome.reason
        if status == "skipped":
            if reason in self._skipped:
                return
            self._skipped.add(reason)
        else:
            self._count(event.cell, self._windows_of_each)
        if status != "ok":
            self._rates[event.cell.task.id].pop(_setting(event.cell), None)
        number = f"[{self._finished:>{len(str(self._total))}}/{self._total}]"
        line = f"{number} {_padded(_name(event.cell), self._widths)}  {_result(event)}"
        self._print(line, "" if status == "ok" else "yellow", cut=status == "ok")  # a reason is shown in full

    def _count(self, cell: Cell, windows: int) -> None:
        """Count windows of a cell, up to the planned number: disturbed windows are measured again."""
        key = cell.key, cell.side
        new = min(windows, self._windows_of_each - self._measured[key])
        self._measured[key] += new
        self._done += new

    def _note_rate(self, event: WindowDone) -> None:
        cell = event.cell
        if not cell.entry.reference_row:
            seconds = max(event.window.ns, 1) / 1e9
            rate = cell.task.frame_skip * event.window.transitions / seconds
            self._rates[cell.task.id][_setting(cell)].append(rate)

    def _words(self, env: str, *, comparing: bool = False) -> str:
        if comparing:
            return f"comparing the work of {figures.counted(self._to_compare, 'cell')}"
        words = f"{self._done:,} of {figures.counted(self._windows, 'window')}"
        best = max(((median(rates), setting) for setting, rates in self._rates[env].items()), default=None)
        return words if best is None else f"{words}, best so far {figures.number(best[0])} frames/s: {best[1]}"


class ProofScreen(_Screen):
    """A line for each of ``cells`` that was compared, in this order."""

    def __init__(self, console: Console, cells: Sequence[Cell]) -> None:
        super().__init__(console)
        self._cells, self._ended = cells, 0
        self._widths = _widths([_name(cell)[:2] for cell in cells])

    def say(self, text: str) -> None:
        """Print a line."""
        with self._drawing():
            self._print(one_line(text))
            self._show()

    def compared(self, rows: int) -> None:
        """Show how many rows of the next cell are compared so far."""
        with self._drawing():
            self._show(f", {figures.counted(rows, 'row')} so far")

    def ended(self, words: str) -> None:
        """Print what was found of the next cell, and go on to the one after it."""
        with self._drawing():
            name, total = _padded(_name(self._cells[self._ended])[:2], self._widths), len(self._cells)
            self._ended += 1
            self._print(f"[{self._ended:>{len(str(total))}}/{total}] {name}  {one_line(words)}")
            self._show()

    def _show(self, rows: str = "") -> None:
        now = self._cells[self._ended : self._ended + 1]
        name = f"; {_name(now[0])[1]} on {_name(now[0])[0]}{rows}" if now else ""
        self._draw(self._ended, len(self._cells), f"{self._ended} of {len(self._cells)} compared{name}")


def _name(cell: Cell) -> tuple[str, str, str]:
    """Return what identifies a cell: its task, its backend, and its size with its repeat and its side."""
    repeat = f", repeat {cell.repeat + 1}" if cell.repeat else ""
    side = f", {cell.side}" if cell.side else ""
    return one_line(cell.task.id), one_line(cell.backend.label), one_line(f"{cell.key.size}{repeat}{side}")


def _setting(cell: Cell) -> str:
    return one_line(f"{cell.backend.label} with {cell.key.size}{f', {cell.side}' if cell.side else ''}")


def _widths(names: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, parts)) for parts in zip(*names, strict=True)]


def _padded(parts: Sequence[str], to: Sequence[int]) -> str:
    return "  ".join(part.ljust(width) for part, width in zip(parts, to, strict=True))


def _result(event: CellFinished) -> str:
    outcome = event.outcome
    if outcome.status != "ok":
        return f"{outcome.status}: {one_line(outcome.reason or 'no reason was given')}"
    cell = record(event.cell, outcome)
    loop = estimate(batch_times(cell)) if cell.backend == NULL else None
    frames = estimate(frame_rates(cell))
    rate = "no window"
    if loop is not None:
        rate = f"{figures.short_time(loop.median)} a batch"
    elif frames is not None:
        rate = f"{figures.number(frames.median)} frames/s"  # of one process: the table has an interval, from all
    different = event.cell.known is not None and event.cell.known.verdict == "different"
    return f"{rate}  other work" if different else rate


def other_work(cells: Sequence[CellSummary]) -> str:
    """Return that these cells, one at least, did other work while they were measured, and the consequence."""
    first, *others = cells
    more = f", and so did {figures.counted(len(others), 'more cell')}" if others else ""
    what = f"{first.label} with {first.key.size} on {first.env} did other work while it was measured"
    why = "rows differ" if first.work.proof is None else proof_difference(first.work.proof)
    return one_line(f"{what}{more}: {why}; {'these rates are' if others else 'its rate is'} struck, not removed")
