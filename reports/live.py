"""Shows how a run or a comparison goes: a bar below a line for each cell on a terminal, the lines alone elsewhere.

All on standard error. The bar is drawn only when an event comes, because drawing takes CPU time from what is being
measured.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial, wraps
from math import ceil
from statistics import fmean, median
from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from vebench.analysis.spending import planned
from vebench.analysis.statistics import estimate
from vebench.analysis.summary import batch_times, difference, frame_rates, steps
from vebench.backends.registry import NULL
from vebench.engine.interface import (
    CellFinished,
    CellReady,
    CellStarted,
    CellWarm,
    ProofDone,
    ProofStarted,
    RunStarted,
    WindowDone,
)
from vebench.errors import one_line
from vebench.plan.cells import is_proven
from vebench.reports import figures
from vebench.reports.console import discard
from vebench.reports.formats.registry import TERMINAL
from vebench.results.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console, RenderableType

    from vebench.analysis.cell import CellSummary
    from vebench.engine.interface import Event
    from vebench.plan.cells import Cell, CellKey, Plan
    from vebench.reports.document import Page

_BAR_WIDTH = 24
_OTHER_LINES = 12  # of the screen, beside the board: cells that ended stay in sight
_STATES: dict[type[Event], str] = {CellStarted: "starting", CellReady: "warming up", CellWarm: "waits for its turn"}
_P = ParamSpec("_P")
_S = TypeVar("_S", bound="_Screen")


def _tolerated(draw: Callable[Concatenate[_S, _P], None]) -> Callable[Concatenate[_S, _P], None]:
    """Let no failure of a screen end the work that it shows, which is worth more than any view of it.

    A screen without a reader goes quiet. After a fault, one line says that nothing more is shown.
    """

    @wraps(draw)
    def drawn(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            if self.shows:
                draw(self, *args, **kwargs)
        except OSError:
            self.be_quiet()
        except Exception as error:  # noqa: BLE001 - whatever it is, the view is what breaks
            self.give_up(error)

    return drawn


class _View(Progress):
    """The best rate of each backend so far, a line for the cell that is measured or compared now, and the bar."""

    board: Text | None = None
    cell: Text | None = None

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from filter(None, (self.board, self.cell))
        yield from super().get_renderables()


class _Screen:
    """Lines that stay and, where lines can be written over, a view below them. It leaves the terminal as it was."""

    work: ClassVar[str]

    def __init__(self, console: Console, clock: Callable[[], float], *, quiet: bool = False) -> None:
        self._console, self.shows, self._view = console, not quiet, None
        self._clock: Callable[[], float] = float  # what is left matters to a view alone
        if console.is_terminal and not console.is_dumb_terminal:
            columns = BarColumn(_BAR_WIDTH // 2), TextColumn("{task.description}", markup=False)
            self._view = _View(*columns, console=console, auto_refresh=False, transient=True)
            self._bar, self._clock = self._view.add_task("", visible=False), clock

    def __enter__(self) -> Self:
        self._start()
        return self

    @_tolerated
    def __exit__(self, *_: object) -> None:
        """Show the cursor again. The view goes, because a table follows, also after an interrupt."""
        if self._view is not None:
            self._view.stop()

    @_tolerated
    def _start(self) -> None:
        if self._view is not None:
            self._view.start()

    def be_quiet(self) -> None:
        """Write nothing more: the reader is gone, or the disk is full."""
        self._console.quiet = True
        discard(self._console.file)

    def give_up(self, error: Exception) -> None:
        """Restore the terminal, and say that nothing more is shown."""
        self.shows = False
        if self._view is not None:
            with suppress(Exception):  # the view may break again while it goes
                self._view.stop()
        why = one_line(f"{type(error).__name__}: {error}")
        line = f"vebench: progress is not shown any more ({why}); the {self.work} goes on"
        try:
            self._console.print(Text(line), soft_wrap=True)
        except OSError:
            self.be_quiet()

    def _print(self, line: str, style: str = "", *, cut: bool = False) -> None:
        """Print a line that stays: whole on a terminal, unless it may be ``cut``, and never wrapped elsewhere."""
        if self._view is None:
            self._console.print(Text(line), soft_wrap=True)
        else:
            self._console.print(Text(line, style=style), no_wrap=cut, overflow="ellipsis")

    def _draw(self, cell: str, done: str, completed: float, total: float, board: str = "") -> None:
        if self._view is not None:
            line = partial(Text, no_wrap=True, overflow="ellipsis")
            self._view.board, self._view.cell = (line(text) if text else None for text in (board, cell))
            self._view.update(self._bar, total=total, completed=completed, description=done, visible=True, refresh=True)


class RunScreen(_Screen):
    """A line for each cell that ends or is found to do other work, and for each reason why cells are skipped.

    ``before`` is how many windows have been measured by then, ``later`` how many cells follow those of the plan.
    """

    work = "run"
    _plan: Plan
    _left: _TimeLeft

    def __init__(
        self, console: Console, clock: Callable[[], float], *, quiet: bool = False, before: int = 0, later: int = 0
    ) -> None:
        super().__init__(console, clock, quiet=quiet)
        self._before, self._later = before, later
        self._skipped: set[str | None] = set()
        self._total = self._finished = self._to_prove = 0
        self._measured = 0.0  # seconds of windows
        self._widths: list[int] = []
        self._rates: defaultdict[tuple[CellKey, str], list[float]] = defaultdict(list)
        # Of each task and backend, by size: the rates of all windows, and that of the warm-up before them.
        self._seen: dict[str, dict[str, dict[str, tuple[list[float], float]]]] = {}

    @_tolerated
    def show(self, event: Event) -> None:
        """Print what stays of an event of the runner, and draw the view once."""
        now = self._clock()
        if isinstance(event, RunStarted):
            self._plan, self._left = event.plan, _TimeLeft(event.plan, now, self._later)
            self._total, self._finished = len(event.plan.cells) + event.done + self._later, event.done
            self._windows = self._before + self._left.windows
            self._widths = _widths([_name(cell) for cell in event.plan.cells])
            self._draw("", self._done(), 0.0, self._left.seconds)
            return
        name, digits = _padded(_name(event.cell), self._widths), len(str(self._total))
        if isinstance(event, CellFinished):
            self._finished += 1
            self._to_prove += event.is_proven
            status, reason = event.outcome.status, event.outcome.reason
            if status != "skipped" or reason not in self._skipped:  # for a reason that is not said yet
                line = f"[{self._finished:>{digits}}/{self._total}] {name}  {_result(event)}"
                self._print(line, "" if status == "ok" else "yellow", cut=status == "ok")  # a reason is shown in full
            if status == "skipped":
                self._skipped.add(reason)
        elif isinstance(event, ProofDone):
            self._to_prove -= 1
            if event.proof.verdict == "different":
                self._print(f"{' ' * (2 * digits + 3)} {name}  {_proven(event)}", "yellow")
        elif isinstance(event, WindowDone):
            self._measured += event.window.ns / 1e9
        self._left.note(event, now)
        spent = now - self._left.began
        self._note(event.cell, event)
        state, board = f"{name}  {self._state(event)}", self._board(_name(event.cell)[0])
        self._draw(state, self._done(spent), spent, spent + self._left.seconds, board)

    @_tolerated
    def show_page(self, page: Callable[[], Page]) -> None:
        """Print what is known so far above the view."""
        rendered = TERMINAL.render(page())
        self._console.rule("first look; the run goes on", characters="-")
        self._console.print(rendered, crop=False)
        self._console.rule(characters="-")

    def _note(self, cell: Cell, event: Event) -> None:
        """Note the rate of the event's cell for the board. A cell that failed or did other work leaves it."""
        if cell.entry.reference_row:
            return
        (env, backend, _), size = _name(cell), cell.key.size
        sizes = self._seen.setdefault(env, {}).setdefault(one_line(f"{backend} {cell.side}").rstrip(), {})
        if isinstance(event, CellWarm) and event.rows_per_second:
            sizes.setdefault(size, ([], cell.task.frame_skip * event.rows_per_second))
        elif isinstance(event, WindowDone):
            sizes.setdefault(size, ([], 0.0))[0].append(_rate(event))
        elif (isinstance(event, CellFinished) and event.outcome.status != "ok") or (
            isinstance(event, ProofDone) and event.proof.verdict == "different"
        ):
            sizes.pop(size, None)

    def _board(self, env: str) -> str:
        """Return the best rate of each backend on a task so far, the highest first, as far as there is room."""
        rates = [
            (median(measured) if measured else warm, backend, f"{size}{'' if measured else ', warming up'}")
            for backend, sizes in self._seen.get(env, {}).items()
            for size, (measured, warm) in sizes.items()
        ]
        best: dict[str, tuple[float, str]] = {}
        for rate, backend, words in sorted(rates, reverse=True):
            best.setdefault(backend, (rate, words))
        width, highest = max(map(len, best), default=0), max(best.values(), default=(0.0,))[0] or 1.0
        lines = [
            f"{backend:{width}}  {'━' * ceil(_BAR_WIDTH * rate / highest):{_BAR_WIDTH}}  "
            f"{figures.number(rate)} frames/s  {words}"
            for backend, (rate, words) in best.items()
        ]
        of_several = [env] if lines and len(self._plan.spec.envs) > 1 else []
        return "\n".join([*of_several, *lines][: max(0, self._console.height - _OTHER_LINES)])

    def _state(self, event: Event) -> str:
        """Return what the event's cell does now, and its rate so far."""
        if isinstance(event, WindowDone):
            rates = self._rates[event.cell.key, event.cell.side]
            rates.append(_rate(event))
            # A window that a quota held back, or that others disturbed, is measured again.
            windows = self._plan.spec.windows
            again = f", {len(rates) - windows} again" if len(rates) > windows else ""
            rate = "" if event.cell.backend.name == NULL else f"  {figures.number(median(rates))} frames/s"
            return f"window {min(len(rates), windows)} of {windows}{again}{rate}"
        if isinstance(event, CellFinished):
            return f"ended: {event.outcome.status}"
        if isinstance(event, ProofStarted):
            most = f", about {figures.long_time(event.seconds)} at most" if event.seconds else ""
            return f"proving that it did the same work{most}"
        return _proven(event) if isinstance(event, ProofDone) else _STATES[type(event)]

    def _done(self, spent: float = 0.0) -> str:
        """Return how much is done, and how long the rest will take. What --until adds is not known before."""
        done = f"{self._windows - self._left.windows:,} of {figures.counted(self._windows, 'window')}"
        prove = f", {self._to_prove} to prove" if self._to_prove else ""
        more = " in these passes" if self._plan.spec.until is not None else ""
        # The line has to be shorter than 80 columns: the ^C of an interrupt would wrap it, and part of the view stay.
        fits = spent and self._measured and not (prove or more)
        share = f" ({self._measured / spent:.0%} of the time)" if fits else ""
        seconds = self._left.seconds
        left = f", about {figures.long_time(seconds)} left{more}" if seconds else ""
        return f"{done}{share}{prove}{left}"


class ProofScreen(_Screen):
    """A line for each of ``cells`` that was compared, in this order."""

    work = "comparison"

    def __init__(self, console: Console, clock: Callable[[], float], cells: Sequence[Cell]) -> None:
        super().__init__(console, clock)
        self._cells, self._ended = cells, 0
        self._widths = _widths([_name(cell)[:2] for cell in cells])
        self._began = self._last = self._clock()

    @_tolerated
    def _start(self) -> None:
        super()._start()
        self._show("comparing")

    @_tolerated
    def say(self, text: str) -> None:
        """Print a line."""
        self._print(one_line(text))

    @_tolerated
    def compared(self, rows: int) -> None:
        """Show how many rows of the next cell are compared so far."""
        self._show(f"comparing, {figures.counted(rows, 'row')} so far")

    @_tolerated
    def ended(self, words: str) -> None:
        """Print what was found of the next cell, and go on to the one after it."""
        self._last = self._clock()
        name, total = _padded(_name(self._cells[self._ended])[:2], self._widths), len(self._cells)
        self._ended += 1
        self._print(f"[{self._ended:>{len(str(total))}}/{total}] {name}  {one_line(words)}")
        self._show("comparing")

    def _show(self, doing: str) -> None:
        halves = self._cells[: self._ended], self._cells[self._ended :]
        ended, left = (sum(cell.skip is None for cell in cells) for cells in halves)
        seconds = (self._last - self._began) / ended * left if ended else 0.0
        time = f", about {figures.long_time(max(1, ceil(seconds)))} left" if ended and left else ""
        done = f"{self._ended} of {figures.counted(len(self._cells), 'comparison')}{time}"
        now = self._cells[self._ended : self._ended + 1]
        line = f"{_padded(_name(now[0])[:2], self._widths)}  {doing}" if now else ""
        self._draw(line, done, ended, ended + left)


def _rate(event: WindowDone) -> float:
    return event.cell.task.frame_skip * event.window.transitions / (max(event.window.ns, 1) / 1e9)


class _TimeLeft:
    """How long the rest of a plan takes: each step as long as those of its kind took on average, at first as planned.

    ``later`` cells follow, of which few are compared. They take what those of the plan do.
    A step ends with an event: a cell is ready, warm, has measured a window, has ended, is proven. Only one step runs at
    a time, whether cells take turns or not, so it took the time since the event before.
    """

    def __init__(self, plan: Plan, now: float, later: int) -> None:
        spec = plan.spec
        cells = [cell for cell in plan.cells if cell.skip is None]
        expected = planned(cells, spec)
        alone = not spec.takes_turns  # then nothing says when a cell is warm
        windows = spec.windows * len(cells)
        proofs = sum(is_proven(cell, spec) for cell in cells)
        self.began = self._last = now
        self._took: defaultdict[type[Event], list[float]] = defaultdict(list)
        self._planned: dict[type[Event], float] = {
            CellReady: sum(each.starts for each in expected) / max(1, len(cells)),
            CellWarm: sum(each.warm_up for each in expected) / max(1, len(cells)),
            WindowDone: sum(each.windows + alone * each.warm_up for each in expected) / max(1, windows),
            CellFinished: sum(each.rest for each in expected) / max(1, len(cells)),
            ProofDone: sum(each.proofs for each in expected) / max(1, proofs),
        }
        self._left: dict[tuple[CellKey, str], Counter[type[Event]]] = {
            (cell.key, cell.side): Counter({
                CellReady: 1,
                CellWarm: int(cell.group is not None),
                WindowDone: spec.windows,
                CellFinished: 1,
                ProofDone: int(is_proven(cell, spec)),
            })
            for cell in cells
        }  # fmt: skip
        further = Counter({CellReady: later, CellWarm: later, WindowDone: spec.windows * later, CellFinished: later})
        self._all: Counter[type[Event]] = sum(self._left.values(), further)

    def note(self, event: Event, now: float) -> None:
        """Note that ``event``, not the first one, has come at the time ``now``."""
        took, self._last = now - self._last, now
        kind = type(event)
        if isinstance(event, RunStarted) or kind not in self._planned:
            return
        if (left := self._left.get((event.cell.key, event.cell.side))) is None:
            return
        self._took[kind].append(took)
        gone = Counter({kind: min(left[kind], 1)})  # a window that is measured again was not planned
        if isinstance(event, CellFinished):
            gone = left - Counter({ProofDone: int(event.is_proven)})
        left -= gone
        self._all -= gone

    @property
    def windows(self) -> int:
        """The windows that are left."""
        return self._all[WindowDone]

    @property
    def seconds(self) -> int:
        """The seconds that are left, at least one while a step is: only a run that is over has none."""
        expected = (count * fmean(self._took[kind] or [self._planned[kind]]) for kind, count in self._all.items())
        return max(1, ceil(sum(expected))) if self._all else 0


def _name(cell: Cell) -> tuple[str, str, str]:
    """Return what identifies a cell: its task, its backend, and its size with its repeat and its side."""
    repeat = f", repeat {cell.repeat + 1}" if cell.repeat else ""
    side = f", {cell.side}" if cell.side else ""
    return one_line(cell.task.id), one_line(cell.backend.label), one_line(f"{cell.key.size}{repeat}{side}")


def _widths(names: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, parts)) for parts in zip(*names, strict=True)]


def _padded(parts: Sequence[str], to: Sequence[int]) -> str:
    return "  ".join(part.ljust(width) for part, width in zip(parts, to, strict=True))


def _result(event: CellFinished) -> str:
    outcome = event.outcome
    if outcome.status != "ok":
        return f"{outcome.status}: {one_line(outcome.reason or 'no reason was given')}"
    cell = record(event.cell, outcome)
    loop = estimate(batch_times([cell])) if cell.backend == NULL else None
    frames = estimate(frame_rates([cell]))
    if loop is not None:
        rate = f"{figures.short_time(loop.median)} a batch"
    elif frames is not None:
        rate = f"{figures.number(frames.median)} frames/s"  # of one process: the table has an interval, from all
    else:
        rate = "no window"
    if event.cell.known is not None and event.cell.known.verdict == "different":
        rate += "  other work"
    return rate


def _proven(event: ProofDone) -> str:
    proof = event.proof
    if proof.verdict == "different":
        return one_line(f"other work while it was measured: {difference(proof)}")
    if proof.verdict == "unverified":
        return one_line(f"what it returned was not compared: {proof.reason or 'no reason was given'}")
    return f"{proof.verdict} while it was measured: {steps(proof)}"


def other_work(cells: Sequence[CellSummary]) -> str:
    """Return that these cells, one at least, did other work while they were measured, and what becomes of them."""
    first, *others = cells
    more = f", and so did {figures.counted(len(others), 'more cell')}" if others else ""
    what = f"{first.label} with {first.key.size} on {first.env} did other work while it was measured"
    why = "rows differ" if first.work.proof is None else difference(first.work.proof)
    return one_line(f"{what}{more}: {why}; {'these rates are' if others else 'its rate is'} struck, not removed")
