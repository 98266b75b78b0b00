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

    from numpy.typing import NDArray

    from vebench.backends.interface import Task
    from vebench.backends.shared_memory.memory_layout import RowArrays

# In the order of ``games`` in ``classic.c``: the attribute of Gymnasium's class that has the setting, and how many
# environments take about 25 us to step. To hand fewer over to another thread may take longer than to step them.
GAMES = {
    "CartPoleEnv": ("_sutton_barto_reward", 1024),
    "MountainCarEnv": ("goal_velocity", 1024),
    "Continuous_MountainCarEnv": ("goal_velocity", 512),
    "PendulumEnv": ("g", 256),
    "AcrobotEnv": ("", 64),
}
_MOST = 1 << 62  # steps of an episode, as C counts them


class ClassicTask:
    """A game of classic control.

    Raises ValueError if a setting is no number of Python's, or if the C library computes other bytes here than numpy
    and Python.
    """

    how = "steps compiled"
    leaves_out: tuple[str, ...] = ()  # Gymnasium's infos are empty, too
    refuses = frozenset({"low", "high", "x_init", "y_init"})  # bounds of the first state

    def __init__(self, env_id: str, settings: Mapping[str, Any]) -> None:
        if not _computes_the_same():
            raise ValueError("the C library computes other bytes here than numpy and Python")
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        self.origin: Any = environment.unwrapped
        limit = episode_limit(environment)
        self.limit = _MOST if limit is None else min(limit, _MOST)
        self.observation_space, self.action_space = environment.observation_space, environment.action_space
        name = type(self.origin).__name__
        self.game = list(GAMES).index(name)
        attribute, self.chunk = GAMES[name]
        setting = getattr(self.origin, attribute) if attribute else 0
        if type(setting) not in {bool, int, float}:
            raise ValueError(f"{attribute} is {setting!r}, not a number of Python's")
        self.in_float32 = name == "AcrobotEnv"
        self.setting = 3 * setting / 2.0 if name == "PendulumEnv" else float(setting)

    @staticmethod
    def settings_of(_task: Task) -> dict[str, Any]:
        """Return no settings: every backend steps the defaults."""
        return {}

    def batch(self, rows: RowArrays, *, infos: bool = False) -> ClassicBatch:  # noqa: ARG002 - there are none
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
        *((name, ctypes.c_int64) for name in ("game", "limit", "single")),
        ("setting", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("actions", "observations", "rewards", "terminated", "truncated")),
        *((name, ctypes.c_void_p) for name in ("state", "ages", "random")),
    )


class ClassicBatch:
    """Environments whose episodes C begins anew after an end, but for Acrobot's."""

    current = 0

    def __init__(self, task: ClassicTask, rows: RowArrays) -> None:
        native, count = needed(), len(rows.rewards)
        (self._observations,), *results, (actions,) = rows
        self._actions = actions
        self._task, self._state, self.restarts = task, np.zeros((count, 4)), not task.in_float32
        self._random: list[np.random.Generator | None] = [None] * count
        self._ages, self._bits = np.zeros(count, np.int64), np.zeros(count, np.uintp)
        self._arrays = (actions, self._observations, *results, self._state, self._ages, self._bits)
        numbers = task.game, task.limit, actions.dtype == np.float32, task.setting
        self._all = _CClassic(*numbers, *(array.ctypes.data for array in self._arrays))
        self.context = ctypes.addressof(self._all)
        self.work: int = ctypes.cast(native.vebench_classic, ctypes.c_void_p).value  # type: ignore[assignment]
        self._draw = native.vebench_classic_begin

    def begin(self, index: int, seed: int | None) -> None:
        """Let an episode begin in one environment."""
        self.current = index
        if seed is not None or self._random[index] is None:
            random, _ = seeding.np_random(seed)
            self._random[index], self._bits[index] = random, random.bit_generator.ctypes.bit_generator.value
        self._ages[index] = -1
        if self._task.in_float32:
            # numpy computes the sines and cosines of the first state otherwise.
            self._draw(ctypes.byref(self._all), ctypes.c_int64(index))
            origin = self._task.origin
            origin.state = self._state[index] = self._state[index].astype(np.float32)
            self._observations[index] = origin._get_ob()  # noqa: SLF001 - Gymnasium's own
            self._ages[index] = -2

    def finish(self, indices: Sequence[int] | None) -> None:
        """Have nothing to finish: C writes whole rows."""

    @staticmethod
    def infos(_rows: Sequence[int] | NDArray[np.int64] | None, *, first: bool) -> dict[str, NDArray[Any]]:  # noqa: ARG004
        """Return no infos, as Gymnasium's classes have none."""
        return {}

    @staticmethod
    def frames(_index: int) -> int:
        """Return 0: a step has no frames of its own to be counted."""
        return 0

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of one environment, ``(height, width, 3)``, as Gymnasium's class draws it by its state."""
        origin, steps = self._task.origin, self._ages[index]
        name = type(origin).__name__
        in_float32 = steps == 0 if name == "AcrobotEnv" else steps != 0 and name == "Continuous_MountainCarEnv"
        origin.state = self._state[index].astype(np.float32 if in_float32 else np.float64)
        if name == "PendulumEnv":
            origin.last_u = None if steps == 0 else np.clip(self._actions[index], -2.0, 2.0)[0]
        picture: NDArray[np.uint8] = origin.render()
        return picture

    def close(self) -> None:
        """Close what pictures are drawn on, if there is anything."""
        self._task.origin.close()
