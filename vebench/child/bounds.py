"""Bounds on the counts of a child's answers and of run files, so that every rate derived from them is finite."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from _typeshed import DataclassInstance

MOST = 2**63 - 1


def check_counts(record: object, kind: type[DataclassInstance], positive: Collection[str] = ()) -> None:
    """Raise ValueError unless every integer in those fields of ``record`` that ``kind`` declares is a count.

    Counts are from 0 to ``MOST``, or from 1 for fields named in ``positive``. Integers in tuples, lists and
    dictionaries are checked, too; booleans are not.
    """
    for item in fields(kind):
        least = int(item.name in positive)
        for number in _numbers(getattr(record, item.name)):
            if not least <= number <= MOST:
                raise ValueError(f"{item.name} must be a whole number from {least} to {MOST}, not {number}")


def _numbers(value: object) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, dict):
        yield from _numbers(list(value.values()))
