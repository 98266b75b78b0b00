"""What an environment gives and takes, in the interface's terms: rows of one shape and type, and a box of actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import ActionSpace, Batch

if TYPE_CHECKING:
    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.interface import Task

_ARRAYS = "vebench steps environments with Box, Discrete, MultiDiscrete or MultiBinary spaces"


@dataclass(frozen=True)
class Spaces:
    """What one environment gives and takes: observations of one shape and type, and actions."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    actions: ActionSpace

    def rows(self, count: int) -> Batch:
        """Return zeroed arrays for ``count`` environments, rewards in float64, ids counted from 0."""
        return Batch(
            np.zeros((count, *self.shape), self.dtype),
            np.zeros(count, np.float64),
            np.zeros(count, np.bool_),
            np.zeros(count, np.bool_),
            np.arange(count),
        )


def read_spaces(task: Task, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> Spaces:
    """Return the spaces of one environment. Raises ValueError if its observations or actions are not one array."""
    from gymnasium import spaces  # noqa: PLC0415 - imported on use

    if not isinstance(observations, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise ValueError(f"observations are {_kind(observations)}, not one array: {_ARRAYS}")  # noqa: TRY004 - by contract
    return Spaces(observations.shape or (), np.dtype(observations.dtype), action_space(task, actions))


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
    raise ValueError(f"actions are {_kind(actions)}, not one array: {_ARRAYS}")


def _box(task: Task, low: NDArray[Any], high: NDArray[Any]) -> ActionSpace:
    """Return the same space for a task whether Gymnasium declares it, in float32, or EnvPool, often in float64."""
    dtype = SUITES[task.suite].real_actions
    if dtype is None or not np.issubdtype(low.dtype, np.floating):
        return ActionSpace(low, high)
    return ActionSpace(low.astype(np.float32).astype(dtype), high.astype(np.float32).astype(dtype))


def _kind(space: gymnasium.Space[Any]) -> str:
    return type(space).__name__
