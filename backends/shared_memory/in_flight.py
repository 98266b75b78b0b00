"""Environments asked for one by one, and returned as they become ready: how a team works asynchronously."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from vebench.backends.shared_memory.errors import OverdueError, WorkerError, WorkerFailure
from vebench.backends.shared_memory.worker import LOOK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.backends.shared_memory.team import Team


class InFlight:
    """The environments of a team that are on their way. Those of one process come back in the order of sending.

    The caller steps those of its own share, one at a time, while too few others are ready. Between processes the order
    is that in which the caller sees them ready; none is passed over by one that was seen later.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._ready: list[int] = []
        self._remarks: dict[int, Any] = {}
        self._own: deque[int] = deque()
        self._next_look = 0.0
        # How to ask for each environment: by its index in the share of its process.
        self._ask: list[tuple[Callable[[int], None], int]] = []
        self._ask.extend((self._own.append, index) for index in range(team.division.own))
        for worker in team.workers:
            self._ask.extend((worker.ask, index) for index in range(worker.stop - worker.start))

    @property
    def waiting(self) -> int:
        """How many environments are asked for or ready."""
        return len(self._ready) + len(self._own) + sum(worker.unread for worker in self._team.workers)

    def send(self, env_ids: Sequence[int]) -> None:
        """Ask for the environments, none of which may be asked for or ready already."""
        for env_id in env_ids:
            ask, index = self._ask[env_id]
            ask(index)
        for worker in self._team.workers:
            worker.notify()

    def recv(self, least: int, most: int, timeout: float | None = None) -> list[int]:
        """Return ids, ``least`` to ``most`` of them, in the order in which they became ready.

        Raises RuntimeError if fewer are on their way, and what ``Team.receive`` raises. What is ready stays so.
        """
        ready, team = self._ready, self._team
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            for worker in team.workers:
                if worker.has_answers():
                    for index, remark in worker.answers():
                        if remark is not None:
                            self._keep(worker.start + index, remark)
                        ready.append(worker.start + index)
            if len(ready) >= least:
                break
            self._step_or_wait(least, deadline, timeout)
        # A worker that dies while others keep the caller busy is never waited for.
        if (now := time.monotonic()) > self._next_look:
            self._next_look = now + LOOK_SECONDS
            team.look()
        if len(ready) <= most:
            self._ready = []
            return ready
        taken = ready[:most]
        del ready[:most]
        return taken

    def remarks(self, env_id: int) -> Any:  # noqa: ANN401 - whatever the share returned
        """Return the remark on an environment that was received, or an empty list, and forget it."""
        return self._remarks.pop(env_id, [])

    def settle(self, timeout: float | None = None) -> None:
        """Wait until all that was asked for is ready."""
        if count := self.waiting:
            self._ready = self.recv(count, count, timeout)

    def put_back(self, env_ids: Sequence[int]) -> None:
        """Let environments that are not on their way count as ready, and no others."""
        self._ready = list(env_ids)
        self._remarks = {}

    def forget(self, env_ids: Sequence[int]) -> None:
        """Let environments that are ready count as received."""
        gone = set(env_ids)
        self._ready = [env_id for env_id in self._ready if env_id not in gone]
        for env_id in gone:
            self._remarks.pop(env_id, None)

    def _step_or_wait(self, least: int, deadline: float | None, timeout: float | None) -> None:
        """Step one of the caller's own environments; or, if none is asked for, wait for an answer of a worker."""
        if deadline is not None and time.monotonic() >= deadline:
            raise OverdueError(timeout)
        if self._own:
            self._step_own()
        elif self.waiting < least:
            raise RuntimeError(f"recv() of {least} environments, but {self.waiting} were sent actions")
        else:
            self._team.wait_for(self._any_answer, deadline, timeout)

    def _any_answer(self) -> bool:
        for worker in self._team.workers:  # noqa: SIM110 - it is polled, and any() of a generator is slower
            if worker.has_answers():
                return True
        return False

    def _step_own(self) -> None:
        env_id, share = self._own[0], self._team.own
        try:
            remark = share.step_one(env_id)
        except Exception as error:  # noqa: BLE001 - described as those of workers are
            remark = WorkerFailure.of(error, 0, share)
        del self._own[0]
        if remark is not None:
            self._keep(env_id, remark)
        self._ready.append(env_id)

    def _keep(self, env_id: int, remark: Any) -> None:  # noqa: ANN401 - whatever the share returned
        if type(remark) is WorkerFailure:
            raise WorkerError(remark.message, remark)
        self._remarks[env_id] = remark
