"""TorchRL: ``ParallelEnv`` with its shared buffers, and ``AsyncEnvPool`` with its shared slots."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchrl.envs import AsyncEnvPool, GymWrapper, ParallelEnv

from vebench.backends.interface import Batch, Setup
from vebench.backends.one_in_flight import CLOSE_S, FLOAT32_REWARDS, OneInFlight, RowsOfAll, makers, reseed, spaces_for
from vebench.backends.trees import Tree

_NO_SEED = -1
_REPORTED: dict[str, Any] = {"autoreset": "same_step", "differences": (FLOAT32_REWARDS,)}


def _observations(tensors: Any, form: Tree) -> Tree:
    """Return the observations in a TensorDict. TorchRL calls a single array ``observation``."""
    if isinstance(form, dict):
        return {key: tensors.get(key).numpy() for key in form}
    return tensors.get("observation").numpy()


@contextmanager
def _forking() -> Iterator[None]:
    """Fork processes. TorchRL would spawn them, and each would take seconds to load torch."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


def _wrapped(maker: Callable[[], Any]) -> Any:
    """Return an environment in TorchRL's wrapper, with actions as numbers, not as one-hot vectors."""
    torch.set_num_threads(1)
    return GymWrapper(maker(), categorical_action_encoding=True)


def _rows(stepped: Any, root: Any, form: Tree) -> RowsOfAll:
    """Return the rows of a step. Their observations are in ``root``, after the resets of ended episodes."""
    after = stepped.get("next")
    rewards, terminated, truncated = (after.get(key).numpy()[:, 0] for key in ("reward", "terminated", "truncated"))
    return _observations(root, form), rewards, terminated, truncated


class TorchRLParallel(OneInFlight):
    """``torchrl.envs.ParallelEnv``: a forked process for each environment. The caller polls. Rewards are float32."""

    def __init__(self, setup: Setup) -> None:
        spaces = spaces_for(setup, "TorchRL", dicts=True)
        self._form = spaces.observations
        self._report(setup, spaces, processes=setup.batch_size, **_REPORTED)
        with _forking():
            self._vector = ParallelEnv(
                setup.batch_size,
                _wrapped,
                create_env_kwargs=[{"maker": maker} for maker in makers(setup)],
                num_threads=1,
                daemon=True,
                shutdown_timeout=CLOSE_S,
            )
            self._vector.start()
        self._processes = list(self._vector._workers)  # noqa: SLF001 - the library forgets processes before their end
        self._type = self._vector.action_spec.dtype

    def _reset(self, seed: int) -> Tree:
        seeds = [{"seed": seed + index} for index in range(self.info.num_envs)]
        self._root = self._vector.reset(list_of_kwargs=seeds)
        return _observations(self._root, self._form)

    def _receive(self) -> RowsOfAll:
        self._root.set("action", torch.tensor(self._actions, dtype=self._type))
        stepped, self._root = self._vector.step_and_maybe_reset(self._root)
        return _rows(stepped, self._root, self._form)

    def _end(self) -> None:
        with suppress(Exception):  # the processes must end after any error
            self._vector.close(raise_if_closed=False)
        for process in self._processes:
            with suppress(ValueError):  # the library has closed the object of an ended process
                process.kill()
                process.join()
        self._processes.clear()


def _seeded(maker: Callable[[], Any], seeds: Any, index: int) -> Any:
    """Return an environment in TorchRL's wrapper. Its next reset uses its seed in ``seeds``, if there is one."""

    def seed_of(given: int | None) -> int | None:
        seed, seeds[index] = seeds[index], _NO_SEED
        return given if seed == _NO_SEED else seed

    environment = maker()
    reseed(environment, seed_of)
    return _wrapped(lambda: environment)


class TorchRLAsync:
    """``torchrl.envs.AsyncEnvPool`` with ``ratio`` environments for each row of a batch, each in its own process.

    Rows are exchanged in shared memory (``exchange="shm"``). A batch has the environments that finished first
    (``min_get``). Rewards are float32. The pool cannot seed environments, so each reads its seed from shared memory.
    """

    def __init__(self, setup: Setup, *, ratio: int = 2) -> None:
        spaces = spaces_for(setup, "TorchRL", dicts=True)
        self._form = spaces.observations
        count = ratio * setup.batch_size
        blank = spaces.rows(setup.batch_size)
        self._blank = blank._replace(rewards=blank.rewards.astype(np.float32))
        self._seeds: Any = multiprocessing.RawArray("q", [_NO_SEED] * count)
        self._unreset = self._unstepped = 0  # environments whose reset, or step, was requested and not received
        self.info = spaces.info(setup, num_envs=count, processes=count, in_order=ratio == 1, **_REPORTED)
        every = makers(replace(setup, envs_per_worker=ratio * setup.envs_per_worker))
        with _forking():
            self._pool = AsyncEnvPool(
                [partial(_seeded, maker, self._seeds, index) for index, maker in enumerate(every)],
                backend="multiprocessing",
                exchange="shm",
            )
        self._type = self._pool.action_spec.dtype

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        if self._unreset:
            self._pool.async_reset_recv(min_get=self._unreset)
        if self._unstepped:
            self._pool.async_step_and_maybe_reset_recv(min_get=self._unstepped)
        count = self.info.num_envs
        self._seeds[:] = range(seed, seed + count)
        self._pool.async_reset_send(env_index=[*range(count)])
        self._unreset, self._unstepped = count, 0

    def send(self, actions: Tree) -> None:
        """Give an action to each environment of the last batch."""
        self._root.set("action", torch.tensor(actions, dtype=self._type))
        self._pool.async_step_and_maybe_reset_send(self._root)
        self._unstepped += len(actions)

    def recv(self) -> Batch:
        """Wait until a batch of environments has finished. Return their rows. Rows of resets come first."""
        rows = self.info.batch_size
        if self._unreset:
            self._root = self._pool.async_reset_recv(min_get=rows, max_get=rows)
            self._unreset -= rows
            observations = _observations(self._root, self._form)
            return self._blank._replace(observations=observations, env_ids=self._ids())
        stepped, self._root = self._pool.async_step_and_maybe_reset_recv(min_get=rows, max_get=rows)
        self._unstepped -= rows
        return Batch(*_rows(stepped, self._root, self._form), self._ids())

    def _ids(self) -> NDArray[np.int64]:
        return np.array(self._root.get("env_index").tolist(), np.int64)

    def close(self) -> None:
        """End every process, by force if one does not answer."""
        if self._pool is not None:
            self._pool._SHUTDOWN_TIMEOUT = CLOSE_S  # noqa: SLF001 - the default is a minute
            self._pool.close(raise_if_closed=False)
            self._pool = self._root = None
