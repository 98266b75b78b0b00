"""A slow environment as people bring it: its steps take uneven times on a CPU, and its resets take long.

``--env uneven:Uneven``, or ``'uneven:Uneven[step_ms=5,reset_ms=100]'``. Rows depend on seed and actions alone.
"""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MILLISECOND = 1_000_000  # in nanoseconds


class Uneven(gymnasium.Env[Any, Any]):
    """Most steps take ``step_ms``, every twentieth or so ``slow_times`` as long; an episode has ``length`` steps."""

    def __init__(self, step_ms: float = 20, reset_ms: float = 500, slow_times: float = 5, length: int = 50) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = spaces.Discrete(3)
        self._step_ms, self._reset_ms, self._slow_times, self._length = step_ms, reset_ms, slow_times, length
        self._state = np.zeros(4, np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        _work(self._reset_ms)
        self._steps = 0
        self._state = self.np_random.random(4).astype(np.float32)
        return self._state.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        _work(self._step_ms * (self._slow_times if self.np_random.random() < 1 / 20 else 1.0))
        self._steps += 1
        self._state = (self._state + np.float32(action) - 1).astype(np.float32)
        return self._state.copy(), float(self._state[0]), self._steps == self._length, False, {}


def _work(milliseconds: float) -> None:
    """Use a CPU for so long, not counted where the process has to wait for one."""
    now = time.thread_time_ns
    until = now() + int(milliseconds * MILLISECOND)
    while now() < until:
        pass
