"""Output: pages on standard output and in files, and notes and progress on standard error."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NoReturn, Self

from rich.console import Console
from rich.table import Column
from rich.text import Text

from vebench.analysis.statistics import estimate
from vebench.analysis.summary import proof_difference, samples_of
from vebench.backends.packages import MATPLOTLIB, how_to_install, importable
from vebench.backends.registry import NULL
from vebench.engine.runner import CellFinished, CellStarted, Event, ProofStarted, WindowDone
from vebench.errors import UsageError, discard, one_line, write_error
from vebench.plan.cells import Cell, Plan
from vebench.reports import charts, figures
from vebench.reports.document import Page
from vebench.reports.formats import TERMINAL, Format
from vebench.results import store
from vebench.results.records import record

if TYPE_CHECKING:
    from rich.progress import Progress

    from vebench.reports.formats import Content

_silent = ContextVar("_silent", default=False)


class OurConsole(Console):
    """A console that raises BrokenPipeError if its reader is gone. Rich's own console would end the program.

    Text has no control characters, unless the console writes to a terminal and the user allows colour
    (https://no-color.org).
    """

    def __init__(self, **settings: Any) -> None:
        if os.environ.get("NO_COLOR"):
            settings["color_system"] = None
        super().__init__(highlight=False, **settings)

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


def for_progress(*, quiet: bool = False) -> Console:
    """Return a console for standard error. It is a terminal only if standard error is one, so that a bar works."""
    quiet = quiet or _silent.get()
    terminal = getattr(sys.stderr, "isatty", bool)() and not quiet
    return OurConsole(stderr=True, force_terminal=terminal, quiet=quiet)


@contextmanager
def without_progress() -> Iterator[None]:
    """Show no progress within the context, and turn notes into Python's warnings. The Python interface uses this."""
    before = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(before)


def note(text: str) -> None:
    """Write a note to standard error on one line, without control characters."""
    if _silent.get():
        warnings.warn(one_line(text), stacklevel=2)
    else:
        write_error(f"vebench: {one_line(text)}\n")


@dataclass(frozen=True)
class Outlet:
    """The places to which a command writes its page."""

    printed: Format | None = TERMINAL  # the format on standard output; None: print nothing
    report: tuple[Path, Format] | None = None  # the file of a report, and its format

    def publish(self, page: Page, *, quiet: bool = False) -> None:
        """Print the page unless ``quiet``, and write the report.

        If a report of charts has no charts, this is an error only if nothing is printed.
        """
        if self.printed is not None and not quiet:
            show(page, self.printed)
        if self.report is None:
            return
        path, form = self.report
        try:
            save(page, form, path)
            if self.printed is not None and not quiet:
                note(f"wrote {path}")
        except charts.NoChartError as error:
            if self.printed is None:
                raise
            note(f"-o {path}: {error}")
        if form.beside and any(one.charts for one in page.documents) and not importable(MATPLOTLIB.module):
            note(f"{path} has no charts: charts need {MATPLOTLIB.name} ({how_to_install([MATPLOTLIB])})")


def show(page: Page, form: Format = TERMINAL) -> None:
    """Write ``page`` to standard output.

    A reader that closes the pipe early, such as ``head``, is not an error. Raises UsageError for bytes on a terminal.
    """
    if form.binary and sys.stdout.isatty():
        raise UsageError(f"-f {form.name}: no terminal can show it: -o report{form.suffixes[0]} writes it to a file")
    rendered = form.render(page)
    try:
        if isinstance(rendered, bytes):
            sys.stdout.buffer.write(rendered)
            sys.stdout.flush()
        else:
            _write(rendered, OurConsole())
    except BrokenPipeError:
        discard(sys.stdout)


def save(page: Page, form: Format, path: Path, option: str = "-o", *, append: bool = False) -> None:
    """Write ``page`` to the file ``path`` and its charts to the same folder. With ``append``, append the page alone.

    Existing files are intact until the new files are complete. Pipes and devices get the page without charts. Raises
    UsageError, which names the ``option``, if a file cannot be written or would overwrite a run file.
    """
    try:
        if append:
            _write_file(path, form.render(page), "a")
            _write_file(path, "\n", "a")
        elif (path.exists() and not path.is_file()) or path.is_relative_to("/dev"):
            _write_file(path, form.render(page), "w")
        else:
            files = {path.parent / name: content for name, content in form.files(page, path.name).items()}
            for beside in files.keys() - {path}:
                store.refuse_to_overwrite(beside, option)
            _replace(files)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}: name another file") from None


def _replace(files: Mapping[Path, Content]) -> None:
    """Write all files under temporary names, then rename them. The first file refers to the others, so it is last."""
    drafts: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            target = Path(os.path.realpath(path))
            draft = target.with_name(f".{secrets.token_hex(8)}.tmp")
            drafts[draft] = target
            _write_file(draft, content, "x")
            with suppress(FileNotFoundError):
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
        for draft, target in reversed([*drafts.items()]):
            draft.replace(target)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def _write_file(path: Path, content: Content, mode: str) -> None:
    if isinstance(content, bytes):
        with path.open(f"{mode}b") as binary:
            binary.write(content)
    else:
        with path.open(mode, encoding="utf-8") as file:
            _write(content, OurConsole(file=file, color_system=None, force_terminal=False))


def _write(content: Content, target: Console) -> None:
    """Write a text unchanged, or content that the console lays out. In files, lines do not end with spaces."""
    if not isinstance(content, str):
        with target.capture() as laid_out:
            target.print(content, crop=False)  # only commands and code for pasting are wider
        content = laid_out.get()
        content = content if target.is_terminal else re.sub(" +$", "", content, flags=re.MULTILINE)
    target.file.write(content)
    target.file.flush()


class Screen:
    """Lines that stay, and on a terminal a bar below them. The bar disappears at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        if console.is_terminal and not console.is_dumb_terminal and not console.quiet:
            from rich.progress import BarColumn, Progress, TextColumn

            # If the bar's line wrapped, a part of it would stay.
            words = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
            self._bar = Progress(BarColumn(12), words, console=console, auto_refresh=False, transient=True)
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
    """The screen of a plan: a line for each finished or different cell, and each reason to skip cells.

    ``done`` cells and ``before`` windows were measured earlier. ``later`` cells follow the plan's cells.
    """

    def __init__(self, console: Console, plan: Plan, *, done: int = 0, before: int = 0, later: int = 0) -> None:
        super().__init__(console)
        self._finished, self._total = done, len(plan.cells) + done + later  # numbers of cells
        cells = sum(cell.skip is None for cell in plan.cells) + later
        self._done, self._windows = before, before + plan.spec.windows * cells
        self._skipped: set[str | None] = set()
        # The rates of windows, by task, then by setting.
        self._rates: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.draw(self._done, self._windows, f"0 of {figures.counted(self._windows, 'window')}")

    def show(self, event: Event) -> None:
        """Print the lines of an event of the runner, and draw the bar once."""
        if isinstance(event, CellStarted):
            return
        cell, rates, words = event.cell, self._rates[event.cell.task.id], ""
        if isinstance(event, WindowDone):
            self._done = min(self._done + 1, self._windows)  # disturbed windows are measured again
            if cell.entry.candidate:
                frames = cell.task.frame_skip * event.window.transitions
                rates[_setting(cell)].append(frames * 1e9 / max(event.window.ns, 1))
        elif isinstance(event, CellFinished):
            self._finish(event)
        elif isinstance(event, ProofStarted):
            words = ", comparing rows with the reference"
        elif event.proof.verdict == "different":
            rates.pop(_setting(cell), None)
            why = f"{_name(cell)}: different work while it was measured: {proof_difference(event.proof)}"
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
            # The rate of one process has no interval. The table has the interval over all processes.
            frames, batches = (estimate(sample) for sample in samples_of(record(event.cell, event.outcome)))
            rate = "no window" if frames is None else f"{figures.number(frames.median)} frames/s"
            if batches is not None and event.cell.backend.name == NULL:
                rate = f"{figures.short_time(batches.median)} a batch"
            self.say(_name(event.cell), lead=f"{number} {rate:>18}  ")
            return
        self._rates[event.cell.task.id].pop(_setting(event.cell), None)
        if reason not in self._skipped:
            why = f"{_name(event.cell)}: {reason or 'no reason was given'}"
            self.say(why, "yellow", lead=f"{number} {status:>18}  ")
        if status == "skipped":
            self._skipped.add(reason)


def _name(cell: Cell) -> str:
    number = f", pass {cell.repeat + 1}" if cell.repeat else ""
    side = f", {cell.interpreter.side}" if cell.interpreter.side else ""
    return one_line(f"{cell.task.id}, {cell.backend.label}, {cell.key.size}{number}{side}")


def _setting(cell: Cell) -> str:
    side = f", {cell.interpreter.side}" if cell.interpreter.side else ""
    return one_line(f"{cell.backend.label} with {cell.key.size}{side}")
