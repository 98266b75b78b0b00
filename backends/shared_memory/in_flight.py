"""Environments asked for one by one, and returned as they become ready: how a team works asynchronously."""

from __future__ import annotations

import time
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any

from vebench.backends.shared_memory.errors import OverdueError, WorkerError, WorkerFailure
from vebench.backends.shared_memory.worker import LOOK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.backends.shared_memory.team import Team

_NOTHING, _ASKING, _NOTIFYING, _RECEIVING, TAKEN = range(5)


class InFlight:
    """The environments of a team that are on their way. Those of one process come back in the order of sending.

    The caller steps those of its own share, one at a time, while too few others are ready. Between processes the order
    is that in which the caller sees them ready; none is passed over by one that was seen later.

    An interrupt may break off what is done here, between any two lines. The next call begins by mending what it has
    left: an environment is then on its way, ready or neither, and it is known which. If it came within the step of an
    environment that the caller steps itself, that one is among ``broken``, until it is forgotten.

    What ``look`` has returned is received once ``doing`` is ``TAKEN``: with that one assignment, the last thing that a
    caller does before it hands out rows. Until then the same environments are returned again.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self.doing = _NOTHING  # what is being done, or was broken off
        self._ready: list[int] = []
        self._shown: list[int] = []  # what was returned last
        self._remarks: dict[int, Any] = {}
        self._failed = False  # whether one of the remarks is on a failure
        self._own: deque[int] = deque()
        self._own_before = 0  # how many of its own the caller had to step before the last ``send``
        self._own_begun = -1  # the one that it has begun to step
        self._away = bytearray(team.division.num_envs)  # 1 for each that was asked for and not received since
        self.broken: set[int] = set()
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

    @property
    def away(self) -> Sequence[int]:
        """1 for each environment that was asked for and not received since, 0 for the others."""
        if self.doing:
            self._mend()
        return self._away

    def send(self, env_ids: Sequence[int]) -> None:
        """Ask for the environments, none of which may be asked for or ready already.

        If an interrupt breaks this off, all of them are asked for or none.
        """
        self._team.check_idle()
        if self.doing:
            self._mend()
        workers = self._team.workers
        self._own_before = len(self._own)
        self.doing = _ASKING
        for env_id in env_ids:
            ask, index = self._ask[env_id]
            ask(index)
            self._away[env_id] = 1
        self.doing = _NOTIFYING
        for worker in workers:
            worker.notify()
        self.doing = _NOTHING

    def recv(self, least: int, most: int, timeout: float | None = None) -> list[int]:
        """Return ids, ``least`` to ``most`` of them, in the order in which they became ready.

        Raises RuntimeError if fewer are on their way, and what ``Team.receive`` raises. What is ready stays so.
        """
        env_ids = self.look(least, most, timeout)
        self.doing = TAKEN
        return env_ids

    def look(self, least: int, most: int, timeout: float | None = None) -> list[int]:
        """Return what ``recv`` does, and let them be ready until ``doing`` is ``TAKEN``."""
        self._team.check_idle()
        if self.doing:
            self._mend()
        self.doing = _RECEIVING
        ready, team = self._ready, self._team
        team.inside = get_ident()
        try:
            self._collect(least, timeout)
        finally:
            team.inside = 0
            if team.closed:
                team.leave()
        # A worker that dies while others keep the caller busy is never waited for.
        if (now := time.monotonic()) > self._next_look:
            self._next_look = now + LOOK_SECONDS
            team.look()
        self._shown = shown = ready[:most]
        self.doing = _NOTHING
        return shown

    def _collect(self, least: int, timeout: float | None) -> None:
        """Go on until as many environments are ready."""
        ready, team = self._ready, self._team
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            for worker in team.workers:
                if worker.has_answers():
                    for env_id, remark in worker.answers():
                        if remark is not None or self._remarks:
                            self._keep(env_id, remark)
                        ready.append(env_id)
            if self._failed:
                self._raise_failure()
            if len(ready) >= least:
                return
            self._step_or_wait(least, deadline, timeout)

    def remarks(self, env_id: int) -> Any:  # noqa: ANN401 - whatever the share returned
        """Return the remark on an environment that is ready or was received, or an empty list."""
        return self._remarks.get(env_id, [])

    def settle(self, timeout: float | None = None) -> None:
        """Wait until all that was asked for is ready."""
        if self.doing:
            self._mend()
        if count := self.waiting:
            self.look(count, count, timeout)

    # After a reset, while its round is still busy:

    def put_back(self, env_ids: Sequence[int]) -> None:
        """Let environments that are not on their way count as ready, and no others."""
        self.doing = _RECEIVING
        self._ready = list(env_ids)
        self._remarks = {}
        self.broken.clear()
        for env_id in env_ids:
            self._away[env_id] = 1
        self.doing = _NOTHING

    def forget(self, env_ids: Sequence[int]) -> None:
        """Let environments that are ready count as received."""
        gone = set(env_ids)
        self.doing = _RECEIVING
        self._ready = [env_id for env_id in self._ready if env_id not in gone]
        self.broken -= gone
        for env_id in gone:
            self._away[env_id] = 0
        self.doing = _NOTHING

    def _step_or_wait(self, least: int, deadline: float | None, timeout: float | None) -> None:
        """Step one of the caller's own environments; or, if none is asked for, wait for an answer of a worker."""
        if deadline is not None and time.monotonic() >= deadline:
            raise OverdueError(timeout)
        if self._team.closed:
            self._team.raise_if_lost()
        if self._own:
            self._step_own()
        elif self.waiting < least:
            broken = f"; an interrupt broke off steps of {sorted(self.broken)}" if self.broken else ""
            raise RuntimeError(f"recv() of {least} environments, but {self.waiting} were sent actions{broken}")
        else:
            self._team.wait_for(self._any_answer, deadline, timeout)

    def _any_answer(self) -> bool:
        for worker in self._team.workers:  # noqa: SIM110 - it is polled, and any() of a generator is slower
            if worker.has_answers():
                return True
        return False

    def _step_own(self) -> None:
        self._own_begun = env_id = self._own[0]
        share = self._team.own
        try:
            remark = share.step_one(env_id)
        except Exception as error:  # noqa: BLE001 - described as those of workers are
            remark = WorkerFailure.of(error, 0, share)
        if remark is not None or self._remarks:
            self._keep(env_id, remark)
        self._ready.append(env_id)
        self._own.popleft()
        self._own_begun = -1

    def _keep(self, env_id: int, remark: Any) -> None:  # noqa: ANN401 - whatever the share returned
        if remark is None:
            self._remarks.pop(env_id, None)  # that of an earlier step
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
                self._away[env_id] = 0
                del self._remarks[env_id]
                raise WorkerError(failure.message, failure)
        self._failed = False

    def _mend(self) -> None:
        """Finish or undo what was broken off. If this is broken off, too, the next call does it again."""
        if self.doing == TAKEN:
            self._take()
            return
        workers, ready = self._team.workers, self._ready
        if self.doing == _ASKING:
            for worker in workers:
                worker.take_back()
            while len(self._own) > self._own_before:
                self._own.pop()
        elif self.doing == _NOTIFYING:
            for worker in workers:
                worker.notify()
                worker.wake()  # it may have been notified and not rung for
        self._mend_own()
        away = bytearray(len(self._away))
        for worker in workers:
            worker.skip(ready)
            for env_id in worker.on_their_way():
                away[env_id] = 1
        for env_id in (*ready, *self._own):
            away[env_id] = 1
        self._away = away
        self.doing = _NOTHING

    def _take(self) -> None:
        """Let the environments that were returned last count as received."""
        shown, ready = self._shown, self._ready
        for env_id in shown:
            self._away[env_id] = 0
        if ready[: len(shown)] == shown:  # unless an interrupt has kept this from its end
            del ready[: len(shown)]
        self.doing = _NOTHING

    def _mend_own(self) -> None:
        """See whether the step of an environment of the caller's own was broken off; it is not asked for again."""
        if self._own_begun < 0:
            return
        if self._own_begun not in self._ready:
            self.broken.add(self._own_begun)
        if self._own and self._own[0] == self._own_begun:
            self._own.popleft()
        self._own_begun = -1
