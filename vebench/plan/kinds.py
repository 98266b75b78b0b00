"""How an option is declared, and the kinds of values that options take.

A kind reads a value, from text as the command line has it or from a Python value, checks its bounds and writes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vebench.backends import bracketed
from vebench.backends.entry import MAX_COUNT
from vebench.errors import UsageError, shown

# Groups of options in the help, in its order. Options of the last group are rare: only --help-all shows them.
GROUPS = ("What to measure", "How long", "Where", "Verdict", "Output and files", "Advanced")
WHAT, HOW_LONG, WHERE, VERDICT, OUTPUT, ADVANCED = GROUPS

_LONGEST_S = 31 * 86400.0  # a month: longer waits overflow in system calls
_SHORTEST_S = 1e-9  # the resolution of a clock that counts nanoseconds
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 1 << 60

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_RANGE = re.compile(r"(-?\d+)(?:\.\.(-?\d+)(?::([+*])(-?\d+))?)?", re.ASCII)
_UNITS_OF_TIME = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS_OF_SIZE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_COUNTS_GRAMMAR = "give numbers from 1 on such as 8, 1,2,4, 1..256 (doubles), 1..16:+5 (adds) or 1..81:*3 (multiplies)"


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError("must be text")  # noqa: TRY004 - every kind raises ValueError
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8") from None
    return given


def _texts(given: Any) -> list[str]:
    if isinstance(given, str | int):
        return [_text(str(given))]
    if not isinstance(given, Sequence):
        raise ValueError("must be text, or a list")  # noqa: TRY004 - every kind raises ValueError
    return [_text(str(one)) for one in given]


def _any(_: Any) -> None:
    """Accept every value."""


def _written(value: Any) -> str:
    return str(getattr(value, "label", value))


@dataclass(frozen=True)
class Kind:
    """A kind of values, by default any text."""

    read: Callable[[Any], Any] = _text  # raises ValueError
    check: Callable[[Any], None] = _any  # raises ValueError for a value out of bounds
    written: Callable[[Any], str] = _written  # as a user types it
    many: bool = False  # the option may be repeated
    named: bool | None = None  # the value of a switch that is named; None: the option has a value
    choices: Callable[[], Iterable[str]] = tuple  # words that a shell can complete


def switch(*, named: bool = True) -> Kind:
    """Return the kind of true and false. On the command line, naming the option sets ``named``."""

    def read(given: Any) -> bool:
        value = bracketed.value_of(given) if isinstance(given, str) else given
        if not isinstance(value, bool):
            raise ValueError("must be true or false")  # noqa: TRY004 - every kind raises ValueError
        return value

    return Kind(read, named=named)


def word(*words: str) -> Kind:
    """Return the kind of these words."""

    def check(value: str) -> None:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")

    return Kind(check=check, choices=lambda: words)


FILE = Kind(Path)


def whole(least: int, most: int, word: str = "") -> Kind:
    """Return the kind of whole numbers within bounds, and of a word."""
    bounds = f"must be a whole number from {least} to {most}{word and f', or {word}'}"

    def read(given: Any) -> int | str:
        if word and given == word:
            return word
        digits = given.removeprefix("-") if isinstance(given, str) else ""
        if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(most)):
            return int(given)
        if type(given) is not int:
            raise ValueError(bounds)
        return given

    def check(value: int | str) -> None:
        if value != word and not (isinstance(value, int) and least <= value <= most):
            raise ValueError(bounds)

    return Kind(read, check)


def counts(most: int = MAX_COUNT) -> Kind:
    """Return the kind of ascending counts: numbers and ranges joined by commas.

    A range includes both ends. ``1..256`` doubles from the first count, ``1..16:+5`` adds, ``1..81:*3`` multiplies.
    """

    def read(given: Any) -> tuple[int, ...]:
        terms = [term.strip() for text in _texts(given) for term in text.split(",")]
        try:
            return tuple(sorted({count for term in terms for count in _expanded(term, most)}))
        except ValueError as error:
            raise ValueError(f"{error}; {_COUNTS_GRAMMAR}") from None

    def check(value: Sequence[int]) -> None:
        if not value:
            raise ValueError("give at least one number")
        if not 1 <= min(value) <= max(value) <= most:
            raise ValueError(f"must be a whole number from 1 to {most}")
        if list(value) != sorted(set(value)):
            raise ValueError("numbers must ascend, each once")

    return Kind(read, check, lambda value: ",".join(map(str, value)), many=True)


def _expanded(term: str, most: int) -> Iterator[int]:
    match = _RANGE.fullmatch(term)
    if match is None:
        raise ValueError(f"{shown(term)} is not a number or a range" if term else "a number is missing")
    first = _count(match[1], most)
    last = first if match[2] is None else _count(match[2], most)
    step = 2 if match[4] is None else _count(match[4], most)
    adds = match[3] == "+"
    if last < first:
        raise ValueError(f"{shown(term)} runs backwards")
    if step == 1 and not adds:
        raise ValueError(f"{shown(term)} never grows")
    while first < last:
        yield first
        first = first + step if adds else first * step
    yield last


def _count(digits: str, most: int) -> int:
    if digits.startswith("-"):
        raise ValueError(f"{shown(digits)} is negative")
    digits = digits.lstrip("0")
    if not digits:
        raise ValueError("0 is too few")
    # Check the length first: Python refuses to convert thousands of digits.
    if len(digits) > len(str(most)) or int(digits) > most:
        raise ValueError(f"{shown(digits)} is more than {most}")
    return int(digits)


def doubled(most: int) -> tuple[int, ...]:
    """Return the counts ``1..most``: 1, 2, 4 and so on, and ``most``."""
    return tuple(_expanded(f"1..{most}", most))


def seconds(*, or_none: bool = False) -> Kind:
    """Return the kind of times: ``90``, ``250ms``, ``2m`` or ``1.5h``. With ``or_none``, 0 is allowed."""

    def read(given: Any) -> float:
        text = given.strip() if isinstance(given, str) else given
        number = text.rstrip("umsh") if isinstance(text, str) else text
        unit = text[len(number) :] if isinstance(text, str) else ""
        if unit not in _UNITS_OF_TIME:
            number = ""
        return _number(number, "write a time such as 250ms, 90s, 2m or 1h") * _UNITS_OF_TIME.get(unit, 1.0)

    def check(value: float) -> None:
        # A comparison with NaN is false.
        if not _SHORTEST_S <= value <= _LONGEST_S and not (or_none and value == 0):
            raise ValueError(f"must be {'0 or ' if or_none else ''}above 0 seconds, at most {_LONGEST_S:.0f}")

    return Kind(read, check, time_of)


def time_of(seconds: float) -> str:
    """Return a time as a user writes it: ``500ms``, ``90s``, ``5m``."""
    minutes, rest = divmod(seconds, 60)
    if minutes and not rest:
        return f"{minutes:g}m"
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"


def share() -> Kind:
    """Return the kind of shares between 0 and 1: ``5%`` or ``0.05``."""

    def read(given: Any) -> float:
        percent = isinstance(given, str) and given.strip().endswith("%")
        number = _number(given.strip().removesuffix("%") if percent else given, "write a share such as 5% or 0.05")
        return number / 100 if percent else number

    def check(value: float) -> None:
        if not 0 < value < 1:
            raise ValueError("must be between 0% and 100%")

    return Kind(read, check, lambda value: f"{100 * value:g}%")


def size() -> Kind:
    """Return the kind of numbers of bytes: ``512M`` or ``8G``."""

    def read(given: Any) -> int:
        if type(given) is int:
            return given
        text = _text(given).strip().upper().removesuffix("B").removesuffix("I")
        unit = text[-1:] if text[-1:] in _UNITS_OF_SIZE else ""
        return int(_number(text.removesuffix(unit), "write a size such as 512M or 8G") * _UNITS_OF_SIZE[unit])

    def check(value: int) -> None:
        if not _LEAST_BYTES <= value <= _MOST_BYTES:
            raise ValueError("must be at least 1M: write a size such as 512M or 8G")

    return Kind(read, check)


def _number(given: Any, problem: str) -> float:
    if isinstance(given, str):
        text = given.strip()
        given = float(text) if _NUMBER.fullmatch(text) else None
        if given is not None and not math.isfinite(given):
            given = None
    if type(given) not in {int, float}:
        raise ValueError(problem)
    return float(given)


def parsed(parse: Callable[[str], Any], check: Callable[[Any], None]) -> Kind:
    """Return the kind of values with a language of their own. Both functions raise ValueError."""
    return Kind(lambda given: parse(_text(given)), check)


def listed(parse: Callable[[Sequence[str]], Any] = tuple, choices: Callable[[], Iterable[str]] = tuple) -> Kind:
    """Return the kind of values that ``parse`` reads from texts, each a list joined by commas."""
    return Kind(
        lambda given: parse(_texts(given)),
        written=lambda value: ",".join(map(_written, value)),
        many=True,
        choices=choices,
    )


@dataclass(frozen=True)
class Option:
    """An option: of the command line by its ``flags``, of Python functions and run files by its ``name``."""

    name: str
    flags: tuple[str, ...]
    group: str
    metavar: str  # empty for a switch
    help: str
    kind: Kind

    def value(self, given: Any) -> Any:
        """Return the value of a text or of a Python value. Raises UsageError for a bad one."""
        try:
            value = self.kind.read(given)
            self.kind.check(value)
        except ValueError as error:
            text = ",".join(map(str, given)) if isinstance(given, list | tuple) else str(given)
            raise UsageError(f"{self.flags[0]} {shown(text)}: {error}") from None
        return value

    def check(self, value: Any) -> None:
        """Raise UsageError for a value that is out of bounds."""
        try:
            self.kind.check(value)
        except ValueError as error:
            raise UsageError(f"{self.flags[0]} {shown(self.kind.written(value))}: {error}") from None

    def typed(self, given: Any) -> list[str]:
        """Return the words of a command line that give the same value as ``given``."""
        if self.kind.named is not None:
            return [self.flags[0]] if given is self.kind.named else []
        many = isinstance(given, Sequence) and not isinstance(given, str)
        return [self.flags[0], ",".join(map(str, given)) if many else str(given)]
