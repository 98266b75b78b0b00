"""Reads files that users name, or that runs have written: limits their size, and makes their texts harmless.

Every reader of JSON uses ``decoded``. So no report or message contains text that a terminal or a log would obey.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vebench.errors import harmless

T = TypeVar("T")

MOST_BYTES = 1 << 28
LONGEST_TEXT = 1 << 16


def contents(path: Path) -> bytes:
    """Return the contents of a file. Raises OSError if it cannot be read, or is larger than ``MOST_BYTES``."""
    with path.open("rb") as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES >> 20} MiB", str(path))
    return found


def decoded(data: bytes, kind: type[T]) -> T:
    """Return the record in JSON ``data``, with each text harmless. Raises ValueError if ``data`` is invalid."""
    # Most lines of a run file need no change. This fast check finds them.
    plain = data.isascii() and b"\\" not in data and b"\x7f" not in data and b"#" not in data and b"::" not in data
    if not plain or len(data) > LONGEST_TEXT:
        data = msgspec.json.encode(with_texts(msgspec.json.decode(data), _harmless))
    return msgspec.json.decode(data, type=kind)


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the decoded JSON ``value`` with ``change`` applied to each text, names included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {with_texts(name, change): with_texts(each, change) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(each, change) for each in value]
    return value


def _harmless(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a text in it is longer than {LONGEST_TEXT} characters")
    return harmless(text)
