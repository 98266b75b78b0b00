"""The environment of rover.py for training libraries, which take one array of actions: the throttle, then the horn."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import FlattenObservation, TransformAction
from rover import make_env as make_rover


def make_env() -> gymnasium.Env[Any, Any]:
    """Return one environment. Its observations are still a dict, which Stable-Baselines3's MultiInputPolicy takes."""
    actions = Box(-1.0, 1.0, (3,), np.float32)
    return TransformAction(make_rover(), lambda given: {"throttle": given[:2], "horn": int(given[2] > 0)}, actions)


def make_flat() -> gymnasium.Env[Any, Any]:
    """Return one environment whose observations are one array, as CleanRL's scripts and ``tune --for`` need them."""
    return FlattenObservation(make_env())


gymnasium.register("Drive-v0", make_env)  # for ``gymnasium.make("drive:Drive-v0")``
