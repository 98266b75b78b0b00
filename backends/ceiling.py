"""``ceiling``, the bare simulator on every CPU owned: an upper bound for the other backends."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends.environments.suites import BURST, SUITES, load_target
from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, NothingToReceiveError, Setup
from vebench.backends.one_in_flight import kill_all
from vebench.backends.shared_memory.worker import ignore_sigint, sigint_blocked

_CACHE_LINE = 8  # counters of 8 bytes in a cache line. No two processes write to the same line.
# Largest batch, in bursts of every process. Steps beyond it are counted in the next batch.
MOST_ROWS = 64


class Ceiling:
    """``min(workers, CPUs owned)`` simulators: the first in the caller's process, each other one in its own.

    An agent step is one call of an emulator's ``act`` or MuJoCo's ``mj_step``, frame skip included. There are no
    observations, rewards or actions to send. A batch has a row of zeros for each step that any process has made since
    ``send``, so its size varies. Steps between a ``recv`` and the next ``send`` are not counted.
    """

    def __init__(self, setup: Setup) -> None:
        target = SUITES[setup.task.suite].simulator
        if target is None:
            raise ValueError(f"{setup.task.id} has no bare simulator")
        # A simulator has ``seed(seed)`` and ``burst()``, which makes BURST agent steps. Forked processes inherit it.
        self._simulator: Any = load_target(target)(setup.task)
        self._size = min(setup.workers, len(setup.cpus))
        counters = np.frombuffer(mmap.mmap(-1, self._size * _CACHE_LINE * 8), np.int64)
        self._steps = counters[::_CACHE_LINE]
        self._processes: list[Any] = []
        self._seen = 0
        self._left_over = 0
        self._pending = False
        most = MOST_ROWS * BURST * self._size
        flags = np.zeros(most, np.bool_)
        observations = np.broadcast_to(np.float32(0.0), (most, 1))
        self._rows = Batch(observations, np.zeros(most), flags, flags, np.zeros(most, np.int64))
        self.info = BackendInfo(
            self._size,
            BURST * self._size,
            ActionSpace.discrete(1),
            setup.task.frame_skip,
            processes=self._size,
            reuses_buffers=True,
            differences=(Difference("the bare simulator: no observations, rewards, ends or batches"),),
        )

    def reset(self, seed: int) -> None:
        """Restart every simulator. Process ``i`` samples its actions from ``seed + i``."""
        self.close()
        context = multiprocessing.get_context("fork")
        for index in range(1, self._size):
            arguments = (self._simulator, seed + index, self._steps[index : index + 1], os.getpid())
            process = context.Process(target=_run_free, args=arguments, daemon=True)
            with sigint_blocked():
                process.start()
            self._processes.append(process)
        self._simulator.seed(seed)
        self._left_over = 0
        self.send(None)

    def send(self, actions: object) -> None:  # noqa: ARG002 - every simulator has a tape of its own
        """Begin to count."""
        self._seen = int(self._steps.sum())
        self._pending = True

    def recv(self) -> Batch:
        """Make a burst with the caller's own simulator. Return a row for each step of all processes since ``send``."""
        if not self._pending:
            raise NothingToReceiveError
        self._pending = False
        self._simulator.burst()
        self._steps[0] += BURST
        for process in self._processes:
            if not process.is_alive():
                raise RuntimeError(f"a simulator's process died (exit status {process.exitcode})")
        total = int(self._steps.sum()) - self._seen + self._left_over
        count = min(total, len(self._rows.env_ids))
        self._left_over = total - count
        return self._rows.part(slice(count))

    def close(self) -> None:
        """End every process."""
        kill_all(self._processes)
        for process in self._processes:
            process.close()
        self._processes = []
        self._pending = False


def _run_free(simulator: Any, seed: int, steps: NDArray[np.int64], caller: int) -> None:
    """Step until the caller has ended, or its ``close`` kills this process."""
    ignore_sigint()
    simulator.seed(seed)
    while os.getppid() == caller:
        simulator.burst()
        steps[0] += BURST
