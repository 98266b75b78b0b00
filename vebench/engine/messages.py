"""Reads and checks the answers of a child, so that no absurd value gets into a run file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vebench.child.answers import KINDS

if TYPE_CHECKING:
    from vebench.child.answers import Answer

_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANSWERS = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


def decode(text: bytes) -> Answer:
    """Return the answer on a line. Raises ValueError if it is invalid."""
    try:
        line = _LINE.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if len(line) != 1 or not line.keys() <= _ANSWERS.keys():
        raise ValueError(f"an answer must have one key, one of {', '.join(_ANSWERS)}")
    ((name, body),) = line.items()
    answer: Answer = _ANSWERS[name].decode(body)
    return answer
