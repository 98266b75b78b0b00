"""A team of processes that step environments: the caller, like the master thread of an OpenMP team, and its workers."""

from __future__ import annotations

import atexit
import os
import pickle
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from vebench.backends.shared_memory.errors import OverdueError, WorkerError, WorkerFailure
from vebench.backends.shared_memory.handshake import Waiter, light_fence, register
from vebench.backends.shared_memory.memory_layout import Memory
from vebench.backends.shared_memory.worker import LOOK_SECONDS, TeamConfig, make_bell
from vebench.backends.shared_memory.worker_handle import (
    END_WITHIN_SECONDS,
    NOT_YET,
    WorkerHandle,
    bell_pipes,
    start_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Team:
    """The processes that step environments, and the memory that they share.

    Every process is asked first and waited for afterwards, so that all work at the same time. An exception in an
    environment is raised once all have answered, and the team can go on then. If a worker dies, the team can only be
    closed. ``own`` is the caller's own share, which may be empty. ``opened`` is what ``Share.open`` has returned in
    each process, the caller first.
    """

    def __init__(self, config: TeamConfig) -> None:
        self.division = division = config.division
        self._owner = os.getpid()
        self._memory = Memory(config.layout.size)
        self.arrays = config.layout.arrays(self._memory.map)
        self._fence = light_fence()
        self._lost: str | None = None  # how a worker died
        self._answers: list[Any] = []
        self._own_answer: Callable[[], Any] = bool
        self.workers: list[WorkerHandle] = []
        self.own = config.make_share(self.arrays.rows(0, division.own), 0, division.own)
        register()
        *pipes, own_pipe = bell_pipes(len(division.shares) + 1)
        asleep = config.layout.caller_asleep(self._memory.map)
        self._waiter = Waiter(asleep, make_bell(self._memory, asleep, own_pipe), division.spin_ns)
        _living.add(self)
        try:
            for number, pipe in enumerate(pipes):
                self.workers.append(start_worker(config, self._memory, number, pipe, own_pipe))
            self._memory.seal()
            self.send()  # the first entry of each worker means to build its environments
            self.opened = self._gather(self.own.open, None)
        except BaseException:
            self.close()
            raise

    @property
    def sleeps(self) -> int:
        """How often the caller has slept while it waited."""
        return self._waiter.sleeps

    @property
    def next_entry(self) -> int:
        """The number of what the workers are asked for next."""
        return self.workers[0].next_entry if self.workers else 0

    def send(self, entry: int | None = None) -> None:
        """Let every worker step all its environments with the actions in shared memory.

        ``entry`` is ``next_entry`` by default. If an interrupt breaks this off, it can be called again with the same.
        """
        WorkerHandle.step_all(self.workers, self.next_entry if entry is None else entry, self._fence)

    def receive(self, timeout: float | None = None) -> list[Any]:
        """Step the caller's own share, wait for the workers, and return what each share returned, None mostly.

        Raises TimeoutError after ``timeout`` seconds, and can then be called again; WorkerError for an exception in an
        environment or a worker that died. The caller's own share is stepped to the end however long that takes.
        """
        return self._gather(self.own.step, timeout)

    def ask(self, name: str, argument: object) -> None:
        """Send the same request to each share."""
        message = pickle.dumps((name, argument), pickle.HIGHEST_PROTOCOL) if self.workers else b""
        self._own_answer = partial(self.own.answer, name, argument)
        for worker in self.workers:
            worker.ask_message(message)

    def answers(self, timeout: float | None = None) -> list[Any]:
        """Wait for the answers to ``ask`` and return them, the caller's own first. Raises as ``receive`` does."""
        try:
            return self._gather(self._own_answer, timeout)
        finally:
            if not self._answers:  # all have answered, even if with a failure
                for worker in self.workers:
                    worker.ask_for_steps_again()

    def _gather(self, own_answer: Callable[[], Any], timeout: float | None) -> list[Any]:
        """Return the answers of all: that of the caller's own share, ``own_answer()``, and those of the workers."""
        answers = self._answers  # not empty if an earlier call ran out of time
        if not answers:
            try:
                answers.append(own_answer())
            except BaseException as error:
                answers.append(WorkerFailure.of(error, 0, self.own))
                if not isinstance(error, Exception):
                    raise  # an interrupt: if the caller goes on nevertheless, it meets a WorkerError
        if self.workers:
            self._gather_workers(answers, timeout)
        self._answers = []
        for answer in answers:
            if answer is not None and type(answer) is WorkerFailure:
                raise WorkerError(answer.message, answer)
        return answers

    def _gather_workers(self, answers: list[Any], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        for worker in self.workers[len(answers) - 1 :]:
            while (answer := worker.answer()) is NOT_YET:
                self.wait_for(worker.is_done, deadline, timeout)
            answers.append(answer)

    def wait_for(self, changed: Callable[[], bool], deadline: float | None, timeout: float | None) -> None:
        """Wait until ``changed()``. Raises TimeoutError at the deadline, WorkerError once a worker has died."""
        self._raise_if_lost()
        while True:
            left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if self._waiter.wait(changed, min(LOOK_SECONDS, max(0.0, left))):
                return
            self.look(changed)
            if deadline is not None and time.monotonic() >= deadline:
                raise OverdueError(timeout)

    def look(self, changed: Callable[[], bool] = bool) -> None:
        """Raise WorkerError if a worker has died, unless what is waited for has come nevertheless."""
        for worker in self.workers:
            if worker.has_died() and not changed():
                self._lost = worker.cause_of_death()
        self._raise_if_lost()

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise WorkerError(self._lost, None)

    def close(self, within: float = END_WITHIN_SECONDS) -> None:
        """End every worker: by itself within so many seconds, or else by force. A second call does nothing."""
        workers = self.workers
        if self._owner != os.getpid():
            return  # a forked copy: the workers are those of the original
        self.workers = []
        _living.discard(self)
        self._memory.seal()
        try:
            for worker in workers:
                worker.ask_to_end()
            self.own.close()
        finally:
            deadline = time.monotonic() + within
            for worker in workers:
                worker.process.join(max(0.0, deadline - time.monotonic()))
            for worker in workers:
                worker.kill()

    def __del__(self) -> None:
        if hasattr(self, "own"):
            self.close(0.0)


_living: weakref.WeakSet[Team] = weakref.WeakSet()


# Registered after multiprocessing's own, so that it runs before: that one waits for workers however long they take.
@atexit.register
def _close_all() -> None:
    for team in list(_living):
        team.close()
