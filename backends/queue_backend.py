"""``queue``: a ``multiprocessing.Queue`` tells each worker to go on, and another one tells the caller who is done."""

from __future__ import annotations

import multiprocessing
import queue
from typing import TYPE_CHECKING

from vebench.backends.processes import Processes, in_shared_memory

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    from vebench.backends.interface import Setup


class QueueBackend(Processes):
    """Processes whose rows and actions are in shared memory, with queues for notice and answer.

    ``recv_timeout`` and ``recv_min``: as large-scale samplers use them, to go on with the workers that are done.
    """

    def __init__(self, setup: Setup, *, recv_timeout: float | None = None, recv_min: int = 1) -> None:
        super().__init__(setup, in_shared_memory, Queues, recv_timeout, recv_min)


class Queues:
    """A queue to each of ``workers``, and one from all of them."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("fork")
        self._words: list[Queue[int]] = [context.Queue() for _ in range(workers)]
        self._told: Queue[tuple[int, str]] = context.Queue()

    def call(self, worker: int, word: int) -> None:
        """Tell a worker to go on."""
        self._words[worker].put(word)

    def wait(self, worker: int) -> int:
        """Wait for the caller's word, in the worker."""
        return self._words[worker].get()

    def tell(self, worker: int, failure: str) -> None:
        """Tell the caller that it is done, and how it failed, if it did; in the worker."""
        self._told.put((worker, failure))

    def told(self, timeout: float) -> tuple[int, str] | None:
        """Wait for a worker to be done. Returns which one is, and how it failed; None after ``timeout`` seconds."""
        try:
            return self._told.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Close the queues, and end the threads that write to them."""
        for words in self._words:
            words.close()
            words.join_thread()
        self._told.close()
        # A queue that this process only reads has no thread to close its descriptors: they go with the queue.
        self._words.clear()
        del self._told
