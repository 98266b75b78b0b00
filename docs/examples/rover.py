"""An environment of your own, with dicts: it observes a picture and a speed, and takes a throttle and a horn."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

CLOSE = 0.1  # to the beacon


class Rover(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """Drives to a beacon, which its camera shows from above."""

    def __init__(self, pixels: int) -> None:
        self.pixels = pixels
        camera, both = spaces.Box(0, 255, (pixels, pixels), np.uint8), spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Dict({"camera": camera, "speed": both})
        self.action_space = spaces.Dict({"throttle": both, "horn": spaces.Discrete(2)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)  # all that is drawn comes from self.np_random
        self.place, self.beacon = self.np_random.random((2, 2))
        self.speed = np.zeros(2, np.float32)
        return self.observe(), {}

    def step(self, action: dict[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.speed = np.clip(self.speed + 0.1 * action["throttle"], -1.0, 1.0)
        self.place = np.clip(self.place + 0.05 * self.speed, 0.0, 1.0)
        distance = float(np.abs(self.place - self.beacon).sum())
        return self.observe(), -distance - 0.1 * float(action["horn"]), distance < CLOSE, False, {}

    def observe(self) -> dict[str, Any]:
        camera = np.zeros((self.pixels, self.pixels), np.uint8)
        for (x, y), shade in ((self.beacon, 128), (self.place, 255)):
            camera[int(y * (self.pixels - 1)), int(x * (self.pixels - 1))] = shade
        return {"camera": camera, "speed": self.speed}


def make_env(pixels: int = 16, steps: int = 200) -> gymnasium.Env[Any, Any]:
    return TimeLimit(Rover(pixels), steps)
