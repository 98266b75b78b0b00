"""The usual hand-written vectorisers: ``threads``, ``queue`` and ``torch-mp``. Workers step their shares in a loop."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import queue
import traceback
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.environments.making import CountsInside, make, read_spaces, spaces_of
from vebench.backends.for_loop import EnvironmentLoop
from vebench.backends.interface import Batch, Setup, Task
from vebench.backends.one_in_flight import CLOSE_S, LOOK_S, OneInFlight, RowsOfAll, kill_all
from vebench.backends.shared_memory.worker import ignore_sigint, sigint_blocked
from vebench.backends.trees import Tree
from vebench.errors import message_of
from vebench.machine import kernel

STEP, _CLOSE = -1, -2  # commands to a worker process. Any other number is the seed of a reset.
_FORK = multiprocessing.get_context("fork")


def _shares(setup: Setup) -> list[slice]:
    """Return the rows of each process or thread."""
    count, workers = setup.batch_size, setup.at_once
    return [slice(count * number // workers, count * (number + 1) // workers) for number in range(workers)]


class Threads(CountsInside, OneInFlight):
    """A pool of threads, which overlap while environments release the GIL. Rewards are float64."""

    def __init__(self, setup: Setup) -> None:
        self._task = setup.task
        self._inside = [make(setup.task) for _ in range(setup.batch_size)]
        spaces = read_spaces(setup.task, self._inside[0].observation_space, self._inside[0].action_space)
        self._rows = spaces.rows(setup.batch_size)
        self._shares = _shares(setup)
        self._loops = [EnvironmentLoop(self._inside[share], self._rows.part(share)) for share in self._shares]
        cpus = deque((cpu,) if setup.pinned else () for cpu in islice(cycle(setup.cpus), len(self._shares)))
        self._pool = ThreadPoolExecutor(len(self._shares), initializer=lambda: kernel.restrict(cpus.popleft()))
        self._report(setup, spaces, threads=len(self._shares), reuses_buffers=True)

    def _reset(self, seed: int) -> Tree:
        list(self._pool.map(lambda loop: loop.reset(seed), self._loops))
        return self._rows.observations

    def _send(self, actions: Tree) -> None:
        shares = map(trees.as_rows(actions).__getitem__, self._shares)
        self._steps = [self._pool.submit(loop.step, share) for loop, share in zip(self._loops, shares, strict=True)]

    def _receive(self) -> RowsOfAll:
        for step in self._steps:
            step.result()
        return self._rows[:4]

    def _end(self) -> None:
        self._pool.shutdown()
        while self._inside:
            self._inside.pop().close()


class _QueueSemaphore:
    """A queue with the methods of a semaphore."""

    def __init__(self, _value: int) -> None:
        self._queue = _FORK.Queue()

    def release(self) -> None:
        self._queue.put(None)

    def acquire(self, *, timeout: float | None = None) -> bool:
        try:
            self._queue.get(timeout=timeout)
        except queue.Empty:
            return False
        return True

    def close(self) -> None:
        self._queue.close()
        self._queue.join_thread()


class QueueBackend(OneInFlight):
    """Forked processes that step rows in shared memory, notified by queues. Rewards are float64."""

    semaphore: Any = _QueueSemaphore  # makes a semaphore with a value

    def __init__(self, setup: Setup, **reported: Any) -> None:
        self._shares = _shares(setup)
        spaces, count = spaces_of(setup.task), setup.batch_size
        self._rows = Batch._make(trees.mapped(self._shared, array) for array in spaces.rows(count))
        blank = trees.mapped(lambda space: np.zeros((count, *space.low.shape), space.low.dtype), spaces.actions)
        self._shared_actions = trees.as_rows(trees.mapped(self._shared, blank))
        self._command = _FORK.RawValue("q")
        self._go = [self.semaphore(0) for _ in self._shares]
        self._done = self.semaphore(0)
        self._failures = _FORK.SimpleQueue()
        self._awaited = 0  # workers that have not answered the last call
        self._report(setup, spaces, processes=len(self._shares), reuses_buffers=True, **reported)
        cpus = cycle(setup.cpus if setup.pinned else [None])
        self._processes = [
            _FORK.Process(target=self._work, args=(setup.task, number, next(cpus), os.getpid()), daemon=True)
            for number in range(len(self._shares))
        ]
        with sigint_blocked():
            for process in self._processes:
                process.start()

    @staticmethod
    def _shared(array: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of an array in unnamed memory, which forked processes share."""
        shared: NDArray[Any] = np.ndarray(array.shape, array.dtype, mmap.mmap(-1, max(1, array.nbytes)))
        shared[...] = array
        return shared

    def _reset(self, seed: int) -> Tree:
        self._call(seed)
        self._receive()
        return self._rows.observations

    def _send(self, actions: Tree) -> None:
        self._shared_actions[:] = actions
        self._call(STEP)

    def _call(self, command: int) -> None:
        self._awaited = len(self._shares)
        self._command.value = command
        for go in self._go:
            go.release()

    def _receive(self) -> RowsOfAll:
        while self._awaited:
            if self._done.acquire(timeout=LOOK_S):
                self._awaited -= 1
                continue
            dead = [number for number, process in enumerate(self._processes) if not process.is_alive()]
            if not self._failures.empty():  # checked after ``dead``: a failing worker reports, and then ends
                raise RuntimeError(self._failures.get())
            for number in dead:
                share, status = self._shares[number], self._processes[number].exitcode
                whose = f"the process of environments {share.start} to {share.stop - 1}"
                raise RuntimeError(f"{whose} died (exit status {status})")
        return self._rows[:4]

    def _work(self, task: Task, number: int, cpu: int | None, caller: int) -> None:
        """Step one share of the environments, in its process."""
        ignore_sigint()
        if cpu is not None:
            kernel.restrict((cpu,))
        rows, actions = self._rows.part(self._shares[number]), trees.as_rows(self._shared_actions[self._shares[number]])
        try:
            self._serve(task, rows, actions, self._commands(number, caller))
        except Exception as error:  # noqa: BLE001 - an environment may raise anything
            self._failures.put(f"{message_of(error)}\n{traceback.format_exc()}")

    def _commands(self, number: int, caller: int) -> Iterator[int]:
        """Yield the caller's commands, each once the last one is done: ``STEP``, or the seed of a reset."""
        go = self._go[number]
        while os.getppid() == caller and go.acquire() and (command := self._command.value) != _CLOSE:
            yield command
            self._done.release()

    def _serve(self, task: Task, rows: Batch, actions: Any, commands: Iterator[int]) -> None:
        """Obey the commands: write the rows of a share, stepped with these actions."""
        environments = [make(task) for _ in rows.env_ids]
        try:
            loop = EnvironmentLoop(environments, rows)
            for command in commands:
                if command == STEP:
                    loop.step(actions.copy())  # an environment may keep its action
                else:
                    loop.reset(command)
        finally:
            for environment in environments:
                environment.close()

    def _end(self) -> None:
        if not self._processes:
            return
        self._call(_CLOSE)
        kill_all(self._processes, CLOSE_S)
        self._processes.clear()
        for semaphore in (*self._go, self._done):
            if isinstance(semaphore, _QueueSemaphore):
                semaphore.close()
        del self._go, self._done  # closes the unused ends of queues, too
        self._failures.close()


class TorchMultiprocessing(QueueBackend):
    """Processes whose rows and actions are tensors of ``torch.multiprocessing``, notified by semaphores."""

    semaphore = _FORK.Semaphore

    @staticmethod
    def _shared(array: NDArray[Any]) -> NDArray[Any]:
        """Copy an array into a tensor that processes share. Return the tensor's memory as an array."""
        import torch

        torch.multiprocessing.set_sharing_strategy("file_descriptor")  # leaves no named segment behind
        view: NDArray[Any] = torch.from_numpy(array).share_memory_().numpy()
        return view
