"""Environments asked for one by one, and returned as they become ready: how a team works asynchronously."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from vebench.backends.shared_memory.team import OverdueError, Team, WorkerError
from vebench.backends.shared_memory.worker import LOOK_SECONDS, WorkerFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.backends.shared_memory.worker_handle import WorkerHandle


class InFlight:
    """The environments of a team on their way. Those of one process come back in the order in which they were sent.

    The caller steps those of its own share, one at a time, while too few others are ready. Between processes the order
    is that in which the caller sees them ready; none is passed over by one that was seen later.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._ready: list[int] = []
        self._remarks: dict[int, Any] = {}
        self._own: deque[int] = deque()
        self._next_look = 0.0
        own = team.division.own
        self._place: list[tuple[WorkerHandle | None, int]] = [(None, index) for index in range(own)]
        for member in team.members:
            self._place.extend((member, index) for index in range(member.stop - member.start))

    @property
    def waiting(self) -> int:
        """How many environments are asked for or ready."""
        return len(self._ready) + len(self._own) + sum(len(member.stepping) for member in self._team.members)

    def send(self, env_ids: Sequence[int]) -> None:
        """Ask for the environments, none of which may be asked for or ready already."""
        place, own = self._place, self._own
        for env_id in env_ids:
            member, index = place[env_id]
            if member is None:
                own.append(env_id)
            else:
                member.entries[member.sent % len(member.entries)] = index
                member.sent += 1
                member.stepping.append(env_id)
        for member in self._team.members:
            if member.request[0] != member.sent:
                member.notify(self._team.fence)

    def recv(self, least: int, most: int, timeout: float | None = None) -> list[int]:
        """Return ids, ``least`` of them or more and ``most`` at most, those first that were ready first.

        Raises RuntimeError if fewer are on their way, and what ``Team.receive`` raises. What is ready stays so.
        """
        ready, team, own = self._ready, self._team, self._own
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            for member in team.members:
                if member.done[0] != member.read:
                    self._harvest(member)
            if len(ready) >= least:
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise OverdueError(timeout)
            if own:
                self._step_own()
            elif self.waiting < least:
                raise RuntimeError(f"recv() of {least} environments, but {self.waiting} were sent actions")
            else:
                team.wait_for(self._any_done, deadline, timeout)
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

    def remarks(self, env_id: int) -> Any:  # noqa: ANN401 - whatever the share remarked
        """Return what was remarked on an environment that was received, or an empty list, and forget it."""
        return self._remarks.pop(env_id, [])

    def settle(self, timeout: float | None = None) -> None:
        """Wait until all that was asked for is ready."""
        if count := self.waiting:
            self._ready = self.recv(count, count, timeout)

    def put_back(self, env_ids: Sequence[int]) -> None:
        """Have environments that are not on their way count as ready, and no others."""
        self._ready = list(env_ids)
        self._remarks = {}

    def forget(self, env_ids: Sequence[int]) -> None:
        """Have environments that are ready count as received."""
        gone = set(env_ids)
        self._ready = [env_id for env_id in self._ready if env_id not in gone]
        for env_id in gone:
            self._remarks.pop(env_id, None)

    def _any_done(self) -> bool:
        return any(member.done[0] != member.read for member in self._team.members)

    def _harvest(self, member: WorkerHandle) -> None:
        done = member.done[0]
        if self._team.fence:
            self._team.fence()
        ring = len(member.remarks)
        while member.read != done:
            env_id = member.stepping[0]
            remark = self._team.listen(member) if member.remarks[member.read % ring] else None
            member.read += 1
            del member.stepping[0]
            self._finish(env_id, remark)

    def _step_own(self) -> None:
        env_id, share = self._own[0], self._team.own
        try:
            remark = share.step_one(env_id)
        except Exception as error:  # noqa: BLE001 - described as those of workers are
            remark = WorkerFailure.of(error, 0, share)
        del self._own[0]
        self._finish(env_id, remark)

    def _finish(self, env_id: int, remark: Any) -> None:  # noqa: ANN401 - whatever the share remarked
        if type(remark) is WorkerFailure:
            raise WorkerError(remark.message, remark)
        self._ready.append(env_id)
        if remark is not None:
            self._remarks[env_id] = remark
