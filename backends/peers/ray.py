"""Ray's actors, one for each worker, as in RLlib's environment runners. They send their rows back to the caller."""

from __future__ import annotations

import gc
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from vebench.backends.environments.making import spaces_of
from vebench.backends.for_loop import EnvironmentLoop
from vebench.backends.interface import Batch, Setup
from vebench.backends.one_in_flight import OneInFlight, RowsOfAll, makers
from vebench.backends.trees import Tree, as_rows, mapped, part

os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise Ray writes one into the home folder
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
import ray


@contextmanager
def local_ray(cpus: int) -> Iterator[None]:
    """Start Ray on this machine with this number of CPUs. Ray ends with the context."""
    # Ray's processes must find the modules that this one finds: vebench, and users' environments.
    path = mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        try:
            with path:
                ray.init(
                    "local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="error",
                    object_store_memory=256 << 20,  # bytes: room for the rows of a few batches
                    _temp_dir=folder,
                )
            yield
        finally:
            ray.shutdown(wait_for_processes=True)
            gc.collect()  # frees Ray's clients, which refer to each other, and ends their threads


class RayActors(OneInFlight):
    """An actor for each worker, which steps its share of the environments in a loop. Rewards are float64.

    Each backend starts a separate Ray, without dashboard, with a CPU for each actor.
    """

    def __init__(self, setup: Setup) -> None:
        spaces = spaces_of(setup.task)
        self._rows = spaces.rows(setup.batch_size)
        self._fields = [as_rows(field) for field in self._rows[:4]]
        self._report(setup, spaces, processes=setup.workers, reuses_buffers=True)
        each = setup.envs_per_worker
        self._shares = [slice(each * worker, each * (worker + 1)) for worker in range(setup.workers)]
        self._actors: list[Any] = []
        self._answers: list[Any] = []
        with ExitStack() as running:
            running.enter_context(local_ray(setup.workers))
            actor: Any = ray.remote(num_cpus=1)(_Actor)
            for maker, share in zip(makers(setup), self._shares, strict=False):
                self._actors.append(actor.remote(maker, self._rows.part(share)))
            ray.get([actor.__ray_ready__.remote() for actor in self._actors])  # once the environments are made
            self._running = running.pop_all()

    def _reset(self, seed: int) -> Tree:
        self._answers = [actor.reset.remote(seed) for actor in self._actors]
        return self._receive()[0]

    def _send(self, actions: Tree) -> None:
        shares = zip(self._actors, self._shares, strict=True)
        self._answers = [actor.step.remote(part(actions, share)) for actor, share in shares]

    def _receive(self) -> RowsOfAll:
        for share, rows in zip(self._shares, ray.get(self._answers), strict=True):
            for whole, theirs in zip(self._fields, rows, strict=True):
                whole[share] = theirs
        return self._rows[:4]

    def _end(self) -> None:
        self._actors, self._answers = [], []
        self._running.close()


class _Actor:
    """The environments of one actor."""

    def __init__(self, maker: Callable[[], Any], rows: Batch) -> None:
        self._rows = Batch._make(mapped(np.array, field) for field in rows)  # an actor's arguments are read-only
        self._loop = EnvironmentLoop([maker() for _ in rows.env_ids], self._rows)

    def reset(self, seed: int) -> RowsOfAll:
        self._loop.reset(seed)
        return self._rows[:4]

    def step(self, actions: Tree) -> RowsOfAll:
        self._loop.step(mapped(np.copy, actions))  # an environment may keep its action, or write to it
        return self._rows[:4]
