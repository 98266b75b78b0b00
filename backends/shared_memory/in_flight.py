"""Environments of a team that are asked for one by one, and come back as they become ready."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from vebench.backends.shared_memory.errors import OverdueError, WorkerError, WorkerFailure
from vebench.backends.shared_memory.memory_layout import ThreadedShare
from vebench.backends.shared_memory.team import IDLE, RUNNING, State, Team
from vebench.backends.shared_memory.worker import LOOK_SECONDS


class InFlight:
    """The environments of a team that are asked for one by one.

    The caller steps its own, one at a time, while too few others are ready; or its threads do. Environments come back
    in the order in which the caller sees that they are ready. Each process answers in the order of sending.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._threaded = team.own if isinstance(team.own, ThreadedShare) else None
        self._ready: list[int] = []
        self._remarks: dict[int, Any] = {}  # on the last step of environments, if there is one
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
        team, threaded = self._team, self._threaded
        team.check_free()
        team.state = RUNNING
        if threaded is not None:
            with team.inside:
                team.raise_if_lost()
                refused = threaded.put(env_ids)
            if refused is not None:
                team.state = IDLE
                raise WorkerFailure.of(refused, team.own.current).raised() from refused
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

    def remarks(self, env_id: int) -> Any:
        """Return the remark on an environment that was received, or an empty list."""
        return self._remarks.get(env_id, [])

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
                if self._threaded is None:
                    self._step_or_wait(least, timeout)
                else:
                    self._get(self._threaded, least, timeout)
        except OverdueError:
            team.state = State.LATE
            raise
        except WorkerError:
            team.state = IDLE
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
                self._step_one(self._own.popleft())
            else:
                self._team.wait_for(self._any_answer, deadline, timeout)
            self._take()

    def _take(self) -> None:
        """Count environments as ready whose steps workers have answered. Raises WorkerError if one has failed."""
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

    def _get(self, threaded: ThreadedShare, least: int, timeout: float | None) -> None:
        """Wait until the caller's threads have stepped ``least`` environments."""
        missing = least - len(self._ready)
        if missing > 0:
            env_ids, remarks = threaded.get(missing, timeout)
            if remarks or self._remarks:
                for env_id in env_ids:
                    self._keep(env_id, remarks.get(env_id))
            self._ready.extend(env_ids)
        if self._failed:
            self._raise_failure()
        if len(self._ready) < least:
            raise OverdueError(timeout)

    def _step_one(self, env_id: int) -> None:
        """Step one of the caller's own environments."""
        share = self._team.own
        try:
            remark = share.step_one(env_id)
        except Exception as error:  # noqa: BLE001 - raised when all have answered
            remark = WorkerFailure.of(error, share.current)
        if remark is not None or self._remarks:
            self._keep(env_id, remark)
        self._ready.append(env_id)

    def _keep(self, env_id: int, remark: Any) -> None:
        if remark is None:
            self._remarks.pop(env_id, None)  # on an earlier step
            return
        self._remarks[env_id] = remark
        if type(remark) is WorkerFailure:
            self._failed = True

    def _raise_failure(self) -> None:
        """Raise WorkerError for the first environment that is ready with a failure, which counts as received."""
        for env_id in self._ready:
            failure = self._remarks.get(env_id)
            if type(failure) is WorkerFailure:
                self._ready.remove(env_id)
                self.away[env_id] = 0
                del self._remarks[env_id]
                raise failure.raised()
        self._failed = False
