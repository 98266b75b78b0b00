"""All errors that a user can meet. Each is one line of text, and has an exit status."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_SHOWN = 80
# What a CI service acts on where a line of a log begins with it, or has it anywhere: the workflow commands of GitHub
# (github.com/actions/runner, src/Runner.Worker/ActionCommandManager.cs), and older ones such as ##[error].
_COMMANDS = (
    *("add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group", "notice"),
    *("remove-matcher", "save-state", "set-env", "set-output", "stop-commands", "warning"),
)
_ACTS = re.compile(rf":(?=:(?:{'|'.join(_COMMANDS)})\b)|#(?=#[a-z]*\[)", re.IGNORECASE)


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
    """The user has interrupted a run. Its file has all measured cells."""

    exit_status = 130


def message_of(error: BaseException) -> str:
    """Return the text of any error, also of one whose class raises another when it is asked for its text."""
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - a class of a user's may raise anything
        return f"(its text cannot be read: {type(other).__name__})"


def one_line(text: str) -> str:
    """Return ``text`` on one line, with printable characters only: text from a library may contain anything.

    What would be a command in the log of a CI service gets a blank inside: wherever a line is broken, it is none.
    """
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return _ACTS.sub(r"\g<0> ", " ".join(text.split()))


def harmless(text: str) -> str:
    """Return ``text`` as it is, or on one line if a terminal or a log could act on it."""
    return text if text.isprintable() and not _ACTS.search(text) else one_line(text)


def shown(text: str) -> str:
    """Return ``text`` as an error can quote it: on one line, escaped if it is not printable, and shortened."""
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[: _LONGEST_SHOWN - 3]}..."
    return text if text and text.isprintable() else repr(text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean A or B?)`` with the names most similar to ``name``, or an empty string if none is."""
    from difflib import get_close_matches

    by_folded_name = {candidate.casefold(): candidate for candidate in known}
    near = get_close_matches(name.casefold(), by_folded_name, n=3, cutoff=0.6)
    if not near:
        return ""
    return f" (did you mean {' or '.join(by_folded_name[match] for match in near)}?)"
