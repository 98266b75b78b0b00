"""Stable-Baselines3's vectorisers: ``DummyVecEnv`` in the calling process, ``SubprocVecEnv`` with processes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.frames import THE_SIMULATOR, as_counts, frames_of_all
from vebench.backends.environments.making import make
from vebench.backends.environments.spaces import read_spaces
from vebench.backends.interface import Difference
from vebench.backends.one_in_flight import OneInFlight, makers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup
    from vebench.backends.one_in_flight import Rows

ONE_FLAG = Difference("an end that is a limit on time, too, is told as a termination alone", "truncated", "end")


class _VecEnv(OneInFlight):
    """What both have: seeds, and one flag for the end of an episode, from which the infos tell limits on time."""

    frames_from = THE_SIMULATOR
    rewards: type[np.floating[Any]]  # the type in which the library hands them over

    def _describe(self, setup: Setup, vector: Any, **reported: Any) -> None:  # noqa: ANN401 - fields of BackendInfo
        """Take the library's ``vector`` environment, and say what it is. It is closed if it cannot be stepped."""
        self._vector = vector
        self._stepping = False
        try:
            spaces = read_spaces(setup.task, vector.observation_space, vector.action_space)
        except ValueError:
            self.close()
            raise
        self._report(setup, spaces, autoreset="same_step", **reported)
        self._blank = self._blank._replace(rewards=self._blank.rewards.astype(self.rewards))

    def _reset(self, seed: int) -> NDArray[np.generic]:
        self._vector.seed(seed)  # of the next reset
        return np.asarray(self._vector.reset())

    def _send(self, actions: NDArray[np.generic]) -> None:
        self._vector.step_async(actions)

    def _receive(self) -> Rows:
        observations, rewards, ended, infos = self._vector.step_wait()
        truncated = np.zeros_like(ended)
        if ended.any():
            truncated[:] = [info["TimeLimit.truncated"] for info in infos]
        return observations, np.asarray(rewards, self.rewards), ended & ~truncated, truncated


class Dummy(_VecEnv):
    """All environments in the calling process. Rewards are float32, and everything is copied, infos included."""

    rewards = np.float32

    def __init__(self, setup: Setup) -> None:
        from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: PLC0415 - imported on use

        self._task = setup.task
        vector = DummyVecEnv([partial(make, setup.task)] * setup.batch_size)
        self._describe(setup, vector, differences=(Difference("rewards are float32"), ONE_FLAG))

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return frames_of_all(self._task, self._vector.envs)

    def close(self) -> None:
        """Close every environment."""
        self._vector.close()
        self._first, self._stepping = None, False


class Subproc(_VecEnv):
    """A process for each environment, all told and heard over pipes, observations included. Rewards are float64.

    Processes start as the library starts them by default, by ``forkserver``: each imports the library, and with it
    torch.
    """

    rewards = np.float64

    def __init__(self, setup: Setup) -> None:
        from stable_baselines3.common.vec_env import SubprocVecEnv  # noqa: PLC0415 - imported on use

        vector = SubprocVecEnv(makers(setup))
        self._describe(setup, vector, processes=setup.batch_size, differences=(ONE_FLAG,))

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return as_counts(self._vector.env_method("frames_simulated"))

    def close(self) -> None:
        """End every process, by force if steps are under way, or one of them has died."""
        if not self._stepping:  # otherwise the library would wait for answers, of which some may never come
            with suppress(OSError, EOFError):
                self._vector.close()
        if not self._vector.closed:
            self._kill()
        self._first, self._stepping = None, False

    def _kill(self) -> None:
        for process in self._vector.processes:
            process.kill()
        for process in self._vector.processes:
            process.join()
        for remote in self._vector.remotes:
            remote.close()
        self._vector.closed = True
