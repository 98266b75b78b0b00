"""The division of environments among the processes of a team, and the memory that the processes share."""

from __future__ import annotations

import io
import math
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from multiprocessing import reduction
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.environments.making import ArraySpec
from vebench.machine import kernel

# Two lines of 64 bytes, since Intel's prefetcher fetches them in pairs. Apple's lines have 128 bytes.
LINE = 128


class RowArrays(NamedTuple):
    """The arrays of some environments, with a row for each."""

    observations: tuple[NDArray[Any], ...]  # one array for each leaf: ``(rows, *leaf.shape)``
    rewards: NDArray[np.float64]  # ``(rows,)``, as are ``terminated`` and ``truncated``
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    actions: tuple[NDArray[Any], ...]

    def rows(self, start: int, stop: int) -> RowArrays:
        """Return views of the rows from ``start`` up to ``stop``."""
        return RowArrays._make(trees.part(each, slice(start, stop)) for each in self)


class ProcessShare(Protocol):
    """The environments of one process. A method's result that is not None is sent to the caller as a *remark*."""

    @property
    def current(self) -> int | None:
        """The index in the share of the environment that steps or stepped last, None if exceptions name it."""

    def open(self) -> None:
        """Build every environment."""

    def step(self) -> object:
        """Step every environment with its row of the actions."""

    def step_one(self, index: int) -> object:
        """Step one environment with its row of the actions."""

    def answer(self, name: str, argument: Any) -> object:
        """Answer the request ``name``."""

    def close(self) -> None:
        """Close every environment."""


# Makes the share of environments ``start`` to ``stop - 1`` from their rows. It is called in the share's process.
MakeShare = Callable[[RowArrays, int, int], ProcessShare]


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, limited by the quota of a container."""
    allowed = len(kernel.allowed() or ()) or os.cpu_count() or 1
    quota, _ = kernel.cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


@dataclass
class Division:
    """How environments are divided among processes: in contiguous runs, as equal as can be.

    Raises ValueError if a process has no CPU in ``cpus``.
    """

    num_envs: int
    processes: int  # the number of processes that step environments, at most one for each environment
    caller_steps: bool = True  # whether the caller is the first of them
    cpus: Sequence[int] | None = None  # process ``k`` runs on ``cpus[k]``. None: on any CPU. The caller is not moved.
    spin: float | None = None  # the most microseconds for which a waiting process polls; None: see ``spin_ns``
    one_by_one: bool = False  # whether environments are requested singly, not all of a process at once

    def __post_init__(self) -> None:
        self.processes = min(self.num_envs, self.processes)
        if self.cpus is not None and len(self.cpus) < self.processes:
            raise ValueError(f"cpus must name a CPU for each of {self.processes} processes, not {len(self.cpus)}")

    @cached_property
    def spin_ns(self) -> int:
        """The most nanoseconds for which a waiting process polls.

        By default 0 if there are more processes than CPUs: a polling process would take the CPU from a working one.
        """
        if self.spin is not None:
            return int(self.spin * 1000)
        available = len(set(self.cpus)) if self.cpus else usable_cpus()
        return 400_000 if self.processes + (not self.caller_steps) <= available else 0

    @cached_property
    def shares(self) -> list[tuple[int, int]]:
        """The first environment of each worker, and the end of its range. The caller has the environments before."""
        bounds = [index * self.num_envs // self.processes for index in range(self.processes + 1)]
        return list(pairwise(bounds))[self.caller_steps :]

    @property
    def own(self) -> int:
        """The number of environments that the caller steps itself."""
        return self.num_envs // self.processes if self.caller_steps else 0


class Memory:
    """Zeroed memory without a name. The system frees it once no process maps it, however the processes end.

    First come the words by which processes report their progress, then the arrays of all environments. A word that one
    side writes and the other polls has its own cache lines, because polling slows down every write to the same line.

    The file behind the memory continues with places for texts, which are not mapped: place 0 for the message to all
    workers, then places for remarks. Reading a text does not remove it, so it can be read again after an interrupt.
    """

    def __init__(
        self,
        division: Division,
        observations: Sequence[ArraySpec],  # the arrays of one environment's observation
        actions: Sequence[ArraySpec],
        received: Any = None,  # the memory's file, from another process
    ) -> None:
        self._layout = division, observations, actions
        self.division = division
        # The places in each ring: one for each entry that may be unanswered.
        self.ring = max((stop - start for start, stop in division.shares), default=1) if division.one_by_one else 1
        self._of_ring = _aligned(8 * self.ring, LINE)
        self._of_worker = 3 * LINE + 2 * self._of_ring  # the bytes of a worker's words
        number, flag = ArraySpec((), np.dtype(np.float64)), ArraySpec((), np.dtype(np.bool_))
        leaves = [*observations, *actions, number, flag, flag]
        end, offsets = LINE + self._of_worker * len(division.shares), []
        for leaf in leaves:
            # Flags of ends directly follow the rewards. With few environments, all move between two CPUs in one line.
            offsets.append(end if leaf is flag else _aligned(end, LINE))
            end = offsets[-1] + division.num_envs * math.prod(leaf.shape) * leaf.dtype.itemsize
        self.size = end
        if received is not None:
            self._file = io.FileIO(received.detach(), "r+")
        elif hasattr(os, "memfd_create"):
            self._file = io.FileIO(os.memfd_create("vebench"), "r+")
        else:
            with tempfile.TemporaryFile() as file:  # unlinked at once
                self._file = io.FileIO(os.dup(file.fileno()), "r+")
        if received is None:
            self.free_texts()
        self.map = mmap.mmap(self._file.fileno(), self.size)
        arrays: list[Any] = [
            np.ndarray((division.num_envs, *leaf.shape), leaf.dtype, self.map, offset)
            for leaf, offset in zip(leaves, offsets, strict=True)
        ]
        split = len(observations)
        self.arrays = RowArrays._make((tuple(arrays[:split]), *arrays[-3:], tuple(arrays[split:-3])))
        self.caller_asleep = self._words(0)
        self.message_length = self._words(8)

    def _words(self, offset: int, count: int = 1) -> memoryview:
        return memoryview(self.map)[offset : offset + 8 * count].cast("q")

    def words(self, worker: int) -> tuple[memoryview, ...]:
        """Return the words by which the caller and one worker communicate.

        They are the number of requests, the number of answers, whether the worker sleeps, a ring of requests, and a
        ring of lengths. A length is the number of bytes of the worker's remark on a request.
        """
        start = LINE + worker * self._of_worker
        rings = start + 3 * LINE
        polled = (self._words(start + line * LINE) for line in range(3))
        return (*polled, self._words(rings, self.ring), self._words(rings + self._of_ring, self.ring))

    def write(self, place: int, text: bytes) -> None:
        """Write the text of a place, up to 2 GiB."""
        os.pwrite(self._file.fileno(), text, self._offset(place))

    def read(self, place: int, length: int) -> bytes:
        """Return the text of a place."""
        return os.pread(self._file.fileno(), length, self._offset(place))

    def _offset(self, place: int) -> int:
        return self.size + (place << 32)  # parts of the file that are never written take no memory

    def free_texts(self) -> None:
        """Give back the memory of all texts."""
        os.ftruncate(self._file.fileno(), self.size)

    def close(self) -> None:
        """Close the file of the texts. The memory stays mapped while it is used."""
        self._file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Memory, (*self._layout, reduction.DupFd(self._file.fileno()))


def _aligned(size: int, unit: int) -> int:
    """Return ``size`` rounded up to a multiple of ``unit``."""
    return -(-size // unit) * unit
