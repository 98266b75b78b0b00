"""Gymnasium's own loop: ``gymnasium.vector.SyncVectorEnv``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from vebench.backends.environments.frames import THE_SIMULATOR, frames_of_all
from vebench.backends.environments.making import make
from vebench.backends.environments.spaces import read_spaces
from vebench.backends.one_in_flight import OneInFlight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, Setup
    from vebench.backends.one_in_flight import Rows


class GymSync(OneInFlight):
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
        self._report(setup, spaces, reuses_buffers=True)

    def _reset(self, seed: int) -> ArrayTree:
        observations: ArrayTree = self._vector.reset(seed=seed)[0]
        return observations

    def _receive(self) -> Rows:
        return self._vector.step(self._actions)[:4]

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return frames_of_all(self._task, self._vector.envs)

    def close(self) -> None:
        """Close every environment."""
        self._vector.close()
        self._first, self._stepping = None, False
