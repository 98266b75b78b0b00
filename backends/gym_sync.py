"""Gymnasium's own loop: ``gymnasium.vector.SyncVectorEnv``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from vebench.backends.environments.frames import THE_SIMULATOR, frames_of_all
from vebench.backends.environments.making import make
from vebench.backends.environments.spaces import read_spaces
from vebench.backends.interface import BackendInfo, Batch, NothingToReceiveError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup


class GymSync:
    """All environments in the calling process, observations not copied (``copy=False``). Rewards are float64."""

    frames_from = THE_SIMULATOR

    def __init__(self, setup: Setup) -> None:
        from gymnasium.vector import SyncVectorEnv  # noqa: PLC0415 - imported on use

        self._task = setup.task
        self._vector = SyncVectorEnv([partial(make, setup.task)] * setup.batch_size, copy=False)
        try:
            spaces = read_spaces(setup.task, self._vector.single_observation_space, self._vector.single_action_space)
        except ValueError:
            self._vector.close()
            raise
        self._blank = spaces.rows(setup.batch_size)
        self._first: Batch | None = None
        self._actions: NDArray[np.generic] | None = None
        self.info = BackendInfo(
            num_envs=setup.batch_size,
            batch_size=setup.batch_size,
            action_space=spaces.actions,
            frame_skip=setup.task.frame_skip,
            in_order=True,
            reuses_buffers=True,
        )

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        observations, _ = self._vector.reset(seed=seed)
        self._first = self._blank._replace(observations=np.asarray(observations))
        self._actions = None

    def send(self, actions: NDArray[np.generic]) -> None:
        """Keep the actions until ``recv``."""
        self._actions = actions

    def recv(self) -> Batch:
        """Step every environment and return all rows, in the order of ids."""
        if self._actions is not None:
            actions, self._actions = self._actions, None
            observations, rewards, terminated, truncated, _ = self._vector.step(actions)
            return Batch(observations, rewards, terminated, truncated, self._blank.env_ids)
        if self._first is None:
            raise NothingToReceiveError
        first, self._first = self._first, None
        return first

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return frames_of_all(self._task, self._vector.envs)

    def close(self) -> None:
        """Close every environment."""
        self._vector.close()
        self._first = self._actions = None
