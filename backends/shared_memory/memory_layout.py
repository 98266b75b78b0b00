"""How environments are divided among the processes of a team, and where everything is in the memory that they share.

First come the words by which each process shows the others how far it is. A word that one side writes and the other
polls has cache lines of its own, because polling slows down every write to the same line. Then come the arrays:
observations, actions and results of all environments.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import ArraySpec
from vebench.backends.shared_memory.handshake import MOST_SPIN_NS
from vebench.machine import pinning
from vebench.machine.kernel import cpu_quota

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ProcessShare(Protocol):
    """The environments of one process. The caller gets a method's result, unless it is None, as a *remark*."""

    @property
    def current(self) -> int | None:
        """Index within the share of the environment in use now, or last; None if exceptions name their environment."""

    def open(self) -> None:
        """Build every environment."""

    def step(self) -> object:
        """Step every environment with its row of the actions."""

    def step_one(self, index: int) -> object:
        """Step one environment with its row of the actions."""

    def answer(self, name: str, argument: Any) -> object:
        """Do what the request ``name`` asks for."""

    def close(self) -> None:
        """Close every environment."""


@runtime_checkable
class ThreadedShare(Protocol):
    """Further methods of a share of the caller's whose environments are stepped by other threads of its process."""

    def start(self) -> None:
        """Begin a step of every environment, which ``step`` finishes."""

    def put(self, indices: Sequence[int]) -> Exception | None:
        """Begin a step of these environments; return why none has begun if one of them must be reset first."""

    def get(self, least: int, seconds: float | None) -> tuple[Sequence[int], Mapping[int, object]]:
        """Return environments whose steps are done, ``least`` or more, and the remarks on them.

        After ``seconds`` it returns fewer. A remark may be a ``WorkerFailure``.
        """


# Makes the share of environments ``start`` to ``stop - 1`` from their rows, in its process, before it is opened.
MakeShare = Callable[["RowArrays", int, int], ProcessShare]


def share_out(count: int, processes: int) -> tuple[tuple[int, int], ...]:
    """Return contiguous runs of ``count`` environments, as equal as can be, one for each process: ``(start, stop)``."""
    bounds = [index * count // processes for index in range(processes + 1)]
    return tuple(pairwise(bounds))


@dataclass(frozen=True)
class Division:
    """How environments are divided among processes."""

    num_envs: int
    processes: int  # that step environments
    caller_steps: bool = True  # whether the caller is the first of them
    cpus: tuple[int, ...] = ()  # process ``k`` keeps to ``cpus[k]``, but the caller is not moved; empty: to none
    spin_ns: int = MOST_SPIN_NS  # for how long a process that waits polls before it sleeps
    one_by_one: bool = False  # environments are asked for singly, not all of a process at once

    @property
    def shares(self) -> tuple[tuple[int, int], ...]:
        """The first environment of each worker, and the one after its last. The caller has those before the first."""
        return share_out(self.num_envs, self.processes)[self.caller_steps :]

    @property
    def own(self) -> int:
        """How many environments the caller steps itself."""
        return share_out(self.num_envs, self.processes)[0][1] if self.caller_steps else 0

    def cpu_of(self, worker: int) -> int | None:
        """Return the CPU that a worker keeps to, None if it may use any."""
        return self.cpus[worker + self.caller_steps] if self.cpus else None

    def layout(self, observations: tuple[ArraySpec, ...], actions: tuple[ArraySpec, ...]) -> MemoryLayout:
        """Return where everything is in memory."""
        ring = max((stop - start for start, stop in self.shares), default=1) if self.one_by_one else 1
        return MemoryLayout(self.num_envs, self.shares, observations, actions, ring)


def usable_cpus() -> int:
    """Return how many CPUs this process may use; fewer if the quota of a container gives it the time of fewer."""
    allowed = len(pinning.allowed() or ()) or os.cpu_count() or 1
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota.cpus)))


def divide(
    num_envs: int,
    processes: int | None = None,
    *,
    caller_steps: bool = True,
    cpus: Sequence[int] | None = None,
    spin: float | None = None,
    one_by_one: bool = False,
    available: int | None = None,
) -> Division:
    """Return a division: by default a process for each CPU in ``cpus`` or, without, for each that may be used.

    ``spin`` is in microseconds. By default it is 0 if there are more processes than ``available`` CPUs, since a process
    that polls would take the CPU from one that works. Raises ValueError if a process has no CPU in ``cpus``.
    """
    count = max(1, min(num_envs, processes or (len(cpus) if cpus else usable_cpus())))
    if cpus is not None and len(cpus) < count:
        raise ValueError(f"cpus must name a CPU for each of {count} processes, not {len(cpus)}")
    if spin is not None:
        spin_ns = int(spin * 1000)
    else:
        available = available or (len(set(cpus)) if cpus else usable_cpus())
        crowded = count + (not caller_steps) > available
        spin_ns = 0 if crowded else MOST_SPIN_NS
    return Division(num_envs, count, caller_steps, tuple(cpus or ()), spin_ns, one_by_one)


# Two lines of 64 bytes, since Intel's prefetcher fetches them in pairs. Apple's lines have 128 bytes.
LINE = 128
_PAGE = 4096
_WORD = 8


def _whole(size: int, unit: int) -> int:
    """Return the least multiple of ``unit`` that is no less than ``size``."""
    return -(-size // unit) * unit


class RowArrays(NamedTuple):
    """The arrays of some environments, with a row for each."""

    observations: tuple[NDArray[Any], ...]  # a leaf each: ``(rows, *leaf.shape)``
    rewards: NDArray[np.float64]  # ``(rows,)``, as the ends
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    actions: tuple[NDArray[Any], ...]

    def rows(self, start: int, stop: int) -> RowArrays:
        """Return views of the rows from ``start`` up to ``stop``."""
        return RowArrays._make(trees.part(each, slice(start, stop)) for each in self)


class Words(NamedTuple):
    """The words that the caller and one worker show each other, as in ``handshake``."""

    request: memoryview  # how many entries the caller has made
    done: memoryview  # how many of them the worker has answered
    asleep: memoryview  # whether the worker is asleep
    entries: memoryview  # a ring of requests
    remarks: memoryview  # a ring: how many bytes the worker's remark on each entry has


@dataclass(frozen=True)
class MemoryLayout:
    """Where everything is, for environments that are divided among workers."""

    num_envs: int
    shares: tuple[tuple[int, int], ...]  # of each worker: its first environment, and the one after its last
    observations: tuple[ArraySpec, ...]
    actions: tuple[ArraySpec, ...]
    ring: int = 1  # places in each ring

    @property
    def _of_worker(self) -> int:
        """Bytes of the words of one worker: a line for each of three words, and whole lines for each ring."""
        return 3 * LINE + 2 * _whole(_WORD * self.ring, LINE)

    @property
    def _leaves(self) -> tuple[list[tuple[ArraySpec, int]], int]:
        """The arrays, each with its offset, and where the last ends."""
        leaves, end = [], LINE + self._of_worker * len(self.shares)
        large = (*self.observations, *self.actions)
        units = [(leaf, _PAGE if leaf.nbytes(self.num_envs) >= _PAGE else LINE) for leaf in large]
        # Rewards and ends lie together: for few environments they then travel between two CPUs in a single line.
        flag = ArraySpec((), np.dtype(np.bool_))
        units += [(ArraySpec((), np.dtype(np.float64)), LINE), (flag, 1), (flag, 1)]
        for leaf, unit in units:
            offset = _whole(end, unit)
            leaves.append((leaf, offset))
            end = offset + leaf.nbytes(self.num_envs)
        return leaves, end

    @property
    def size(self) -> int:
        """Bytes needed in all, whole pages."""
        return _whole(self._leaves[1], _PAGE)

    def first_place(self, worker: int) -> int:
        """Return the place of the remark on the first entry of a worker's ring; those on others follow."""
        return 1 + worker * self.ring

    @staticmethod
    def caller_words(memory: mmap.mmap) -> tuple[memoryview, memoryview]:
        """Return the word that says whether the caller is asleep, and the length of the message to all workers.

        The length shares the line: it is seldom written, and never polled.
        """
        words = memoryview(memory)[: 2 * _WORD].cast("q")
        return words[:1], words[1:]

    def words(self, memory: mmap.mmap, worker: int) -> Words:
        """Return the words of one worker."""
        start, ring = LINE + worker * self._of_worker, _whole(_WORD * self.ring, LINE)
        view = memoryview(memory)

        def words(offset: int, count: int = 1) -> memoryview:
            return view[start + offset : start + offset + _WORD * count].cast("q")

        rings = words(3 * LINE, self.ring), words(3 * LINE + ring, self.ring)
        return Words(words(0), words(LINE), words(2 * LINE), *rings)

    def arrays(self, memory: mmap.mmap) -> RowArrays:
        """Return the arrays of all environments. They keep the memory mapped for as long as they are used."""
        count = self.num_envs
        arrays = [
            np.frombuffer(memory, leaf.dtype, count * math.prod(leaf.shape), offset).reshape(count, *leaf.shape)
            for leaf, offset in self._leaves[0]
        ]
        split, (rewards, terminated, truncated) = len(self.observations), arrays[-3:]
        return RowArrays(tuple(arrays[:split]), rewards, terminated, truncated, tuple(arrays[split:-3]))


MESSAGE_PLACE = 0  # the text that all workers read; places of remarks follow: ``MemoryLayout.first_place``
_FAR = 1 << 32  # from one text to the next: bytes of the file that are never written take no memory


class Memory:
    """Zeroed memory without a name: nothing is left of it once no process maps it, however the processes end.

    Forked processes inherit it. A process that is started otherwise gets it among its arguments and maps it then.

    Behind what is mapped, in the same file, there are places for texts. A text stays when it is read, so that it can be
    read again after an interrupt.
    """

    def __init__(self, size: int, file: io.FileIO | None = None) -> None:
        self._file, self._size = file or _nameless_file(), size
        if file is None:
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
        """Close the file of the texts. Mapped memory stays for as long as it is used."""
        self._file.close()

    def __reduce__(self) -> tuple[Callable[..., Memory], tuple[object, int]]:
        return _received, (reduction.DupFd(self._file.fileno()), self._size)


def _received(descriptor: Any, size: int) -> Memory:
    return Memory(size, io.FileIO(descriptor.detach(), "r+"))


def _nameless_file() -> io.FileIO:
    if hasattr(os, "memfd_create"):
        return io.FileIO(os.memfd_create("vebench"), "r+")
    with tempfile.TemporaryFile() as file:  # unlinked as soon as it is made
        return io.FileIO(os.dup(file.fileno()), "r+")
