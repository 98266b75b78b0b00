"""What an environment gives and takes, in the interface's terms: trees of arrays, and of boxes of actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import ActionSpace, Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpaceTree, ArrayTree, Task
    from vebench.backends.trees import Tree

_ARRAYS = "vebench steps Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"


@dataclass(frozen=True)
class ArraySpec:
    """One array of what an environment observes: shape and type for one environment."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Spaces:
    """What one environment gives and takes: a tree of ``ArraySpec`` for what it observes, and one of action spaces.

    ``shape`` and ``dtype`` are those of the one array that it observes, for libraries that take no other: they raise
    ValueError if it observes a dict or tuple.
    """

    observations: Tree
    actions: ActionSpaceTree

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the one array that is observed."""
        return self._one().shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the one array that is observed."""
        return self._one().dtype

    def _one(self) -> ArraySpec:
        if not isinstance(self.observations, ArraySpec):
            words = trees.in_words(trees.form(self.observations))
            raise ValueError(f"observations are {words}, and not one array")  # noqa: TRY004 - by contract
        return self.observations

    def rows(self, count: int) -> Batch:
        """Return zeroed arrays for ``count`` environments, rewards in float64, ids counted from 0."""
        return Batch(
            trees.mapped(lambda spec: np.zeros((count, *spec.shape), spec.dtype), self.observations),
            np.zeros(count, np.float64),
            np.zeros(count, np.bool_),
            np.zeros(count, np.bool_),
            np.arange(count),
        )

    def zero_actions(self, count: int) -> ArrayTree:
        """Return zeroed actions for ``count`` environments."""
        zeros: ArrayTree = trees.mapped(
            lambda space: np.zeros((count, *space.low.shape), space.low.dtype), self.actions
        )
        return zeros


def read_spaces(task: Task, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> Spaces:
    """Return the spaces of one environment. Raises ValueError, with the leaf's name, for what is made of no arrays."""
    return Spaces(
        _tree("observations", observations, _spec),
        _tree("actions", actions, partial(action_space, task)),
    )


def _tree(name: str, space: gymnasium.Space[Any], read: Callable[[gymnasium.Space[Any]], Any]) -> Tree:
    """Return a tree of what ``read`` makes of each space that is one array."""
    from gymnasium import spaces  # noqa: PLC0415 - imported on use

    parts: Tree
    if isinstance(space, spaces.Dict):
        keys: list[Any] = list(space.spaces)
        if odd := [key for key in keys if not isinstance(key, str)]:
            raise ValueError(f"{name} have the key {odd[0]!r}, which is no text")
        parts = {key: _tree(f"{name}/{key}", part, read) for key, part in space.spaces.items()}
    elif isinstance(space, spaces.Tuple):
        parts = tuple(_tree(f"{name}/{place}", part, read) for place, part in enumerate(space.spaces))
    elif isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return read(space)
    else:
        raise ValueError(f"{name} are {type(space).__name__}, not an array: {_ARRAYS}")  # noqa: TRY004 - by contract
    if not parts:
        raise ValueError(f"{name} are an empty {type(space).__name__}")
    return parts


def _spec(space: gymnasium.Space[Any]) -> ArraySpec:
    return ArraySpec(space.shape or (), np.dtype(space.dtype))


def action_space(task: Task, actions: gymnasium.Space[Any]) -> ActionSpace:
    """Return the bounds of one action of ``task``. Raises ValueError if an action is not one array."""
    from gymnasium import spaces  # noqa: PLC0415 - imported on use

    if isinstance(actions, spaces.Discrete):
        return ActionSpace.discrete(int(actions.n), int(actions.start))
    if isinstance(actions, spaces.Box):
        return _box(task, actions.low, actions.high)
    if isinstance(actions, spaces.MultiDiscrete):
        low: NDArray[np.int64] = np.asarray(actions.start, np.int64)
        return ActionSpace(low, low + np.asarray(actions.nvec, np.int64) - 1)
    if isinstance(actions, spaces.MultiBinary):
        return ActionSpace(np.zeros(actions.shape, np.int64), np.ones(actions.shape, np.int64))
    raise ValueError(f"actions are {type(actions).__name__}, not one array: {_ARRAYS}")


def _box(task: Task, low: NDArray[Any], high: NDArray[Any]) -> ActionSpace:
    """Return the same space for a task whether Gymnasium declares it, in float32, or EnvPool, often in float64."""
    dtype = SUITES[task.suite].real_actions
    if dtype is None or not np.issubdtype(low.dtype, np.floating):
        return ActionSpace(low, high)
    return ActionSpace(low.astype(np.float32).astype(dtype), high.astype(np.float32).astype(dtype))
