"""A team of processes that step environments: the caller, like the master thread of an OpenMP team, and its workers."""

from __future__ import annotations

import _thread
import atexit
import os
import pickle
import threading
import time
from functools import partial
from itertools import count
from multiprocessing import process
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

from vebench.backends.shared_memory.errors import (
    BrokenOffError,
    IfForgotten,
    OverdueError,
    WorkerError,
    WorkerFailure,
    held_back,
)
from vebench.backends.shared_memory.handshake import Waiter, light_fence, register
from vebench.backends.shared_memory.memory_layout import MESSAGE_PLACE, Memory
from vebench.backends.shared_memory.worker import (
    END_WITHIN_SECONDS,
    LOOK_SECONDS,
    NOT_YET,
    TeamConfig,
    WorkerHandle,
    bell_pipes,
    make_bell,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.backends.shared_memory.memory_layout import ProcessShare


class Team:
    """The processes that step environments, and the memory that they share.

    Every process is asked first and waited for afterwards, so that all work at the same time: that is a round. An
    exception in an environment is raised once all have answered, and the team can go on then. If a worker dies, the
    team can only be closed. ``own`` is the caller's own share, which may be empty. ``opened`` is what ``open`` of each
    share has returned, the caller's first.

    A signal handler may raise between any two lines here, as that of Ctrl-C does. So rounds are numbered. What has been
    done is kept as the number of the last round for which it was done, with one assignment each, and everything between
    two of these can be done again. A round that was broken off is ``busy`` still: ``gather`` finishes it, or
    ``discard`` does. Only a share's step cannot be done again, so that one which was broken off is a BrokenOffError.

    A team that is forgotten instead of closed is ended by force, by a thread.
    """

    def __init__(self, config: TeamConfig) -> None:
        self.division = config.division
        self._owner = os.getpid()
        self.lost: str | None = None  # why nothing can be asked for any more
        self.closed = False
        self._left = False
        self._begun = self._asked = self._own_begun = self._own_done = self._finished = 0  # the last rounds
        self._request: Callable[[], Any] | None = None  # what a round asks of the own share, if not a step
        self._entries: list[int] = []  # then, its number among the entries of each worker
        self._answers: list[Any] = []  # those of the last round, the caller's own first
        self.inside = 0  # the thread that is waiting for workers, or stepping the caller's own share
        self._ending = threading.RLock()
        self._fence = light_fence()
        self.workers: list[WorkerHandle] = []
        register()
        try:
            with held_back():
                self._build(config)
            self.send()  # the first entry of each worker means to build its environments
            self._request = self.own.open
            self.opened = self.gather()
            self.finish()
        except BaseException:
            if hasattr(self, "own"):
                self.close()
            raise

    def _build(self, config: TeamConfig) -> None:
        """Make the memory and start the workers."""
        self._memory = Memory(config.layout.size, config.layout.places)
        self.arrays = config.layout.arrays(self._memory.map)
        self._message = config.layout.message(self._memory.map)
        self.own = config.make_share(self.arrays.rows(0, self.division.own), 0, self.division.own)
        _wait_for_forgotten()  # a process that is forked must not find a lock that one of their threads holds
        self._number = next(_numbers)
        forgotten = (self._number, self._owner, self.workers, self.own, self._memory)
        _living[self._number] = IfForgotten(self, partial(_thread.start_new_thread, _end_forgotten, forgotten))
        *pipes, own_pipe = bell_pipes(len(self.division.shares) + 1)
        asleep = config.layout.caller_asleep(self._memory.map)
        self._waiter = Waiter(asleep, make_bell(self._memory, asleep, own_pipe), self.division.spin_ns)
        for number, pipe in enumerate(pipes):
            self.workers.append(WorkerHandle(config, self._memory, number, pipe, own_pipe))

    # Rounds.

    @property
    def busy(self) -> bool:
        """Whether there is a round that is not over."""
        return self._begun != self._finished

    def send(self) -> None:
        """Begin a round in which every process steps all its environments with the actions in shared memory."""
        if self._begun != self._finished or self.lost is not None:
            self.check_idle()
        self._request = None
        self._begun = number = self._finished + 1
        WorkerHandle.step_all(self.workers, number, self._fence)
        self._asked = number

    def ask(self, name: str, argument: object) -> None:
        """Begin a round in which each share is asked for the same."""
        self.check_idle()
        if self.workers:
            message = pickle.dumps((name, argument), pickle.HIGHEST_PROTOCOL)
            self._memory.write(MESSAGE_PLACE, message)
            self._message[0] = len(message)
        self._entries = [worker.next_entry for worker in self.workers]
        self._request = partial(self.own.answer, name, argument)
        self._begun = self._finished + 1
        self._ask_all()

    def _ask_all(self) -> None:
        """Ask all workers. Some may have been asked already."""
        if self._request is None:
            WorkerHandle.step_all(self.workers, self._begun, self._fence)
        else:
            for worker, entry in zip(self.workers, self._entries, strict=False):
                worker.ask_message(entry)
        self._asked = self._begun

    def receive(self, timeout: float | None = None) -> list[Any]:
        """Wait for the round to be over and return what each share returned, None mostly. Raises as ``gather`` does."""
        answers = self.gather(timeout)
        if self._request is None:
            self._finished = self._begun  # what ``finish`` does, without a call
        else:
            self.finish()
        return answers

    def gather(self, timeout: float | None = None) -> list[Any]:
        """Return what ``receive`` does, and leave the round to ``finish``: until then it can be gathered again.

        Does the caller's own part, to the end however long that takes. Raises TimeoutError after ``timeout`` seconds,
        and can then be called again; WorkerError for an exception in an environment, with which the round is over, or a
        worker that died; BrokenOffError if an interrupt came within the caller's own part: ``discard`` ends that.
        """
        number = self._begun
        self.inside = get_ident()
        try:
            if self._asked != number:
                self._ask_all()
                for worker in self.workers:
                    worker.wake()  # an interrupt may have come before it was rung for
            if self._own_done != number:
                answer: Any
                if self._own_begun == number and self.division.own:
                    answer = _BROKEN_OFF
                else:
                    request = self._request or self.own.step
                    self._own_begun = number
                    try:
                        answer = request()
                    except Exception as error:  # noqa: BLE001 - described as those of workers are
                        answer = WorkerFailure.of(error, 0, self.own)
                self._answers = [answer]
                self._own_done = number
            answers = self._answers
            if self.workers:
                self._gather_workers(answers, timeout)
        finally:
            self.inside = 0
            if self.closed:
                self.leave()
                self.raise_if_lost()
        for answer in answers:
            if answer is not None and type(answer) is WorkerFailure:
                self._raise(answer)
        return answers

    def _raise(self, failure: WorkerFailure) -> NoReturn:
        """Raise the error for a failure, with which the round is over unless an interrupt was its cause."""
        if failure is _BROKEN_OFF:
            raise BrokenOffError(range(self.division.own))
        self.finish()
        self._answers = []
        raise WorkerError(failure.message, failure)

    def _gather_workers(self, answers: list[Any], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        for worker in self.workers[len(answers) - 1 :]:
            while (answer := worker.answer()) is NOT_YET:
                self.wait_for(worker.is_done, deadline, timeout)
            answers.append(answer)

    def finish(self) -> None:
        """End the round."""
        if self._request is not None:
            for worker in self.workers:
                worker.rest()
            self._memory.free_long()
            self._request = None
        self._finished = self._begun

    def discard(self) -> None:
        """End a round that was broken off: wait for the workers, and leave out what the caller has not begun of it."""
        if self._own_done != self._begun:
            self._answers = [None]
            self._own_done = self._begun
        try:
            self.gather()
        except WorkerError:
            if self.lost is not None:
                raise
        self.finish()

    def wait_for(self, changed: Callable[[], bool], deadline: float | None, timeout: float | None) -> None:
        """Wait until ``changed()``. Raises TimeoutError at the deadline, WorkerError once a worker has died."""
        self.raise_if_lost()
        while True:
            left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if self._waiter.wait(changed, min(LOOK_SECONDS, max(0.0, left))):
                return
            self.look(changed)
            if deadline is not None and time.monotonic() >= deadline:
                raise OverdueError(timeout)

    def look(self, changed: Callable[[], bool] = bool) -> None:
        """Raise WorkerError if a worker has died, unless what is waited for has come nevertheless."""
        self.raise_if_lost()
        for worker in list(self.workers):
            if worker.has_ended(0.0) and not changed():
                self.lost = self.lost or worker.cause_of_death()
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise WorkerError if nothing can be asked for any more."""
        if self.lost is not None:
            raise WorkerError(self.lost, None)

    def check_idle(self) -> None:
        """Raise RuntimeError if a round is busy, and WorkerError if nothing can be asked for any more."""
        self.raise_if_lost()
        if self.busy:
            raise RuntimeError("what was asked for before is not over: an interrupt may have broken it off")

    # The end.

    def close(self, within: float = END_WITHIN_SECONDS) -> None:
        """End every worker: by itself ``within`` so many seconds, or else by force; at once after an interrupt.

        A second call does what an interrupt has kept the first from, or nothing. Another thread that is waiting for a
        round gets a WorkerError. One that is stepping the caller's own share is waited for as long; if it takes longer,
        it closes that share itself.
        """
        if self._owner != os.getpid():
            return  # a forked copy: the workers are those of the original
        self.lost = self.lost or "it was closed"
        self.closed = True
        try:
            with held_back():
                for worker in self.workers:
                    worker.ask_to_end()
            until = time.monotonic() + within
            while self.inside not in {0, get_ident()} and time.monotonic() < until:
                time.sleep(0.001)
            if self.inside in {0, get_ident()}:
                self.leave()
        except BaseException:
            within = 0.0
            raise
        finally:
            self._end_workers(within)

    def leave(self) -> None:
        """Let go of what no other thread uses any more. A second call does nothing."""
        self.own.close()
        self._memory.close()
        self._left = True

    @property
    def over(self) -> bool:
        """Whether ``close`` has done all that there is to do."""
        return self._left and not self.workers

    def _end_workers(self, within: float) -> None:
        with held_back() as interrupts:
            until = time.monotonic() + within
            for worker in list(self.workers):
                while (left := until - time.monotonic()) > 0 and not interrupts:
                    if worker.has_ended(min(left, 0.1)):
                        break
            with self._ending:
                while self.workers:
                    self.workers[-1].kill()
                    self.workers.pop()
            if self.over:
                _living.pop(self._number, None)

    def leave_to_original(self) -> None:
        """Refuse everything from now on: this is a copy in a process that was forked."""
        self.lost = (
            f"it belongs to process {self._owner}, which has made it: another process has no part in it, even if forked"
        )
        for worker in self.workers:
            process._children.discard(worker.process)  # type: ignore[attr-defined]  # noqa: SLF001 - ended at exit else

    def __reduce__(self) -> NoReturn:
        raise TypeError("a team of processes cannot be pickled or copied")


_BROKEN_OFF = WorkerFailure(None, None, "", "")  # the answer of the caller's own share if an interrupt came within

_numbers = count()
_living: dict[int, IfForgotten[Team]] = {}  # those that have not ended, by their numbers


def _end_forgotten(number: int, owner: int, workers: list[WorkerHandle], own: ProcessShare, memory: Memory) -> None:
    """End by force what a forgotten team consisted of."""
    try:
        if owner == os.getpid():
            while workers:
                workers[-1].kill()
                workers.pop()
            own.close()
            memory.close()
    finally:
        _living.pop(number, None)


def _wait_for_forgotten(within: float = END_WITHIN_SECONDS) -> None:
    """Wait for the forgotten teams to end, ``within`` seconds at most."""
    until = time.monotonic() + within
    while forgotten := [number for number, team in list(_living.items()) if team() is None]:
        if time.monotonic() > until:
            for number in forgotten:
                _living.pop(number, None)
        time.sleep(0.001)


# Registered after multiprocessing's own, so that it runs before: that one waits for workers however long they take.
@atexit.register
def _close_all() -> None:
    with held_back():
        for living in list(_living.values()):
            if team := living():
                team.close()
        _wait_for_forgotten()


def _leave_all() -> None:
    for living in list(_living.values()):
        if team := living():
            team.leave_to_original()
    _living.clear()


os.register_at_fork(after_in_child=_leave_all)
