"""How environments are divided among the processes of a team, where everything is in their memory, and that memory.

First come the words by which each process shows the others how far it is. A word that one side writes and the other
polls has cache lines of its own: polling would slow down every write to the same line. Then come the arrays: what all
environments observe, their actions, their results.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import ArraySpec
from vebench.backends.shared_memory.handshake import MOST_SPIN_NS
from vebench.machine import pinning
from vebench.machine.sysfs import cpu_quota

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class ProcessShare(Protocol):
    """The environments of one process. What a method returns, its remark, goes to the caller unless it is None."""

    @property
    def current(self) -> int | None:
        """Index within the share of the environment in use now, or last; None if exceptions name their environment."""

    def open(self) -> object:
        """Build every environment."""

    def step(self) -> object:
        """Step every environment with its row of the actions."""

    def step_one(self, index: int) -> object:
        """Step one environment with its row of the actions."""

    def answer(self, name: str, argument: Any) -> object:  # noqa: ANN401 - each request has an argument of its own
        """Do what the request ``name`` asks for."""

    def close(self) -> None:
        """Close every environment."""


# Makes, in its process, the share of environments ``start`` to ``stop - 1`` from their rows; none of them is built yet.
MakeShare = Callable[["RowArrays", int, int], ProcessShare]


def share_out(count: int, processes: int) -> tuple[tuple[int, int], ...]:
    """Return contiguous runs of ``count`` environments, as equal as can be, one for each process: ``(start, stop)``."""
    bounds = [index * count // processes for index in range(processes + 1)]
    return tuple(zip(bounds, bounds[1:], strict=False))  # noqa: RUF007 - pairwise would be no clearer


@dataclass(frozen=True)
class Division:
    """How environments are divided among processes.

    ``processes`` of them step environments, the caller among them if ``caller_steps``. Process ``k`` keeps to
    ``cpus[k]``; but the caller, which is the first if it steps, is not moved. ``spin_ns`` is for how long a process
    that waits polls before it sleeps. ``one_by_one``: environments are asked for singly, not all of a process at once.
    """

    num_envs: int
    processes: int
    caller_steps: bool = True
    cpus: tuple[int, ...] = ()
    spin_ns: int = MOST_SPIN_NS
    one_by_one: bool = False

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


def divide(  # noqa: PLR0913 - what a user can set, by name
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
    that polls would take the CPU from one that works. Raises ValueError for numbers that make no sense.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"num_processes must be 1 or more, not {processes}")
    count = max(1, min(num_envs, processes or (len(cpus) if cpus else usable_cpus())))
    if cpus is not None and len(cpus) < count:
        raise ValueError(f"cpus must name a CPU for each of {count} processes, not {len(cpus)}")
    if spin is not None and spin < 0:
        raise ValueError(f"spin must be 0 microseconds or more, not {spin}")
    available = available or (len(set(cpus)) if cpus else usable_cpus())
    crowded = count + (not caller_steps) > available
    spin_ns = int(spin * 1000) if spin is not None else 0 if crowded else MOST_SPIN_NS
    return Division(num_envs, count, caller_steps, tuple(cpus or ()), spin_ns, one_by_one)


# Two lines of 64 bytes, since Intel's prefetcher fetches them in pairs; Apple's lines have 128 bytes by themselves.
LINE = 128
_PAGE = 4096
_WORD = 8


_RESULTS = (ArraySpec((), np.dtype(np.float64)), ArraySpec((), np.dtype(np.bool_)), ArraySpec((), np.dtype(np.bool_)))


class RowArrays(NamedTuple):
    """The arrays of some environments, a row for each: ``(rows, *leaf.shape)``; results are ``(rows,)``."""

    observations: tuple[NDArray[Any], ...]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    actions: tuple[NDArray[Any], ...]

    def rows(self, start: int, stop: int) -> RowArrays:
        """Return views of the rows from ``start`` up to ``stop``."""
        return RowArrays._make(trees.part(each, slice(start, stop)) for each in self)


class Words(NamedTuple):
    """What the caller and one worker show each other, as in ``handshake``.

    ``request``: how many entries the caller has made; ``done``: how many the worker has answered. ``asleep``: whether
    the worker is. ``entries``: a ring of what the caller asks for. ``remarks``: a ring of how many bytes the worker has
    to say on each entry.
    """

    request: memoryview
    done: memoryview
    asleep: memoryview
    entries: memoryview
    remarks: memoryview


@dataclass(frozen=True)
class MemoryLayout:
    """Where everything is, for environments that are divided among workers.

    Worker ``k`` has the environments ``shares[k][0]`` to ``shares[k][1] - 1``; those before the first share are the
    caller's own. ``ring`` is the number of places in each ring.
    """

    num_envs: int
    shares: tuple[tuple[int, int], ...]
    observations: tuple[ArraySpec, ...]
    actions: tuple[ArraySpec, ...]
    ring: int = 1

    @cached_property
    def _offsets(self) -> tuple[list[int], int]:
        """The offset of each piece, one after another, and where the last ends."""
        sizes = [leaf.nbytes(self.num_envs) for leaf in (*self.observations, *self.actions)]
        offsets, end = [], 0
        for alignment, size in (
            *((LINE, LINE) for _ in range(1 + len(self.shares) * 3)),
            *((LINE, _WORD * self.ring) for _ in range(len(self.shares) * 2)),
            *((_PAGE if size >= _PAGE else LINE, size) for size in sizes),
            # Together: the results of a few environments then travel between two CPUs in a single line.
            *zip((LINE, 1, 1), (leaf.nbytes(self.num_envs) for leaf in _RESULTS), strict=True),
        ):
            offsets.append(-(-end // alignment) * alignment)
            end = offsets[-1] + size
        return offsets, end

    @property
    def size(self) -> int:
        """Bytes needed in all, whole pages."""
        return -(-self._offsets[1] // _PAGE) * _PAGE

    @property
    def places(self) -> int:
        """How many texts there may be at a time: a message to all workers, and a remark for each slot of each ring."""
        return 1 + len(self.shares) * self.ring

    def first_place(self, worker: int) -> int:
        """Return the place of the remark of one worker for the first slot of its ring; those of others follow."""
        return 1 + worker * self.ring

    @staticmethod
    def message(memory: mmap.mmap) -> memoryview:
        """Return the word that says how long the message to all workers is. It is seldom written, and never polled."""
        return memoryview(memory)[_WORD : 2 * _WORD].cast("q")

    def caller_asleep(self, memory: mmap.mmap) -> memoryview:
        """Return the word that says whether the caller is asleep."""
        return memoryview(memory)[0:4].cast("i")

    def words(self, memory: mmap.mmap, worker: int) -> Words:
        """Return the words of one worker."""
        offsets = self._offsets[0]
        request, done, asleep = offsets[1 + 3 * worker : 4 + 3 * worker]
        rings = 1 + 3 * len(self.shares) + 2 * worker
        view = memoryview(memory)

        def words(offset: int, count: int) -> memoryview:
            return view[offset : offset + _WORD * count].cast("q")

        return Words(
            words(request, 1),
            words(done, 1),
            view[asleep : asleep + 4].cast("i"),
            words(offsets[rings], self.ring),
            words(offsets[rings + 1], self.ring),
        )

    def arrays(self, memory: mmap.mmap) -> RowArrays:
        """Return the arrays of all environments. They keep the memory mapped for as long as they are used."""
        offsets = self._offsets[0][1 + 5 * len(self.shares) :]

        def array(leaf: ArraySpec, offset: int) -> NDArray[Any]:
            count = self.num_envs * math.prod(leaf.shape)
            return np.frombuffer(memory, leaf.dtype, count, offset).reshape(self.num_envs, *leaf.shape)

        leaves = (*self.observations, *self.actions, *_RESULTS)
        arrays = [array(leaf, offset) for leaf, offset in zip(leaves, offsets, strict=True)]
        split, (rewards, terminated, truncated) = len(self.observations), arrays[-3:]
        return RowArrays(tuple(arrays[:split]), rewards, terminated, truncated, tuple(arrays[split:-3]))


MESSAGE_PLACE = 0  # the texts of others: ``MemoryLayout.first_place``


class Memory:
    """Zeroed memory without a name: nothing is left of it once no process maps it, however the processes end.

    Forked processes inherit it. A process that is started otherwise gets it among its arguments and maps it then.

    Behind what is mapped, in the same file, there are ``places`` for texts of any length. To read one takes nothing
    away: it can be read again if an interrupt came before it was used. Texts of up to a page are in one area, those of
    up to two in the next, then four, and so on, so that a place and a length say where a text is.
    """

    def __init__(self, size: int, places: int = 1, file: io.FileIO | None = None) -> None:
        self._file, self._size, self._places = file or _nameless_file(), size, places
        number = self._file.fileno()
        if os.fstat(number).st_size < size:
            os.ftruncate(number, size)
        self.map = mmap.mmap(number, size, **_UNTRACKED)

    def write(self, place: int, text: bytes) -> None:
        """Write the text of a place."""
        at, left = self._at(place, len(text)), memoryview(text)
        while left:
            written = os.pwrite(self._file.fileno(), left, at)
            at, left = at + written, left[written:]

    def read(self, place: int, length: int) -> bytes:
        """Return the text of a place."""
        at = self._at(place, length)
        text = os.pread(self._file.fileno(), length, at)
        while len(text) < length:  # a system call handles 2 GiB at most
            if not (more := os.pread(self._file.fileno(), length - len(text), at + len(text))):
                raise EOFError(f"a text of {length} bytes ends after {len(text)}")
            text += more
        return text

    def _at(self, place: int, length: int) -> int:
        most = _PAGE << max(0, (max(1, length) - 1).bit_length() - (_PAGE - 1).bit_length())
        return self._size + self._places * (most - _PAGE) + place * most

    def free_long(self) -> None:
        """Give back the memory of all texts that are longer than a page."""
        os.ftruncate(self._file.fileno(), self._size + self._places * _PAGE)

    def close(self) -> None:
        """Have no texts any more. What is mapped stays for as long as it is used."""
        self._file.close()

    def __reduce__(self) -> tuple[Callable[..., Memory], tuple[object, int, int]]:
        return _enter, (reduction.DupFd(self._file.fileno()), self._size, self._places)


def _enter(descriptor: Any, size: int, places: int) -> Memory:  # noqa: ANN401 - multiprocessing has two classes for it
    return Memory(size, places, io.FileIO(descriptor.detach(), "r+"))


# The map needs no descriptor of its own, as long as Python does not keep one to resize it.
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def _nameless_file() -> io.FileIO:
    if hasattr(os, "memfd_create"):
        return io.FileIO(os.memfd_create("vebench"), "r+")
    with tempfile.TemporaryFile() as file:  # unlinked as soon as it is made
        return io.FileIO(os.dup(file.fileno()), "r+")
