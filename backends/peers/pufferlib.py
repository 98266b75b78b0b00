"""PufferLib's ``Multiprocessing``: workers with several environments each, shared memory, and flags that all poll.

``pufferlib-core`` is another package with the same code at its heart; its batches have further parts.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pufferlib.vector
from pufferlib.emulation import GymnasiumPufferEnv

from vebench.backends.environments.making import make
from vebench.backends.one_in_flight import FLOAT32_REWARDS, OneInFlight, kill_all, reseed, restrict_worker, spaces_of

if TYPE_CHECKING:
    import gymnasium

    from vebench.backends.interface import ArrayTree, Setup, Task
    from vebench.backends.one_in_flight import RowsOfAll

_CLOSE_S = 2.0


class Multiprocessing(OneInFlight):
    """``workers`` processes. Each steps its environments one after another. Rewards are float32.

    The library does not notice if a worker dies: the caller polls on.
    """

    def __init__(self, setup: Setup) -> None:
        spaces = spaces_of(setup.task)
        each, cpus = setup.envs_per_worker, setup.cpus if setup.pinned else (None,)
        creators = [
            partial(_emulated, setup.task, cpus[worker % len(cpus)], os.getpid(), worker * (each - 1))
            for worker in range(setup.workers)
            for _ in range(each)
        ]
        self._vector: Any = pufferlib.vector.make(
            creators,
            env_args=[[]] * setup.batch_size,
            env_kwargs=[{}] * setup.batch_size,
            backend=pufferlib.vector.Multiprocessing,
            num_envs=setup.batch_size,
            num_workers=setup.workers,
            batch_size=setup.batch_size,
            overwork=True,  # more workers than cores is the user's choice
        )
        self._action_type = self._vector.single_action_space.dtype
        self._report(setup, spaces, processes=setup.workers, reuses_buffers=True, differences=(FLOAT32_REWARDS,))

    def _reset(self, seed: int) -> ArrayTree:
        self._vector.waiting_workers = []  # or it would wait for the ``info`` that the last ``recv`` has taken
        self._vector.async_reset(seed)
        observations, *_ = self._vector.recv()
        return np.asarray(observations)

    def _send(self, actions: ArrayTree) -> None:
        self._vector.send(np.asarray(actions, self._action_type))

    def _receive(self) -> RowsOfAll:
        rows: RowsOfAll = self._vector.recv()[:4]
        return rows

    def _end(self) -> None:
        processes, self._vector.processes = self._vector.processes, []
        if processes:
            self._vector.driver_env.close()
        for process in processes:
            process.terminate()
        kill_all(processes, _CLOSE_S)


def _emulated(task: Task, cpu: int | None, caller: int, offset: int, **given: object) -> gymnasium.Env[Any, Any]:
    """Return an environment in PufferLib's wrapper, with ``offset`` added to its seeds.

    The library seeds environment ``k`` of worker ``w`` with ``seed + w + k``, which repeats seeds. ``given`` are its
    buffers and a seed that it does not use.
    """
    restrict_worker(cpu, caller)
    environment = make(task)
    reseed(environment, lambda seed: None if seed is None else seed + offset)
    wrapped: gymnasium.Env[Any, Any] = GymnasiumPufferEnv(env=environment, **given)
    return wrapped
