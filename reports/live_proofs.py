"""Shows how a comparison of backends goes: as ``live`` does for a run, in the same look, on standard error."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.cell_words import name, one_row, padded, widths
from vebench.reports.guard import Guarded
from vebench.reports.live import moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from rich.console import Console

    from vebench.plan.cells import Cell


def proof_screen(console: Console, clock: Callable[[], float], cells: Sequence[Cell]) -> ProofScreen:
    """Return the screen that suits ``console`` for comparing ``cells`` in this order. ``clock`` returns seconds.

    A screen that cannot be written any more goes quiet, because it must not end a comparison; nor must a fault in it.
    """
    screen = LiveProofs(console, clock, cells) if moves(console) else ProofLines(console, cells)
    return TolerantProofs(screen, ProofScreen(), console, "comparison")


class ProofScreen:
    """Shows nothing; the others build on it. A context manager: it leaves the terminal as it was."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal."""

    def say(self, text: str) -> None:
        """Print a line."""

    def compared(self, rows: int) -> None:
        """Show how many rows of the next cell are compared so far."""

    def ended(self, words: str) -> None:
        """Print what was found of the next cell."""


class TolerantProofs(Guarded[ProofScreen], ProofScreen):
    """Another screen, until it fails."""

    def say(self, text: str) -> None:
        """Pass the line on."""
        with self._drawing() as screen:
            screen.say(text)

    def compared(self, rows: int) -> None:
        """Pass it on."""
        with self._drawing() as screen:
            screen.compared(rows)

    def ended(self, words: str) -> None:
        """Pass it on."""
        with self._drawing() as screen:
            screen.ended(words)


class ProofLines(ProofScreen):
    """One plain line for each backend that was compared."""

    def __init__(self, console: Console, cells: Sequence[Cell]) -> None:
        self._console = console
        self._cells = cells
        self._widths = widths([name(cell)[:2] for cell in cells])
        self._ended = 0

    def say(self, text: str) -> None:
        """Print a line."""
        self._print(one_line(text))

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def ended(self, words: str) -> None:
        """Print what was found of the next cell."""
        cell = self._cells[self._ended]
        self._ended += 1
        total = str(len(self._cells))
        count = f"[{self._ended:>{len(total)}}/{total}]"
        self._print(f"{count} {padded(name(cell)[:2], self._widths)}  {one_line(words)}")


class LiveProofs(ProofLines):
    """The same lines, which stay, and below them a view: what is compared now, and how long it will still take."""

    def __init__(self, console: Console, clock: Callable[[], float], cells: Sequence[Cell]) -> None:
        super().__init__(console, cells)
        self._clock = clock
        self._began = self._last = clock()
        self._doing = "comparing"
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the view and show the cursor again."""
        self._live.stop()

    def _print(self, line: str) -> None:
        self._console.print(Text(line))  # broken between words: it is read here, not by a program

    def compared(self, rows: int) -> None:
        """Show how many rows of the next cell are compared so far."""
        self._doing = f"comparing, {figures.counted(rows, 'row')} so far"
        self._draw()

    def ended(self, words: str) -> None:
        """Print what was found of the next cell, and go on to the one after it."""
        self._last = self._clock()
        self._doing = "comparing"
        super().ended(words)
        self._draw()

    def _draw(self) -> None:
        self._live.update(Group(*self._lines()), refresh=True)

    def _lines(self) -> Iterator[Text]:
        """Yield the view; those that cannot run take no time."""
        done = sum(cell.skip is None for cell in self._cells[: self._ended])
        left = sum(cell.skip is None for cell in self._cells[self._ended :])
        if self._ended < len(self._cells):
            yield one_row(Text(f"{padded(name(self._cells[self._ended])[:2], self._widths)}  {self._doing}"))
        bar = figures.bar(done / (done + left) if done + left else 1.0)
        seconds = (self._last - self._began) / done * left if done else 0.0
        words = f", about {figures.duration(max(1, ceil(seconds)))} left" if done and left else ""
        yield one_row(Text(f"{bar} {self._ended} of {figures.counted(len(self._cells), 'comparison')}{words}"))
