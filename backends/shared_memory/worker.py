"""Worker processes of a team: how the caller and a worker wait for each other, and the work of both.

Each side polls a sequence number in shared memory for a while, then sleeps. Only the other side writes this number,
after the data that belong to it. So whoever sees the number change can read the data.

    worker:  polls ``request`` --changed--> works --> writes ``done``, wakes the caller if it is asleep --> polls again
    caller:  writes ``request``, wakes the worker if it is asleep --> works --> polls ``done`` --changed--> reads
    either:  polled too long -> ``asleep`` = 1 --> heavy fence --> looks once more --> sleeps until a byte comes

No row is torn: only the worker touches a row from ``request`` to ``done``, otherwise only the caller. On x86, the
processor keeps the order of stores and of loads (Intel SDM volume 3, 9.2.2). On Arm, both sides take and release a lock
in between, a full fence (Arm ARM B2.3, POSIX).

No wake-up is lost: the sleeper sets its flag, then reads the number. The waker sets the number, then reads the flag. In
between, the sleeper calls ``membarrier(2)``, a fence for both sides. Where this is refused, both sides use a fence of
their own. ``tools/handshake.py`` and ``tools/interrupts.py`` test this.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import platform
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from vebench.backends.shared_memory.memory_layout import MakeShare, Memory, ProcessShare
from vebench.errors import message_of
from vebench.machine import kernel

KEEPS_ORDER = platform.machine() in ("x86_64", "AMD64", "i686", "i386")
# The number of the system call, from the kernel's tables. 0: none is known for this machine.
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}.get(platform.machine(), 0) if sys.platform == "linux" else 0
# An entry of a worker's ring is the index of an environment within the share, or one of these.
ALL, MESSAGE, END = -1, -2, -3
LOOK_SECONDS = 0.5  # seconds between a waiting process's checks that the other side is alive


class WorkerError(RuntimeError):
    """A process died, or an environment raised an exception. The text has the environment's number and traceback."""


class WorkerFailure(NamedTuple):
    """An exception in an environment."""

    env_id: int | None  # None if the text names the environment already
    error: BaseException | None  # None if it cannot be sent to another process
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, env_id: int | None) -> WorkerFailure:
        """Describe an exception in an environment. ``env_id`` is None if the exception's text names the environment."""
        kind = "" if env_id is None else f"{type(error).__name__}: "
        return cls(env_id, error, f"{kind}{message_of(error)}", "".join(traceback.format_exception(error)))

    def raised(self) -> BaseException:
        """Return the exception to raise: the environment's own, caused by a ``WorkerError``, or the latter alone."""
        where = "" if self.env_id is None else f"environment {self.env_id}: "
        error = WorkerError(f"{where}{self.text}\n\n{self.trace}")
        if self.error is None:
            return error
        self.error.__cause__ = error
        return self.error

    def pickled(self) -> bytes:
        """Return the failure as bytes, without the exception if that cannot be pickled or unpickled."""
        try:
            data = pickle.dumps(self)
            pickle.loads(data)  # noqa: S301 - its own bytes
        except Exception:  # noqa: BLE001 - it may fail in any way
            return pickle.dumps(self._replace(error=None))
        return data


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Hold Ctrl-C back in the block. Processes started in it hold it back until they call ``ignore_sigint``."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_sigint() -> None:
    """Ignore Ctrl-C in this worker process. A terminal also sends it to the caller, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _membarrier(command: int) -> bool:
    """Return whether the kernel has obeyed a command of linux/membarrier.h."""
    return _MEMBARRIER != 0 and kernel.libc().syscall(_MEMBARRIER, command, 0, 0) == 0


def light_fence() -> Callable[[], None] | None:
    """Return a fence: all loads and stores before a call of it happen before all those after.

    Return None if the processor and the heavy fences of other processes suffice.
    """
    registered = _membarrier(4)  # MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED: heavy fences include this process
    if registered and KEEPS_ORDER:
        return None
    lock = threading.Lock()

    def fence() -> None:
        with lock:
            pass
        with lock:
            pass

    return fence


def ring(writer: Connection) -> None:
    """Wake the process that sleeps on the other end of this pipe, unless it has ended. Callers clear its flag first."""
    with contextlib.suppress(OSError):
        os.write(writer.fileno(), b"!")


def _tell(
    word: memoryview, number: int, asleep: memoryview, pipe: Connection, fence: Callable[[], None] | None
) -> None:
    """Write a word, and wake the other side if it is asleep."""
    if fence:
        fence()
    word[0] = number
    if fence:
        fence()
    if asleep[0]:
        asleep[0] = 0
        ring(pipe)


class Waiter:
    """Waits for the other side: polls for at most ``spin_ns``, less if polling failed lately, and then sleeps.

    ``flag`` is the word that says that this side is asleep. This side sleeps until ``pipe`` has a byte to read. A byte
    from an earlier wake-up only makes it check once more.
    """

    def __init__(self, flag: memoryview, pipe: Connection, spin_ns: int) -> None:
        self._flag = flag
        self._pipe = pipe
        self._bell = select.poll()  # select() refuses descriptors from 1024 on
        self._bell.register(pipe.fileno(), select.POLLIN)
        self._fence = light_fence()
        self._most_ns = spin_ns
        # A wake-up takes 30 to 50 microseconds, so polling for about that time pays. After a sleep that longer polling
        # would have avoided, a process polls longer. Hypervisors do the same before they halt a virtual CPU (Linux,
        # Documentation/virt/kvm/halt-polling.rst).
        self._least_ns = self._spin_ns = min(spin_ns, 50_000)
        self.sleeps = 0  # counted for tests

    def wait(self, changed: Callable[[], bool], seconds: float) -> bool:
        """Return True as soon as ``changed()``, which must be cheap, or False after about ``seconds``."""
        if changed():
            return True
        start = now = time.monotonic_ns()
        while now - start < self._spin_ns:
            if changed():
                return True
            now = time.monotonic_ns()
        return self._sleep(changed, start, start + int(seconds * 1e9))

    def _sleep(self, changed: Callable[[], bool], start: int, end: int) -> bool:
        flag = self._flag
        while True:
            flag[0] = 1
            # MEMBARRIER_CMD_GLOBAL_EXPEDITED, the heavy fence: it fences all processes of the team that are running.
            if not _membarrier(2) and self._fence:
                self._fence()
            if changed():
                break
            left = end - time.monotonic_ns()
            if left <= 0:
                flag[0] = 0
                self._spin_ns = self._least_ns
                return changed()
            self.sleeps += 1
            if self._bell.poll(left / 1e6):
                os.read(self._pipe.fileno(), 64)
        flag[0] = 0
        # If polling for a little longer would have been enough, poll longer next time.
        in_reach = time.monotonic_ns() - start < self._most_ns
        self._spin_ns = min(self._most_ns, 2 * self._spin_ns) if in_reach else self._least_ns
        return True


# The worker's side.


def _work(
    memory: Memory, make_share: MakeShare, number: int, pipes: tuple[Connection, Connection], caller: int, bound: bool
) -> None:
    """Answer the entries of a ring with a share of the environments, until the entry ``END`` or the caller's end.

    The worker sleeps on the first of the ``pipes``, and wakes the caller through the second. ``bound``: the worker is a
    child of the caller, started by a thread that lives as long as the caller.
    """
    # Handlers in Python are the caller's. Only the caller controls its workers, so replace them by an empty handler.
    # Programs that an environment starts would inherit SIG_IGN, but should ignore only Ctrl-C.
    for signal_number in signal.valid_signals():
        if callable(signal.getsignal(signal_number)):
            signal.signal(signal_number, lambda _number, _frame: None)
    ignore_sigint()
    # End this process when the caller ends, even in a step that hangs.
    parent = os.getppid()
    if bound and sys.platform == "linux":
        kernel.die_with_parent()
    if bound and os.getppid() != caller:
        os._exit(1)
    if not bound:
        # The kernel's signal would come when the starting thread ends, which may be long before the caller ends.
        threading.Thread(target=_end_with, args=(caller,), daemon=True).start()
    division = memory.division
    if division.cpus:
        kernel.restrict([division.cpus[number + division.caller_steps]])
    start, stop = division.shares[number]
    share = make_share(memory.arrays.rows(start, stop), start, stop)
    try:
        _answer_entries(memory, number, share, pipes, parent)
    finally:
        share.close()


def _answer_entries(
    memory: Memory, number: int, share: ProcessShare, pipes: tuple[Connection, Connection], parent: int
) -> None:
    request, done, asleep, entries, remarks = memory.words(number)
    first_place = 1 + number * memory.ring
    waiter = Waiter(asleep, pipes[0], memory.division.spin_ns)
    fence = light_fence()
    count = 0

    def changed() -> bool:
        return request[0] != count

    while True:
        while not waiter.wait(changed, LOOK_SECONDS):
            if os.getppid() != parent:
                return  # the caller has ended
        if fence:
            fence()
        slot = count % memory.ring
        entry = entries[slot]
        if entry == END:
            return
        try:
            remark = _answer(memory, share, entry, first=count == 0)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            start, _ = memory.division.shares[number]
            current = share.current
            remark = WorkerFailure.of(error, None if current is None else start + current).pickled()
        if remark is not None:
            memory.write(first_place + slot, remark)
            remarks[slot] = len(remark)
        elif remarks[slot]:
            remarks[slot] = 0
        count += 1
        _tell(done, count, memory.caller_asleep, pipes[1], fence)


def _answer(memory: Memory, share: ProcessShare, entry: int, *, first: bool) -> bytes | None:
    """Answer an entry. Return the pickled remark, None if there is none. The first entry builds the environments."""
    if first:
        share.open()
        gc.freeze()  # the environments stay alive, so the garbage collector need not examine them again
        return None
    if entry == ALL:
        remark = share.step()
    elif entry == MESSAGE:
        remark = share.answer(*pickle.loads(memory.read(0, memory.message_length[0])))  # noqa: S301 - from the caller
    else:
        remark = share.step_one(entry)
    return None if remark is None else pickle.dumps(remark, pickle.HIGHEST_PROTOCOL)


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


# The caller's side.


class WorkerHandle:
    """A worker process, and the caller's side of its ring of entries.

    ``put`` adds an entry to the ring, and the worker sees it after ``notify``. The worker answers entries in their
    order. At the first entry it builds its environments. The remark on an entry, if there is one, has its own place.
    """

    def __init__(
        self,
        memory: Memory,
        make_share: MakeShare,
        number: int,
        caller_pipe: Connection,
        context: str | None,
        **options: Any,
    ) -> None:
        self._memory = memory
        self.start, self.stop = memory.division.shares[number]  # its environments are ``start`` to ``stop - 1``
        self.request, self._done, self.asleep, self.entries, self._remarks = memory.words(number)
        self._slots = memory.ring
        self._first_place = 1 + number * memory.ring
        self._fence = light_fence()
        self.sent = 0  # entries put into the ring
        self._read = 1  # answers that are read. The first one is left to ``answer``.
        processes: Any = multiprocessing.get_context(context)
        method = processes.get_start_method()
        # A spawned worker learns of the end of the caller by its pipe.
        bound = threading.current_thread() is threading.main_thread() and method == "fork"
        pipe, self._pipe = multiprocessing.Pipe(duplex=False)
        arguments = (memory, make_share, number, (pipe, caller_pipe), os.getpid(), bound)
        self.process: BaseProcess = processes.Process(target=_work, args=arguments, **options)
        with sigint_blocked() if method != "forkserver" else contextlib.nullcontext():
            self.process.start()
        pipe.close()  # the worker has its own copy

    def put(self, entry: int) -> None:
        """Put an entry into the ring. The index of an environment in the share asks for that environment's step."""
        self.entries[self.sent % self._slots] = entry
        self.sent += 1

    def ask(self, entry: int) -> None:
        """Ask for one answer, which ``answer`` returns. The worker must have answered all earlier entries."""
        self.entries[self.sent % self._slots] = entry
        self._read = self.sent = self.sent + 1
        _tell(self.request, self.sent, self.asleep, self._pipe, self._fence)

    def ask_to_end(self) -> None:
        """Ask the worker to end before its next entry. No other request may follow."""
        for _ in range(self._slots):
            self.put(END)
        self.notify()

    def wake(self) -> None:
        """Wake the worker if it sleeps or is about to sleep."""
        self.asleep[0] = 0
        ring(self._pipe)

    def notify(self) -> None:
        """Let the worker see the entries put since the last ``notify``, if there are any."""
        if self.request[0] != self.sent:
            _tell(self.request, self.sent, self.asleep, self._pipe, self._fence)

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
            return WorkerFailure.of(error, None)

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
    """Ask every worker to step all its environments. This needs half the time of a call each. Rings must be empty."""
    for worker in workers:
        if worker.entries[0] != ALL:
            worker.entries[0] = ALL
    if fence:
        fence()
    for worker in workers:
        worker.sent = request = worker.sent + 1
        worker.request[0] = request
    if fence:
        fence()
    for worker in workers:
        if worker.asleep[0]:
            worker.wake()
