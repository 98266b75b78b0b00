"""A pool of threads: each steps its share of the environments with the reference's own loop, in one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

from vebench.backends.environments.making import make, read_spaces
from vebench.backends.for_loop import loop_over
from vebench.backends.one_in_flight import CountsInside, OneInFlight
from vebench.backends.trees import as_rows
from vebench.machine import pinning

if TYPE_CHECKING:
    from concurrent.futures import Future

    from vebench.backends.interface import ArrayTree, Setup
    from vebench.backends.one_in_flight import RowsOfAll


class Threads(CountsInside, OneInFlight):
    """``min(workers, CPUs owned)`` threads of a ``ThreadPoolExecutor``, each pinned to a CPU. Rewards are float64.

    They run at the same time as far as environments let go of Python's lock (the GIL). Environments that draw from a
    generator of their module, and not from their own, draw in an unknown order.
    """

    def __init__(self, setup: Setup) -> None:
        self._task, count = setup.task, setup.batch_size
        threads = min(setup.workers, len(setup.cpus))
        self._inside = [make(setup.task) for _ in range(count)]
        spaces = read_spaces(setup.task, self._inside[0].observation_space, self._inside[0].action_space)
        self._rows = spaces.rows(count)
        self._shares = [slice(count * part // threads, count * (part + 1) // threads) for part in range(threads)]
        self._loops = [loop_over(self._inside[share], self._rows.part(share)) for share in self._shares]
        cpus: SimpleQueue[tuple[int, ...]] = SimpleQueue()
        for cpu in setup.cpus[:threads]:
            cpus.put((cpu,) if setup.pinned else ())
        self._pool = ThreadPoolExecutor(threads, initializer=lambda: pinning.restrict(cpus.get()))
        self._running: list[Future[None]] = []
        self._report(setup, spaces, threads=threads, reuses_buffers=True)

    def _reset(self, seed: int) -> ArrayTree:
        for resetting in [self._pool.submit(loop.reset, seed) for loop in self._loops]:
            resetting.result()
        return self._rows.observations

    def _send(self, actions: ArrayTree) -> None:
        rows = as_rows(actions)
        shares = zip(self._loops, self._shares, strict=True)
        self._running = [self._pool.submit(loop.step, rows[share]) for loop, share in shares]

    def _receive(self) -> RowsOfAll:
        running, self._running = self._running, []
        for share in running:
            share.result()
        return self._rows[:4]

    def _end(self) -> None:
        self._pool.shutdown()  # once they have made their steps
        while self._inside:
            self._inside.pop().close()
