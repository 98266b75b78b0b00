"""Shows how a run goes: a view on a terminal, one plain line for each cell elsewhere, nothing if asked to be quiet.

All on standard error. The view is drawn only when an event comes, because drawing takes CPU time from what is being
measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from vebench.engine.events import CellFinished, ProofDone, RunStarted
from vebench.reports.cell_words import name, padded, proven, result, widths
from vebench.reports.guard import Guarded
from vebench.reports.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.console import Console

    from vebench.engine.events import Event


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

    A screen that cannot be written any more goes quiet, because it must not end a run; nor must a fault in a view.
    """
    if quiet:
        return Screen()
    shown = LiveScreen(console, clock) if moves(console) else LineScreen(console)
    return Tolerant(shown, Screen(), console, "run")


def moves(console: Console) -> bool:
    """Return whether lines on ``console`` can be written over."""
    return console.is_terminal and not console.is_dumb_terminal


class Tolerant(Guarded[Screen], Screen):
    """Another screen, until it fails."""

    def show(self, event: Event) -> None:
        """Pass the event on."""
        with self._drawing() as screen:
            screen.show(event)


class Reasons:
    """Says which ways to end are worth a line: not the same reason for a second cell that was skipped."""

    def __init__(self) -> None:
        self._known: set[str | None] = set()

    def are_new(self, event: Event) -> bool:
        """Return whether a cell has ended, and the way in which it did has not been said yet."""
        if not isinstance(event, CellFinished):
            return False
        if event.outcome.status != "skipped":
            return True
        new = event.outcome.reason not in self._known
        self._known.add(event.outcome.reason)
        return new


class LineScreen(Screen):
    """A plain line for each cell that ends or is found to do other work, and for each reason why cells are skipped."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._reasons = Reasons()
        self._total = self._finished = 0
        self._widths: list[int] = []

    def show(self, event: Event) -> None:
        """Print the cell that has ended."""
        if isinstance(event, RunStarted):
            self._total, self._finished = len(event.plan.cells) + event.done, event.done
            self._widths = widths([name(cell) for cell in event.plan.cells])
        elif isinstance(event, CellFinished):
            self._finished += 1
            if self._reasons.are_new(event):
                count = f"[{self._finished:>{len(str(self._total))}}/{self._total}]"
                line = f"{count} {padded(name(event.cell), self._widths)}  {result(event)}"
                self._console.print(Text(line), soft_wrap=True)
        elif isinstance(event, ProofDone) and event.proof.verdict == "different":
            line = f"{' ' * (2 * len(str(self._total)) + 3)} {padded(name(event.cell), self._widths)}  {proven(event)}"
            self._console.print(Text(line), soft_wrap=True)


class LiveScreen(Screen):
    """A view that is drawn again at each event. What failed or was skipped is a line above it, which stays.

    So is each cell that ends if the table of the view does not fit, and the table of a task when it is full.
    """

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._reasons = Reasons()
        self._view: RunView | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show the cursor again. The view goes, because a table follows; after an error, none does, and it stays."""
        self._live.transient = error is None or isinstance(error, GeneratorExit)
        self._live.stop()

    def show(self, event: Event) -> None:
        """Note the event and draw once."""
        now = self._clock()
        if isinstance(event, RunStarted):
            self._view = RunView(event, now, self._console.width, self._console.height)
        if self._view is None:
            return
        if lines := list(self._view.note(event, now, news=self._reasons.are_new(event))):
            self._console.print(Group(*lines))
        self._live.update(Group(*self._view.lines()), refresh=True)
