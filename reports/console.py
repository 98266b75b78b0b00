"""Where output goes: data to standard output, progress to standard error; and what to do where nobody reads it."""

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


def for_data(*, plain: bool = False) -> Console:
    """Return the console that writes to standard output; ``plain`` without colour, for a file."""
    return OurConsole(no_color=plain, force_terminal=False if plain else None, highlight=False)


def for_progress() -> Console:
    """Return the console that writes to standard error."""
    return OurConsole(stderr=True, highlight=False)


def forsake(stream: IO[str]) -> None:
    """Let what is still to be written to ``stream``, also by Python on its way out, go nowhere without complaint."""
    with suppress(OSError, ValueError):  # closed, or no file at all
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
