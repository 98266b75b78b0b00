"""An environment with the troubles of real simulators: processes and threads of its own, and an end."""

import subprocess
import sys
import threading
from multiprocessing import get_context
from queue import SimpleQueue
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_alive: list[object] = []
_orders: SimpleQueue[SimpleQueue[float]] = SimpleQueue()
_prepares: list[threading.Thread] = []


def _prepare() -> None:
    while True:
        _orders.get().put(0.5)


class Trouble(gymnasium.Env[Any, Any]):
    """Observes how far its actions pushed a cart, in episodes of ten steps. ``what``: its trouble.

    ``alone``: a process may hold one of them. ``child``: it starts a process by multiprocessing. ``thread``: all of a
    process share a thread that prepares episodes. ``tires``: its tenth reset fails. ``port``: its cart has no wall.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, what: str = "none") -> None:
        self._what, self._resets = what, 0
        if what == "alone":
            if _alive:
                raise RuntimeError("there may be one cart in each process")
            _alive.append(self)
        if what == "child":
            get_context("fork").Process(target=subprocess.run, args=([sys.executable, "-c", ""],)).start()
        if what == "thread" and not _prepares:
            _prepares.append(threading.Thread(target=_prepare, daemon=True))
            _prepares[0].start()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._resets += 1
        if self._what == "tires" and self._resets == 10:
            raise MemoryError("no handles are left")
        self._place, self._steps = float(self.np_random.uniform(-0.1, 0.1)), 0
        if self._what == "thread":
            answer: SimpleQueue[float] = SimpleQueue()
            _orders.put(answer)
            self._place += answer.get()
        return np.array([self._place]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place += float(action[0])
        if self._what != "port":
            self._place = min(self._place, 0.6)
        self._steps += 1
        return np.array([self._place]), self._place, False, self._steps == 10, {}

    def close(self) -> None:
        if self in _alive:
            _alive.remove(self)


def rest(observations: Any) -> Any:
    """A policy that leaves the cart where it is."""
    return np.zeros((len(observations), 1), np.float32)
