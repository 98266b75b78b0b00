"""PufferLib's ``Multiprocessing``: workers with several environments each, shared memory, and flags that all poll.

``pufferlib-core`` is another package with the same code at its heart; its batches have further parts.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.making import make
from vebench.backends.one_in_flight import FLOAT32_REWARDS, OneInFlight, kill_all, reseed, restrict_worker, spaces_of

if TYPE_CHECKING:
    import gymnasium

    from vebench.backends.interface import ArrayTree, Setup, Task
    from vebench.backends.one_in_flight import RowsOfAll

_CLOSE_S = 2.0


class Multiprocessing(OneInFlight):
    """``workers`` processes, each of which steps its environments one after another. Rewards are float32.

    Actions are handed over in the type that the library wants. A worker that dies is not noticed by it: the caller
    polls on.
    """

    def __init__(self, setup: Setup) -> None:
        import pufferlib.vector  # noqa: PLC0415 - imported on use

        spaces = spaces_of(setup.task)
        each, cpus = setup.envs_per_worker, setup.cpus if setup.pinned else (None,)
        creators = [
            partial(_emulated, setup.task, cpus[worker % len(cpus)], os.getpid(), worker * (each - 1))
            for worker in range(setup.workers)
            for _ in range(each)
        ]
        self._vector = pufferlib.vector.make(
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
        # It would wait for the ``info`` that the last ``recv`` has taken, if there was one.
        self._vector.waiting_workers = []
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
    """Return an environment in PufferLib's own wrapper. ``offset`` is added to the seeds of its resets.

    The library seeds environment ``k`` of worker ``w`` with ``seed + w + k``: with several for each worker, some have
    the same. What else is ``given`` is PufferLib's: its buffers, and a seed that it does not use.
    """
    from pufferlib.emulation import GymnasiumPufferEnv  # noqa: PLC0415 - imported on use

    restrict_worker(cpu, caller)
    environment = make(task)
    reseed(environment, lambda seed: None if seed is None else seed + offset)
    wrapped: gymnasium.Env[Any, Any] = GymnasiumPufferEnv(env=environment, **given)
    return wrapped
