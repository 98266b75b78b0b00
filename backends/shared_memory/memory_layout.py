"""The division of environments among the processes of a team, and the layout of the memory that the processes share.

First come the words by which processes report their progress. A word that one side writes and the other polls has its
own cache lines, because polling slows down every write to the same line. Then come the arrays: observations, actions
and results of all environments.
"""

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
from vebench.backends.shared_memory.handshake import MOST_SPIN_NS
from vebench.machine import kernel
from vebench.machine.kernel import cpu_quota


class ProcessShare(Protocol):
    """The environments of one process. A method's result that is not None is sent to the caller as a *remark*."""

    @property
    def current(self) -> int | None:
        """The share's index of the environment in use now, or last. None: exceptions name their environment."""

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
MakeShare = Callable[["RowArrays", int, int], ProcessShare]


@dataclass(frozen=True)
class Division:
    """How environments are divided among processes: in contiguous runs, as equal as can be."""

    num_envs: int
    processes: int  # the number of processes that step environments
    caller_steps: bool = True  # whether the caller is the first of them
    cpus: tuple[int, ...] = ()  # process ``k`` runs on ``cpus[k]``; empty: on any CPU. The caller is not moved.
    spin_ns: int = MOST_SPIN_NS  # the time for which a waiting process polls before it sleeps
    one_by_one: bool = False  # whether environments are requested singly, not all of a process at once

    @cached_property
    def shares(self) -> tuple[tuple[int, int], ...]:
        """The first environment of each worker, and the end of its range. The caller has the environments before."""
        bounds = [index * self.num_envs // self.processes for index in range(self.processes + 1)]
        return tuple(pairwise(bounds))[self.caller_steps :]

    @property
    def own(self) -> int:
        """The number of environments that the caller steps itself."""
        return self.num_envs // self.processes if self.caller_steps else 0

    def cpu_of(self, worker: int) -> int | None:
        """Return the CPU on which a worker runs, None if it may use any."""
        return self.cpus[worker + self.caller_steps] if self.cpus else None

    def layout(self, observations: tuple[ArraySpec, ...], actions: tuple[ArraySpec, ...]) -> MemoryLayout:
        """Return the layout of the memory, for these arrays of one environment."""
        return MemoryLayout(self, observations, actions)


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, limited by the quota of a container."""
    allowed = len(kernel.allowed() or ()) or os.cpu_count() or 1
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota.cpus)))


def divide(
    num_envs: int,
    processes: int,
    *,
    caller_steps: bool = True,
    cpus: Sequence[int] | None = None,
    spin: float | None = None,
    one_by_one: bool = False,
    available: int | None = None,
) -> Division:
    """Return a division. Raises ValueError if a process has no CPU in ``cpus``.

    ``spin`` is in microseconds. By default it is 0 if there are more processes than ``available`` CPUs, since a polling
    process would take the CPU from a working one.
    """
    count = min(num_envs, processes)
    if cpus is not None and len(cpus) < count:
        raise ValueError(f"cpus must name a CPU for each of {count} processes, not {len(cpus)}")
    if spin is None:
        available = available or (len(set(cpus)) if cpus else usable_cpus())
        crowded = count + (not caller_steps) > available
        spin_ns = 0 if crowded else MOST_SPIN_NS
    else:
        spin_ns = int(spin * 1000)
    return Division(num_envs, count, caller_steps, tuple(cpus or ()), spin_ns, one_by_one)


# Two lines of 64 bytes, since Intel's prefetcher fetches them in pairs. Apple's lines have 128 bytes.
LINE = 128
_WORD = 8


def _aligned(size: int, unit: int) -> int:
    """Return ``size`` rounded up to a multiple of ``unit``."""
    return -(-size // unit) * unit


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


@dataclass(frozen=True)
class MemoryLayout:
    """The offsets of words and arrays in the memory of a team."""

    division: Division
    observations: tuple[ArraySpec, ...]
    actions: tuple[ArraySpec, ...]

    @cached_property
    def ring(self) -> int:
        """The number of places in each ring: one for each entry that may be unanswered."""
        if not self.division.one_by_one:
            return 1
        return max((stop - start for start, stop in self.division.shares), default=1)

    @property
    def _of_worker(self) -> int:
        """The bytes of one worker's words: a line for each of three words, and whole lines for each of two rings."""
        return 3 * LINE + 2 * _aligned(_WORD * self.ring, LINE)

    @cached_property
    def _leaves(self) -> list[tuple[ArraySpec, int]]:
        """The arrays, each with its offset: observations, actions, rewards and ends."""
        number, flag = ArraySpec((), np.dtype(np.float64)), ArraySpec((), np.dtype(np.bool_))
        lines = ((leaf, LINE) for leaf in (*self.observations, *self.actions, number))
        leaves, end = [], LINE + self._of_worker * len(self.division.shares)
        # Rewards and ends lie together. With few environments, they then move between two CPUs in a single line.
        for leaf, unit in (*lines, (flag, 1), (flag, 1)):
            offset = _aligned(end, unit)
            leaves.append((leaf, offset))
            end = offset + leaf.nbytes(self.division.num_envs)
        return leaves

    @property
    def size(self) -> int:
        """The number of bytes of the whole memory."""
        leaf, offset = self._leaves[-1]
        return offset + leaf.nbytes(self.division.num_envs)

    def first_place(self, worker: int) -> int:
        """Return the place of the remark on the first entry of a worker's ring. Places of other remarks follow."""
        return MESSAGE_PLACE + 1 + worker * self.ring

    @staticmethod
    def caller_words(memory: mmap.mmap) -> tuple[memoryview, memoryview]:
        """Return the word that says whether the caller is asleep, and the length of the message to all workers."""
        words = memoryview(memory)[: 2 * _WORD].cast("q")
        return words[:1], words[1:]

    def words(self, memory: mmap.mmap, worker: int) -> tuple[memoryview, ...]:
        """Return the words by which the caller and one worker communicate, as in ``handshake``.

        ``request``: the number of entries that the caller has made. ``done``: the number that the worker has answered.
        ``asleep``: whether the worker sleeps. ``entries``: a ring of requests. ``remarks``: a ring of the lengths in
        bytes of the worker's remarks on the entries.
        """
        start, ring = LINE + worker * self._of_worker, _aligned(_WORD * self.ring, LINE)
        places = ((0, 1), (LINE, 1), (2 * LINE, 1), (3 * LINE, self.ring), (3 * LINE + ring, self.ring))
        view = memoryview(memory)[start:]
        return tuple(view[offset : offset + _WORD * count].cast("q") for offset, count in places)

    def arrays(self, memory: mmap.mmap) -> RowArrays:
        """Return the arrays of all environments. They keep the memory mapped while they are referenced."""
        count = self.division.num_envs
        arrays = [
            np.frombuffer(memory, leaf.dtype, count * math.prod(leaf.shape), offset).reshape(count, *leaf.shape)
            for leaf, offset in self._leaves
        ]
        split, (rewards, terminated, truncated) = len(self.observations), arrays[-3:]
        return RowArrays(tuple(arrays[:split]), rewards, terminated, truncated, tuple(arrays[split:-3]))


MESSAGE_PLACE = 0  # the place of the text that all workers read. Places of remarks follow.
_FAR = 1 << 32  # the bytes from one place to the next. Bytes of the file that are never written take no memory.


class Memory:
    """Zeroed memory without a name. The system frees it once no process maps it, however the processes end.

    Forked processes inherit the memory. Other processes receive it as an argument and map it. The file behind the
    memory continues with places for texts, which are not mapped. Reading a text does not remove it, so a process can
    read it again after an interrupt.
    """

    def __init__(self, size: int, received: Any = None) -> None:
        self._size = size
        if received is not None:
            self._file = io.FileIO(received.detach(), "r+")
        elif hasattr(os, "memfd_create"):
            self._file = io.FileIO(os.memfd_create("vebench"), "r+")
        else:
            with tempfile.TemporaryFile() as file:  # unlinked at once
                self._file = io.FileIO(os.dup(file.fileno()), "r+")
        if received is None:
            os.ftruncate(self._file.fileno(), size)
        self.map = mmap.mmap(self._file.fileno(), size)

    def write(self, place: int, text: bytes) -> None:
        """Write the text of a place, up to 2 GiB."""
        os.pwrite(self._file.fileno(), text, self._size + place * _FAR)

    def read(self, place: int, length: int) -> bytes:
        """Return the text of a place."""
        return os.pread(self._file.fileno(), length, self._size + place * _FAR)

    def free_texts(self) -> None:
        """Give back the memory of all texts."""
        os.ftruncate(self._file.fileno(), self._size)

    def close(self) -> None:
        """Close the file of the texts. The memory stays mapped while it is used."""
        self._file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Memory, (self._size, reduction.DupFd(self._file.fileno()))
