"""Gymnasium's vector environment without its own faults, and with one planted, by the clause that it breaks."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

Seeds = int | list[int | None] | None
Options = dict[str, Any] | None


class Sound(SyncVectorEnv):
    """Leaves the caller's options alone, and does not step what is closed."""

    def reset(self, *, seed: Seeds = None, options: Options = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed, options=options and dict(options))

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, ...]:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError
        return super().step(actions)


class SeedsAllAlike(Sound):
    def reset(self, *, seed: Seeds = None, options: Options = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=[seed] * self.num_envs if isinstance(seed, int) else seed, options=options)


class ResetsAgain(Sound):
    """As ``AsyncVectorEnv`` of Gymnasium 1.4 without shared memory."""

    def reset(self, *, seed: Seeds = None, options: Options = None) -> tuple[Any, dict[str, Any]]:
        ended = self._autoreset_envs
        returned = super().reset(seed=seed, options=options)
        self._autoreset_envs = ended
        return returned


class IsLate(Sound):
    """Gives the row of a reset the reward of the step before it."""

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, ...]:
        before, resets = self._rewards.copy(), self._autoreset_envs
        observations, rewards, *others = super().step(actions)
        return observations, np.where(resets, before, rewards), *others


class ResetsAll(Sound):
    def reset(self, *, seed: Seeds = None, options: Options = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed, options=None if options and "reset_mask" in options else options)


class CountsEnds(Sound):
    def step(self, actions: NDArray[np.int64]) -> tuple[Any, ...]:
        observations, rewards, terminated, *others = super().step(actions)
        return observations, rewards, terminated.astype(np.int8), *others


class Terminates(Sound):
    def step(self, actions: NDArray[np.int64]) -> tuple[Any, ...]:
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, rewards, terminated | truncated, truncated & False, infos


class HasNoMasks(Sound):
    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        infos = super()._add_info(vector_infos, env_info, env_num)
        return {key: value if key[0] != "_" else np.ones_like(value) for key, value in infos.items()}


class Renames(Sound):
    """Raises another error than the environment."""

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, ...]:
        try:
            return super().step(actions)
        except Exception as error:
            raise RuntimeError("an environment failed") from error


class ForgetsToClose(Sound):
    def close_extras(self, **kwargs: object) -> None:
        pass


class ClosesOnce(Sound):
    def close(self, **kwargs: object) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError
        super().close(**kwargs)
