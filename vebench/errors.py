"""All errors that vebench reports to users. Each has a text of one line, and an exit status."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

# GitHub's workflow commands (github.com/actions/runner, src/Runner.Worker/ActionCommandManager.cs). A CI service obeys
# ``::command`` at the beginning of a log line, and older commands such as ``##[error]`` anywhere in a line.
_ACTS = re.compile(
    r":(?=:(?:add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|notice|remove-matcher|save-state|set-env"
    r"|set-output|stop-commands|warning)\b)|#(?=#[a-z]*\[)",
    re.IGNORECASE,
)


class VebenchError(Exception):
    """An error whose text is one line that says what is wrong and how to fix it."""

    exit_status = 2


class UsageError(VebenchError):
    """The request is not possible: an unknown name, a bad range, a file that exists."""


class RunFileError(VebenchError):
    """A run file cannot be read: it is damaged, not from vebench, or from a later version."""


class StorageError(VebenchError):
    """A run file or a scratch folder cannot be written. Earlier lines of the run file are intact."""


class NotComparableError(VebenchError):
    """Runs cannot be compared, for example because they were measured under different conditions."""

    exit_status = 3


class InterruptedRunError(VebenchError):
    """The user has interrupted a run. The run file has all measured cells."""

    exit_status = 130


def message_of(error: BaseException) -> str:
    """Return the text of any error, even if its ``__str__`` raises another error."""
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - a user's class may raise anything
        return f"(its text cannot be read: {type(other).__name__})"


def one_line(text: str) -> str:
    """Return ``text`` on one line, with printable characters only: text from a library may contain anything.

    A blank is inserted into each command for a CI service. So the service does not obey it, wherever the line breaks.
    """
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return _ACTS.sub(r"\g<0> ", " ".join(text.split()))


def harmless(text: str) -> str:
    """Return ``text`` as it is, or on one line if a terminal or a log could act on it."""
    return text if text.isprintable() and not _ACTS.search(text) else one_line(text)


def shown(text: str) -> str:
    """Return ``text`` for a quotation in an error: shortened, and escaped if it is empty or not printable."""
    text = text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - characters that fit into a line
    return text if text and text.isprintable() else repr(text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean A or B?)`` with the known names most similar to ``name``; empty if none is similar."""
    from difflib import get_close_matches

    by_folded_name = {candidate.casefold(): candidate for candidate in known}
    near = [by_folded_name[match] for match in get_close_matches(name.casefold(), by_folded_name)]
    return f" (did you mean {' or '.join(near)}?)" if near else ""


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
