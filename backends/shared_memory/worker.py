"""A worker process. It steps its share of the environments on request, until it is asked to end or its caller ends."""

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
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from vebench.backends.shared_memory.errors import WorkerFailure, ignore_sigint, sigint_blocked
from vebench.backends.shared_memory.handshake import Waiter, light_fence, ring
from vebench.backends.shared_memory.memory_layout import MESSAGE_PLACE, MakeShare, Memory, MemoryLayout, ProcessShare
from vebench.errors import message_of
from vebench.machine import kernel

# An entry of the ring is the index of an environment within the share, or one of these.
_ALL, _MESSAGE, _END = -1, -2, -3
LOOK_SECONDS = 0.5  # seconds between a waiting process's checks that the other side is alive
END_WITHIN_SECONDS = 2.0  # seconds that a worker may take to end by itself
_PR_SET_PDEATHSIG = 1


class _Worker:
    """A worker process: it answers the entries of its ring with its share of the environments.

    ``pipes`` are the end on which the worker sleeps, and the end that wakes the caller. ``bound``: the worker is a
    child of the caller, started by a thread that lives as long as the caller.
    """

    def __init__(
        self,
        layout: MemoryLayout,
        make_share: MakeShare,
        memory: Memory,
        number: int,
        pipes: tuple[Connection, Connection],
        bound: bool,
    ) -> None:
        self._layout, self._make_share, self._memory, self._number = layout, make_share, memory, number
        self._pipes, self._bound, self._caller = pipes, bound, os.getpid()
        self._share: ProcessShare | None = None  # built at the first entry

    def run(self) -> None:
        """Answer entries, in the worker's process, until one asks to end or the caller has ended."""
        # Only the caller controls its workers, so ignore signals. An empty handler does that. Programs that an
        # environment starts would inherit SIG_IGN, but should ignore only Ctrl-C.
        for signal_number in signal.valid_signals():
            if callable(signal.getsignal(signal_number)):
                signal.signal(signal_number, lambda _number, _frame: None)
        ignore_sigint()
        # End this process when the caller ends, even in a step that hangs.
        parent = os.getppid()
        if sys.platform == "linux" and self._bound:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if self._bound and os.getppid() != self._caller:
            os._exit(1)
        if not self._bound:
            # The kernel's signal would come when the starting thread ends, which may be long before the caller ends.
            threading.Thread(target=_end_with, args=(self._caller,), daemon=True).start()
        cpu = self._layout.division.cpu_of(self._number)
        if cpu is not None:
            kernel.restrict([cpu])
        try:
            self._answer_entries(parent)
        finally:
            if self._share is not None:
                self._share.close()

    def _answer_entries(self, parent: int) -> None:
        pipe, caller_pipe = self._pipes
        memory, layout = self._memory, self._layout
        request, done, asleep, entries, remarks = layout.words(memory.map, self._number)
        caller_asleep, _ = layout.caller_words(memory.map)
        first_place = layout.first_place(self._number)
        waiter = Waiter(asleep, pipe, layout.division.spin_ns)
        fence = light_fence()
        count = 0

        def changed() -> bool:
            return request[0] != count

        while _comes(waiter, changed, parent):
            if fence:
                fence()
            slot = count % len(entries)
            entry = entries[slot]
            if entry == _END:
                return
            remark = self._do(entry)
            if remark is not None:
                memory.write(first_place + slot, remark)
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
                ring(caller_pipe)

    def _do(self, entry: int) -> bytes | None:
        """Do the work of an entry. Return the pickled remark on the entry, None if there is none."""
        try:
            remark = self._answer(entry)
            return None if remark is None else pickle.dumps(remark, pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            current = 0 if self._share is None else self._share.current
            start, _ = self._layout.division.shares[self._number]
            return WorkerFailure.of(error, None if current is None else start + current).pickled()

    def _answer(self, entry: int) -> object:
        share = self._share
        if entry == _ALL and share is not None:
            return share.step()
        layout, memory = self._layout, self._memory
        if share is None:
            start, stop = layout.division.shares[self._number]
            self._share = self._make_share(layout.arrays(memory.map).rows(start, stop), start, stop)
            self._share.open()
            # The environments stay alive, so the garbage collector need not examine them again during a step.
            gc.freeze()
            return None
        if entry == _MESSAGE:
            _, length = layout.caller_words(memory.map)
            return share.answer(*pickle.loads(memory.read(MESSAGE_PLACE, length[0])))  # noqa: S301 - from the caller
        return share.step_one(entry)


def _comes(waiter: Waiter, changed: Callable[[], bool], parent: int) -> bool:
    """Return True once ``changed()``, or False if the parent has ended, after which nothing can change."""
    while not waiter.wait(changed, LOOK_SECONDS):
        if os.getppid() != parent:
            return False
    return True


def _end_with(caller: int) -> None:
    """Kill this process when the caller ends."""
    try:
        descriptor = os.pidfd_open(caller)
    except ProcessLookupError:
        os._exit(1)
    except (OSError, AttributeError):
        return  # the worker itself checks whenever it sleeps
    gone = select.poll()  # select() refuses descriptors from 1024 on
    gone.register(descriptor, select.POLLIN)
    gone.poll()
    os.kill(os.getpid(), signal.SIGKILL)


class WorkerHandle:
    """A worker process, and the caller's side of its ring of entries.

    ``put`` adds an entry to the ring, and the worker sees it after ``notify``. The worker answers entries in their
    order. At the first entry it builds its environments. The remark on an entry, if there is one, has its own place.
    """

    def __init__(
        self,
        layout: MemoryLayout,
        make_share: MakeShare,
        memory: Memory,
        number: int,
        caller_pipe: Connection,
        context: str | None,
        **options: Any,
    ) -> None:
        self._memory = memory
        self.start, self.stop = layout.division.shares[
            number
        ]  # the worker's environments are ``start`` to ``stop - 1``
        self.request, self._done, self.asleep, self.entries, self._remarks = layout.words(memory.map, number)
        self._first_place = layout.first_place(number)
        self._fence = light_fence()
        self._slots = len(self.entries)
        self.sent = 0  # entries put into the ring
        self._read = 1  # the number of answers read; ``answers`` skips the first
        processes: Any = multiprocessing.get_context(context)
        method = processes.get_start_method()
        # The caller may have ended before a spawned worker calls prctl.
        bound = threading.current_thread() is threading.main_thread() and method == "fork"
        pipe, self._pipe = multiprocessing.Pipe(duplex=False)
        worker = _Worker(layout, make_share, memory, number, (pipe, caller_pipe), bound)
        self.process: BaseProcess = processes.Process(target=worker.run, **options)
        with sigint_blocked() if method != "forkserver" else contextlib.nullcontext():
            self.process.start()
        pipe.close()  # the worker has its own copy

    # Asking.

    def put(self, entry: int) -> None:
        """Put an entry into the ring. The index of an environment in the share asks for that environment's step."""
        self.entries[self.sent % self._slots] = entry
        self.sent += 1

    def ask_message(self) -> None:
        """Ask the worker to answer the message to all workers. It must have answered all earlier entries."""
        self.put(_MESSAGE)
        self._read = self.sent
        self.notify()

    def ask_to_end(self) -> None:
        """Ask the worker to end before its next entry. It cannot be asked for anything else afterwards."""
        for _ in range(self._slots):
            self.put(_END)
        self.notify()

    def take_back(self) -> None:
        """Remove the entries that the worker was not notified of, and wake the worker for the others."""
        self.sent = self.request[0]
        self.wake()

    def notify(self) -> None:
        """Let the worker see the entries put since the last ``notify``, if there are any."""
        if self.request[0] == self.sent:
            return
        if self._fence:
            self._fence()
        self.request[0] = self.sent
        if self._fence:
            self._fence()
        if self.asleep[0]:
            self.wake()

    def wake(self) -> None:
        """Wake the worker if it sleeps or is about to sleep."""
        self.asleep[0] = 0
        ring(self._pipe)

    # Answers.

    def is_done(self) -> bool:
        """Return whether every entry has been answered."""
        return self._done[0] == self.sent

    def has_answers(self) -> bool:
        """Return whether there is an answer that ``answers`` has not read yet."""
        return self._done[0] != self._read

    def answer(self) -> Any:
        """Return the remark on the last entry, mostly None. The entry must have been answered."""
        if self._fence:
            self._fence()
        slot = (self.sent - 1) % self._slots
        return self._remark(slot) if self._remarks[slot] else None

    def answers(self) -> Iterator[tuple[int, Any]]:
        """Yield the new answers: the id of the environment and the remark, mostly None."""
        done = self._done[0]
        if self._fence:
            self._fence()
        while self._read != done:
            slot = self._read % self._slots
            self._read += 1
            yield self.start + self.entries[slot], self._remark(slot) if self._remarks[slot] else None

    def _remark(self, slot: int) -> Any:
        text = self._memory.read(self._first_place + slot, self._remarks[slot])
        try:
            return pickle.loads(text)  # noqa: S301 - from our own worker
        except Exception as error:  # noqa: BLE001 - an environment's own class may fail in any way
            what = f"what environments {self.start} to {self.stop - 1} returned cannot be read here: "
            return WorkerFailure(None, error, f"{what}{message_of(error)}", "".join(traceback.format_exception(error)))

    # The end of the process.

    def has_ended(self, within: float) -> bool:
        """Return whether the process ends within this many seconds."""
        try:
            return bool(connection.wait([self.process.sentinel], within))
        except ValueError:  # ``kill`` has closed the process object
            return True

    def kill(self) -> None:
        """End the process by force if it has not ended, and close its object. A second call does nothing."""
        with contextlib.suppress(ValueError):  # the object is closed, or the exit status was collected elsewhere
            self.process.kill()
            self.process.join()
            self.process.close()
        self._pipe.close()


def step_all(workers: Sequence[WorkerHandle], fence: Callable[[], None] | None) -> None:
    """Ask every worker to step all its environments. A worker's first request builds its environments instead.

    This does the work of ``put`` and ``notify`` without a call for each worker. The rings must have no other entries.
    """
    for worker in workers:
        if worker.entries[0] != _ALL:
            worker.entries[0] = _ALL
    if fence:
        fence()
    for worker in workers:
        worker.sent = entry = worker.sent + 1
        worker.request[0] = entry
    if fence:
        fence()
    for worker in workers:
        if worker.asleep[0]:
            worker.wake()
