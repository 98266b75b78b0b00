"""Output: pages on standard output and in files, and notes and progress on standard error."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from rich.console import Console

from vebench.errors import UsageError, one_line
from vebench.reports import plots
from vebench.reports.document import Page
from vebench.reports.formats import TERMINAL, Format
from vebench.results import store

if TYPE_CHECKING:
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


def write_error(text: str) -> None:
    """Write ``text`` to standard error. If standard error is closed, the text is lost without an exception."""
    try:
        sys.stderr.write(text)
    except AttributeError:  # the process has no standard error
        return
    except OSError:
        discard(sys.stderr)


def discard(stream: IO[str]) -> None:
    """Discard the buffer of ``stream``, so that Python reports no error at exit."""
    with suppress(OSError, ValueError):  # the stream is closed, or is not a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


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
        except plots.NoFigureError as error:
            if self.printed is None:
                raise
            note(f"-o {path}: {error}")
        if form.beside and any(one.charts for one in page.documents) and (why := plots.missing()):
            note(f"{path} has no figures: {why}")


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
    """Write all files under temporary names, then rename them. The first file refers to the others, and comes last."""
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
