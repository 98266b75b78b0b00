"""A team of processes that step environments: the caller, like the master thread of an OpenMP team, and its workers."""

from __future__ import annotations

import math
import os
import pickle
import threading
import time
import weakref
from collections import deque
from functools import partial
from multiprocessing import Pipe, process, util
from typing import TYPE_CHECKING, Any

from vebench.backends.shared_memory import errors
from vebench.backends.shared_memory.handshake import Waiter, light_fence
from vebench.backends.shared_memory.memory_layout import MESSAGE_PLACE, Memory
from vebench.backends.shared_memory.worker import END_WITHIN_SECONDS, LOOK_SECONDS, TeamConfig, WorkerHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.backends.shared_memory.memory_layout import ProcessShare


class Team:
    """The processes that step environments, and the memory that they share.

    Every process is asked first and waited for afterwards, so that all work at the same time: that is a round. An
    exception in an environment is raised once all have answered, and the team can go on then. If a worker dies, the
    team can only be closed. ``own`` is the caller's own share, which may be empty.

    A signal handler may raise between any two lines here, as that of Ctrl-C does. What it breaks off stays ``busy``:
    nothing but ``close`` works then, and ``ask`` for a reset ``anew``, which makes an end of whatever was asked for.
    """

    def __init__(self, config: TeamConfig) -> None:
        self.division = config.division
        self.owner = os.getpid()
        self.lost: str | None = None  # why nothing can be asked for any more
        self.closed = False
        self.busy = 0  # the thread that has asked for something, until ``finish`` is called
        self._start: Callable[[], None] | None = None  # begins a step of the own share, if it has threads for that
        self._request: Callable[[], Any] | None = None  # what a round asks of the own share, if not a step
        self._answers: list[Any] = []  # those of the round, the caller's own first
        self.inside = threading.RLock()  # held by the thread that waits for workers, or steps the caller's own share
        self._fence = light_fence()
        self.workers: list[WorkerHandle] = []
        try:
            with errors.held_back():
                self._memory = Memory(config.layout.size)
                self.arrays = config.layout.arrays(self._memory.map)
                self.own = config.make_share(self.arrays.rows(0, self.division.own), 0, self.division.own)
                # When it is forgotten, or the interpreter ends: before workers are waited for however long they take.
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
            self._start = getattr(self.own, "start", None)
        except BaseException:
            if hasattr(self, "own"):
                self.close()
            raise

    # Rounds.

    def send(self) -> None:
        """Begin a round in which every process steps all its environments with the actions in shared memory."""
        if self.busy or self.lost is not None:
            self.check_idle()
        self.busy = threading.get_ident()
        self._request = None
        self._answers = []
        WorkerHandle.step_all(self.workers, self._fence)
        if self._start is not None:
            with self.inside:
                self.raise_if_lost()
                self._start()

    def ask(self, name: str, argument: object, *, anew: bool = False) -> None:
        """Begin a round in which each share is asked for the same.

        ``anew``: whatever was asked for before, and may have been broken off, is waited for and thrown away.
        """
        self.check_idle(anew=anew)
        message = pickle.dumps((name, argument), pickle.HIGHEST_PROTOCOL) if self.workers else b""
        self.busy = threading.get_ident()
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
        """Wait for the round to be over and return what each share returned, None mostly. Raises as ``gather`` does."""
        answers = self.gather(timeout)
        self.finish()
        return answers

    def gather(self, timeout: float | None = None) -> list[Any]:
        """Return what ``receive`` does, and leave the round to ``finish``, until which it counts as broken off.

        Does the caller's own part, to the end however long that takes. Raises TimeoutError after ``timeout`` seconds,
        and can then be called again; WorkerError for an exception in an environment, with which the round is over, or a
        worker that died.
        """
        answers = self._answers
        with self.inside:
            if not answers:
                try:
                    answers.append((self._request or self.own.step)())
                except Exception as error:  # noqa: BLE001 - described as those of workers are
                    answers.append(errors.WorkerFailure.of(error, 0, self.own))
            deadline = math.inf if timeout is None else time.monotonic() + timeout
            for worker in self.workers[len(answers) - 1 :]:
                if not worker.is_done():
                    self.wait_for(worker.is_done, deadline, timeout)
                answers.append(worker.answer())
        for answer in answers:
            if type(answer) is errors.WorkerFailure:
                self.finish()
                self._answers = []
                raise errors.WorkerError(answer.message, answer)
        return answers

    def finish(self) -> None:
        """Let what was asked for be over."""
        if self._request is not None:
            self._memory.free_texts()
            self._request = None
        self.busy = 0

    def wait_for(self, changed: Callable[[], bool], deadline: float = math.inf, timeout: float | None = None) -> None:
        """Wait until ``changed()``. Raises TimeoutError at the deadline, WorkerError once a worker has died."""
        self.raise_if_lost()
        while not self._waiter.wait(changed, max(0.0, min(LOOK_SECONDS, deadline - time.monotonic()))):
            self.look(changed)
            if time.monotonic() >= deadline:
                raise errors.OverdueError(timeout)

    def look(self, changed: Callable[[], bool] = bool) -> None:
        """Raise WorkerError if a worker has died, unless what is waited for has come nevertheless."""
        for worker in self.workers:
            if self.lost is None and worker.has_ended(0.0) and not changed():
                self.lost = worker.cause_of_death()
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise WorkerError if nothing can be asked for any more."""
        if self.lost is not None:
            raise errors.WorkerError(self.lost, None)

    def check_idle(self, *, anew: bool = False) -> None:
        """Raise BrokenOffError if the team is busy, and WorkerError if nothing can be asked for any more.

        With ``anew``, an unfinished round is allowed, unless another thread waits for it.
        """
        self.raise_if_lost()
        if self.busy and not (anew and self._can_begin_anew()):
            raise errors.BrokenOffError(here=self.busy == threading.get_ident())

    def _can_begin_anew(self) -> bool:
        with errors.held_back():  # an interrupt would leave it locked
            free = self.inside.acquire(blocking=False)
            if free:
                self.inside.release()
        return free

    def close(self, within: float = END_WITHIN_SECONDS) -> None:
        """End every worker, and kill those that do not end ``within`` seconds; all at once after an interrupt.

        A second call does what an interrupt has kept the first from, or nothing. Another thread that is waiting for a
        round gets a WorkerError. One that is stepping the caller's own share is waited for as long; if it takes longer,
        that share is closed once the team is forgotten.
        """
        if self.owner != os.getpid():
            return  # a forked copy: the workers are those of the original
        self.lost = self.lost or "it was closed"
        self.closed = True
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
    """End what a team consists of. A second call does what an interrupt has kept the first from."""
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
    """Wait until workers end, for so many seconds or an interrupt, and end those that do not by force."""
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
    """Refuse everything from now on: these are copies in a process that was forked."""
    for team in _teams:
        team.lost = f"it belongs to process {team.owner}, which created it: other processes, even forked, cannot use it"
        for worker in team.workers:
            process._children.discard(worker.process)  # type: ignore[attr-defined]  # noqa: SLF001 - ended at exit else


os.register_at_fork(after_in_child=_leave_to_original)


class InFlight:
    """The environments of a team that are asked for one by one. Those of one process come back in the order of sending.

    The caller steps those of its own share, one at a time, while too few others are ready. Between processes the order
    is that in which the caller sees them ready; none is passed over by one that was seen later.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._ready: list[int] = []
        self._remarks: dict[int, Any] = {}
        self._failed = False  # whether one of the remarks is on a failure
        self._own: deque[int] = deque()
        self.away = bytearray(team.division.num_envs)  # 1 for each that was asked for and not received since
        self._next_look = 0.0
        # How to ask for each environment: by its index in the share of its process.
        self._ask: list[tuple[Callable[[int], None], int]] = []
        self._ask.extend((self._own.append, index) for index in range(team.division.own))
        for worker in team.workers:
            self._ask.extend((worker.put, index) for index in range(worker.stop - worker.start))

    def send(self, env_ids: Sequence[int]) -> None:
        """Ask for the environments, none of which may be asked for or ready already."""
        team = self._team
        team.check_idle()
        team.busy = threading.get_ident()
        for env_id in env_ids:
            ask, index = self._ask[env_id]
            ask(index)
            self.away[env_id] = 1
        for worker in team.workers:
            worker.notify()
        team.busy = 0

    def recv(self, least: int, most: int, timeout: float | None = None) -> list[int]:
        """Return ids, ``least`` to ``most`` of them, in the order in which they became ready.

        Leaves the rest to ``Team.finish``, until which it counts as broken off. Raises RuntimeError if fewer are on
        their way, and what ``Team.receive`` raises: what is ready stays so.
        """
        if (waiting := self.away.count(1)) < least:
            raise RuntimeError(f"recv() of {least} environments, but {waiting} were sent actions")
        self._collect(least, timeout)
        # A worker that dies while others keep the caller busy is never waited for.
        if (now := time.monotonic()) > self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._team.look()
        received = self._ready[:most]
        del self._ready[:most]
        for env_id in received:
            self.away[env_id] = 0
        return received

    def remarks(self, env_id: int) -> Any:  # noqa: ANN401 - whatever the share returned
        """Return the remark on an environment that was received, or an empty list."""
        return self._remarks.get(env_id, [])

    def settle(self) -> None:
        """Wait until all that was asked for is ready."""
        if waiting := self.away.count(1):
            self._collect(waiting, None)
            self._team.finish()

    def put_back(self, env_ids: Sequence[int], *, ready: bool) -> None:
        """Let these environments count as ready or, if not, as received, after a reset and while its round is busy."""
        self._own.clear()
        of_reset = set(env_ids)
        self._ready = [env_id for env_id in self._ready if env_id not in of_reset]
        self._ready.extend(env_ids if ready else ())
        for env_id in env_ids:
            self.away[env_id] = ready

    def _collect(self, least: int, timeout: float | None) -> None:
        """Go on until as many environments are ready, and leave the team busy."""
        team = self._team
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        team.check_idle()
        team.busy = threading.get_ident()
        try:
            with team.inside:
                self._take()
                while len(self._ready) < least:
                    self._step_or_wait(deadline, timeout)
                    self._take()
        except (errors.OverdueError, errors.WorkerError):
            team.busy = 0
            raise

    def _take(self) -> None:
        """Let environments be ready whose steps were answered. Raises WorkerError if one of them has failed."""
        for worker in self._team.workers:
            for env_id, remark in worker.answers():
                if remark is not None or self._remarks:
                    self._keep(env_id, remark)
                self._ready.append(env_id)
        if self._failed:
            self._raise_failure()

    def _any_answer(self) -> bool:
        for worker in self._team.workers:  # noqa: SIM110 - it is polled, and any() of a generator is slower
            if worker.has_answers():
                return True
        return False

    def _step_or_wait(self, deadline: float, timeout: float | None) -> None:
        """Step one of the caller's own environments; or, if none is asked for, wait for an answer of a worker."""
        if time.monotonic() >= deadline:
            raise errors.OverdueError(timeout)
        self._team.raise_if_lost()
        if not self._own:
            self._team.wait_for(self._any_answer, deadline, timeout)
            return
        env_id, share = self._own.popleft(), self._team.own
        try:
            remark = share.step_one(env_id)
        except Exception as error:  # noqa: BLE001 - described as those of workers are
            remark = errors.WorkerFailure.of(error, 0, share)
        if remark is not None or self._remarks:
            self._keep(env_id, remark)
        self._ready.append(env_id)

    def _keep(self, env_id: int, remark: Any) -> None:  # noqa: ANN401 - whatever the share returned
        if remark is None:
            self._remarks.pop(env_id, None)  # that of an earlier step
            return
        self._remarks[env_id] = remark
        if type(remark) is errors.WorkerFailure:
            self._failed = True

    def _raise_failure(self) -> None:
        """Raise WorkerError for the first environment that is ready with a failure, which counts as received."""
        for env_id in self._ready:
            failure = self._remarks.get(env_id)
            if type(failure) is errors.WorkerFailure:
                self._ready.remove(env_id)
                self.away[env_id] = 0
                del self._remarks[env_id]
                raise errors.WorkerError(failure.message, failure)
        self._failed = False
