"""A base for adapters with one batch in flight at a time, its helpers, and Gymnasium's own vector environments."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends.environments.making import CountsInside, Spaces, make, read_spaces, spaces_of
from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, Setup, Task
from vebench.backends.trees import Tree, is_leaf
from vebench.machine import kernel

# Observations, rewards, terminated and truncated of all environments, in the order of their ids.
RowsOfAll = tuple[Tree, NDArray[np.floating[Any]], NDArray[np.bool_], NDArray[np.bool_]]

LOOK_S = 0.5  # seconds between a caller's checks that its workers are alive
CLOSE_S = 2.0  # seconds that workers may take to close their environments
FLOAT32_REWARDS = Difference("rewards are float32")


def makers(setup: Setup) -> list[Callable[[], Any]]:
    """Return, for each environment, the function that makes it. In a pinned cell, it also pins its process."""
    cpus: list[int | None] = [*setup.cpus] if setup.pinned else [None]
    caller = os.getpid()
    return [partial(_make, setup.task, cpus[index % len(cpus)], caller) for index in range(setup.batch_size)]


def _make(task: Task, cpu: int | None, caller: int) -> Any:
    """Restrict this process to a CPU unless it is the caller. Return an environment."""
    if cpu is not None and os.getpid() != caller:
        kernel.restrict((cpu,))
    return make(task)


def reseed(environment: Any, seed_of: Callable[[int | None], int | None]) -> None:
    """Replace each seed that a library gives to an environment by ``seed_of(seed)``."""
    reset = environment.reset

    def seeded(*, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        found: tuple[Any, dict[str, Any]] = reset(seed=seed_of(seed), options=options)
        return found

    environment.reset = seeded


def spaces_for(setup: Setup, library: str, *, dicts: bool = False) -> Spaces:
    """Return the spaces of a task. Raises ValueError unless each is one array. ``dicts`` also allows observed dicts."""
    spaces = spaces_of(setup.task)
    observed = spaces.observations
    parts = observed.values() if dicts and isinstance(observed, dict) else (observed,)
    if not isinstance(spaces.actions, ActionSpace) or not all(map(is_leaf, parts)):
        raise ValueError(f"{library} does not support these observations, or actions of several arrays")
    return spaces


def kill_all(processes: Sequence[Any], patience: float = 0.0) -> None:
    """Wait ``patience`` seconds for each process, then kill and join all."""
    for process in processes:
        process.join(patience)
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def raise_if_dead(processes: Iterable[Any], whose: str) -> None:
    """Raise RuntimeError if one of a library's processes has ended."""
    for number, process in enumerate(processes):
        if not process.is_alive():
            raise RuntimeError(f"{whose} {number} died (exit status {process.exitcode})")


class OneInFlight(ABC):
    """An adapter whose batches have all environments, in the order of their ids.

    A subclass calls ``_report`` in its constructor, and defines ``_reset``, ``_receive`` and ``_end``. It also defines
    ``_send`` if environments can step while the caller works on.
    """

    info: BackendInfo

    def _report(self, setup: Setup, spaces: Spaces, **reported: Any) -> None:
        """Set ``info`` from the setup and the fields in ``reported``."""
        self._blank = spaces.rows(setup.batch_size)
        self._actions: Tree | None = None
        self._stepping = False
        self.info = spaces.info(setup, in_order=True, **reported)
        if FLOAT32_REWARDS in self.info.differences:
            self._blank = self._blank._replace(rewards=self._blank.rewards.astype(np.float32))

    @abstractmethod
    def _reset(self, seed: int) -> Tree:
        """Start a new episode in every environment, seeded with ``seed`` plus its id. Return the observations."""

    def _send(self, actions: Tree) -> None:
        """Let all environments step. By default, keep the actions for ``_receive``."""
        self._actions = actions

    @abstractmethod
    def _receive(self) -> RowsOfAll:
        """Return the rows of the step with the last actions."""

    @abstractmethod
    def _end(self) -> None:
        """End every process and thread. A second call does nothing."""

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        if self._stepping:
            self._receive()
            self._stepping = False
        self._rows_of_reset = self._blank._replace(observations=self._reset(seed))

    def send(self, actions: Tree) -> None:
        """Give each environment its action."""
        self._send(actions)
        self._stepping = True

    def recv(self) -> Batch:
        """Return the rows of all environments, in the order of ids."""
        if not self._stepping:
            return self._rows_of_reset
        rows = self._receive()
        self._stepping = False
        return Batch(*rows, self._blank.env_ids)

    def close(self) -> None:
        """End every process and thread. A second call does nothing."""
        self._end()


class GymSync(CountsInside, OneInFlight):
    """``SyncVectorEnv``: all environments in the calling process. Observations are not copied, rewards are float64."""

    def __init__(self, setup: Setup) -> None:
        from gymnasium.vector import SyncVectorEnv

        vector: Any = SyncVectorEnv([partial(make, setup.task)] * setup.batch_size, copy=False)
        self._vector, self._task, self._inside = vector, setup.task, vector.envs
        spaces = read_spaces(setup.task, vector.single_observation_space, vector.single_action_space)
        self._report(setup, spaces, reuses_buffers=True)

    def _reset(self, seed: int) -> Tree:
        return self._vector.reset(seed=seed)[0]

    def _receive(self) -> RowsOfAll:
        rows: RowsOfAll = self._vector.step(self._actions)[:4]
        return rows

    def _end(self) -> None:
        self._vector.close()


class GymAsync(OneInFlight):
    """``AsyncVectorEnv``: a process for each environment, shared memory on, observations not copied.

    ``max_concurrency`` limits how many environments step at any one time (Gymnasium 1.4 and later; None: no limit).
    ``context`` is the start method of the processes, ``fork``, ``forkserver`` or ``spawn`` (None is Python's default).
    """

    def __init__(self, setup: Setup, *, max_concurrency: int | None = None, context: str | None = None) -> None:
        from gymnasium.vector import AsyncVectorEnv

        # Gymnasium before 1.4 does not have the argument.
        limit: dict[str, Any] = {} if max_concurrency is None else {"max_concurrency": max_concurrency}
        self._vector: Any = AsyncVectorEnv(makers(setup), shared_memory=True, copy=False, context=context, **limit)
        spaces = read_spaces(setup.task, self._vector.single_observation_space, self._vector.single_action_space)
        self._report(setup, spaces, processes=setup.batch_size, reuses_buffers=True)

    def _reset(self, seed: int) -> Tree:
        return self._vector.reset(seed=seed)[0]

    def _send(self, actions: Tree) -> None:
        self._vector.step_async(actions)

    def _receive(self) -> RowsOfAll:
        try:
            rows: RowsOfAll = self._vector.step_wait()[:4]
        except (EOFError, ConnectionError):
            from multiprocessing import connection

            # Gymnasium's error does not name the process that has ended.
            ended = connection.wait([process.sentinel for process in self._vector.processes], CLOSE_S)
            for process in self._vector.processes:
                if process.sentinel in ended:
                    process.join()
            raise_if_dead(self._vector.processes, "the process of environment")
            raise
        return rows

    def _end(self) -> None:
        if self._vector.closed:
            return
        try:
            if self._stepping:
                self._vector.step_wait(timeout=CLOSE_S)
            self._vector.close()
        except Exception:  # noqa: BLE001 - the processes must end after any error
            kill_all(self._vector.processes)
            self._vector.closed = True
