"""Consoles for data, for files and for progress, and what to do when the reader of one is gone."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console

from vebench.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

_silent = ContextVar("_silent", default=False)


class OurConsole(Console):
    """A console whose caller learns that its reader is gone; Rich's own would end the program.

    It is plain, without any control character, unless it writes to a terminal and the user allows colour
    (https://no-color.org).
    """

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - as Rich has it
        if os.environ.get("NO_COLOR"):
            settings["color_system"] = None
        super().__init__(highlight=False, **settings)

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


def for_data() -> Console:
    """Return the console that writes to standard output."""
    return OurConsole()


def for_file(file: IO[str]) -> Console:
    """Return the console that writes to ``file``, without colour."""
    return OurConsole(file=file, color_system=None, force_terminal=False)


def for_progress() -> Console:
    """Return the console that writes to standard error. A view that moves needs a real terminal, whatever is forced."""
    terminal = getattr(sys.stderr, "isatty", bool)() and not _silent.get()
    return OurConsole(stderr=True, force_terminal=terminal, quiet=_silent.get())


@contextmanager
def without_progress() -> Iterator[None]:
    """Within the context, show no progress, and make warnings of Python's of notes: for callers other than commands."""
    before = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(before)


def note(text: str) -> None:
    """Write a remark of the command's to standard error, on one line and harmless, whatever it quotes."""
    if _silent.get():
        warnings.warn(one_line(text), stacklevel=2)
    else:
        write_error(f"vebench: {one_line(text)}\n")


def write_error(text: str) -> None:
    """Write ``text`` to standard error. Whoever does not read it misses it; the exit status stays the same."""
    try:
        sys.stderr.write(text)
    except AttributeError:  # the process was started without one
        return
    except OSError:
        discard(sys.stderr)


def discard(stream: IO[str]) -> None:
    """Throw away what is still to be written to ``stream``, so that Python does not complain when it exits."""
    with suppress(OSError, ValueError):  # closed, or no file at all
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
