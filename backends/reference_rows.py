"""The reference rows, backends that are only measured for comparison: ``null``, ``yardstick`` and ``ceiling``."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends.environments.suites import BURST, SUITES, load_target
from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, Setup
from vebench.backends.one_in_flight import kill_all, raise_if_dead
from vebench.backends.shared_memory.worker import ignore_sigint, sigint_blocked


class Null:
    """Returns the same zeros at once, which shows the cost of the measuring loop. Rewards are float64."""

    def __init__(self, setup: Setup) -> None:
        count, difference = setup.batch_size, Difference("there is no environment")
        self._batch = zeros(count)._replace(env_ids=np.arange(count))
        frame_skip, space = setup.task.frame_skip, ActionSpace.discrete(2)
        self.info = BackendInfo(count, count, space, frame_skip, reuses_buffers=True, differences=(difference,))

    def reset(self, seed: int) -> None:
        """Do nothing."""

    def send(self, actions: object) -> None:
        """Do nothing."""

    def recv(self) -> Batch:
        """Return the rows."""
        return self._batch

    def close(self) -> None:
        """Do nothing."""


def zeros(count: int) -> Batch:
    """Return rows without meaning."""
    flags = np.zeros(count, np.bool_)
    return Batch(np.zeros((count, 1), np.float32), np.zeros(count), flags, flags, np.zeros(count, np.int64))


class Yardstick(Null):
    """A fixed amount of work in each ``recv``: Python bytecode, operations on small arrays, and copies of 28 KiB.

    The work takes about 100 microseconds and depends only on Python and numpy. A change makes every baseline useless.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._state = np.linspace(0.0, 1.0, 4)
        self._matrix = np.eye(4) + 0.01
        self._pictures = np.zeros((2, 84, 84, 4), np.uint8)  # two of Atari's observations in size

    def recv(self) -> Batch:
        """Do the work and return the rows."""
        total, table = 0, {}
        for number in range(200):
            total = (total * 31 + number) & 0xFFFF
            table[number & 15] = total
        state = self._state
        for _ in range(8):
            state = np.clip(self._matrix @ state, -1.0, 1.0)
        one, other = self._pictures
        for _ in range(2):
            other[...] = one
            one[...] = other
        return super().recv()


class Ceiling:
    """``min(workers, CPUs owned)`` simulators: the first in the caller's process, each of the others in its own.

    An agent step is one call of an emulator's ``act`` or MuJoCo's ``mj_step``, frame skip included. A batch has a row
    of zeros for each step that any process has made since ``send``, so its size varies.
    """

    def __init__(self, setup: Setup) -> None:
        target = SUITES[setup.task.suite].simulator
        if target is None:
            raise ValueError(f"{setup.task.id} has no bare simulator")
        # A simulator has ``seed(seed)`` and ``burst()``, which makes BURST agent steps. Forked processes inherit it.
        self._simulator: Any = load_target(target)(setup.task)
        self._size = min(setup.workers, len(setup.cpus))
        line = 8  # counters of 8 bytes in a cache line. No two processes write to the same line.
        self._steps = np.frombuffer(mmap.mmap(-1, self._size * line * 8), np.int64)[::line]
        self._processes: list[Any] = []
        self._seen = 0
        self.info = BackendInfo(
            self._size,
            BURST * self._size,
            ActionSpace.discrete(1),
            setup.task.frame_skip,
            processes=self._size,
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
        self.send(None)

    def send(self, actions: object) -> None:  # noqa: ARG002 - every simulator has a tape of its own
        """Begin to count."""
        self._seen = int(self._steps.sum())

    def recv(self) -> Batch:
        """Make a burst with the caller's own simulator. Return a row for each step of all processes since ``send``."""
        self._simulator.burst()
        self._steps[0] += BURST
        raise_if_dead(self._processes, "the process of simulator")
        return zeros(int(self._steps.sum()) - self._seen)

    def close(self) -> None:
        """End every process."""
        kill_all(self._processes)
        self._processes.clear()


def _run_free(simulator: Any, seed: int, steps: NDArray[np.int64], caller: int) -> None:
    """Step until the caller has ended, or its ``close`` kills this process."""
    ignore_sigint()
    simulator.seed(seed)
    while os.getppid() == caller:
        simulator.burst()
        steps[0] += BURST
