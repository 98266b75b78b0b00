"""What a user sees while a run measures: a live view on a terminal, plain lines elsewhere. All on standard error.

The view is drawn only when an event comes, because drawing takes CPU time from what is being measured.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vebench.analysis.contrasts import estimate
from vebench.analysis.findings.windows import ENOUGH
from vebench.analysis.summary import batch_times, frame_rates
from vebench.backends.registry import NULL
from vebench.engine.events import CellFinished, CellReady, CellStarted, RunStarted, WindowDone
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.console import discard
from vebench.results.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from rich.console import Console, RenderableType

    from vebench.child.window import Window
    from vebench.engine.events import Event
    from vebench.plan.cells import Cell, CellKey, Plan

LAST_SHOWN = 6
BAR_WIDTH = 24


class Screen:
    """Shows nothing (``--quiet``); the others build on it. A context manager: it leaves the terminal as it was."""

    def show(self, event: Event) -> None:
        """Note an event of the runner."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal."""


def screen(console: Console, clock: Callable[[], float], *, quiet: bool = False) -> Screen:
    """Return the screen that suits ``console``, which writes to standard error. ``clock`` returns seconds.

    A screen that cannot be written any more goes quiet, because it must not end a run.
    """
    if quiet:
        return Screen()
    return Tolerant(LiveScreen(console, clock) if console.is_terminal else LineScreen(console), console)


class Tolerant(Screen):
    """Another screen, until it cannot be written: its reader is gone, or the disk behind it is full."""

    def __init__(self, screen: Screen, console: Console) -> None:
        self._screen = screen
        self._console = console

    def __enter__(self) -> Self:
        with self._or_quiet():
            self._screen.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal if it is still there."""
        with self._or_quiet():
            self._screen.__exit__(kind, error, trace)

    def show(self, event: Event) -> None:
        """Pass the event on."""
        with self._or_quiet():
            self._screen.show(event)

    @contextmanager
    def _or_quiet(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self._console.quiet = True
            discard(self._console.file)


@dataclass(frozen=True)
class Progress:
    """How far a run is. ``finished`` of ``total`` cells have ended, those included that an earlier run has measured.

    ``left`` cells are still to be measured. ``measured`` cells took ``spent`` seconds of wall time.
    """

    plan: Plan
    total: int
    finished: int = 0
    left: int = 0
    measured: int = 0
    spent: float = 0.0

    @classmethod
    def start(cls, event: RunStarted) -> Self:
        """Return the progress of a run that has just started."""
        left = sum(cell.skip is None for cell in event.plan.cells)
        return cls(event.plan, total=len(event.plan.cells) + event.done, finished=event.done, left=left)

    def after(self, cell: Cell, seconds: float) -> Self:
        """Return the progress when ``cell`` has ended, which took ``seconds``."""
        more = replace(self, finished=self.finished + 1)
        if cell.skip is not None:
            return more
        return replace(more, left=self.left - 1, measured=self.measured + 1, spent=self.spent + seconds)

    def seconds_left(self, spent_on_current: float, running: int = 1) -> float:
        """Return how many seconds the cells left will take if each takes as long as those before, or as planned.

        ``spent_on_current`` is how long the ``running`` cells have taken so far.
        """
        each = self.spent / self.measured if self.measured else self.plan.spec.cell_seconds
        return max(0.0, self.left * each - min(spent_on_current, running * each))


class LineScreen(Screen):
    """One plain line for each cell that ends, and one for each reason why cells are skipped."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._reasons: set[str | None] = set()
        self._progress: Progress | None = None
        self._widths: list[int] = []

    def show(self, event: Event) -> None:
        """Print the cell that has ended."""
        if isinstance(event, RunStarted):
            self._progress = Progress.start(event)
            self._widths = _widths([_name(cell) for cell in event.plan.cells])
        elif isinstance(event, CellFinished) and self._progress is not None:
            self._progress = self._progress.after(event.cell, 0.0)
            if event.outcome.status == "skipped":
                if event.outcome.reason in self._reasons:
                    return
                self._reasons.add(event.outcome.reason)
            total = str(self._progress.total)
            count = f"[{self._progress.finished:>{len(total)}}/{total}]"
            line = f"{count} {_padded(_name(event.cell), self._widths)}  {_result(event)}"
            self._console.print(Text(line), soft_wrap=True)


@dataclass
class _Current:
    """A cell that is being measured, and what is known of it so far."""

    cell: Cell
    startup_ns: int | None = None
    windows: list[Window] = field(default_factory=list)


class LiveScreen(Screen):
    """A view that is drawn again at each event: what ended last, the current cell, its windows, how far the run is."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._progress: Progress | None = None
        self._since = 0.0
        self._running: dict[tuple[CellKey, str], _Current] = {}
        self._current: _Current | None = None
        self._last: deque[CellFinished] = deque(maxlen=LAST_SHOWN)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the view and show the cursor again."""
        self._live.stop()

    def show(self, event: Event) -> None:
        """Note the event and draw once."""
        self._note(event)
        if self._progress is not None:
            self._live.update(self._view(self._progress), refresh=True)

    def _note(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._progress = Progress.start(event)
            return
        key = event.cell.key, event.cell.side
        if isinstance(event, CellStarted):
            if not self._running:
                self._since = self._clock()
            self._running[key] = _Current(event.cell)
        elif isinstance(event, CellFinished) and self._progress is not None:
            self._progress = self._progress.after(event.cell, self._spent())
            self._last.append(event)
            self._running.pop(key, None)
            self._since = self._clock()
        self._current = self._running.get(key)
        if self._current is not None and isinstance(event, CellReady):
            self._current.startup_ns = event.startup_ns
        elif self._current is not None and isinstance(event, WindowDone):
            self._current.windows.append(event.window)

    def _spent(self) -> float:
        """Return the seconds since the last cell ended, or since the first running one started; 0 if none runs."""
        return self._clock() - self._since if self._running else 0.0

    def _view(self, progress: Progress) -> RenderableType:
        parts: list[RenderableType] = [self._ended()] if self._last else []
        if self._current is not None:
            parts.append(_current(self._current, progress.plan.spec.rounds))
        left = figures.duration(progress.seconds_left(self._spent(), len(self._running)))
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=progress.total, completed=progress.finished, width=BAR_WIDTH),
            _one_row(Text(f"{progress.finished} of {figures.counted(progress.total, 'cell')}, {left} left")),
        )
        return Group(*parts, bar)

    def _ended(self) -> Text:
        names = [_name(event.cell) for event in self._last]
        widths = _widths(names)
        lines = Text(style="dim")
        for name, event in zip(names, self._last, strict=True):
            style = "" if event.outcome.status == "ok" else "yellow"
            lines.append(f"{_padded(name, widths)}  {_result(event)}\n", style=style)
        lines.rstrip()
        return _one_row(lines)


def _current(current: _Current, rounds: int) -> Text:
    text = Text("  ".join(_name(current.cell)), style="bold")
    if current.startup_ns is None:
        text.append("  starting")
    elif not current.windows:
        text.append("  warming up" if current.cell.group is None else "  warming up, then taking turns")
    else:
        skip = current.cell.task.frame_skip
        rates = [skip * window.transitions / (window.ns / 1e9) for window in current.windows]
        # A window that a quota held back, or that others disturbed, is measured again.
        more = len(rates) - rounds
        text.append(f"  window {min(len(rates), rounds)}/{rounds}{f', {more} again' if more > 0 else ''}\n")
        text.append(f"  {'  '.join(map(figures.number, rates))} frames/s", style="not bold")
    return _one_row(text)


def _one_row(text: Text) -> Text:
    """Return ``text`` with each line cut off at the width of the terminal."""
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


def _name(cell: Cell) -> tuple[str, str, str]:
    repeat = f", repeat {cell.repeat + 1}" if cell.repeat else ""
    side = f", {cell.side}" if cell.side else ""
    return one_line(cell.task.id), one_line(cell.backend.label), f"{cell.key.size}{repeat}{side}"


def _widths(names: Sequence[Sequence[str]]) -> list[int]:
    """Return the greatest width of each part of the names."""
    return [max(map(len, parts)) for parts in zip(*names, strict=True)]


def _padded(name: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(part.ljust(width) for part, width in zip(name, widths, strict=True))


def _result(event: CellFinished) -> str:
    """Return how a cell ended: its rate and how long it took to start, or why it has no rate."""
    outcome = event.outcome
    if outcome.status != "ok":
        return f"{outcome.status}: {one_line(outcome.reason or 'no reason was given')}"
    cell = record(event.cell, outcome)
    loop = estimate(batch_times([cell])) if cell.backend == NULL else None
    frames = estimate(frame_rates([cell]))
    if loop is not None:
        rate = f"{figures.microseconds(loop)} a batch"
    elif frames is not None:
        # Two or three windows of one process say little of how far to trust it: the table does, with all processes.
        spread = f" {figures.spread(frames)}" if len(outcome.windows) >= ENOUGH else ""
        rate = f"{figures.number(frames.median)} frames/s{spread}"
    else:
        rate = "no window"
    if event.cell.known is not None and event.cell.known.verdict == "different":
        rate += "  other work"
    startup = "" if outcome.startup_ns is None else f"  startup {outcome.startup_ns / 1e9:.1f} s"
    return rate + startup
