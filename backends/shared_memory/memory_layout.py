"""Where everything is in the memory that the processes of one team share, and that memory itself.

First come the words by which each process shows the others how far it is. A word that one side writes and the other
polls has cache lines of its own: polling would slow down every write to the same line. Then come the arrays: what all
environments observe, their actions, their results.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

# Two lines of 64 bytes, since Intel's prefetcher fetches them in pairs; Apple's lines have 128 bytes by themselves.
LINE = 128
PAGE = 4096
WORD = 8


class Leaf(NamedTuple):
    """One array of what an environment observes, or takes as its action: the shape and type for one environment."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def nbytes(self, count: int) -> int:
        """Return the size of this leaf for ``count`` environments, in bytes."""
        return count * math.prod(self.shape) * self.dtype.itemsize


class Arrays(NamedTuple):
    """The arrays of some environments, a row for each: ``(rows, *leaf.shape)``; results are ``(rows,)``."""

    observations: tuple[NDArray[Any], ...]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    actions: tuple[NDArray[Any], ...]

    def rows(self, start: int, stop: int) -> Arrays:
        """Return views of the rows from ``start`` up to ``stop``."""
        return Arrays(
            tuple(leaf[start:stop] for leaf in self.observations),
            self.rewards[start:stop],
            self.terminated[start:stop],
            self.truncated[start:stop],
            tuple(leaf[start:stop] for leaf in self.actions),
        )


class Words(NamedTuple):
    """What the caller and one worker show each other, by ``request`` and ``done`` as in ``handshake``.

    ``request``: entries that the caller has made; ``done``: entries that the worker has answered. ``asleep``: whether
    the worker is asleep, for the futex. ``entries``: a ring of what the caller asks for. ``remarks``: a ring beside it,
    1 where something about that entry follows on the channel; the worker sets it and the caller clears it.
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
    observations: tuple[Leaf, ...]
    actions: tuple[Leaf, ...]
    ring: int = 1

    @cached_property
    def _offsets(self) -> tuple[tuple[int, ...], int]:
        return _stack(
            (
                *((LINE, LINE) for _ in range(1 + len(self.shares) * 3)),
                *((LINE, WORD * self.ring) for _ in range(len(self.shares) * 2)),
                *(
                    (PAGE if leaf.nbytes(self.num_envs) >= PAGE else LINE, leaf.nbytes(self.num_envs))
                    for leaf in self._leaves
                ),
                # Together: the results of a few environments then travel between two CPUs in a single line.
                (LINE, 8 * self.num_envs),
                (1, self.num_envs),
                (1, self.num_envs),
            )
        )

    @property
    def _leaves(self) -> tuple[Leaf, ...]:
        return self.observations + self.actions

    @property
    def size(self) -> int:
        """Bytes needed in all, whole pages."""
        return -(-self._offsets[1] // PAGE) * PAGE

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
            return view[offset : offset + WORD * count].cast("q")

        return Words(
            words(request, 1),
            words(done, 1),
            view[asleep : asleep + 4].cast("i"),
            words(offsets[rings], self.ring),
            words(offsets[rings + 1], self.ring),
        )

    def arrays(self, memory: mmap.mmap) -> Arrays:
        """Return the arrays of all environments. They keep the memory mapped for as long as they are used."""
        offsets = self._offsets[0][1 + 5 * len(self.shares) :]

        def array(leaf: Leaf, offset: int) -> NDArray[Any]:
            count = self.num_envs * math.prod(leaf.shape)
            return np.frombuffer(memory, leaf.dtype, count, offset).reshape(self.num_envs, *leaf.shape)

        leaves = tuple(array(leaf, offset) for leaf, offset in zip(self._leaves, offsets, strict=False))
        real, flag = Leaf((), np.dtype(np.float64)), Leaf((), np.dtype(np.bool_))
        results = [array(leaf, at) for leaf, at in zip((real, flag, flag), offsets[-3:], strict=True)]
        split = len(self.observations)
        return Arrays(leaves[:split], results[0], results[1], results[2], leaves[split:])


def _stack(pieces: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], int]:
    """Return the offset of each piece, one after another, and where the last ends. A piece: its alignment and size."""
    offsets, end = [], 0
    for alignment, size in pieces:
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + size
    return tuple(offsets), end


class Memory:
    """Zeroed memory without a name: nothing is left of it once no process maps it, however the processes end.

    Forked processes inherit it. A process that is started otherwise gets it among its arguments and maps it then. None
    can any more once ``seal`` was called.
    """

    def __init__(self, size: int) -> None:
        self._descriptor = _nameless_file()
        os.ftruncate(self._descriptor, size)
        self.map = mmap.mmap(self._descriptor, size)

    def seal(self) -> None:
        """Let no more processes in."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = -1

    def __reduce__(self) -> tuple[Callable[..., Memory], tuple[object, int]]:
        return _enter, (reduction.DupFd(self._descriptor), len(self.map))


def _enter(descriptor: Any, size: int) -> Memory:  # noqa: ANN401 - multiprocessing has two classes for it
    memory = Memory.__new__(Memory)
    memory._descriptor = descriptor.detach()  # noqa: SLF001 - this is the other half of its constructor
    memory.map = mmap.mmap(memory._descriptor, size)  # noqa: SLF001 - likewise
    memory.seal()
    return memory


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("vebench")
    with tempfile.TemporaryFile() as file:  # unlinked as soon as it is made
        return os.dup(file.fileno())
