"""A pool of threads: each steps its share of the environments with the reference's own loop, in one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

from vebench.backends.environments.making import THE_SIMULATOR, frames_of_all, make, read_spaces
from vebench.backends.for_loop import loop_over
from vebench.backends.interface import BackendInfo, NothingToReceiveError
from vebench.backends.trees import as_rows
from vebench.machine import pinning

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, Batch, Setup


class Threads:
    """``min(workers, CPUs owned)`` threads of a ``ThreadPoolExecutor``, each pinned to a CPU. Rewards are float64.

    They run at the same time as far as environments let go of Python's lock (the GIL). Environments that draw from a
    generator of their module, and not from their own, draw in an order that nobody knows.
    """

    frames_from = THE_SIMULATOR

    def __init__(self, setup: Setup) -> None:
        self._task = setup.task
        count = setup.batch_size
        self._threads = min(setup.workers, len(setup.cpus))
        self._environments = [make(setup.task) for _ in range(count)]
        spaces = read_spaces(setup.task, self._environments[0].observation_space, self._environments[0].action_space)
        self._batch = spaces.rows(count)
        bounds = [count * number // self._threads for number in range(self._threads + 1)]
        self._shares = [slice(bounds[number], bounds[number + 1]) for number in range(self._threads)]
        self._loops = [loop_over(self._environments[share], self._batch.part(share)) for share in self._shares]
        cpus: SimpleQueue[tuple[int, ...]] = SimpleQueue()
        for cpu in setup.cpus[: self._threads]:
            cpus.put((cpu,) if setup.pinned else ())
        self._pool = ThreadPoolExecutor(self._threads, initializer=lambda: pinning.restrict(cpus.get()))
        self._stepping: list[Future[None]] = []
        self._reset_done = False
        self.info = BackendInfo(
            num_envs=count,
            batch_size=count,
            action_space=spaces.actions,
            frame_skip=setup.task.frame_skip,
            threads=self._threads,
            in_order=True,
            reuses_buffers=True,
        )

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

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return frames_of_all(self._task, self._environments)

    def close(self) -> None:
        """End every thread once it has made its step, and close every environment."""
        self._settle()
        self._pool.shutdown()
        while self._environments:
            self._environments.pop().close()

    def _settle(self) -> None:
        """Wait until nothing steps."""
        stepping, self._stepping = self._stepping, []
        for share in stepping:
            share.exception()
        self._reset_done = False
