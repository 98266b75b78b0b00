"""A pool of threads: each steps its share of the environments with the reference's own loop, in one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

from vebench.backends.environments.making import make, read_spaces
from vebench.backends.for_loop import loop_over
from vebench.backends.interface import NothingToReceiveError
from vebench.backends.one_in_flight import CountsInside
from vebench.backends.trees import as_rows
from vebench.machine import pinning

if TYPE_CHECKING:
    from concurrent.futures import Future

    from vebench.backends.interface import ArrayTree, Batch, Setup


class Threads(CountsInside):
    """``min(workers, CPUs owned)`` threads of a ``ThreadPoolExecutor``, each pinned to a CPU. Rewards are float64.

    They run at the same time as far as environments let go of Python's lock (the GIL). Environments that draw from a
    generator of their module, and not from their own, draw in an order that nobody knows.
    """

    def __init__(self, setup: Setup) -> None:
        self._task, count = setup.task, setup.batch_size
        threads = min(setup.workers, len(setup.cpus))
        self._inside = [make(setup.task) for _ in range(count)]
        spaces = read_spaces(setup.task, self._inside[0].observation_space, self._inside[0].action_space)
        self._batch = spaces.rows(count)
        self._shares = [slice(count * part // threads, count * (part + 1) // threads) for part in range(threads)]
        self._loops = [loop_over(self._inside[share], self._batch.part(share)) for share in self._shares]
        cpus: SimpleQueue[tuple[int, ...]] = SimpleQueue()
        for cpu in setup.cpus[:threads]:
            cpus.put((cpu,) if setup.pinned else ())
        self._pool = ThreadPoolExecutor(threads, initializer=lambda: pinning.restrict(cpus.get()))
        self._stepping: list[Future[None]] = []
        self._reset_done = False
        self.info = spaces.info(setup, threads=threads, in_order=True, reuses_buffers=True)

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        self._settle()
        for resetting in [self._pool.submit(loop.reset, seed) for loop in self._loops]:
            resetting.result()
        self._reset_done = True

    def send(self, actions: ArrayTree) -> None:
        """Let every thread step its share."""
        rows = as_rows(actions)
        self._stepping = [
            self._pool.submit(loop.step, rows[share]) for loop, share in zip(self._loops, self._shares, strict=True)
        ]

    def recv(self) -> Batch:
        """Wait for every thread and return all rows, in the order of ids. Raises RuntimeError if an environment did."""
        if self._stepping:
            stepping, self._stepping = self._stepping, []
            for share in stepping:
                share.result()
        elif self._reset_done:
            self._reset_done = False
        else:
            raise NothingToReceiveError
        return self._batch

    def close(self) -> None:
        """End every thread once it has made its step, and close every environment."""
        self._settle()
        self._pool.shutdown()
        while self._inside:
            self._inside.pop().close()

    def _settle(self) -> None:
        """Wait until nothing steps."""
        stepping, self._stepping = self._stepping, []
        for share in stepping:
            share.exception()
        self._reset_done = False
