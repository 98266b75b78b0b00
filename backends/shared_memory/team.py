"""A team of processes that step environments: the caller, as the master thread of an OpenMP team, and its workers."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pickle
import time
import weakref
from functools import partial
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from vebench.backends.shared_memory.handshake import Waiter, light_fence, register
from vebench.backends.shared_memory.memory_layout import Memory
from vebench.backends.shared_memory.worker import ALL, LOOK_SECONDS, MESSAGE, WorkerFailure
from vebench.backends.shared_memory.worker_handle import GRACE_SECONDS, Starter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.backends.shared_memory.division import Division
    from vebench.backends.shared_memory.memory_layout import Arrays, MemoryLayout
    from vebench.backends.shared_memory.worker import Share
    from vebench.backends.shared_memory.worker_handle import WorkerHandle


class OverdueError(TimeoutError, multiprocessing.TimeoutError):
    """Something was not done in the time given. It goes on, and can be waited for again."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__(f"not done after {seconds} seconds")


class WorkerError(RuntimeError):
    """An environment raised an exception, described by ``failure``, or a process died, and then that is None.

    The text names the environments, and has the traceback if there is one.
    """

    def __init__(self, text: str, failure: WorkerFailure | None) -> None:
        super().__init__(text)
        self.failure = failure


class Team:
    """The processes and the memory they share. ``make_share`` makes the share of each from its rows, first and last id.

    Everything is asked for first and waited for afterwards, so that all processes work meanwhile. An exception in an
    environment is raised once all have answered; the team can go on then. If a worker dies it can only be closed.
    """

    def __init__(  # noqa: PLR0913 - what the start of a process needs, by name
        self,
        division: Division,
        layout: MemoryLayout,
        make_share: Callable[[Arrays, int, int], Share],
        *,
        context: str | None = None,
        daemon: bool = True,
        name: str = "worker",
    ) -> None:
        self.division = division
        self._owner = os.getpid()
        self._memory = Memory(layout.size)
        self.arrays = layout.arrays(self._memory.map)
        self.fence = light_fence()
        self._lost: str | None = None
        self._answers: list[Any] = []
        self._own_answer: Callable[[], Any] = bool
        self.members: list[WorkerHandle] = []
        # It may have no environments.
        self.own = make_share(self.arrays.rows(0, division.own), 0, division.own)
        register()
        asleep = layout.caller_asleep(self._memory.map)
        starter = Starter(division, layout, self._memory, make_share, context, daemon, name)
        self._waiter = Waiter(asleep, starter.bell(asleep, -1), division.spin_ns)
        _living.add(self)
        try:
            for number in range(len(division.shares)):
                self.members.append(starter.start(number))
            self._memory.seal()
            self.send()  # whatever the first entry is, it means to build the environments
            self.opened = self._gather(self.own.open, None)
        except BaseException:
            self.close()
            raise

    @property
    def shares(self) -> int:
        """How many shares there are: the caller's own, be it empty, and one for each worker."""
        return len(self.members) + 1

    @property
    def sleeps(self) -> int:
        """How often the caller has slept while it waited."""
        return self._waiter.sleeps

    def send(self) -> None:
        """Have every environment stepped with what stands in the actions."""
        fence = self.fence
        for member in self.members:
            member.sent = sent = member.sent + 1
            if fence:
                fence()
            member.request[0] = sent
            if member.asleep[0]:
                member.wake()

    def receive(self, timeout: float | None = None) -> list[Any]:
        """Step the caller's own share, wait for the workers, and return what each process remarked, None mostly.

        Raises TimeoutError after ``timeout`` seconds, and can then be called again; WorkerError for an exception in an
        environment or a worker that died. The caller's own share is stepped to the end however long that takes.
        """
        return self._gather(self.own.step, timeout)

    def ask(self, name: str, arguments: Sequence[Any]) -> None:
        """Send a request to each share, its argument with it; the caller's own is the first."""
        messages = [pickle.dumps((name, argument), pickle.HIGHEST_PROTOCOL) for argument in arguments[1:]]
        self._own_answer = partial(self.own.answer, name, arguments[0])
        for member, message in zip(self.members, messages, strict=True):
            member.entries[member.sent % len(member.entries)] = MESSAGE
            member.sent += 1
            member.notify(self.fence)
            # It may be longer than the socket holds: the worker must be reading.
            with contextlib.suppress(OSError):  # if it is gone, who waits for it will say so
                member.channel.send_bytes(message)

    def answers(self, timeout: float | None = None) -> list[Any]:
        """Wait for the answers to ``ask`` and return them. Raises as ``receive`` does."""
        try:
            return self._gather(self._own_answer, timeout)
        finally:
            if not self._answers:  # all have answered, be it with a failure
                for member in self.members:
                    member.entries[0] = ALL  # in a ring of one place it stays

    def _gather(self, do: Callable[[], Any], timeout: float | None) -> list[Any]:
        """Return what the caller's own share answers, which is ``do``, and then what each worker does."""
        answers = self._answers  # not empty if an earlier gathering ran out of time
        if not answers:
            try:
                answers.append(do())
            except BaseException as error:
                answers.append(WorkerFailure.of(error, 0, self.own))
                if not isinstance(error, Exception):
                    raise  # an interrupt: whoever goes on nevertheless is told
        if self.members:
            self._gather_workers(answers, timeout)
        self._answers = []
        for answer in answers:
            if type(answer) is WorkerFailure:
                raise WorkerError(answer.message, answer)
        return answers

    def _gather_workers(self, answers: list[Any], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        fence = self.fence
        for member in self.members[len(answers) - 1 :]:
            if member.done[0] != member.sent:
                self.wait_for(member.is_done, deadline, timeout)
            if fence:
                fence()
            answers.append(self.listen(member) if member.remarks[member.read % len(member.remarks)] else None)
            member.read = member.sent

    def wait_for(self, changed: Callable[[], bool], deadline: float | None, timeout: float | None) -> None:
        """Wait until ``changed()``. Raises TimeoutError at the deadline, WorkerError once a worker has died."""
        self.check()
        while True:
            left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if self._waiter.wait(changed, min(LOOK_SECONDS, max(0.0, left))):
                return
            self.look(changed)
            if deadline is not None and time.monotonic() >= deadline:
                raise OverdueError(timeout)

    def check(self) -> None:
        """Raise WorkerError if a worker is known to be lost."""
        if self._lost is not None:
            raise WorkerError(self._lost, None)

    def look(self, changed: Callable[[], bool] = bool) -> None:
        """Raise WorkerError if a worker has died, unless what is waited for has come all the same."""
        for member in self.members:
            if connection.wait([member.process.sentinel], 0) and not changed():
                self._lost = member.cause_of_death()
        self.check()

    def listen(self, member: WorkerHandle) -> Any:  # noqa: ANN401 - whatever the share answered
        """Return the worker's remark on the entry that is read next."""
        try:
            while not member.channel.poll(LOOK_SECONDS):
                self.look()
            remark = member.channel.recv_bytes()
        except (EOFError, ConnectionError):
            member.process.join(GRACE_SECONDS)
            self._lost = member.cause_of_death()
            raise WorkerError(self._lost, None) from None
        member.remarks[member.read % len(member.remarks)] = 0
        return pickle.loads(remark)  # noqa: S301 - from our own worker

    def close(self, grace: float = GRACE_SECONDS) -> None:
        """End every worker: of itself within ``grace`` seconds, or else by force. A second call does nothing."""
        members = self.members
        if self._owner != os.getpid():
            return  # a forked copy: the workers are those of the original
        self.members = []
        _living.discard(self)
        self._memory.seal()
        try:
            for member in members:
                member.ask_to_end()
            self.own.close()
        finally:
            deadline = time.monotonic() + grace
            for member in members:
                member.process.join(max(0.0, deadline - time.monotonic()))
            for member in members:
                member.process.kill()
                member.process.join()
                with contextlib.suppress(ValueError):  # somebody else has collected its exit status
                    member.process.close()

    def __del__(self) -> None:
        if hasattr(self, "own"):
            self.close(0.0)


_living: weakref.WeakSet[Team] = weakref.WeakSet()


# Registered after multiprocessing's own, so that it comes before: that one waits for workers however long they take.
@atexit.register
def _close_all() -> None:
    for team in list(_living):
        team.close()
