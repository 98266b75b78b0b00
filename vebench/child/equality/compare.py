"""Compares rows, for measured cells, for ``verify`` and for ``verify A B``.

A row is compared field by field. Flags must be the same. One side may round a reward to float32. Arrays must have the
same bytes, unless casts or limits are allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees

if TYPE_CHECKING:
    from vebench.backends.interface import ArrayTree


@dataclass(frozen=True)
class Tolerance:
    """Largest allowed difference of numbers: absolute, relative to the first, or in units in the last place (ulps)."""

    absolute: float = 0.0
    relative: float = 0.0
    ulps: int = 0
    steps: int | None = None  # Later steps of an episode are not compared, because physics may be chaotic.

    def allows(self, one: NDArray[Any], other: NDArray[Any]) -> bool:
        """Return whether all numbers are within the limit. Equal numbers and pairs of NaN always are."""
        kind = one.dtype if one.dtype.kind == "f" else np.dtype(np.float64)
        spacing = np.abs(np.spacing(np.abs(one).astype(kind))).astype(np.float64)
        size = np.abs(one.astype(np.float64))
        room = np.maximum(np.maximum(self.absolute, self.relative * size), self.ulps * spacing)
        gap = gaps_between(one, other)
        return bool(np.all((gap == 0) | (gap <= room)))


@dataclass(frozen=True)
class Hidden:
    """A value that a side sends as text: the digest of a long array, or a text."""

    kind: str  # ``object`` for text, otherwise the type of the array
    text: str

    def __str__(self) -> str:
        return self.text[:60] if self.kind == "object" else f"{self.kind} with digest {self.text[:8]}"


@dataclass(frozen=True)
class Gap:
    """A field in which two rows differ, with both values in words."""

    field: str  # ``rewards``, ``terminated``, ``truncated``, ``observations/LEAF`` or ``infos/KEY``
    expected: str
    found: str
    size: float | None = None  # the largest absolute difference, None if it is not finite
    count: str = ""  # how many numbers differ, in words

    def __post_init__(self) -> None:
        if self.size is not None and not np.isfinite(self.size):
            object.__setattr__(self, "size", None)


_ARRAYS = (np.ndarray, np.generic)  # a row of a batch of numbers is a scalar


@dataclass
class Comparer:
    """Compares values by one set of rules, and counts casts and uses of limits."""

    limits: Mapping[str, Tolerance] = field(default_factory=dict)  # by field, or by the parent field of leaves
    may_cast: bool = False  # whether arrays may have different types
    casts: Counter[str] = field(default_factory=Counter)  # number of values that were equal after a cast, by cast
    furthest: dict[str, float] = field(default_factory=dict)  # the largest distance within a limit, by field
    skipped: int = 0  # arrays not compared, because they came after the last step of their limit

    def gaps(self, values: Iterable[tuple[str, Any, Any]], age: int = 0) -> Iterator[Gap]:
        """Yield the gaps in ``values``, ``(field, expected, found)``, of a row ``age`` steps after a reset."""
        for name, one, other in values:
            if one is None or other is None:
                if one is not other:
                    words = ["nothing" if value is None else "a value" for value in (one, other)]
                    yield Gap(name, words[0], words[1])
            elif name == "rewards":
                yield from self._rewards(one, other, age)
            elif isinstance(one, _ARRAYS) and isinstance(other, _ARRAYS):
                yield from self._arrays(name, np.asarray(one), np.asarray(other), age)
            elif type(one) is not type(other) or one != other:
                yield Gap(name, str(one), str(other))

    def _rewards(self, one: float, other: float, age: int) -> Iterator[Gap]:
        if one == other or (isnan(one) and isnan(other)):
            return
        with np.errstate(over="ignore"):
            rounded = one == float(np.float32(other)) or other == float(np.float32(one))
        if rounded:
            self.casts["rewards as float32"] += 1
        elif not self._is_near("rewards", np.asarray(one), np.asarray(other), age):
            yield Gap("rewards", repr(one), repr(other), abs(one - other))

    def _arrays(self, name: str, one: NDArray[Any], other: NDArray[Any], age: int) -> Iterator[Gap]:
        if one.shape != other.shape or (one.dtype != other.dtype and not self.may_cast):
            yield Gap(name, f"{one.dtype}{one.shape}", f"{other.dtype}{other.shape}")
            return
        if one.dtype == other.dtype and one.tobytes() == other.tobytes():
            return
        if self.may_cast and self._is_cast(name, one, other):
            return
        if self._is_near(name, one, other, age):
            return
        gap = gaps_between(one, other)
        index = np.unravel_index(int(np.argmax(gap)), gap.shape)
        at = f" at {list(map(int, index))}" if index else ""
        count = f"{np.count_nonzero(gap):,} of {gap.size:,} numbers differ" if gap.size > 1 else ""
        yield Gap(name, f"{one[index]}{at}", f"{other[index]}{at}", float(gap[index]), count)

    def _is_cast(self, name: str, one: NDArray[Any], other: NDArray[Any]) -> bool:
        """Return whether the arrays are equal after a cast from the wider to the narrower type. Count the cast."""
        narrow, wide = sorted((one.dtype, other.dtype), key=lambda kind: kind.itemsize)
        if narrow.kind != wide.kind:  # a cast to integers would lose the digits after the point
            narrow = np.result_type(narrow, wide)
        with np.errstate(all="ignore"):
            same = np.array_equal(one.astype(narrow), other.astype(narrow), equal_nan=narrow.kind in "fc")
        exact = name.startswith("infos/") and np.array_equal(one, other)
        if same and narrow != wide and not exact:
            self.casts[f"{name} as {narrow}"] += 1
        return bool(same)

    def _is_near(self, name: str, one: NDArray[Any], other: NDArray[Any], age: int) -> bool:
        """Return whether a limit allows the distance of two arrays, or excludes them from comparison."""
        limits = (limit for of, limit in self.limits.items() if name == of or name.startswith(f"{of}/"))
        limit = next(limits, None)
        if limit is None:
            return False
        if limit.steps is not None and age > limit.steps:
            self.skipped += 1
            return True
        if not limit.allows(one, other):
            return False
        self.furthest[name] = max(float(gaps_between(one, other).max()), self.furthest.get(name, 0.0))
        return True


def leaves_of(name: str, one: ArrayTree, other: ArrayTree) -> Iterator[tuple[str, Any, Any]]:
    """Yield the leaves of two trees of arrays in pairs, with None for a missing leaf."""
    ours, theirs = (dict(trees.named_leaves(tree, name)) for tree in (one, other))
    for leaf in sorted({*ours, *theirs}):
        yield leaf, ours.get(leaf), theirs.get(leaf)


def gaps_between(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    """Return the absolute differences of two arrays: 0 for pairs of NaN, infinity where a difference is not finite."""
    equal = (one == other) | ((one != one) & (other != other))  # noqa: PLR0124 - NaN, of any type
    with np.errstate(all="ignore"):
        gap = np.abs(one.astype(np.float64) - other.astype(np.float64))
    found: NDArray[np.float64] = np.where(equal, 0.0, np.nan_to_num(gap, nan=np.inf, posinf=np.inf))
    return found
