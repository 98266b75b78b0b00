"""Shows how a run goes: a bar below a line for each cell on a terminal, the lines alone elsewhere, or nothing.

All on standard error. The bar is drawn only when an event comes, because drawing takes CPU time from what is being
measured.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import ceil
from statistics import fmean, median
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from vebench.backends.registry import NULL
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
from vebench.plan.cells import is_proven
from vebench.reports import figures
from vebench.reports.cell_words import name, one_row, padded, proven, result, widths
from vebench.reports.guard import Guarded
from vebench.reports.pages.plan import STARTUP_SECONDS, proof_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from rich.console import Console, RenderableType

    from vebench.engine.events import Event
    from vebench.plan.cells import Cell, CellKey, Plan

_BAR_WIDTH = 24
_STATES: dict[type[Event], str] = {
    CellStarted: "starting",
    CellReady: "warming up",
    CellWarm: "warm, waits for its turn",
}


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


class LineScreen(Screen):
    """A plain line for each cell that ends or is found to do other work, and for each reason why cells are skipped."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._skipped: set[str | None] = set()
        self._total = self._finished = 0
        self._widths: list[int] = []

    def show(self, event: Event) -> None:
        """Print the cell that has ended."""
        if isinstance(event, RunStarted):
            self._total, self._finished = len(event.plan.cells) + event.done, event.done
            self._widths = widths([name(cell) for cell in event.plan.cells])
        elif isinstance(event, CellFinished):
            self._finished += 1
            status, reason = event.outcome.status, event.outcome.reason
            if status == "skipped" and reason in self._skipped:
                return
            if status == "skipped":
                self._skipped.add(reason)
            count = f"[{self._finished:>{len(str(self._total))}}/{self._total}]"
            self._print(f"{count} {self._name(event.cell)}  {result(event)}", fine=status == "ok")
        elif isinstance(event, ProofDone) and event.proof.verdict == "different":
            indent = " " * (2 * len(str(self._total)) + 3)
            self._print(f"{indent} {self._name(event.cell)}  {proven(event)}", fine=False)

    def _name(self, cell: Cell) -> str:
        return padded(name(cell), self._widths)

    def _print(self, line: str, *, fine: bool) -> None:  # noqa: ARG002 - on a terminal, colour shows it
        self._console.print(Text(line), soft_wrap=True)


class LiveScreen(LineScreen):
    """The same lines, which stay, and below them what is measured now, how much is done and how long is left."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__(console)
        self._clock = clock
        self._view = _View(
            BarColumn(_BAR_WIDTH),
            TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._rates: defaultdict[tuple[CellKey, str], list[float]] = defaultdict(list)
        self._to_prove = 0

    def __enter__(self) -> Self:
        self._view.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show the cursor again. The view goes, because a table follows; after an error, none does, and it stays."""
        self._view.live.transient = error is None or isinstance(error, GeneratorExit)
        self._view.stop()

    def show(self, event: Event) -> None:
        """Note the event and draw once."""
        now = self._clock()
        super().show(event)
        if isinstance(event, RunStarted):
            self._spec = event.plan.spec
            self._time = TimeLeft(event.plan, now)
            self._bar = self._view.add_task(self._done(), total=self._time.seconds)
            return
        self._time.note(event, now)
        if isinstance(event, CellFinished):
            self._to_prove += _is_to_be_proven(event)
        elif isinstance(event, ProofDone):
            self._to_prove -= 1
        self._view.cell = one_row(Text(f"{self._name(event.cell)}  {self._state(event)}"))
        spent = now - self._time.began
        total = spent + self._time.seconds
        self._view.update(self._bar, total=total, completed=spent, description=self._done(), refresh=True)

    def _print(self, line: str, *, fine: bool) -> None:
        style = "" if fine else "yellow"
        self._console.print(Text(line, style=style), no_wrap=fine, overflow="ellipsis")  # a reason is shown in full

    def _state(self, event: Event) -> str:
        """Return what the event's cell does now, and its rate so far."""
        if isinstance(event, WindowDone):
            rates = self._rates[event.cell.key, event.cell.side]
            rates.append(event.cell.task.frame_skip * event.window.transitions / (max(event.window.ns, 1) / 1e9))
            # A window that a quota held back, or that others disturbed, is measured again.
            rounds = self._spec.rounds
            again = f", {len(rates) - rounds} again" if len(rates) > rounds else ""
            rate = "" if event.cell.backend.name == NULL else f"  {figures.number(median(rates))} frames/s"
            return f"window {min(len(rates), rounds)} of {rounds}{again}{rate}"
        if isinstance(event, CellFinished):
            return f"ended: {event.outcome.status}"
        if isinstance(event, ProofStarted):
            most = f", about {figures.duration(event.seconds)} at most" if event.seconds else ""
            return f"proving that it did the same work{most}"
        return proven(event) if isinstance(event, ProofDone) else _STATES[type(event)]

    def _done(self) -> str:
        """Return how much is done, and how long the rest will take. What --until adds is not known before."""
        prove = f" measured, {self._to_prove} to prove" if self._to_prove else ""
        more = " in these passes" if self._spec.until is not None else ""
        seconds = self._time.seconds
        left = f", about {figures.duration(seconds)} left{more}" if seconds else ""
        return f"{self._finished} of {figures.counted(self._total, 'cell')}{prove}{left}"


class _View(Progress):
    """A line for the cell that is being measured, and below it the bar of the run."""

    cell: Text | None = None

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield what is drawn."""
        if self.cell is not None:
            yield self.cell
        yield from super().get_renderables()


def _is_to_be_proven(event: CellFinished) -> bool:
    """Return whether what the cell returned will be compared."""
    return event.outcome.status == "ok" and event.cell.recording is not None


class TimeLeft:
    """How long the rest of a plan takes: each step as long as those of its kind took on average, at first as planned.

    A step ends with an event: a cell is ready, warm, has measured a window, has ended, is proven. Only one step runs at
    a time, whether cells take turns or not, so it took the time since the event before.
    """

    def __init__(self, plan: Plan, now: float) -> None:
        spec = plan.spec
        self.began = self.last = now
        self._took: defaultdict[type[Event], list[float]] = defaultdict(list)
        self._planned: dict[type[Event], float] = {
            CellReady: STARTUP_SECONDS,
            CellWarm: spec.warmup,
            WindowDone: spec.duration if spec.takes_turns else spec.cell_seconds / spec.rounds,
            CellFinished: 0.0,
            ProofDone: proof_seconds(spec),
        }
        self._left: dict[tuple[CellKey, str], Counter[type[Event]]] = {
            (cell.key, cell.side): Counter({
                CellReady: 1,
                CellWarm: int(cell.group is not None),
                WindowDone: spec.rounds,
                CellFinished: 1,
                ProofDone: int(is_proven(cell, spec)),
            })
            for cell in plan.cells
            if cell.skip is None
        }  # fmt: skip
        self._all: Counter[type[Event]] = sum(self._left.values(), Counter())

    def note(self, event: Event, now: float) -> None:
        """Note that ``event`` has come at the time ``now``."""
        took, self.last = now - self.last, now
        kind = type(event)
        if isinstance(event, RunStarted) or kind not in self._planned:
            return
        if (left := self._left.get((event.cell.key, event.cell.side))) is None:
            return
        self._took[kind].append(took)
        if left[kind]:  # a window that is measured again was not planned
            self._drop(left, Counter({kind: 1}))
        if isinstance(event, CellFinished):
            proof: Counter[type[Event]] = Counter({ProofDone: int(_is_to_be_proven(event))})
            self._drop(left, left - proof)

    def _drop(self, left: Counter[type[Event]], steps: Counter[type[Event]]) -> None:
        """Count fewer steps, of a cell and of all."""
        left -= steps
        self._all.subtract(steps)

    @property
    def seconds(self) -> int:
        """The seconds that are left, at least one while a step is: only a run that is over has none."""
        left = {kind: count for kind, count in self._all.items() if count}
        expected = (count * fmean(self._took[kind] or [self._planned[kind]]) for kind, count in left.items())
        return max(1, ceil(sum(expected))) if left else 0
