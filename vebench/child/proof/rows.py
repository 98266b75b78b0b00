"""One environment's answer to one step, and the comparison of two answers."""

from __future__ import annotations

from hashlib import blake2b
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vebench.child.answers import Mismatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Batch

FIELDS = ("observations", "rewards", "terminated", "truncated")


class Row(NamedTuple):
    """One environment's answer to one step, copied."""

    observation: NDArray[np.generic]
    reward: float
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


def row_of(batch: Batch, index: int) -> Row:
    """Return a copy of one row of a batch."""
    return Row(
        np.array(batch.observations[index]),
        float(batch.rewards[index]),
        bool(batch.terminated[index]),
        bool(batch.truncated[index]),
    )


def same(field: str, expected: Row, found: Row) -> str:
    """Return ``identical``, ``equal`` (for a reward that is equal in float32) or ``different``."""
    if field == "observations":
        one, other = expected.observation, found.observation
        alike = one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
        return "identical" if alike else "different"
    if field == "rewards":
        if expected.reward == found.reward or (np.isnan(expected.reward) and np.isnan(found.reward)):
            return "identical"
        return "equal" if np.float32(expected.reward) == np.float32(found.reward) else "different"
    return "identical" if getattr(expected, field) == getattr(found, field) else "different"


def alike(one: Row, other: Row) -> bool:
    """Return whether two digested rows are the same. A reward that is no number is the same as another such one."""
    if one[2:] != other[2:] or not np.array_equal(one.observation, other.observation):
        return False
    return one.reward == other.reward or (isnan(one.reward) and isnan(other.reward))


def describe(env_id: int, step: int, field: str, expected: Row, found: Row) -> Mismatch:
    """Return the mismatch in this field: both values, briefly, and the largest difference."""
    if field != "observations":
        name = "reward" if field == "rewards" else field
        one, other = getattr(expected, name), getattr(found, name)
        return Mismatch(env_id, step, field, repr(one), repr(other), _finite(abs(float(one) - float(other))))
    one, other = expected.observation, found.observation
    if one.shape != other.shape or one.dtype != other.dtype:
        return Mismatch(env_id, step, field, f"{one.dtype}{one.shape}", f"{other.dtype}{other.shape}", None)
    gap = _gap(one.astype(np.float64), other.astype(np.float64))
    index = np.unravel_index(int(np.argmax(gap)), gap.shape)
    at = f" at {list(map(int, index))}" if index else ""
    return Mismatch(env_id, step, field, f"{one[index]}{at}", f"{other[index]}{at}", _finite(float(gap[index])))


def _gap(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the absolute difference of two arrays, element by element; infinity if only one of both is finite."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(one - other)
    alike = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(alike, 0.0, np.where(np.isnan(gap), np.inf, gap))


def _finite(size: float) -> float | None:
    return size if np.isfinite(size) else None


def digested(row: Row) -> Row:
    """Return the row with a digest instead of its observation, so that thousands of Atari rows need little memory."""
    return row._replace(observation=digest(row.observation))


def digest(observation: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Return the digest of an observation, of its type and shape too, ``(16,)``."""
    whole = blake2b(f"{observation.dtype.str} {observation.shape}".encode(), digest_size=16)
    whole.update(observation.tobytes())
    return np.frombuffer(whole.digest(), np.uint8)
