"""The reference: one environment, stepped as the for-loop steps it; its rows, and the comparison of two rows."""

from __future__ import annotations

from hashlib import blake2b
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import frames_of, make, read_spaces
from vebench.backends.for_loop import loop_over
from vebench.child.answers import Mismatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpaceTree, ArrayTree, Batch, Task
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
    one, other = (dict(trees.named_leaves(row.observation))[leaf] for row in (expected, found))
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


class Checked:
    """An environment whose values are checked before the loop writes them into arrays, which casts them silently.

    ``invalid``: the first reward that is no finite number, or observation that is not of its declared shape and type
    or holds NaN, and the step in which it came; None so far.
    """

    def __init__(self, environment: Any, declared: Tree) -> None:  # noqa: ANN401 - a Gymnasium environment
        self.action_space = environment.action_space
        self.invalid: str | None = None
        self._environment = environment
        self._declared = declared
        self._step = 0

    def reset(self, **seed: int) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        self._step = 0
        observation, info = self._environment.reset(**seed)
        self._check(observation, 0.0)
        return observation, info

    def step(self, action: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as the environment takes it
        """Step the environment."""
        self._step += 1
        made: tuple[Any, ...] = self._environment.step(action)
        self._check(made[0], made[1])
        return made

    def _check(self, observation: Any, reward: Any) -> None:  # noqa: ANN401 - whatever was returned
        if self.invalid is not None:
            return
        wrong = _undeclared("observations", self._declared, observation)
        if wrong is None and (reward is None or not np.isfinite(reward).all()):
            wrong = f"the reward is {reward}"
        if wrong is not None:
            self.invalid = f"{wrong}, in {f'step {self._step} after a reset' if self._step else 'a reset'}"


def _undeclared(name: str, declared: Tree, value: Any) -> str | None:  # noqa: ANN401 - likewise
    """Return what is wrong with an observation, None if it is of the shape and type that its space declares."""
    if not trees.is_leaf(declared):
        parts = declared.items() if isinstance(declared, dict) else enumerate(declared)
        return next(filter(None, (_undeclared(f"{name}/{key}", part, value[key]) for key, part in parts)), None)
    array = np.asarray(value)
    if array.shape != declared.shape:
        return f"{name} have the shape {array.shape}, not {declared.shape} as declared"
    if not np.can_cast(array.dtype, declared.dtype):
        return f"{name} are {array.dtype}, not {declared.dtype} as declared"
    return f"{name} hold NaN" if array.dtype.kind == "f" and np.isnan(array).any() else None


class Reference:
    """One environment, stepped as the for-loop steps it, with its last row. Without ``seed`` it is not reset yet.

    With ``same_step``, the row of an end has the next episode's first observation, and resets have no rows of their
    own. ``fresh``: whether the last row has the first observation of an episode.
    """

    def __init__(self, task: Task, env_id: int, seed: int | None = None, *, same_step: bool = False) -> None:
        self.task = task
        self.fresh = True
        self._same_step = same_step
        self._environment = make(task)
        self.spaces = read_spaces(task, self._environment.observation_space, self._environment.action_space)
        self._batch = self.spaces.rows(1)._replace(env_ids=np.array([env_id]))
        self._checked = Checked(self._environment, self.spaces.observations)
        environments: Any = [self._checked]
        self._loop = loop_over(environments, self._batch)
        if seed is not None:
            self.reset(seed)

    def reset(self, seed: int) -> Row:
        """Begin again, with ``seed`` plus the environment's id; return the first row."""
        self._loop.reset(seed)
        self.fresh = True
        self.row = row_of(self._batch, 0)
        return self.row

    def stand_for(self, env_id: int, *, same_step: bool) -> None:
        """Be the reference of another environment from the next reset on, since it takes time to make one."""
        self._batch.env_ids[0] = env_id
        self._same_step = same_step

    @property
    def invalid(self) -> str | None:
        """The first value of the environment that its spaces do not allow, None so far."""
        return self._checked.invalid

    @property
    def actions(self) -> ActionSpaceTree:
        """The space of one action."""
        return self.spaces.actions

    @property
    def frames(self) -> int | None:
        """Frames simulated in this episode, None if unknown."""
        return frames_of(self.task, self._environment)

    def step(self, action: ArrayTree) -> Row:
        """Step with ``action``, or reset if the episode is over; return the row."""
        after_end = self.row.ended and not self._same_step
        batch: ArrayTree = trees.mapped(lambda array: array[None], action)
        self._loop.step(batch)
        self.row = row_of(self._batch, 0)
        self.fresh = after_end or (self._same_step and self.row.ended)
        if self._same_step and self.row.ended:
            self._loop.step(batch)
            self.row = self.row._replace(observation=row_of(self._batch, 0).observation)
        return self.row

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()
