"""The row that limits others: ``ceiling``, the bare simulator on every CPU owned.

Each process, the caller included, steps a simulator of its own and adds up its steps in shared memory. The rows of a
batch stand for the steps that all of them made.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vebench.backends.environments.suites import BURST, SUITES, load_target
from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, NothingToReceiveError
from vebench.backends.one_in_flight import kill_all
from vebench.backends.shared_memory.errors import ignore_sigint, sigint_blocked

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from numpy.typing import NDArray

    from vebench.backends.interface import Setup

_CACHE_LINE = 8  # in counters of 8 bytes: no two processes write to the same line
MOST_ROWS = 64  # in bursts of every process: a batch has no more rows, and the rest comes with the next batch


class _Simulator(Protocol):
    """A bare simulator of one task, which can be sent to another process."""

    def seed(self, seed: int) -> None:
        """Start again with actions sampled from ``seed``."""

    def burst(self) -> None:
        """Make ``BURST`` agent steps, starting over where an episode ends."""


class Ceiling:
    """``min(workers, CPUs owned)`` simulators, each in a process of its own, the first in the caller's.

    An emulator's ``act`` or MuJoCo's ``mj_step``, once for each agent step with the frame skip inside, and nothing
    else: it reads no screen, makes no observation, looks at no reward and waits for no batch.

    A batch has no fixed size: it has a row for each step made since ``send``, all rows are zeros, and their ids too.
    Actions sent are not used. Steps made while the caller neither waits nor receives are not counted.
    """

    def __init__(self, setup: Setup) -> None:
        target = SUITES[setup.task.suite].simulator
        if target is None:
            raise ValueError(f"{setup.task.id} has no bare simulator")
        self._simulator: _Simulator = load_target(target)(setup.task)
        self._size = min(setup.workers, len(setup.cpus))
        counters = np.frombuffer(mmap.mmap(-1, self._size * _CACHE_LINE * 8), np.int64)
        self._steps = counters[::_CACHE_LINE]
        self._processes: list[BaseProcess] = []
        self._seen = 0
        self._left_over = 0
        self._pending = False
        most = MOST_ROWS * BURST * self._size
        self._rows = Batch(
            np.broadcast_to(np.float32(0.0), (most, 1)),
            np.broadcast_to(np.float64(0.0), most),
            np.zeros(most, np.bool_),
            np.zeros(most, np.bool_),
            np.zeros(most, np.int64),
        )
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
        """Start every simulator again, the one of process ``i`` with actions sampled from ``seed + i``."""
        self._end_processes()
        context = multiprocessing.get_context("fork")
        for index in range(1, self._size):
            arguments = (self._simulator, seed + index, self._steps[index : index + 1], os.getpid())
            process = context.Process(target=_run_free, args=arguments, daemon=True)
            with sigint_blocked():
                process.start()
            self._processes.append(process)
        self._simulator.seed(seed)
        self._left_over = 0
        self._begin()

    def send(self, actions: NDArray[np.generic]) -> None:  # noqa: ARG002 - every simulator has a tape of its own
        """Begin to count."""
        self._begin()

    def _begin(self) -> None:
        self._seen = int(self._steps.sum())
        self._pending = True

    def recv(self) -> Batch:
        """Step the caller's own simulator a burst and return a row for each step made by all since ``send``."""
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
        return Batch._make(array[:count] for array in self._rows)

    def close(self) -> None:
        """End every process."""
        self._end_processes()
        self._pending = False

    def _end_processes(self) -> None:
        kill_all(self._processes)
        for process in self._processes:
            process.close()
        self._processes = []


def _run_free(simulator: _Simulator, seed: int, steps: NDArray[np.int64], caller: int) -> None:
    """Step until the caller has ended; its ``close`` ends this process sooner."""
    ignore_sigint()
    simulator.seed(seed)
    while os.getppid() == caller:
        simulator.burst()
        steps[0] += BURST
