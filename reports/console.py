"""Consoles for data, for files and for progress, and what to do when the reader of one is gone."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

if TYPE_CHECKING:
    from typing import IO


class OurConsole(Console):
    """A console whose caller learns that its reader is gone; Rich's own would end the program."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


def for_data() -> Console:
    """Return the console that writes to standard output."""
    return OurConsole(highlight=False)


def for_file(file: IO[str]) -> Console:
    """Return the console that writes to ``file``, without colour."""
    return OurConsole(file=file, no_color=True, force_terminal=False, highlight=False)


def for_progress() -> Console:
    """Return the console that writes to standard error."""
    return OurConsole(stderr=True, highlight=False)


def discard(stream: IO[str]) -> None:
    """Throw away what is still to be written to ``stream``, so that Python does not complain when it exits."""
    with suppress(OSError, ValueError):  # closed, or no file at all
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
