"""Gymnasium's processes: ``gymnasium.vector.AsyncVectorEnv``, one process for each environment, shared memory on."""

from __future__ import annotations

import multiprocessing
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.frames import THE_SIMULATOR, as_counts, make_counting
from vebench.backends.environments.spaces import read_spaces
from vebench.backends.interface import BackendInfo, Batch, NothingToReceiveError
from vebench.machine import pinning

if TYPE_CHECKING:
    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup, Task

LAST_ANSWER_SECONDS = 1.0


def _make(task: Task, cpu: int | None) -> gymnasium.Env[Any, Any]:
    """Return an environment; the worker that builds it is first restricted to its CPU.

    Gymnasium offers no other moment for that. It also builds one in the calling process, which may use all CPUs owned.
    """
    if cpu is not None and multiprocessing.parent_process() is not None:
        pinning.restrict((cpu,))
    return make_counting(task)


class GymAsync:
    """A process for each environment, observations not copied (``copy=False``). Rewards are float64.

    ``max_concurrency`` limits how many environments step at any one time (Gymnasium 1.4 and later; None is no limit).
    ``context`` is the start method of the processes, ``fork``, ``forkserver`` or ``spawn`` (None is Python's default).
    """

    frames_from = THE_SIMULATOR

    def __init__(self, setup: Setup, *, max_concurrency: int | None = None, context: str | None = None) -> None:
        from gymnasium.vector import AsyncVectorEnv  # noqa: PLC0415 - imported on use

        # Earlier versions do not know the argument.
        limit: dict[str, Any] = {} if max_concurrency is None else {"max_concurrency": max_concurrency}
        cpus: list[int | None] = [*setup.cpus] if setup.pinned else [None]
        builders = [partial(_make, setup.task, cpus[index % len(cpus)]) for index in range(setup.batch_size)]
        self._vector = AsyncVectorEnv(builders, shared_memory=True, copy=False, context=context, **limit)
        try:
            spaces = read_spaces(setup.task, self._vector.single_observation_space, self._vector.single_action_space)
        except ValueError:
            self._vector.close()
            raise
        self._blank = spaces.rows(setup.batch_size)
        self._first: Batch | None = None
        self._stepping = False
        self.info = BackendInfo(
            num_envs=setup.batch_size,
            batch_size=setup.batch_size,
            action_space=spaces.actions,
            frame_skip=setup.task.frame_skip,
            processes=setup.batch_size,
            in_order=True,
            reuses_buffers=True,
        )

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        if self._stepping:
            self._stepping = False
            self._vector.step_wait()
        observations, _ = self._vector.reset(seed=seed)
        self._first = self._blank._replace(observations=np.asarray(observations))

    def send(self, actions: NDArray[np.generic]) -> None:
        """Hand each environment's action to its process."""
        self._vector.step_async(actions)
        self._first = None
        self._stepping = True

    def recv(self) -> Batch:
        """Wait for every process and return all rows, in the order of ids."""
        if self._stepping:
            observations, rewards, terminated, truncated, _ = self._vector.step_wait()
            self._stepping = False
            return Batch(observations, rewards, terminated, truncated, self._blank.env_ids)
        if self._first is None:
            raise NothingToReceiveError
        first, self._first = self._first, None
        return first

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return as_counts(self._vector.call("frames_simulated"))

    def close(self) -> None:
        """End every process, by force if one does not answer or has died already."""
        if self._vector.closed:
            return
        self._first = None
        try:
            if self._stepping:
                self._vector.step_wait(timeout=LAST_ANSWER_SECONDS)
            self._vector.close()
        except Exception:  # noqa: BLE001 - whatever a worker raised, or that it died: the processes must end
            self._kill()
        self._stepping = False

    def _kill(self) -> None:
        for process in self._vector.processes:
            process.kill()
        for process in self._vector.processes:
            process.join()
        self._vector.closed = True
