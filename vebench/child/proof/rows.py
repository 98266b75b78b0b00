"""One environment's answer to one step, and the comparison of two answers."""

from __future__ import annotations

from hashlib import blake2b
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vebench.backends import trees
from vebench.child.answers import Mismatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, Batch
    from vebench.backends.trees import Tree

_DIGEST = 16  # bytes of the digest of one leaf
FIELDS = ("observations", "rewards", "terminated", "truncated")


class Row(NamedTuple):
    """One environment's answer to one step, copied."""

    observation: Tree
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
        trees.mapped(lambda array: np.array(array[index]), batch.observations),
        float(batch.rewards[index]),
        bool(batch.terminated[index]),
        bool(batch.truncated[index]),
    )


def same(field: str, expected: Row, found: Row) -> str:
    """Return ``identical``, ``equal`` (for a reward that is equal in float32) or ``different``."""
    if field == "observations":
        return "identical" if _leaf_that_differs(expected.observation, found.observation) is None else "different"
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


def _leaf_that_differs(expected: ArrayTree, found: ArrayTree) -> str | None:
    """Return the name of the first leaf that differs in shape, type or a byte, empty if the forms do; None if none."""
    if trees.form(expected) != trees.form(found):
        return ""
    for (name, one), other in zip(trees.named_leaves(expected), trees.leaves(found), strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or one.tobytes() != other.tobytes():
            return name
    return None


def describe(env_id: int, step: int, field: str, expected: Row, found: Row) -> Mismatch:
    """Return the mismatch in this field: both values, briefly, and the largest difference."""
    if field != "observations":
        name = "reward" if field == "rewards" else field
        one, other = getattr(expected, name), getattr(found, name)
        return Mismatch(env_id, step, field, repr(one), repr(other), _finite(abs(float(one) - float(other))))
    forms = trees.form(expected.observation), trees.form(found.observation)
    if forms[0] != forms[1]:
        return Mismatch(env_id, step, field, trees.in_words(forms[0]), trees.in_words(forms[1]))
    leaf = _leaf_that_differs(expected.observation, found.observation) or ""
    one, other = (trees.leaf_of(row.observation, leaf) for row in (expected, found))
    if one.shape != other.shape or one.dtype != other.dtype:
        return Mismatch(env_id, step, field, f"{one.dtype}{one.shape}", f"{other.dtype}{other.shape}", None, leaf)
    gap = _gap(one.astype(np.float64), other.astype(np.float64))
    index = np.unravel_index(int(np.argmax(gap)), gap.shape)
    at = f" at {list(map(int, index))}" if index else ""
    size = _finite(float(gap[index]))
    return Mismatch(env_id, step, field, f"{one[index]}{at}", f"{other[index]}{at}", size, leaf)


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


def digest(observation: ArrayTree) -> NDArray[np.uint8]:
    """Return the digests of an observation's leaves, of their names, types and shapes too, ``(16 * leaves,)``."""
    return np.concatenate([_digest(*named) for named in trees.named_leaves(observation)])


def _digest(name: str, leaf: NDArray[np.generic]) -> NDArray[np.uint8]:
    whole = blake2b(f"{name} {leaf.dtype.str} {leaf.shape}".encode(), digest_size=_DIGEST)
    whole.update(leaf.tobytes())
    return np.frombuffer(whole.digest(), np.uint8)
