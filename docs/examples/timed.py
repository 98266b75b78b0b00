"""Environments whose step takes a stated time, registered on import: to measure what surrounds a step.

``vebench/Busy-50us-v0`` works in Python for 50 microseconds, ``Native-...`` as long without Python's lock (the GIL),
``Sleep-...`` waits as long. Times are 1, 2, 5, 10 ... 500000 microseconds.

Work is counted by the CPU time of its thread, not by the wall clock: a step that has to wait for a CPU, or for the
lock, has not worked meanwhile. Rows depend on seed and actions alone, so that they can be compared.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

if TYPE_CHECKING:
    from numpy.typing import NDArray

MICROSECONDS = tuple(figure * 10**power for power in range(6) for figure in (1, 2, 5))
EPISODE = 1000
# Some microseconds of native work, by which its end can be off. Python's zlib lets go of the lock for more than 5 KiB.
_PART = bytes(16 << 10)


def _work_in_python(nanoseconds: int) -> None:
    now = time.thread_time_ns
    until = now() + nanoseconds
    while now() < until:
        pass


def _work_outside(nanoseconds: int) -> None:
    now, work = time.thread_time_ns, zlib.crc32
    until = now() + nanoseconds
    while now() < until:
        work(_PART)


def _wait(nanoseconds: int) -> None:
    time.sleep(nanoseconds * 1e-9)  # the kernel wakes it some 50 microseconds late


TIMED_KINDS = {"Busy": _work_in_python, "Native": _work_outside, "Sleep": _wait}


class TimedEnvironment(gymnasium.Env[Any, Any]):
    """Observes its step, its last action and what its seed has drawn; rewards the action; ends after 1,000 steps."""

    def __init__(self, kind: str, microseconds: int) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(4)
        self._take_time, self._ns = TIMED_KINDS[kind], microseconds * 1000
        self._drawn = 0.0
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Return the first observation. It takes no stated time."""
        super().reset(seed=seed, options=options)
        self._drawn, self._step = float(self.np_random.random()), 0
        return self._observe(0.0), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take the stated time."""
        self._take_time(self._ns)
        self._step += 1
        chosen = float(action)
        return self._observe(chosen), chosen, self._step == EPISODE, False, {}

    def _observe(self, chosen: float) -> NDArray[np.float32]:
        return np.array((self._step, chosen, self._drawn), np.float32)


def env_id(kind: str, microseconds: int) -> str:
    """Return the id under which Gymnasium has the environment once this module is imported."""
    return f"vebench/{kind}-{microseconds}us-v0"


for _kind in TIMED_KINDS:
    for _microseconds in MICROSECONDS:
        _arguments = {"kind": _kind, "microseconds": _microseconds}
        gymnasium.register(env_id(_kind, _microseconds), f"{__name__}:TimedEnvironment", kwargs=_arguments)
