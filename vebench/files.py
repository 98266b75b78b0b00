"""The files that users name and runs leave: they are read here, up to one size, and their texts are made harmless.

Every reader of JSON uses ``decoded``, so that no page, message or format meets a text that acts on a terminal or a log.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from vebench.errors import harmless

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

MOST_BYTES = 1 << 28
LONGEST_TEXT = 1 << 16


def contents(path: Path) -> bytes:
    """Return the contents of a file. Raises OSError, also if there are more than ``MOST_BYTES``."""
    with path.open("rb") as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES >> 20} MiB", str(path))
    return found


def decoded(data: bytes, kind: type[T]) -> T:
    """Return the record in JSON ``data``, with each text on one line and printable. Raises ValueError."""
    # Most lines of a run file are printable ASCII that cannot be a command: this is asked first, because it is fast.
    plain = data.isascii() and b"\\" not in data and b"\x7f" not in data and b"#" not in data and b"::" not in data
    if not plain or len(data) > LONGEST_TEXT:
        data = msgspec.json.encode(with_texts(msgspec.json.decode(data), _harmless))
    return msgspec.json.decode(data, type=kind)


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return JSON with each text changed."""
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
