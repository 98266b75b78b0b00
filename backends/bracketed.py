"""``NAME[KEY=VALUE,...]``: how users write a backend with its options, and an environment with its arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping

from vebench.errors import shown

OptionValue = bool | int | float | str
_ONE = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?\s*(?:,|\Z)")
_WHOLE = re.compile(r"([^\[\],]*)\[([^\[\]]+)\]")
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_REAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def split(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names of a comma list, each with the text in its brackets. Raises ValueError for unmatched brackets."""
    position = 0
    while True:
        match = _ONE.match(text, position)
        if match is None:
            raise ValueError("brackets do not match")
        yield match[1].strip(), match[2]
        position = match.end()
        if not match[0].endswith(","):
            return


def pairs(bracket: str, lists: Collection[str] = ()) -> dict[str, str]:
    """Return the values in a bracket's text by key. Raises ValueError. Values of keys in ``lists`` may have commas."""
    found: dict[str, str] = {}
    key = ""
    for pair in bracket.split(","):
        if key in lists and "=" not in pair:
            found[key] += f",{pair.strip()}"
            continue
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key.isidentifier() and equals and value):
            raise ValueError(f"{shown(pair)} is not KEY=VALUE")
        if key in found:
            raise ValueError(f"{key} is given twice")
        found[key] = value
    return found


def value_of(text: str) -> OptionValue:
    """Return ``text`` as a bool, an int or a finite float if it is one, otherwise unchanged."""
    if text in ("true", "True", "false", "False"):
        return text in ("true", "True")
    if _INTEGER.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text) and math.isfinite(float(text)):  # a run file is JSON, which has no infinity
        return float(text)
    return text


def written(name: str, values: Mapping[str, OptionValue]) -> str:
    """Return a name with its values as a user writes them, in the order given: ``envpool-async[ratio=2]``."""
    if not values:
        return name
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}
    return f"{name}[{','.join(f'{key}={text}' for key, text in texts.items())}]"


def cut(text: str) -> tuple[str, str]:
    """Return the name in ``text``, and the brackets with their contents, or an empty text without brackets."""
    match = _WHOLE.fullmatch(text)
    return (text, "") if match is None else (match[1], text[len(match[1]) :])


def name_and_values(text: str) -> tuple[str, dict[str, OptionValue]]:
    """Return a name and its values as ``written`` wrote them. Other text is a name without values."""
    name, bracket = cut(text)
    try:
        return name, {key: value_of(value) for key, value in pairs(bracket[1:-1]).items()}
    except ValueError:
        return text, {}
