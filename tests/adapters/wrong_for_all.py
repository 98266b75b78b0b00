"""Adapters whose library changes what every environment of the process does, the reference's too, if it is there."""

from typing import Any

import gymnasium
import numpy as np
from altered import Altered, On

from vebench.backends.interface import Setup


class RegistersAnew(Altered):
    """Registers the task again, with a time limit of its own: a library that brings its own copies of tasks."""

    tried = On("limit|end|truncat|registered")

    def __init__(self, setup: Setup) -> None:
        spec = gymnasium.spec("CartPole-v1")
        spec.max_episode_steps = 15
        super().__init__(setup)


class PatchesTheStep(Altered):
    """Rewards of CartPole are 0 in the last step, by a patch of Gymnasium's class."""

    tried = On("reward")

    def __init__(self, setup: Setup) -> None:
        from gymnasium.envs.classic_control.cartpole import CartPoleEnv

        step: Any = CartPoleEnv.step

        def patched(self: object, action: object) -> Any:
            observation, reward, terminated, truncated, info = step(self, action)
            return observation, 0.0 if terminated else reward, terminated, truncated, info

        CartPoleEnv.step = patched  # type: ignore[method-assign] # the fault
        super().__init__(setup)


class TapeOfZeros(Altered):
    """Makes NumPy's generators draw nothing but zeros: actions are all alike."""

    tried = On("action")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)

        class Zeros:
            def integers(self, low: Any, _high: Any, shape: tuple[int, ...], **_: object) -> Any:
                return np.zeros(shape, np.int64) + low

        np.random.default_rng = lambda *_: Zeros()  # type: ignore[assignment, return-value] # the fault
