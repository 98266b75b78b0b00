"""An environment whose steps cost more the more it has seen, as that of a tracker that keeps everything."""

import time
from collections.abc import Callable
from math import inf
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FIRST, GROWS = 100e-6, 100e-9  # seconds: of the first step, and by how much each step adds to all later ones


def busy(seconds: float) -> None:
    """Spend this much time."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class Remembering(gymnasium.Env[Any, Any]):
    """Observes nothing, in episodes of 200 steps. ``remembers``: the most steps that it pays for in each later one.

    ``spend`` spends the time of a step.
    """

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, remembers: float = inf, spend: Callable[[float], None] = busy) -> None:
        self._remembers, self._spend = remembers, spend
        self._seen = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.zeros(1, np.float32), {}

    def step(self, _action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._seen += 1
        self._spend(FIRST + GROWS * min(self._seen, self._remembers))
        return np.zeros(1, np.float32), 1.0, False, self._seen % 200 == 0, {}
