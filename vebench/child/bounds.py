"""Bounds on the counts of a child's answers and of run files, so that every rate derived from them is finite.

A run file may hold hundreds of thousands of windows, and each is checked when it is read: the common case is quick.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST = 2**63 - 1


def check_counts(record: object, kind: type[DataclassInstance], positive: tuple[str, ...] = ()) -> None:
    """Raise ValueError unless every integer in those fields of ``record`` that ``kind`` declares is a count.

    Counts are from 0 to ``MOST``, or from 1 for fields named in ``positive``. Integers in tuples, lists and
    dictionaries are checked, too; booleans are not.
    """
    for name, least in _bounds(kind, positive):
        value = getattr(record, name)
        if value is None or (type(value) is int and least <= value <= MOST):  # as nearly every field of a window
            continue
        wrong = _outside(value, least)
        if wrong is not None:
            raise ValueError(f"{name} must be a whole number from {least} to {MOST}, not {wrong}")


@cache
def _bounds(kind: type[DataclassInstance], positive: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return the names of the fields that ``kind`` declares, each with the least count that it may hold."""
    return tuple((item.name, int(item.name in positive)) for item in fields(kind))


def _outside(value: object, least: int) -> int | None:
    """Return the first integer in ``value`` that is not from ``least`` to ``MOST``, None if there is none."""
    if isinstance(value, int):
        return None if isinstance(value, bool) or least <= value <= MOST else value
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            wrong = _outside(item, least)
            if wrong is not None:
                return wrong
    return None
