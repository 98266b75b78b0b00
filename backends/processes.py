"""Processes that step shares of the environments in shared memory, as samplers do: ``queue`` and ``torch-mp``.

They differ in how the caller and a worker notify each other (``Bells``).
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import queue
import time
import traceback
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import make
from vebench.backends.for_loop import loop_over
from vebench.backends.interface import Batch, NothingToReceiveError
from vebench.backends.one_in_flight import kill_all, restrict_worker, spaces_of
from vebench.backends.shared_memory.errors import ignore_sigint, sigint_blocked
from vebench.backends.trees import as_rows
from vebench.errors import message_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess
    from multiprocessing.queues import Queue

    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, Setup, Task

# Commands to a worker, besides the seed of a reset.
_STEP, _CLOSE = -1, -2
_LOOK_S = 0.5  # how often the caller looks whether workers are alive
_LONGEST = 1 << 16  # bytes of a worker's failure, more is not reported to the caller of semaphores
_CLOSE_S = 2.0  # a worker may take this long to close its environments before it is killed


class Bells(Protocol):
    """How the caller notifies workers to go on, and they notify it that they are done."""

    def call(self, worker: int, word: int) -> None:
        """Notify a worker to go on: ``_STEP``, ``_CLOSE``, or the seed of a reset."""

    def wait(self, worker: int) -> int:
        """Wait for the caller's word, in the worker."""

    def tell(self, worker: int, failure: str) -> None:
        """Notify the caller, from the worker, that it is done, and how it failed, if it did."""

    def told(self, timeout: float) -> tuple[int, str] | None:
        """Wait for a worker to be done. Returns which one is, and how it failed; None after ``timeout`` seconds."""

    def close(self) -> None:
        """Close what the caller has of them, once no worker is left."""


def _in_memory(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a copy of an array in memory without a name, which forked processes share."""
    shared: NDArray[np.generic] = np.ndarray(array.shape, array.dtype, mmap.mmap(-1, max(1, array.nbytes)))
    shared[...] = array
    return shared


def _in_tensor(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return NumPy's view of a copy in a tensor that processes share."""
    from torch import from_numpy  # noqa: PLC0415 - imported on use
    from torch import multiprocessing as mp  # noqa: PLC0415 - same reason

    mp.set_sharing_strategy("file_descriptor")  # it has no name that could be left behind
    view: NDArray[np.generic] = from_numpy(array).share_memory_().numpy()
    return view


class Processes:
    """``min(workers, CPUs owned)`` forked processes, none of which is the caller. Rewards are float64.

    ``shared`` returns a copy of an array in shared memory, ``bells`` what a number of workers are notified with. After
    ``recv_timeout`` seconds without a whole batch, ``recv`` returns the rows of those workers that are done,
    ``recv_min`` rows at least.
    """

    def __init__(
        self,
        setup: Setup,
        shared: Callable[[NDArray[np.generic]], NDArray[np.generic]],
        bells: Callable[[int], Bells],
        recv_timeout: float | None = None,
        recv_min: int = 1,
    ) -> None:
        if recv_timeout is None and recv_min > 1:
            raise ValueError(f"recv_min={recv_min} needs a recv_timeout: without one, recv waits for the whole batch")
        spaces, count = spaces_of(setup.task), setup.batch_size
        workers = min(setup.workers, len(setup.cpus))
        self._shares = [slice(count * part // workers, count * (part + 1) // workers) for part in range(workers)]
        self._rows = Batch._make(trees.mapped(shared, array) for array in spaces.rows(count))
        like = trees.mapped(lambda space: space.low, spaces.actions)
        actions = trees.mapped(lambda low: shared(np.zeros((count, *low.shape), low.dtype)), like)
        self._actions = as_rows(actions)
        self._bells = bells(workers)
        self._timeout, self._fewest = recv_timeout, min(recv_min, count)
        self._busy: set[int] = set()
        self._done: list[int] = []  # workers, in the order in which they finished
        self._last: list[int] = []  # those that were received last
        self._stepping = self._closed = False
        self.info = spaces.info(
            setup,
            processes=workers,
            in_order=recv_timeout is None,
            reuses_buffers=True,
            fewest_rows=None if recv_timeout is None else self._fewest,
        )
        context, caller = multiprocessing.get_context("fork"), os.getpid()
        self._processes: list[BaseProcess] = []
        try:
            with sigint_blocked():
                for number, share in enumerate(self._shares):
                    own = self._rows.part(share), trees.part(actions, share)
                    cpu = setup.cpus[number] if setup.pinned else None
                    arguments = (setup.task, number, *own, cpu, self._bells, caller)
                    process = context.Process(target=_work, args=arguments, daemon=True)
                    process.start()
                    self._processes.append(process)
        except BaseException:
            self.close()
            raise

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        self._wait_for_all()
        self._done.clear()
        for worker in range(len(self._shares)):
            self._call(worker, seed)
        self._wait_for_all()
        self._stepping = True

    def send(self, actions: ArrayTree) -> None:
        """Write the actions into shared memory, and let those workers step whose rows were received last."""
        given = as_rows(actions)
        first = 0
        for worker in self._last:
            share = self._shares[worker]
            count = share.stop - share.start
            self._actions[share] = given[first : first + count]
            first += count
            self._call(worker, _STEP)
        self._stepping = True

    def recv(self) -> Batch:
        """Return the rows of every worker, in the order of ids, or after the timeout of those that are done.

        Raises RuntimeError with the traceback if an environment raised, and if a worker died.
        """
        if not self._stepping:
            raise NothingToReceiveError
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while self._busy:
            if deadline is None:
                self._wait(None)
            elif (left := deadline - time.monotonic()) > 0:
                self._wait(left)
            elif sum(self._shares[worker].stop - self._shares[worker].start for worker in self._done) < self._fewest:
                self._wait(None)
            else:
                break
        self._stepping = False
        self._last, self._done = sorted(self._done), []
        if len(self._last) == len(self._shares):
            return self._rows
        shares = [self._shares[worker] for worker in self._last]
        return self._rows.part(np.concatenate([np.arange(share.start, share.stop) for share in shares]))

    def close(self) -> None:
        """End every worker: by itself within two seconds, or else by force."""
        if self._closed:
            return
        self._closed, self._stepping = True, False
        for number, process in enumerate(self._processes):
            if process.is_alive():
                self._bells.call(number, _CLOSE)
        until = time.monotonic() + _CLOSE_S
        for process in self._processes:
            process.join(max(0.0, until - time.monotonic()))
        kill_all(self._processes)
        for process in self._processes:
            process.close()
        self._bells.close()
        self._busy.clear()

    def _call(self, worker: int, word: int) -> None:
        self._busy.add(worker)
        self._bells.call(worker, word)

    def _wait_for_all(self) -> None:
        while self._busy:
            self._wait(None)

    def _wait(self, timeout: float | None) -> None:
        """Wait until one more worker is done, for ``timeout`` seconds at most. Raises RuntimeError if one failed."""
        told = self._bells.told(_LOOK_S if timeout is None else min(timeout, _LOOK_S))
        if told is None:
            for worker in self._busy:
                if not self._processes[worker].is_alive():
                    status, share = self._processes[worker].exitcode, self._shares[worker]
                    whose = f"the process of environments {share.start} to {share.stop - 1}"
                    raise RuntimeError(f"{whose} died (exit status {status})")
            return
        worker, failure = told
        self._busy.discard(worker)
        self._done.append(worker)
        if failure:
            raise RuntimeError(failure)


def _work(  # noqa: PLR0913, PLR0917 - all that a worker is given
    task: Task, number: int, rows: Batch, own_actions: ArrayTree, cpu: int | None, bells: Bells, caller: int
) -> None:
    ignore_sigint()
    restrict_worker(cpu, caller)
    actions = as_rows(own_actions)
    environments = []
    loop = None
    while os.getppid() == caller:
        word = bells.wait(number)
        if word == _CLOSE:
            break
        failure = ""
        try:
            if loop is None:
                environments = [make(task) for _ in rows.env_ids]
                loop = loop_over(environments, rows)
            if word == _STEP:
                loop.step(actions.copy())  # an environment may keep its action
            else:
                loop.reset(word)
        except Exception as error:  # noqa: BLE001 - an environment may raise anything; the caller raises it
            failure = f"{message_of(error)}\n{traceback.format_exc()}"
        bells.tell(number, failure)
    for environment in environments:
        environment.close()


class _Queues:
    """A ``multiprocessing.Queue`` to each of ``workers``, and one from all of them."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("fork")
        self._words: list[Queue[int]] = [context.Queue() for _ in range(workers)]
        self._told: Queue[tuple[int, str]] = context.Queue()

    def call(self, worker: int, word: int) -> None:
        self._words[worker].put(word)

    def wait(self, worker: int) -> int:
        return self._words[worker].get()

    def tell(self, worker: int, failure: str) -> None:
        self._told.put((worker, failure))

    def told(self, timeout: float) -> tuple[int, str] | None:
        try:
            return self._told.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        for words in self._words:
            words.close()
            words.join_thread()  # which writes to it
        self._told.close()
        # A queue that this process only reads has no thread to close its descriptors: they go with the queue.
        self._words.clear()
        del self._told


class _Semaphores:
    """A semaphore to each of ``workers`` and one back, as rlpyt has it; words and failures are in shared memory.

    Into a pipe a worker could write no more than fits before the caller reads, who may be waiting for another worker.
    The caller waits for workers in the order in which it has called them.
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
        self._words[worker] = word
        self._called.append(worker)
        self._go[worker].release()

    def wait(self, worker: int) -> int:
        self._go[worker].acquire()
        return int(self._words[worker])

    def tell(self, worker: int, failure: str) -> None:
        text = failure.encode(errors="backslashreplace")[:_LONGEST]
        self._failures[worker][: len(text)] = text
        self._lengths[worker] = len(text)
        self._ready[worker].release()

    def told(self, timeout: float) -> tuple[int, str] | None:
        worker = self._called[0]
        if not self._ready[worker].acquire(timeout=timeout):
            return None
        self._called.pop(0)
        return worker, self._failures[worker][: self._lengths[worker]].decode(errors="replace")  # it may be cut

    def close(self) -> None:
        for failure in self._failures:
            failure.close()


class QueueBackend(Processes):
    """Processes that queues give notice to, and answer the caller by another one.

    ``recv_timeout`` and ``recv_min``: as large-scale samplers use them, to go on with the workers that are done.
    """

    def __init__(self, setup: Setup, *, recv_timeout: float | None = None, recv_min: int = 1) -> None:
        super().__init__(setup, _in_memory, _Queues, recv_timeout, recv_min)


class TorchMultiprocessing(Processes):
    """Processes whose rows and actions are tensors of ``torch.multiprocessing``; the caller waits for each in turn."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, _in_tensor, _Semaphores)
