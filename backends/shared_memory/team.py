"""A team of processes that step environments: the caller, like the master thread of an OpenMP team, and its workers.

``Team`` steps all environments in rounds. ``InFlight`` asks for them one by one.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from multiprocessing import Pipe, process, util
from typing import Any

from vebench.backends.shared_memory import errors
from vebench.backends.shared_memory.errors import OverdueError, WorkerError, WorkerFailure
from vebench.backends.shared_memory.handshake import Waiter, light_fence
from vebench.backends.shared_memory.memory_layout import (
    MESSAGE_PLACE,
    MakeShare,
    Memory,
    MemoryLayout,
    ProcessShare,
)
from vebench.backends.shared_memory.worker import END_WITHIN_SECONDS, LOOK_SECONDS, WorkerHandle, step_all


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

    def __init__(
        self,
        layout: MemoryLayout,
        make_share: MakeShare,
        context: str | None = None,  # the start method; None: Python's default
        *,
        daemon: bool = True,
        name: str = "worker",
    ) -> None:
        self.division = layout.division
        self.owner = os.getpid()
        self.state = IDLE
        # Why nothing can be asked for any more. It is no state: another thread may set it while a call is running.
        self.lost: Exception | None = None
        # The caller's own share, if other threads step it: ``start`` begins a step of all, ``put`` a step of some;
        # ``get`` returns those that are done, and the remarks on them.
        self.threaded: Any = None
        self._request: Callable[[], Any] | None = None  # what a round asks of the caller's own share, if not a step
        self._answers: list[Any] = []  # of the round, the caller's own first
        self.inside = threading.RLock()  # held by the thread that waits for workers, or steps the caller's own share
        self._fence = light_fence()
        self.workers: list[WorkerHandle] = []
        try:
            with errors.held_back():
                self._memory = memory = Memory(layout.size)
                self.arrays = layout.arrays(memory.map)
                self.own = make_share(self.arrays.rows(0, self.division.own), 0, self.division.own)
                # When the team is forgotten or the interpreter exits, before multiprocessing joins the workers.
                self._end = util.Finalize(self, _end, (self.workers, self.own, memory), exitpriority=1)
                _teams.add(self)
                asleep, self._message = layout.caller_words(memory.map)
                pipe, own_pipe = Pipe(duplex=False)
                self._waiter = Waiter(asleep, pipe, self.division.spin_ns)
                for number in range(len(self.division.shares)):
                    options = {"daemon": daemon, "name": f"{name}-{number}"}
                    self.workers.append(WorkerHandle(layout, make_share, memory, number, own_pipe, context, **options))
            self.send()  # the first entry of each worker means to build its environments
            self._request = self.own.open
            self.receive()
            self.threaded = self.own if hasattr(self.own, "start") else None
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
        if self.threaded is not None:
            with self.inside:
                self.raise_if_lost()
                self.threaded.start()

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
        and can then be called again. Raises an environment's exception, after which the round is over, and WorkerError
        for a worker that died.
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
                raise OverdueError(timeout)

    def look(self, changed: Callable[[], bool] = bool) -> None:
        """Raise WorkerError if a worker has died, unless the awaited change has come nevertheless."""
        for worker in self.workers:
            if self.lost is None and worker.has_ended(0.0) and not changed():
                worker.process.join(END_WITHIN_SECONDS)
                code = worker.process.exitcode
                how = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
                self.lost = WorkerError(f"the worker of environments {worker.start} to {worker.stop - 1} died ({how})")
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise ``lost`` if nothing can be asked for any more."""
        if self.lost is not None:
            raise type(self.lost)(*self.lost.args)  # a copy: a traceback that it kept would keep the team

    def check_free(self, *, anew: bool = False) -> None:
        """Raise BrokenOffError unless a call may begin, and ``lost`` if nothing can be asked for any more.

        ``anew``: an aborted call does not count, unless another thread is in it.
        """
        self.raise_if_lost()
        if self.state in _FREE:
            return
        free = False
        if anew:
            with errors.held_back():  # an interrupt would leave it locked
                free = self.inside.acquire(blocking=False)
                if free:
                    self.inside.release()
        if not free:
            raise errors.BrokenOffError

    def close(self, within: float = END_WITHIN_SECONDS) -> None:
        """End every worker, by force after ``within`` seconds or an interrupt.

        A second call completes one that an interrupt has aborted. Another thread that waits for a round gets ``lost``.
        A thread that steps the caller's own share is waited for ``within`` seconds; if it takes longer,
        that share is closed once the team is forgotten.
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
        owner = f"it belongs to process {team.owner}, which created it"
        team.lost = WorkerError(f"{owner}: other processes, even forked, cannot use it")
        for worker in team.workers:
            # Or multiprocessing would end the original's workers when this process exits.
            process._children.discard(worker.process)  # type: ignore[attr-defined]  # noqa: SLF001 - it has no other way


os.register_at_fork(after_in_child=_leave_to_original)


class InFlight:
    """The environments of a team that are asked for one by one.

    The caller steps its own, one at a time, while too few others are ready; or its threads do. Environments come back
    in the order in which the caller sees that they are ready. Each process answers in the order of sending.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._ready: list[int] = []
        self.remarks: dict[int, Any] = {}  # on the last step of environments, if there is one
        self._failed = False  # whether one of the remarks is a failure
        self._own: deque[int] = deque()  # for the caller to step
        self.away = bytearray(team.division.num_envs)  # 1 for each that was asked for and not received since
        self._next_look = 0.0
        # How to ask for each environment: by its index in the share of its process.
        self._ask: list[tuple[Callable[[int], None], int]] = []
        self._ask.extend((self._own.append, index) for index in range(team.division.own))
        for worker in team.workers:
            self._ask.extend((worker.put, index) for index in range(worker.stop - worker.start))

    def send(self, env_ids: Sequence[int]) -> None:
        """Ask for the environments. None may be asked for or ready already."""
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
        """Return ids, ``least`` to ``most`` of them, in the order in which they became ready.

        Leaves the state to ``Team.finish``. Raises RuntimeError if fewer are on their way, and what ``Team.receive``
        raises; environments that are ready stay so.
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
        """Wait until all that was asked for is ready."""
        waiting = self.away.count(1)
        if waiting:
            self._collect(waiting, None)
            self._team.finish()

    def put_back(self, env_ids: Sequence[int], *, ready: bool) -> None:
        """Count environments that were reset as ready or, if not, as received. The round of the reset still runs."""
        self._own.clear()
        of_reset = set(env_ids)
        self._ready = [env_id for env_id in self._ready if env_id not in of_reset]
        self._ready.extend(env_ids if ready else ())
        for env_id in env_ids:
            self.away[env_id] = ready

    def _collect(self, least: int, timeout: float | None) -> None:
        """Go on until ``least`` environments are ready, and leave the state to ``Team.finish``."""
        team = self._team
        team.check_free()
        team.state = RUNNING
        try:
            with team.inside:
                team.raise_if_lost()
                if team.threaded is None:
                    self._step_or_wait(least, timeout)
                else:
                    self._get(team.threaded, least, timeout)
        except OverdueError:
            team.state = State.LATE
            raise

    def _step_or_wait(self, least: int, timeout: float | None) -> None:
        """Step the caller's own environments until ``least`` are ready; if there are none, wait for workers."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._take()
        while len(self._ready) < least:
            if time.monotonic() >= deadline:
                raise OverdueError(timeout)
            self._team.raise_if_lost()
            if self._own:
                env_id, share = self._own.popleft(), self._team.own
                try:
                    remark = share.step_one(env_id)
                except Exception as error:  # noqa: BLE001 - raised when all have answered
                    remark = WorkerFailure.of(error, share.current)
                if remark is not None or self.remarks:
                    self._keep(env_id, remark)
                self._ready.append(env_id)
            else:
                self._team.wait_for(self._any_answer, deadline, timeout)
            self._take()

    def _take(self) -> None:
        """Count environments as ready whose steps workers have answered. Raises the failure if one has failed."""
        for worker in self._team.workers:
            for env_id, remark in worker.answers():
                if remark is not None or self.remarks:
                    self._keep(env_id, remark)
                self._ready.append(env_id)
        if self._failed:
            self._raise_failure()

    def _any_answer(self) -> bool:
        for worker in self._team.workers:  # noqa: SIM110 - it is polled, and any() of a generator is slower
            if worker.has_answers():
                return True
        return False

    def _get(self, threaded: Any, least: int, timeout: float | None) -> None:
        """Wait until the caller's threads have stepped ``least`` environments."""
        missing = least - len(self._ready)
        if missing > 0:
            env_ids, remarks = threaded.get(missing, timeout)
            if remarks or self.remarks:
                for env_id in env_ids:
                    self._keep(env_id, remarks.get(env_id))
            self._ready.extend(env_ids)
        if self._failed:
            self._raise_failure()
        if len(self._ready) < least:
            raise OverdueError(timeout)

    def _keep(self, env_id: int, remark: Any) -> None:
        if remark is None:
            self.remarks.pop(env_id, None)  # on an earlier step
            return
        self.remarks[env_id] = remark
        if type(remark) is WorkerFailure:
            self._failed = True

    def _raise_failure(self) -> None:
        """Raise the failure of the first environment that is ready with one, which counts as received."""
        for env_id in self._ready:
            failure = self.remarks.get(env_id)
            if type(failure) is WorkerFailure:
                self._ready.remove(env_id)
                self.away[env_id] = 0
                del self.remarks[env_id]
                self._team.state = IDLE
                raise failure.raised()
        self._failed = False
