"""Classic control as Gymnasium's classes step it, many environments in one compiled call: see ``classic.c``."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding

from vebench.backends.fast.backend import NO_LIMIT, FastBatch, FastTask
from vebench.backends.fast.classes import address, needed
from vebench.backends.shared_memory.memory_layout import RowArrays

# In the order of ``games`` in ``classic.c``: the attribute of Gymnasium's class with the setting, and the number of
# environments that take about 25 us to step. Handing fewer to another thread may take longer than to step them.
GAMES = {
    "CartPoleEnv": ("_sutton_barto_reward", 1024),
    "MountainCarEnv": ("goal_velocity", 1024),
    "Continuous_MountainCarEnv": ("goal_velocity", 512),
    "PendulumEnv": ("g", 256),
    "AcrobotEnv": ("", 64),
}
_BEGINS, _HAS_BEGUN = -1, -2  # values of an age that count no steps: see ``classic.c``


class ClassicTask(FastTask):
    """A game of classic control. Raises ValueError if C would compute other bytes than numpy and Python."""

    how = "steps compiled"
    leaves_out = ()  # the infos of Gymnasium's classes are empty, too
    refuses = frozenset({"low", "high", "x_init", "y_init"})  # bounds of the first state

    def __init__(self, env_id: str, settings: Mapping[str, Any]) -> None:
        if not _computes_the_same():
            raise ValueError("the C library computes other bytes here than numpy and Python")
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        self.origin: Any = environment.unwrapped
        self.limit = (environment.spec and environment.spec.max_episode_steps) or NO_LIMIT
        self.observation_space, self.action_space = environment.observation_space, environment.action_space
        self.name = type(self.origin).__name__
        attribute, self.chunk = GAMES[self.name]
        setting = getattr(self.origin, attribute) if attribute else 0
        if type(setting) not in {bool, int, float}:
            raise ValueError(f"{attribute} is {setting!r}, not a number of Python's")
        self.setting = 3 * setting / 2.0 if self.name == "PendulumEnv" else float(setting)

    def batch(self, rows: RowArrays) -> ClassicBatch:
        """Build an environment for each row."""
        return ClassicBatch(self, rows)


@cache
def _computes_the_same() -> bool:
    """Return whether C's functions return the bytes of numpy's and Python's here, for a thousand numbers."""
    native, computed = needed(), (ctypes.c_double * 4)()
    random, again = np.random.default_rng(7), np.random.default_rng(7)
    for number in random.uniform(-10.0, 10.0, 1000).tolist():
        native.vebench_classic_functions(ctypes.c_double(number), computed)
        expected = (np.sin(number), np.cos(number), np.float64(number) ** 2, np.float32(number) ** 2)
        if tuple(computed) != expected or (math.cos(number), math.pow(number, 2)) != expected[1:3]:
            return False
        if number != -10.0 + 20.0 * again.random():
            return False
    return True


class ClassicBatch(FastBatch):
    """Environments whose episodes C restarts after an end, except Acrobot's."""

    def __init__(self, task: ClassicTask, rows: RowArrays) -> None:
        native, count = needed(), len(rows.rewards)
        (self._observations,), *results, (self._actions,) = rows
        self._task, self._state, self.restarts = task, np.zeros((count, 4)), task.name != "AcrobotEnv"
        self._random: list[np.random.Generator | None] = [None] * count
        self._ages, self._bits = np.zeros(count, np.int64), np.zeros(count, np.uintp)
        self._arrays = (self._actions, self._observations, *results, self._state, self._ages, self._bits)
        setting = int(np.float64(task.setting).view(np.int64))
        numbers = list(GAMES).index(task.name), task.limit, self._actions.dtype == np.float32, setting
        # ``struct classic`` of ``classic.c``: 8 bytes for each field.
        self._all = np.array([*numbers, *(array.ctypes.data for array in self._arrays)], np.int64)
        self.context = self._all.ctypes.data
        self.work = address(native.vebench_classic)
        self._draw = native.vebench_classic_begin

    def begin(self, index: int, seed: int | None) -> None:
        """Let an episode begin in one environment."""
        self.current = index
        if seed is not None or self._random[index] is None:
            random, _ = seeding.np_random(seed)
            self._random[index], self._bits[index] = random, random.bit_generator.ctypes.bit_generator.value
        self._ages[index] = _BEGINS
        if not self.restarts:
            # Acrobot's first state is float32. numpy computes sines and cosines of float32 in another way than C.
            self._draw(ctypes.c_void_p(self.context), ctypes.c_int64(index))
            origin = self._task.origin
            origin.state = self._state[index] = self._state[index].astype(np.float32)
            self._observations[index] = origin._get_ob()
            self._ages[index] = _HAS_BEGUN
