"""The reference: one environment, stepped as the for-loop steps it, and steps that several recordings share."""

from __future__ import annotations

from hashlib import blake2b
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import frames_of, make, read_spaces
from vebench.backends.for_loop import loop_over
from vebench.child.equality.compare import leaves_of
from vebench.child.equality.recording import CutOffError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.backends.interface import ActionSpaceTree, ArrayTree, Batch, Task
    from vebench.backends.trees import Tree

_DIGEST = 16  # bytes of the digest of one leaf
_MOST_KNOWN = 1 << 18  # steps that several recordings may share: about 100 MB
NOT_REPEATABLE = "with the same seed and actions, its results vary between runs or with other environments present"
SURVIVES = "the environment has state that survives reset(seed=): what follows later resets was not compared"
_shared_state = np.random.get_state  # of the generator that all environments of a process share
_AT_FIRST = repr(_shared_state())


def not_repeatable() -> str:
    """Return ``NOT_REPEATABLE``, with the cause if environments have drawn from numpy's global generator."""
    drawn = repr(_shared_state()) != _AT_FIRST
    return NOT_REPEATABLE + ": it draws from the global np.random; use self.np_random" * drawn


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

    def in_pairs(self, other: Row) -> Iterator[tuple[str, Any, Any]]:
        """Yield the fields of two rows in pairs, with each leaf of their observations."""
        yield from leaves_of("observations", self.observation, other.observation)
        yield "rewards", self.reward, other.reward
        yield "terminated", self.terminated, other.terminated
        yield "truncated", self.truncated, other.truncated


def row_of(batch: Batch, index: int) -> Row:
    """Return a copy of one row of a batch."""
    return Row(
        trees.mapped(lambda array: np.array(array[index]), batch.observations),
        float(batch.rewards[index]),
        bool(batch.terminated[index]),
        bool(batch.truncated[index]),
    )


def alike(one: Row, other: Row) -> bool:
    """Return whether two digested rows are the same. Rewards that are NaN are the same."""
    if one[2:] != other[2:] or one.observation != other.observation:
        return False
    return one.reward == other.reward or (isnan(one.reward) and isnan(other.reward))


def digested(row: Row) -> Row:
    """Return the row with a digest instead of its observation, so that thousands of Atari rows need little memory."""
    return row._replace(observation=digest(row.observation))


def digest(observation: ArrayTree) -> bytes:
    """Return the digests of an observation's leaves, of their names, types and shapes too, one after another."""
    digests = b""
    for name, leaf in trees.named_leaves(observation):
        whole = blake2b(f"{name} {leaf.dtype.str} {leaf.shape}".encode(), digest_size=_DIGEST)
        whole.update(leaf.tobytes())
        digests += whole.digest()
    return digests


class Checked:
    """An environment whose values are checked before the loop writes them into arrays, which casts them silently."""

    # The first reward that is not a finite number, or observation that is not of its declared shape and type or holds
    # NaN, and the step in which it came. None so far.
    invalid: str | None = None

    def __init__(self, environment: Any, declared: Tree) -> None:
        self.action_space = environment.action_space
        self._environment = environment
        self._declared = declared
        self._step = 0

    def reset(self, **seed: int) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        self._step = 0
        observation, info = self._environment.reset(**seed)
        self._check(observation, 0.0)
        return observation, info

    def step(self, action: Any) -> tuple[Any, ...]:
        """Step the environment."""
        self._step += 1
        made: tuple[Any, ...] = self._environment.step(action)
        self._check(made[0], made[1])
        return made

    def _check(self, observation: Any, reward: Any) -> None:
        if self.invalid is not None:
            return
        wrong = _undeclared("observations", self._declared, observation)
        if wrong is None and (reward is None or not np.isfinite(reward).all()):
            wrong = f"the reward is {reward}"
        if wrong is not None:
            self.invalid = f"{wrong}, in {f'step {self._step} after a reset' if self._step else 'a reset'}"


def _undeclared(name: str, declared: Tree, value: Any) -> str | None:
    """Return how an observation differs from the shape and type that its space declares, None if it does not."""
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
    own.
    """

    fresh = True  # whether the last row has the first observation of an episode

    def __init__(self, task: Task, env_id: int, seed: int | None = None, *, same_step: bool = False) -> None:
        self._task = task
        self._same_step = same_step
        self._environment = make(task)
        spaces = read_spaces(task, self._environment.observation_space, self._environment.action_space)
        self.actions: ActionSpaceTree = spaces.actions  # the space of one action
        self._batch = spaces.rows(1)._replace(env_ids=np.array([env_id]))
        self._checked = Checked(self._environment, spaces.observations)
        environments: Any = [self._checked]
        self._loop = loop_over(environments, self._batch)
        if seed is not None:
            self.reset(seed)

    def reset(self, seed: int, env_id: int | None = None) -> Row:
        """Begin again, with ``seed`` plus the environment's id. Return the first row.

        With ``env_id``, the reference stands for that environment from now on.
        """
        if env_id is not None:
            self._batch.env_ids[0] = env_id
        self._loop.reset(seed)
        self.fresh = True
        self.row = row_of(self._batch, 0)
        return self.row

    @property
    def invalid(self) -> str | None:
        """The first value of the environment that its spaces do not allow, None so far."""
        return self._checked.invalid

    @property
    def frames(self) -> int | None:
        """Frames simulated in this episode, None if unknown."""
        return frames_of(self._task, self._environment)

    @property
    def last(self) -> Row:
        """The last row, digested."""
        return digested(self.row)

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


class Known:
    """Steps that references of one task have made, for several recordings to share.

    The rows of an environment follow from its seed and actions. A step is known by the hash of both.
    """

    def __init__(self, now: Callable[[], int], spare: list[Reference]) -> None:
        # The digested row of each step; whether it begins an episode; frames; nanoseconds.
        self.steps: dict[int, tuple[Row, bool, int | None, int]] = {}
        self.there: dict[int, Reference] = {}  # references that have made just these steps
        self.used: list[Reference] = []
        self.spare = spare
        self.now = now
        self.saved_ns = 0

    def clock(self) -> int:
        """Return the time in nanoseconds, as if no steps were shared: so no less of a recording is compared."""
        return self.now() + self.saved_ns


class Shared:
    """A reference that makes only steps that are not known."""

    def __init__(self, known: Known, make: Callable[[], Reference]) -> None:
        self._known, self._make = known, make

    def reset(self, seed: int, env_id: int) -> None:
        """Follow this environment, from a reset with ``seed`` plus its id on."""
        known, self._of, self._key = self._known, (seed, env_id), hash(seed + env_id)
        self._actions: list[ArrayTree] = []
        if self._key not in known.steps:
            reference = known.there[self._key] = known.spare.pop() if known.spare else self._make()
            known.used.append(reference)
            reference.reset(seed, env_id)
            known.steps[self._key] = reference.last, reference.fresh, reference.frames, 0
        self.last, self.fresh, self.frames, _ = known.steps[self._key]

    def step(self, action: ArrayTree) -> None:
        """Step with ``action``, or reset if the episode is over."""
        known, key = self._known, hash((self._key, *(leaf.tobytes() for leaf in trees.leaves(action))))
        reference = known.there.get(self._key) if key in known.steps else self._reference()
        if reference is None:
            step = known.steps[key]
            known.saved_ns += step[-1]
        else:
            began = known.now()
            reference.step(action)
            step = reference.last, reference.fresh, reference.frames, known.now() - began
            known.there[key] = known.there.pop(self._key)
            if len(known.steps) < _MOST_KNOWN:
                known.steps[key] = step
        self._actions.append(action)
        self._key, (self.last, self.fresh, self.frames, _) = key, step

    def _reference(self) -> Reference:
        """Return a reference that has made the same steps. Raises CutOffError if these give another row now."""
        there = self._known.there
        if self._key not in there:
            again = self._make()
            again.reset(*self._of)
            for action in self._actions:
                again.step(action)
            if not alike(again.last, self.last):
                raise CutOffError(not_repeatable())
            there[self._key] = again
        return there[self._key]

    @property
    def row(self) -> Row:
        """The last row."""
        return self._reference().row
