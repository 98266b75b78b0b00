"""A worker process: it steps its share of the environments on request, until asked to end or its caller is gone."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import select
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from vebench.backends.shared_memory.errors import WorkerFailure, leave_to_caller, sigint_blocked
from vebench.backends.shared_memory.handshake import Waiter, light_fence, ring
from vebench.backends.shared_memory.memory_layout import MESSAGE_PLACE
from vebench.machine import pinning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from vebench.backends.shared_memory.memory_layout import Division, MakeShare, Memory, MemoryLayout, ProcessShare

# An entry of the ring is the index of an environment within the share, or one of these.
_ALL, _MESSAGE, _END = -1, -2, -3
LOOK_SECONDS = 0.5  # how often a process that waits checks that the other side is still there
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class TeamConfig:
    """What all processes of a team have in common. ``context`` is the start method, Python's default if None."""

    division: Division
    layout: MemoryLayout
    make_share: MakeShare
    context: str | None = None
    daemon: bool = True
    name: str = "worker"


def run_worker(  # noqa: PLR0913, PLR0917 - all that a worker is started with
    team: TeamConfig, memory: Memory, number: int, pipes: tuple[Connection, Connection], caller: int, bound: bool
) -> None:
    """Run a worker until it is to end.

    ``pipes`` are the end that it sleeps on, and the one that wakes the caller, whose process id is ``caller``.
    ``bound``: the worker is its child, and the thread that started it lives as long as the caller.
    """
    leave_to_caller()
    # End this process when the caller ends, even in a step that hangs.
    parent = os.getppid()
    if sys.platform == "linux" and bound:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if bound and os.getppid() != caller:
        os._exit(1)
    if not bound:
        # The signal comes when the thread that started this process ends, which may be long before the caller does.
        threading.Thread(target=_end_with, args=(caller,), daemon=True).start()
    cpu = team.division.cpu_of(number)
    if cpu is not None:
        pinning.restrict([cpu])
    worker = _Worker(team, memory, number, pipes, parent)
    try:
        worker.run()
    finally:
        if worker.share is not None:
            worker.share.close()


def _end_with(process: int) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        os._exit(1)
    except (OSError, AttributeError):
        return  # the worker checks by itself whenever it sleeps
    gone = select.poll()  # select() knows no descriptors from 1024 on
    gone.register(descriptor, select.POLLIN)
    gone.poll()
    os.kill(os.getpid(), signal.SIGKILL)


class _Worker:
    """The loop of a worker, between its words in shared memory and its share of the environments."""

    def __init__(
        self, team: TeamConfig, memory: Memory, number: int, pipes: tuple[Connection, Connection], parent: int
    ) -> None:
        self._team, self._memory, self._parent = team, memory, parent
        self._start, self._stop = team.division.shares[number]
        self._words = team.layout.words(memory.map, number)
        self._first_place = team.layout.first_place(number)
        self._caller_asleep, self._message = team.layout.caller_words(memory.map)
        pipe, self._caller_pipe = pipes
        self._waiter = Waiter(self._words.asleep, pipe, team.division.spin_ns)
        self.share: ProcessShare | None = None

    def run(self) -> None:
        request, done, _, entries, remarks = self._words
        fence, caller_asleep, memory = light_fence(), self._caller_asleep, self._memory
        slots = len(entries)
        count = 0

        def changed() -> bool:
            return request[0] != count

        while self._wait(changed):
            if fence:
                fence()
            slot = count % slots
            if (entry := entries[slot]) == _END:
                return
            remark = self._handle(entry)
            if remark is not None:
                memory.write(self._first_place + slot, remark)
                remarks[slot] = len(remark)
            elif remarks[slot]:
                remarks[slot] = 0
            count += 1
            if fence:
                fence()
            done[0] = count
            if fence:
                fence()
            if caller_asleep[0]:
                caller_asleep[0] = 0
                ring(self._caller_pipe)

    def _wait(self, changed: Callable[[], bool]) -> bool:
        """Return True once ``changed()``, and False if the caller is gone, so that nothing will change any more."""
        while not self._waiter.wait(changed, LOOK_SECONDS):
            if os.getppid() != self._parent:
                return False
        return True

    def _handle(self, entry: int) -> bytes | None:
        """Do what an entry asks for, and return the bytes of the remark on it, None if there is none."""
        try:
            remark = self._answer(entry)
            return None if remark is None else pickle.dumps(remark, pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller raises it
            return WorkerFailure.of(error, self._start, self.share).pickled()

    def _answer(self, entry: int) -> object:
        share = self.share
        if entry == _ALL and share is not None:
            return share.step()
        if share is None:
            team, start, stop = self._team, self._start, self._stop
            rows = team.layout.arrays(self._memory.map).rows(start, stop)
            self.share = team.make_share(rows, start, stop)
            self.share.open()
            # What was built stays: the garbage collector need not look through it again, in the middle of a step.
            gc.freeze()
            return None
        if entry == _MESSAGE:
            message = self._memory.read(MESSAGE_PLACE, self._message[0])
            return share.answer(*pickle.loads(message))  # noqa: S301 - from the caller
        return share.step_one(entry)


END_WITHIN_SECONDS = 2.0  # how long a worker may take to end by itself


class WorkerHandle:
    """A worker process, and the caller's side of the ring of entries through which it is asked.

    It builds its environments at the first entry. ``caller_pipe`` is the end of a pipe that wakes the caller.

    An entry is put into the ring, and the worker sees it once it is notified. It answers entries in their order. What
    its share returned for an entry, the remark on it, is in a place of its own unless it is None. A ring has a slot for
    each entry that may be on its way; that of a synchronous team has one. The worker has the environments ``start`` to
    ``stop - 1``.
    """

    def __init__(self, team: TeamConfig, memory: Memory, number: int, caller_pipe: Connection) -> None:
        self._memory = memory
        self.start, self.stop = team.division.shares[number]
        self._request, self._done, self._asleep, self._entries, self._remarks = team.layout.words(memory.map, number)
        self._first_place = team.layout.first_place(number)
        self._fence = light_fence()
        self._slots = len(self._entries)
        self._sent, self._read = 0, 1  # entries put into the ring, and answers read; that of the first never is
        context = multiprocessing.get_context(team.context)
        method = context.get_start_method()
        # A spawned worker may come to the call that binds it after the caller has gone.
        bound = threading.current_thread() is threading.main_thread() and method == "fork"
        pipe, self._pipe = multiprocessing.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has one
            target=run_worker,
            args=(team, memory, number, (pipe, caller_pipe), os.getpid(), bound),
            name=f"{team.name}-{number}",
            daemon=team.daemon,
        )
        with sigint_blocked() if method != "forkserver" else contextlib.nullcontext():
            self.process.start()
        pipe.close()  # the worker has it

    # Asking.

    @staticmethod
    def step_all(workers: Sequence[WorkerHandle], fence: Callable[[], None] | None) -> None:
        """Ask every worker to step all its environments, or to build them if it was not asked for anything before.

        This runs in every synchronous step, so it does by itself what ``put`` and ``notify`` do for one worker: without
        a call for each worker, and with one fence for all.
        """
        for worker in workers:
            if worker._entries[0] != _ALL:  # noqa: SLF001 - its own class
                worker._entries[0] = _ALL  # noqa: SLF001 - as above; nothing else is in the ring
        if fence:
            fence()
        for worker in workers:
            worker._sent = entry = worker._sent + 1  # noqa: SLF001 - as above
            worker._request[0] = entry  # noqa: SLF001 - as above
        if fence:
            fence()
        for worker in workers:
            if worker._asleep[0]:  # noqa: SLF001 - as above
                worker.wake()

    def put(self, entry: int) -> None:
        """Put an entry into the ring: the index of an environment in the share asks for a step of it."""
        self._entries[self._sent % self._slots] = entry
        self._sent += 1

    def ask_message(self) -> None:
        """Ask for what the message to all workers says; all entries before are answered."""
        self.put(_MESSAGE)
        self._read = self._sent
        self.notify()

    def ask_to_end(self) -> None:
        """Ask the worker to end before the next thing that it would do. It cannot be asked for anything else then."""
        for _ in range(self._slots):
            self.put(_END)
        self.notify()

    def take_back(self) -> None:
        """Take back the entries of which the worker was not notified, and wake it for the others."""
        self._sent = self._request[0]
        self.wake()

    def notify(self) -> None:
        """Let the worker see the entries that were put into the ring since it was notified last, if any."""
        if self._request[0] == self._sent:
            return
        if self._fence:
            self._fence()
        self._request[0] = self._sent
        if self._fence:
            self._fence()
        if self._asleep[0]:
            self.wake()

    def wake(self) -> None:
        """Wake the worker, if it is asleep or about to be."""
        self._asleep[0] = 0
        ring(self._pipe)

    # Answers.

    def is_done(self) -> bool:
        """Return whether every entry has been answered."""
        return self._done[0] == self._sent

    def has_answers(self) -> bool:
        """Return whether an entry has been answered whose answer was not read yet."""
        return self._done[0] != self._read

    def answer(self) -> Any:  # noqa: ANN401 - whatever the share returned
        """Return the remark on what was asked for last, which is answered; None mostly."""
        if self._fence:
            self._fence()
        slot = (self._sent - 1) % self._slots
        return self._remark(slot) if self._remarks[slot] else None

    def answers(self) -> Iterator[tuple[int, Any]]:
        """Read the answers that there are, one by one: the id of the environment and the remark, None mostly."""
        done = self._done[0]
        if self._fence:
            self._fence()
        while self._read != done:
            slot = self._read % self._slots
            self._read += 1
            yield self.start + self._entries[slot], self._remark(slot) if self._remarks[slot] else None

    def _remark(self, slot: int) -> Any:  # noqa: ANN401 - whatever the share returned
        text = self._memory.read(self._first_place + slot, self._remarks[slot])
        try:
            return pickle.loads(text)  # noqa: S301 - from our own worker
        except Exception as error:  # noqa: BLE001 - what an environment returns may fail to be read in any way
            failure = WorkerFailure.of(error, self.start, None)
            where = f"what environments {self.start} to {self.stop - 1} returned cannot be read"
            return failure._replace(env_id=None, text=f"{where}: {failure.text}")

    # Its end.

    def cause_of_death(self) -> str:
        """Return which environments died with the worker, and how."""
        self.process.join(END_WITHIN_SECONDS)
        code = self.process.exitcode
        ended = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return f"the worker of environments {self.start} to {self.stop - 1} died ({ended})"

    def has_ended(self, within: float) -> bool:
        """Return whether the process ends within this many seconds."""
        try:
            return bool(connection.wait([self.process.sentinel], within))
        except ValueError:  # it was forgotten
            return True

    def kill(self) -> None:
        """End the process by force if it has not ended, and forget it. A second call does nothing."""
        with contextlib.suppress(ValueError):  # it is forgotten, or its exit status was collected elsewhere
            self.process.kill()
            self.process.join()
            self.process.close()
        self._pipe.close()
