"""Classic control as Gymnasium's classes step it, many environments in one compiled call: see ``classic.c``."""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding

from vebench.backends.fast.native import needed
from vebench.backends.fast.share import episode_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.backends.fast.commons import Area
    from vebench.backends.interface import Task
    from vebench.backends.shared_memory.memory_layout import RowArrays

# In the order of ``games`` in ``classic.c``: the attribute of Gymnasium's class that has the setting, and how many
# environments take about 0.1 ms. To hand fewer over to another process may take longer than to step them.
GAMES = {
    "CartPoleEnv": ("_sutton_barto_reward", 4096),
    "MountainCarEnv": ("goal_velocity", 4096),
    "Continuous_MountainCarEnv": ("goal_velocity", 2048),
    "PendulumEnv": ("g", 1024),
    "AcrobotEnv": ("", 256),
}
_MOST = 1 << 62  # steps of an episode, as C counts them


class ClassicTask:
    """A game, as the environments of one process share it.

    Raises ValueError if it may not be ``compiled``, if a setting is no number of Python's, or if the C library computes
    other bytes here than numpy and Python.
    """

    how = "steps compiled"
    uncompiled = ""
    leaves_out: tuple[str, ...] = ()  # Gymnasium's infos are empty, too
    refuses = frozenset({"low", "high", "x_init", "y_init"})  # bounds of the first state

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> None:
        if not compiled:
            raise ValueError("it steps in compiled code only")
        if not _computes_the_same():
            raise ValueError("the C library computes other bytes here than numpy and Python")
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        self.origin: Any = environment.unwrapped
        limit = episode_limit(environment)
        self.limit = _MOST if limit is None else min(limit, _MOST)
        self.observation_space, self.action_space = environment.observation_space, environment.action_space
        name = type(self.origin).__name__
        self.game = list(GAMES).index(name)
        attribute, self.fewest = GAMES[name]
        setting = getattr(self.origin, attribute) if attribute else 0
        if type(setting) not in {bool, int, float}:
            raise ValueError(f"{attribute} is {setting!r}, not a number of Python's")
        self.in_float32 = name == "AcrobotEnv"
        self.setting = 3 * setting / 2.0 if name == "PendulumEnv" else float(setting)

    @staticmethod
    def settings_of(_task: Task) -> dict[str, Any]:
        """Return no settings: every backend steps the defaults."""
        return {}

    @staticmethod
    def commons(_count: int) -> None:
        """Return None: steps are too short to be handed to another process."""

    def batch(self, rows: RowArrays, _area: Area | None = None) -> ClassicBatch:
        """Build as many environments as there are rows."""
        return ClassicBatch(self, rows)


@cache
def _computes_the_same() -> bool:
    """Return whether C computes the bytes of numpy's and Python's functions here, for a thousand numbers of each."""
    native, computed = needed(), (ctypes.c_double * 4)()
    random, again = (np.random.default_rng(7) for _ in range(2))
    for number in random.uniform(-10.0, 10.0, 1000).tolist():
        native.vebench_classic_functions(ctypes.c_double(number), computed)
        expected = (np.sin(number), np.cos(number), np.float64(number) ** 2, np.float32(number) ** 2)
        if tuple(computed) != expected or (math.cos(number), math.pow(number, 2)) != expected[1:3]:
            return False
        if number != -10.0 + 20.0 * again.random():
            return False
    return True


class _CClassic(ctypes.Structure):
    """``struct classic`` of ``classic.c``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("game", "count", "limit", "single")),
        ("setting", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("actions", "observations", "rewards", "terminated", "truncated")),
        *((name, ctypes.c_void_p) for name in ("state", "ages", "random", "ended")),
    )


class ClassicBatch:
    """Environments that are stepped one after another in one call.

    C knows which of them rest: those whose episodes have ended and that have not been reset since.
    """

    current = 0

    def __init__(self, task: ClassicTask, rows: RowArrays) -> None:
        native, count = needed(), len(rows.rewards)
        (self._observations,), *results, (actions,) = rows
        self._task, self._state = task, np.zeros((count, 4))
        self._random: list[np.random.Generator | None] = [None] * count
        ages, self._bits, self._ended = np.zeros(count, np.int64), np.zeros(count, np.uintp), np.zeros(count, np.int64)
        self._arrays = (actions, self._observations, *results, self._state, ages, self._bits, self._ended)
        numbers = task.game, count, task.limit, actions.dtype == np.float32, task.setting
        self._all = _CClassic(*numbers, *(array.ctypes.data for array in self._arrays))
        self._begin, self._step = native.vebench_classic_begin, native.vebench_classic_step
        self._reference = ctypes.byref(self._all)

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment."""
        if seed is not None or self._random[index] is None:
            random, _ = seeding.np_random(seed)
            self._random[index], self._bits[index] = random, random.bit_generator.ctypes.bit_generator.value
        self._begin(self._reference, ctypes.c_int64(index))
        self._show_first(index)

    def _show_first(self, index: int) -> None:
        """Let Acrobot begin in float32, whose sines and cosines numpy computes otherwise."""
        if self._task.in_float32:
            origin = self._task.origin
            origin.state = self._state[index] = self._state[index].astype(np.float32)
            self._observations[index] = origin._get_ob()  # noqa: SLF001 - Gymnasium's own

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments; return those that have ended their episodes. Those that rest begin a new one."""
        count: int = self._step(self._reference)
        for index in resting if self._task.in_float32 else ():
            self._show_first(index)
        return self._ended[:count].tolist() if count else ()

    @staticmethod
    def frames(_index: int) -> int:
        """Return 0: a step has no frames of its own to be counted."""
        return 0

    def close(self) -> None:
        """Have nothing to free but arrays."""
