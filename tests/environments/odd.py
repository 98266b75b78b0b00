"""Environments that register themselves on import: odd spaces, and one fault each, for the tests of the backends."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Counter(gymnasium.Env[Any, Any]):
    """Observes the number of its step; an episode lasts ``length`` steps. Rewards the sum of its action."""

    def __init__(self, observation: str = "discrete", action: str = "discrete", length: int = 5) -> None:
        self.observation_space = _SPACES[observation]
        self.action_space = _SPACES[action]
        self._length = length
        self._seed = 0
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._seed = self._seed if seed is None else seed
        self._step = 0
        return self._observe(), {}

    def step(self, action: NDArray[np.generic]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        self._step += 1
        return self._observe(), float(np.sum(action)), False, self._step == self._length, {}

    def _observe(self) -> int | NDArray[np.generic]:
        space = self.observation_space
        return self._step if isinstance(space, spaces.Discrete) else np.full(space.shape or (), self._step, space.dtype)


class Faulty(Counter):
    """Does what ``fault`` says in its third step, if it was seeded with 3."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault

    def step(self, action: NDArray[np.generic]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if (self._seed, self._step) == (3, 2):
            if self._fault == "raises":
                raise ValueError("boom")
            if self._fault == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
        return super().step(action)


class Verbose(Counter):
    """Raises an error with a text of 100 kB in its third step, whatever it was seeded with."""

    def step(self, action: NDArray[np.generic]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._step == 2:
            raise ValueError("boom" * 25_000)
        return super().step(action)


class Held(Counter):
    """Does not step until there is a file ``go``, if it was seeded with 3."""

    def step(self, action: NDArray[np.generic]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        while self._seed == 3 and not Path("go").exists():
            time.sleep(0.001)
        return super().step(action)


class Chancy(Counter):
    """Rewards what nobody can seed."""

    def step(self, action: NDArray[np.generic]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(int.from_bytes(os.urandom(4), "big")), terminated, truncated, info


_in_common = random.Random()  # noqa: S311 - it keeps no secrets


class InCommon(Counter):
    """Rewards what a generator says that all environments of a process have in common."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            _in_common.seed(seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: NDArray[np.generic]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, _in_common.random(), terminated, truncated, info


class NoNumber(Counter):
    """Rewards what is no number."""

    def step(self, action: NDArray[np.generic]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float("nan"), terminated, truncated, info


_SPACES: dict[str, Any] = {
    "discrete": spaces.Discrete(7),
    "from-two": spaces.Discrete(3, start=2),
    "box": spaces.Box(-1.0, 2.0, (2, 3), np.float32),
    "whole-box": spaces.Box(-3, 4, (2,), np.int32),
    "multi-discrete": spaces.MultiDiscrete([2, 5]),
    "multi-binary": spaces.MultiBinary(4),
    "dict": spaces.Dict({"a": spaces.Discrete(2)}),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
}

for name in _SPACES:
    gymnasium.register(f"odd/Observes-{name}-v0", "odd:Counter", kwargs={"observation": name})
    gymnasium.register(f"odd/Acts-{name}-v0", "odd:Counter", kwargs={"action": name})
for fault in ("raises", "dies", "hangs"):
    gymnasium.register(f"odd/Faulty-{fault}-v0", "odd:Faulty", kwargs={"fault": fault})
gymnasium.register("odd/Chancy-v0", "odd:Chancy")
gymnasium.register("odd/Held-v0", "odd:Held")
gymnasium.register("odd/In-common-v0", "odd:InCommon")
gymnasium.register("odd/No-number-v0", "odd:NoNumber")
gymnasium.register("odd/Verbose-v0", "odd:Verbose")
