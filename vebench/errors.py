"""The closed set of errors that a user can meet. Each is one line, and knows the exit status that it ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_SHOWN = 80


class VebenchError(Exception):
    """An error whose text is one line that says what is wrong and what would be right."""

    exit_status = 2


class UsageError(VebenchError):
    """Something that was asked for is not possible: an unknown name, a bad range, a file in the way."""


class RunFileError(VebenchError):
    """A run file cannot be read: it is damaged, foreign, or from a later version."""


class StorageError(VebenchError):
    """A run file cannot be written. What it held before stays whole."""


class NotComparableError(VebenchError):
    """Two things that were to be put beside each other were not measured under the same conditions."""

    exit_status = 3


class InterruptedRunError(VebenchError):
    """The user has ended a run. What was measured is in its file."""

    exit_status = 130


def one_line(text: str) -> str:
    """Return ``text`` on one line, in characters that can be encoded and shown, whatever a library has said."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def shown(text: str) -> str:
    """Return ``text`` as an error can quote it: on one line, escaped if it would not print, not too long."""
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[: _LONGEST_SHOWN - 3]}..."
    return text if text and text.isprintable() else repr(text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean A or B?)`` for the names nearest to ``name``, or an empty string if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - on use: it takes longer to load than all else here

    by_folded_name = {candidate.casefold(): candidate for candidate in known}
    near = get_close_matches(name.casefold(), by_folded_name, n=3, cutoff=0.6)
    if not near:
        return ""
    return f" (did you mean {' or '.join(by_folded_name[match] for match in near)}?)"
