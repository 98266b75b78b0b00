"""A team of processes that step environments: the caller, like the master thread of an OpenMP team, and its workers."""

from __future__ import annotations

import math
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from multiprocessing import Pipe, process, util
from typing import Any

from vebench.backends.shared_memory import errors
from vebench.backends.shared_memory.errors import WorkerFailure
from vebench.backends.shared_memory.handshake import Waiter, light_fence
from vebench.backends.shared_memory.memory_layout import MESSAGE_PLACE, Memory, ProcessShare, ThreadedShare
from vebench.backends.shared_memory.worker import END_WITHIN_SECONDS, LOOK_SECONDS, TeamConfig, WorkerHandle, step_all


class State(Enum):
    """The states of a team, as its caller sees it."""

    IDLE = "idle"
    RESET = "reset"  # asked for; another call is to wait for it
    STEP = "step"
    CALL = "call"
    LATE = "late"  # a wait for single environments timed out, and can be repeated
    RUNNING = "running"  # a call is running, or an interrupt has aborted it


IDLE, RUNNING = State.IDLE, State.RUNNING  # each step needs them, and a look-up in an enum takes as long as a call
_FREE = (State.IDLE, State.LATE)


class Team:
    """The processes that step environments, and the memory that they share.

    A *round* asks every process first and waits for all afterwards, so that all work at the same time. An exception in
    an environment is raised once all have answered, and the team can go on then. If a worker dies, the team can only be
    closed.

    A signal handler may raise between any two lines here, as the one of Ctrl-C does. The state then stays ``RUNNING``,
    in which only ``close`` works, and ``ask`` for a reset ``anew``, which discards earlier requests.
    """

    def __init__(self, config: TeamConfig) -> None:
        self.division = config.division
        self.owner = os.getpid()
        self.state = IDLE
        # Why nothing can be asked for any more. It is no state: another thread may set it while a call is running.
        self.lost: str | None = None
        self._threaded: ThreadedShare | None = None  # the caller's own share, if other threads step it
        self._request: Callable[[], Any] | None = None  # what a round asks of the caller's own share, if not a step
        self._answers: list[Any] = []  # of the round, the caller's own first
        self.inside = threading.RLock()  # held by the thread that waits for workers, or steps the caller's own share
        self._fence = light_fence()
        self.workers: list[WorkerHandle] = []
        try:
            with errors.held_back():
                self._memory = Memory(config.layout.size)
                self.arrays = config.layout.arrays(self._memory.map)
                self.own = config.make_share(self.arrays.rows(0, self.division.own), 0, self.division.own)
                # When the team is forgotten or the interpreter exits, before multiprocessing joins the workers.
                self._end = util.Finalize(self, _end, (self.workers, self.own, self._memory), exitpriority=1)
                _teams.add(self)
                asleep, self._message = config.layout.caller_words(self._memory.map)
                pipe, own_pipe = Pipe(duplex=False)
                self._waiter = Waiter(asleep, pipe, self.division.spin_ns)
                for number in range(len(self.division.shares)):
                    self.workers.append(WorkerHandle(config, self._memory, number, own_pipe))
            self.send()  # the first entry of each worker means to build its environments
            self._request = self.own.open
            self.receive()
            self._threaded = self.own if isinstance(self.own, ThreadedShare) else None
        except BaseException:
            if hasattr(self, "own"):
                self.close()
            raise

    # Rounds.

    def send(self) -> None:
        """Begin a round in which every process steps all its environments with the actions in shared memory."""
        if self.state is not IDLE or self.lost is not None:
            self.check_free()
        self.state = RUNNING
        self._request = None
        self._answers = []
        step_all(self.workers, self._fence)
        if self._threaded is not None:
            with self.inside:
                self.raise_if_lost()
                self._threaded.start()

    def ask(self, name: str, argument: object, *, anew: bool = False) -> None:
        """Begin a round in which each share is asked for the same.

        ``anew``: wait for earlier requests, which may have been aborted, and discard them.
        """
        self.check_free(anew=anew)
        message = pickle.dumps((name, argument), pickle.HIGHEST_PROTOCOL) if self.workers else b""
        self.state = RUNNING
        for worker in self.workers:
            worker.take_back()
            self.wait_for(worker.is_done)
        self._memory.write(MESSAGE_PLACE, message)
        self._message[0] = len(message)
        self._request = partial(self.own.answer, name, argument)
        self._answers = []
        for worker in self.workers:
            worker.ask_message()

    def receive(self, timeout: float | None = None) -> list[Any]:
        """Wait for the round to be over; return what each share returned, mostly None. Raises as ``gather`` does."""
        answers = self.gather(timeout)
        self.finish()
        return answers

    def gather(self, timeout: float | None = None) -> list[Any]:
        """Return what ``receive`` does, and leave the state to ``finish``.

        Does the caller's own part, to the end however long that takes. Raises TimeoutError after ``timeout`` seconds,
        and can then be called again. Raises WorkerError for an exception in an environment, after which the round is
        over, and for a worker that died.
        """
        answers = self._answers
        with self.inside:
            if not answers:
                try:
                    answers.append((self._request or self.own.step)())
                except Exception as error:  # noqa: BLE001 - raised when all have answered
                    answers.append(WorkerFailure.of(error, self.own.current))
            deadline = math.inf if timeout is None else time.monotonic() + timeout
            for worker in self.workers[len(answers) - 1 :]:
                if not worker.is_done():
                    self.wait_for(worker.is_done, deadline, timeout)
                answers.append(worker.answer())
        for answer in answers:
            if type(answer) is WorkerFailure:
                self.finish()
                self._answers = []
                raise answer.raised()
        return answers

    def finish(self) -> None:
        """End the call that is running."""
        if self._request is not None:
            self._memory.free_texts()
            self._request = None
        self.state = IDLE

    def wait_for(self, changed: Callable[[], bool], deadline: float = math.inf, timeout: float | None = None) -> None:
        """Wait until ``changed()``. Raises TimeoutError at the deadline, WorkerError once a worker has died."""
        self.raise_if_lost()
        while not self._waiter.wait(changed, max(0.0, min(LOOK_SECONDS, deadline - time.monotonic()))):
            self.look(changed)
            if time.monotonic() >= deadline:
                raise errors.OverdueError(timeout)

    def look(self, changed: Callable[[], bool] = bool) -> None:
        """Raise WorkerError if a worker has died, unless the awaited change has come nevertheless."""
        for worker in self.workers:
            if self.lost is None and worker.has_ended(0.0) and not changed():
                self.lost = worker.cause_of_death()
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise WorkerError if nothing can be asked for any more."""
        if self.lost is not None:
            raise errors.WorkerError(self.lost)

    def check_free(self, *, anew: bool = False) -> None:
        """Raise BrokenOffError unless a call may begin, and WorkerError if nothing can be asked for any more.

        ``anew``: an aborted call does not count, unless another thread is in it.
        """
        self.raise_if_lost()
        if self.state not in _FREE and not (anew and self._nobody_inside()):
            raise errors.BrokenOffError

    def _nobody_inside(self) -> bool:
        with errors.held_back():  # an interrupt would leave it locked
            free = self.inside.acquire(blocking=False)
            if free:
                self.inside.release()
        return free

    def close(self, within: float = END_WITHIN_SECONDS) -> None:
        """End every worker, by force after ``within`` seconds or an interrupt.

        A second call completes one that an interrupt has aborted. Another thread that waits for a round gets a
        WorkerError. A thread that steps the caller's own share is waited for ``within`` seconds; if it takes longer,
        that share is closed once the team is forgotten.
        """
        if self.owner != os.getpid():
            return  # a forked copy: the workers belong to the original
        self.lost = self.lost or "it was closed"
        if self.inside.acquire(timeout=min(within, threading.TIMEOUT_MAX)):
            try:
                _end(self.workers, self.own, self._memory, within)
            finally:
                self.inside.release()
            self._end.cancel()
        else:
            _kill(self.workers, 0.0)


def _end(
    workers: Sequence[WorkerHandle], own: ProcessShare, memory: Memory, within: float = END_WITHIN_SECONDS
) -> None:
    """End all that a team consists of. A second call completes one that an interrupt has aborted."""
    try:
        with errors.held_back():
            for worker in workers:
                worker.ask_to_end()
        own.close()
        memory.close()
    except BaseException:
        within = 0.0
        raise
    finally:
        _kill(workers, within)


def _kill(workers: Sequence[WorkerHandle], within: float) -> None:
    """Wait until workers end, for ``within`` seconds or until an interrupt; kill the others."""
    with errors.held_back() as interrupts:
        until = time.monotonic() + within
        for worker in workers:
            while (left := until - time.monotonic()) > 0 and not interrupts:
                if worker.has_ended(min(left, 0.1)):
                    break
        for worker in workers:
            worker.kill()


_teams: weakref.WeakSet[Team] = weakref.WeakSet()


def _leave_to_original() -> None:
    """Refuse everything from now on: the teams of a forked process are copies."""
    for team in _teams:
        team.lost = f"it belongs to process {team.owner}, which created it: other processes, even forked, cannot use it"
        for worker in team.workers:
            # Or multiprocessing would end the original's workers when this process exits.
            process._children.discard(worker.process)  # type: ignore[attr-defined]  # noqa: SLF001 - it has no other way


os.register_at_fork(after_in_child=_leave_to_original)
