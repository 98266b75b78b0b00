"""Stable-Baselines3's vectorisers: ``DummyVecEnv`` in the calling process, ``SubprocVecEnv`` with processes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from vebench.backends.environments.making import THE_SIMULATOR, as_counts, make
from vebench.backends.interface import Difference
from vebench.backends.one_in_flight import FLOAT32_REWARDS, CountsInside, OneInFlight, kill_all, makers, spaces_for
from vebench.backends.trees import is_leaf

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, Setup
    from vebench.backends.one_in_flight import RowsOfAll
    from vebench.backends.trees import Tree

ONE_FLAG = Difference("an end that is also a time limit is reported as terminated only", "truncated", "end")


def _takes(observations: Tree) -> bool:
    """Return whether these are one array, or a dict or tuple of arrays."""
    if is_leaf(observations):
        return True
    return all(map(is_leaf, observations.values() if isinstance(observations, dict) else observations))


class _VecEnv(OneInFlight):
    """Both have one flag for the end of an episode; infos mark time limits."""

    frames_from = THE_SIMULATOR
    rewards: str  # their type

    def _start(self, setup: Setup, make_vector: Callable[[], Any], **reported: Any) -> None:
        self._report(setup, spaces_for(setup, "Stable-Baselines3", _takes), autoreset="same_step", **reported)
        self._vector = make_vector()
        self._blank = self._blank._replace(rewards=self._blank.rewards.astype(self.rewards))

    def _reset(self, seed: int) -> ArrayTree:
        self._vector.seed(seed)  # of the next reset
        observations: ArrayTree = self._vector.reset()
        return observations

    def _send(self, actions: ArrayTree) -> None:
        self._vector.step_async(actions)

    def _receive(self) -> RowsOfAll:
        observations, rewards, ended, infos = self._vector.step_wait()
        truncated = np.zeros_like(ended)
        if ended.any():
            truncated[:] = [info["TimeLimit.truncated"] for info in infos]
        return observations, np.asarray(rewards, self.rewards), ended & ~truncated, truncated


class SB3Dummy(CountsInside, _VecEnv):
    """All environments in the calling process. Rewards are float32, and everything is copied, infos included."""

    rewards = "float32"

    def __init__(self, setup: Setup) -> None:
        environments = [partial(make, setup.task)] * setup.batch_size
        self._start(setup, partial(DummyVecEnv, environments), differences=(FLOAT32_REWARDS, ONE_FLAG))
        self._task, self._inside = setup.task, self._vector.envs

    def _end(self) -> None:
        self._vector.close()


class SB3Subproc(_VecEnv):
    """A process for each environment; observations, too, go over pipes. Rewards are float64.

    Processes start by ``forkserver``, the library's default: each imports the library, and with it torch.
    """

    rewards = "float64"

    def __init__(self, setup: Setup) -> None:
        start = partial(SubprocVecEnv, makers(setup))
        self._start(setup, start, processes=setup.batch_size, differences=(ONE_FLAG,))

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return as_counts(self._vector.env_method("frames_simulated"))

    def _end(self) -> None:
        if not self._stepping:  # otherwise the library would wait for answers that may never come
            with suppress(OSError, EOFError):
                self._vector.close()
        if not self._vector.closed:
            kill_all(self._vector.processes)
            for remote in self._vector.remotes:
                remote.close()
            self._vector.closed = True
