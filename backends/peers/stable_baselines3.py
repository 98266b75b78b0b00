"""Stable-Baselines3's vectorisers: ``DummyVecEnv`` in the calling process, ``SubprocVecEnv`` with processes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.making import THE_SIMULATOR, as_counts, make
from vebench.backends.interface import ActionSpace, Difference
from vebench.backends.one_in_flight import FLOAT32_REWARDS, CountsInside, OneInFlight, kill_all, makers, spaces_of
from vebench.backends.trees import is_leaf

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, Setup
    from vebench.backends.one_in_flight import RowsOfAll

ONE_FLAG = Difference("an end that is also a time limit is reported as terminated only", "truncated", "end")


class _VecEnv(OneInFlight):
    """What both have: seeds, and one flag for the end of an episode; infos mark time limits."""

    frames_from = THE_SIMULATOR
    rewards: str  # the type in which the library hands them over

    def _start(self, setup: Setup, make_vector: Callable[[], Any], **reported: Any) -> None:  # noqa: ANN401 - of BackendInfo
        spaces = spaces_of(setup.task)
        observed = spaces.observations
        parts = observed.values() if isinstance(observed, dict) else observed if isinstance(observed, tuple) else ()
        if not isinstance(spaces.actions, ActionSpace) or not all(map(is_leaf, parts)):
            raise ValueError("Stable-Baselines3 has actions of one array, observations of one or a dict or tuple of it")
        self._report(setup, spaces, autoreset="same_step", **reported)
        self._blank = self._blank._replace(rewards=self._blank.rewards.astype(self.rewards))
        self._vector = make_vector()

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
        from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: PLC0415 - imported on use

        environments = [partial(make, setup.task)] * setup.batch_size
        self._start(setup, partial(DummyVecEnv, environments), differences=(FLOAT32_REWARDS, ONE_FLAG))
        self._task, self._inside = setup.task, self._vector.envs

    def _end(self) -> None:
        self._vector.close()


class SB3Subproc(_VecEnv):
    """A process for each environment; all data goes over pipes, including observations. Rewards are float64.

    Processes start as the library starts them by default, by ``forkserver``: each imports the library, and with it
    torch.
    """

    rewards = "float64"

    def __init__(self, setup: Setup) -> None:
        from stable_baselines3.common.vec_env import SubprocVecEnv  # noqa: PLC0415 - imported on use

        start = partial(SubprocVecEnv, makers(setup))
        self._start(setup, start, processes=setup.batch_size, differences=(ONE_FLAG,))

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return as_counts(self._vector.env_method("frames_simulated"))

    def _end(self) -> None:
        if not self._stepping:  # otherwise the library would wait for answers, of which some may never come
            with suppress(OSError, EOFError):
                self._vector.close()
        if not self._vector.closed:
            kill_all(self._vector.processes)
            for remote in self._vector.remotes:
                remote.close()
            self._vector.closed = True
