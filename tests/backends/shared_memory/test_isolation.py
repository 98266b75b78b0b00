"""Environments that need a process of their own have one by default, as under ``AsyncVectorEnv``."""

import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv
from various import Sampler

from vebench.backends.shared_memory import SharedMemoryVectorEnv, WorkerError

COUNT = 4
BOX = spaces.Box(0, 1, (2,))


class DrawsGlobally(Sampler):
    """Draws what it observes from the global generators of its process, which it seeds."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global one
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observe(), 0.0, False, False, {}

    @staticmethod
    def _observe() -> np.ndarray[Any, Any]:
        return np.array([random.random(), np.random.random()], np.float32)  # noqa: NPY002 - likewise


class ThereIsOnlyOne(Sampler):
    """Has a simulator that exists once in a process."""

    taken = False

    def __init__(self, space: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        if ThereIsOnlyOne.taken:
            raise RuntimeError("this process has one already")
        ThereIsOnlyOne.taken = True
        super().__init__(space, action)

    def close(self) -> None:
        ThereIsOnlyOne.taken = False


class Crashes(Sampler):
    """Ends its process at action 1, and crashes it at action 2."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 1:
            os._exit(7)
        if action == 2:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


def functions(kind: Callable[..., Sampler]) -> list[Callable[[], Sampler]]:
    return [partial(kind, BOX, spaces.Discrete(3))] * COUNT


@pytest.mark.parametrize(
    ("kind", "asked"),
    [(DrawsGlobally, {}), (ThereIsOnlyOne, {}), (DrawsGlobally, {"num_processes": COUNT, "caller_steps": False})],
)
def test_rows_are_those_of_async_vector_env_though_environments_need_a_process_each(
    kind: Callable[..., Sampler], asked: dict[str, Any]
) -> None:
    ours = SharedMemoryVectorEnv(functions(kind), context="fork", **asked)
    theirs = AsyncVectorEnv(functions(kind), context="fork")
    rows = []
    for envs in (ours, theirs):
        observations = [envs.reset(seed=5)[0]]
        for _ in range(3):
            random.random()
            np.random.random()  # noqa: NPY002 - likewise
            observations.append(envs.step(np.zeros(COUNT, np.int64))[0])
        rows.append(observations)
        envs.close()
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize(("action", "how"), [(1, "exit status 7"), (2, "SIGSEGV")])
def test_an_environment_that_crashes_its_process_leaves_the_caller_alive(action: int, how: str) -> None:
    envs = SharedMemoryVectorEnv(functions(Crashes), context="fork")
    envs.reset(seed=5)
    with pytest.raises(WorkerError, match=rf"environments 0 to 0 died \({how}\)"):
        envs.step(np.array([action, 0, 0, 0]))
    envs.close()
    assert multiprocessing.active_children() == []
