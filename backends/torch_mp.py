"""``torch-mp``: tensors that torch shares between processes, and two semaphores for each worker, as rlpyt has it."""

from __future__ import annotations

import mmap
import multiprocessing
from typing import TYPE_CHECKING

from vebench.backends.processes import Processes, shared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vebench.backends.environments.spaces import Spaces
    from vebench.backends.interface import Setup
    from vebench.backends.processes import Arrays

_LONGEST = 1 << 16  # bytes of a worker's failure, of which the caller is told no more


class TorchMultiprocessing(Processes):
    """Processes whose rows and actions are tensors of ``torch.multiprocessing``; the caller waits for each in turn."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, _in_tensors, Semaphores)


def _in_tensors(spaces: Spaces, count: int) -> Arrays:
    """Return NumPy's view of tensors in memory that processes share."""
    from torch import from_numpy  # noqa: PLC0415 - imported on use
    from torch import multiprocessing as mp  # noqa: PLC0415 - likewise

    mp.set_sharing_strategy("file_descriptor")  # it has no name that could be left behind

    def shared(array: NDArray[np.generic]) -> NDArray[np.generic]:
        view: NDArray[np.generic] = from_numpy(array).share_memory_().numpy()
        return view

    return shared_by(shared, spaces, count)


class Semaphores:
    """A semaphore to each of ``workers`` and one back. What it is told, and how it failed, is in shared memory.

    Into a pipe a worker could write no more than fits before the caller reads, who may be waiting for another worker.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("fork")
        self._go = [context.Semaphore(0) for _ in range(workers)]
        self._ready = [context.Semaphore(0) for _ in range(workers)]
        self._words = context.Array("q", workers, lock=False)
        self._lengths = context.Array("q", workers, lock=False)  # of the failures in bytes, 0 where there is none
        self._failures = [mmap.mmap(-1, _LONGEST) for _ in range(workers)]
        self._called: list[int] = []

    def call(self, worker: int, word: int) -> None:
        """Tell a worker to go on."""
        self._words[worker] = word
        self._called.append(worker)
        self._go[worker].release()

    def wait(self, worker: int) -> int:
        """Wait for the caller's word, in the worker."""
        self._go[worker].acquire()
        return int(self._words[worker])

    def tell(self, worker: int, failure: str) -> None:
        """Tell the caller that it is done, and how it failed, if it did; in the worker."""
        text = failure.encode(errors="backslashreplace")[:_LONGEST]
        self._failures[worker][: len(text)] = text
        self._lengths[worker] = len(text)
        self._ready[worker].release()

    def told(self, timeout: float) -> tuple[int, str] | None:
        """Wait for the worker that was called first. Returns it, and how it failed; None after ``timeout`` seconds."""
        worker = self._called[0]
        if not self._ready[worker].acquire(timeout=timeout):
            return None
        self._called.pop(0)
        return worker, self._failures[worker][: self._lengths[worker]].decode(errors="replace")  # it may be cut

    def close(self) -> None:
        """Let go of the memory for failures."""
        for failure in self._failures:
            failure.close()
