"""An environment that takes time to make, holds memory, and leaks, as its arguments say."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Planted(gymnasium.Env[Any, Any]):
    """Observes nothing, in episodes of 200 steps. Each step keeps ``leak`` bytes, and takes ``pause`` seconds."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0, mebibytes: int = 0, leak: int = 0, pause: float = 0.0001) -> None:
        time.sleep(seconds)
        self._held = np.ones(mebibytes << 17)
        self._leak, self._kept, self._step, self._pause = leak, list[bytes](), 0, pause

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.zeros(1, np.float32), {}

    def step(self, _action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        time.sleep(self._pause)
        if self._leak:
            self._kept.append(b"x" * self._leak)
        return np.zeros(1, np.float32), 1.0, False, self._step % 200 == 0, {}
