"""A team of processes that step environments: the caller, like the master thread of an OpenMP team, and its workers.

``Team`` steps all environments in rounds. ``InFlight`` requests steps of single environments.

Python runs signal handlers in the main thread, between any two instructions. A handler may raise, as Ctrl-C's does.
The state of the team then stays ``RUNNING``, in which only two calls work: ``close``, and ``ask`` with ``anew``, which
discards earlier requests. Handlers are ``held_back`` while processes and descriptors are opened or closed, which would
leak if an interrupt came before their numbers are stored.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import partial
from multiprocessing import process, util
from typing import Any

from vebench.backends.environments.making import ArraySpec
from vebench.backends.shared_memory.memory_layout import Division, MakeShare, Memory, ProcessShare
from vebench.backends.shared_memory.worker import (
    LOOK_SECONDS,
    MESSAGE,
    Waiter,
    WorkerError,
    WorkerFailure,
    WorkerHandle,
    light_fence,
    step_all,
)

END_WITHIN_SECONDS = 2.0  # seconds that a worker may take to end by itself


class OverdueError(TimeoutError, multiprocessing.TimeoutError):
    """A call did not finish within its timeout. The call goes on, and can be waited for again."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__(f"timed out after {seconds} seconds")


class BrokenOffError(WorkerError):
    """Some environments may not have stepped, or been reset. Reset all of them, or close."""

    def __init__(self) -> None:
        super().__init__(
            "a call of another thread is running, or an interrupt has aborted a call: use one thread at a time; "
            "after an interrupt, only reset() of all environments and close() work"
        )


@contextmanager
def held_back() -> Iterator[list[int]]:
    """Run no signal handler until the end of the block. Then run the handlers of the signals that have come.

    Yields the list to which arriving signals are added. Outside the main thread, Python runs no handlers anyway.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    with ExitStack() as restoring:  # restores all handlers, even if a restored one raises
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                # Register the way back first: the handler may raise between these two lines.
                restoring.callback(signal.signal, number, handler)
                signal.signal(number, lambda signal_number, _frame: came.append(signal_number))
        yield came
    for signal_number in dict.fromkeys(came):
        signal.raise_signal(signal_number)


class State(Enum):
    """The states of a team, from the view of its caller."""

    IDLE = "idle"
    RESET = "reset"  # a reset was requested, and a later call finishes it
    STEP = "step"
    CALL = "call"
    LATE = "late"  # a wait for single environments timed out, and can be repeated
    RUNNING = "running"  # a call is running, or an interrupt has aborted it

    @property
    def pending(self) -> bool:
        """Whether a request waits for its ``..._wait``."""
        return self in (State.RESET, State.STEP, State.CALL)


IDLE, RUNNING = State.IDLE, State.RUNNING  # shortcuts, since a look-up in an enum takes as long as a call


class Team:
    """The processes that step environments, and the memory that they share.

    A *round* asks every process first and waits for all afterwards, so that all work at the same time. An exception in
    an environment is raised once all have answered. The team can then go on. If a worker dies, the team can only be
    closed.
    """

    def __init__(
        self,
        division: Division,
        observations: Sequence[ArraySpec],
        actions: Sequence[ArraySpec],
        make_share: MakeShare,
        context: str | None = None,  # the start method; None: Python's default
        *,
        daemon: bool = True,
        name: str = "worker",
    ) -> None:
        self.division = division
        self.owner = os.getpid()
        self.state = IDLE
        # Why the team can answer no more requests. Not a state, since another thread may set it during a call.
        self.lost: Exception | None = None
        # The caller's own share, if other threads step it. ``start`` begins a step of all environments, ``put`` a step
        # of some. ``get`` returns the environments that are done, and the remarks on them.
        self.threaded: Any = None
        self._request: Callable[[], Any] | None = None  # a round's request to the caller's own share; None: a step
        self._answers: list[Any] = []  # the round's answers, the caller's own first
        self.inside = threading.RLock()  # held by the thread that waits for workers, or steps the caller's own share
        self._fence = light_fence()
        self.workers: list[WorkerHandle] = []
        try:
            with held_back():
                self._memory = memory = Memory(division, observations, actions)
                self.arrays = memory.arrays
                self.own = make_share(self.arrays.rows(0, division.own), 0, division.own)
                # End when the team is forgotten, or when the interpreter exits, before multiprocessing joins workers.
                self._end = util.Finalize(self, _end, (self.workers, self.own, memory), exitpriority=1)
                _teams.add(self)
                pipe, own_pipe = multiprocessing.Pipe(duplex=False)
                self._waiter = Waiter(memory.caller_asleep, pipe, division.spin_ns)
                for number in range(len(division.shares)):
                    options = {"daemon": daemon, "name": f"{name}-{number}"}
                    self.workers.append(WorkerHandle(memory, make_share, number, own_pipe, context, **options))
            self.send()  # with the first entry, each worker builds its environments
            self._request = self.own.open
            self.receive()
            self.threaded = self.own if hasattr(self.own, "start") else None
        except BaseException:
            if hasattr(self, "own"):
                self.close()
            raise

    def send(self) -> None:
        """Begin a round in which every process steps all its environments with the actions in shared memory."""
        if self.state is not IDLE or self.lost is not None:
            self.check_free()
        self.state = RUNNING
        self._request = None
        self._answers = []
        step_all(self.workers, self._fence)
        if self.threaded is not None:
            with self.inside:
                self.raise_if_lost()
                self.threaded.start()

    def ask(self, name: str, argument: object, *, anew: bool = False) -> None:
        """Begin a round with one request to all shares.

        ``anew``: the call may follow an aborted one. Wait for earlier requests, and discard them.
        """
        self.check_free(anew=anew)
        message = pickle.dumps((name, argument), pickle.HIGHEST_PROTOCOL) if self.workers else b""
        self.state = RUNNING
        for worker in self.workers:
            worker.sent = worker.request[0]  # forget entries that the worker was not notified of
            worker.wake()
            self.wait_for(worker.is_done)
        self._memory.write(0, message)
        self._memory.message_length[0] = len(message)
        self._request = partial(self.own.answer, name, argument)
        self._answers = []
        for worker in self.workers:
            worker.ask(MESSAGE)

    def receive(self) -> list[Any]:
        """Wait for the end of the round. Return each share's answer, mostly None. Raises the errors of ``gather``."""
        answers = self.gather()
        self.finish()
        return answers

    def gather(self, timeout: float | None = None) -> list[Any]:
        """Return the answers as ``receive`` does. ``finish`` must set the state.

        Raises TimeoutError after ``timeout`` seconds, and can then be called again. Raises an environment's exception,
        which ends the round. Raises WorkerError if a worker has died.
        """
        answers = self._answers
        with self.inside:
            if not answers:  # the caller always completes its own share
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
                raise OverdueError(timeout)

    def look(self, changed: Callable[[], bool] = bool) -> None:
        """Raise WorkerError if a worker has died, unless ``changed()`` is already true."""
        for worker in self.workers:
            if self.lost is None and worker.has_ended(0.0) and not changed():
                worker.process.join(END_WITHIN_SECONDS)
                code = worker.process.exitcode
                how = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
                self.lost = WorkerError(f"the worker of environments {worker.start} to {worker.stop - 1} died ({how})")
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise ``lost`` if the team can answer no more requests."""
        if self.lost is not None:
            raise type(self.lost)(*self.lost.args)  # a copy, since the original's traceback would refer to the team

    def check_free(self, *, anew: bool = False) -> None:
        """Raise BrokenOffError unless a call may begin. Raise ``lost`` if the team can answer no more requests.

        ``anew``: the call may follow an aborted one, unless another thread is in a call.
        """
        self.raise_if_lost()
        free = self.state is IDLE or self.state is State.LATE
        if anew and not free:
            with held_back():  # an interrupt would leave the lock locked
                free = self.inside.acquire(blocking=False)
                if free:
                    self.inside.release()
        if not free:
            raise BrokenOffError

    def close(self, within: float = END_WITHIN_SECONDS) -> None:
        """End every worker, by force after ``within`` seconds or an interrupt. A second call completes the first.

        A thread that waits for a round raises ``lost``. If another thread steps the caller's own share for longer than
        ``within`` seconds, that share is closed once the team is forgotten.
        """
        if self.owner != os.getpid():
            return  # a forked copy: the workers belong to the original
        self.lost = self.lost or WorkerError("it was closed")
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
    """End all parts of a team."""
    try:
        with held_back():
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
    """Wait until workers end, for ``within`` seconds or until an interrupt. Then kill the others."""
    with held_back() as interrupts:
        until = time.monotonic() + within
        for worker in workers:
            while (left := until - time.monotonic()) > 0 and not interrupts:
                if worker.has_ended(min(left, 0.1)):
                    break
        for worker in workers:
            worker.kill()


_teams: weakref.WeakSet[Team] = weakref.WeakSet()


def _leave_to_original() -> None:
    """Make all teams refuse requests in this forked process, since they are copies."""
    for team in _teams:
        owner = f"it belongs to process {team.owner}, which created it"
        team.lost = WorkerError(f"{owner}: other processes, even forked, cannot use it")
        for worker in team.workers:
            # Otherwise multiprocessing would end the original's workers when this process exits.
            process._children.discard(worker.process)  # type: ignore[attr-defined]  # noqa: SLF001 - no public way


os.register_at_fork(after_in_child=_leave_to_original)


class InFlight:
    """Requests steps of single environments of a team.

    While too few environments are ready, the caller steps its own one at a time, unless its threads do. Environments
    come back in the order in which the caller sees that they are ready. Each process answers in the order of sending.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._ready: list[int] = []
        self.remarks: dict[int, Any] = {}  # remarks on steps, by environment. The receiver of a row takes its remark.
        self._failed: list[int] = []  # ready environments whose remark is a failure
        self._own: deque[int] = deque()  # environments that the caller must step
        self.away = bytearray(team.division.num_envs)  # 1 for each environment requested and not received since
        self._next_look = 0.0
        # For each environment, a function that requests its step, and its index in the share of its process.
        self._ask = [(self._own.append, index) for index in range(team.division.own)]
        for worker in team.workers:
            self._ask += [(worker.put, index) for index in range(worker.stop - worker.start)]

    def send(self, env_ids: Sequence[int]) -> None:
        """Request a step of the environments. None of them may be requested or ready already."""
        team, threaded = self._team, self._team.threaded
        team.check_free()
        team.state = RUNNING
        if threaded is not None:
            with team.inside:
                team.raise_if_lost()
                refused = threaded.put(env_ids)
            if refused is not None:
                team.state = IDLE
                raise WorkerFailure.of(refused, team.own.current).raised()
        for env_id in env_ids:
            if threaded is None:
                ask, index = self._ask[env_id]
                ask(index)
            self.away[env_id] = 1
        for worker in team.workers:
            worker.notify()
        team.state = IDLE

    def recv(self, least: int, most: int, timeout: float | None = None) -> list[int]:
        """Return ``least`` to ``most`` ids, in the order in which the environments became ready.

        ``Team.finish`` must set the state. Raises RuntimeError if fewer were requested, and the errors of ``gather``,
        after which environments that are ready stay ready.
        """
        waiting = self.away.count(1)
        if waiting < least:
            raise RuntimeError(f"recv() of {least} environments, but {waiting} were sent actions")
        self._collect(least, timeout)
        # If a worker dies while others keep the caller busy, no wait would notice.
        now = time.monotonic()
        if now > self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._team.look()
        received = self._ready[:most]
        del self._ready[:most]
        for env_id in received:
            self.away[env_id] = 0
        return received

    def settle(self) -> None:
        """Wait until all requested environments are ready."""
        waiting = self.away.count(1)
        if waiting:
            self._collect(waiting, None)
            self._team.finish()

    def put_back(self, env_ids: Sequence[int], *, ready: bool) -> None:
        """Mark environments that were reset as ready, or else as received. The round of the reset still runs."""
        self._own.clear()
        of_reset = set(env_ids)
        self._failed = [env_id for env_id in self._failed if env_id not in of_reset]
        self._ready = [env_id for env_id in self._ready if env_id not in of_reset]
        self._ready.extend(env_ids if ready else ())
        for env_id in env_ids:
            self.away[env_id] = ready
            self.remarks.pop(env_id, None)

    def _collect(self, least: int, timeout: float | None) -> None:
        """Step own environments, or wait, until ``least`` are ready. ``Team.finish`` must set the state."""
        team = self._team
        team.check_free()
        team.state = RUNNING
        try:
            with team.inside:
                team.raise_if_lost()
                self._step_or_wait(least, timeout)
        except OverdueError:
            team.state = State.LATE
            raise

    def _step_or_wait(self, least: int, timeout: float | None) -> None:
        team, share = self._team, self._team.own
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._take(least, timeout)
        while len(self._ready) < least:
            if time.monotonic() >= deadline:  # a wait would poll for a while
                raise OverdueError(timeout)
            if self._own:
                team.raise_if_lost()
                env_id = self._own.popleft()
                try:
                    remark = share.step_one(env_id)
                except Exception as error:  # noqa: BLE001 - raised when all have answered
                    remark = WorkerFailure.of(error, share.current)
                self._ready.append(env_id)
                self._keep(env_id, remark)
            else:
                team.wait_for(lambda: any(map(WorkerHandle.has_answers, team.workers)), deadline, timeout)
            self._take(least, timeout)

    def _take(self, least: int, timeout: float | None) -> None:
        """Mark environments as ready that workers or threads have stepped, or raise the first failure of a step."""
        team, threaded = self._team, self._team.threaded
        for worker in team.workers:
            for env_id, remark in worker.answers():
                self._ready.append(env_id)
                if remark is not None:
                    self._keep(env_id, remark)
        if threaded is not None and len(self._ready) < least:
            env_ids, remarks = threaded.get(least - len(self._ready), timeout)
            self._ready.extend(env_ids)
            for env_id, remark in remarks.items():
                self._keep(env_id, remark)
        if self._failed:
            env_id = self._failed.pop(0)
            self._ready.remove(env_id)
            self.away[env_id] = 0
            team.state = IDLE
            raise self.remarks.pop(env_id).raised()

    def _keep(self, env_id: int, remark: Any) -> None:
        """Keep the remark on a step, if there is one."""
        if remark is not None:
            self.remarks[env_id] = remark
            if type(remark) is WorkerFailure:
                self._failed.append(env_id)
