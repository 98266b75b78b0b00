"""What a worker process does: steps its share of the environments on request, until it is told to end or is alone."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vebench.backends.shared_memory.handshake import FutexBell, PipeBell, Waiter, light_fence, register
from vebench.machine import pinning

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from vebench.backends.shared_memory.handshake import Bell
    from vebench.backends.shared_memory.memory_layout import Arrays, Memory, MemoryLayout

# An entry is the index of an environment within the share, or one of these.
ALL, MESSAGE, END = -1, -2, -3
LOOK_SECONDS = 0.5  # how often one who waits looks whether the other side is still there
PR_SET_PDEATHSIG = 1


class Share(Protocol):
    """The environments of one process. What its methods return, unless it is None, is sent to the caller."""

    at: int | None  # index within the share of the environment touched last; None if exceptions name it themselves

    def open(self) -> object:
        """Build every environment."""

    def step(self) -> object:
        """Step every environment with its row of the actions."""

    def step_one(self, index: int) -> object:
        """Step one environment with its row of the actions."""

    def answer(self, name: str, argument: Any) -> object:  # noqa: ANN401 - each request has an argument of its own
        """Do what ``name`` asks for."""

    def close(self) -> None:
        """Close every environment."""


class WorkerFailure(NamedTuple):
    """An exception in an environment: its id, the exception if it can be sent, its text, and the traceback.

    The id is None if the text names the environment already.
    """

    env_id: int | None
    error: BaseException | None
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, start: int, share: Share | None) -> WorkerFailure:
        """Describe an exception that is being handled, in the share whose first environment is ``start``."""
        if share is not None and share.at is None:
            return cls(None, error, str(error), traceback.format_exc())
        env_id = start + (0 if share is None else share.at or 0)
        return cls(env_id, error, f"{type(error).__name__}: {error}", traceback.format_exc())

    @property
    def message(self) -> str:
        """What an error says of it."""
        where = "" if self.env_id is None else f"environment {self.env_id}: "
        return f"{where}{self.text}\n\n{self.trace}"

    def pickled(self) -> bytes:
        """Return its bytes, without the exception itself if that cannot be sent or would not arrive."""
        try:
            data = pickle.dumps(self)
            pickle.loads(data)  # noqa: S301 - its own bytes
        except Exception:  # noqa: BLE001 - an exception may be of any class, with any way to fail
            return pickle.dumps(self._replace(error=None))
        return data


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is started with: its number, its environments and all that it needs to build and run_worker them.

    ``cpu`` is the CPU to keep to. ``caller`` is the process id of who started it; ``bound`` if that thread will live as
    long as the caller. ``bells`` are the pipes of the worker and of the caller where there is no futex.
    """

    number: int
    start: int
    stop: int
    layout: MemoryLayout
    memory: Memory
    make_share: Callable[[Arrays, int, int], Share]
    channel: Connection
    caller: int
    bound: bool
    forked: bool
    spin_ns: int
    cpu: int | None
    bells: tuple[tuple[Connection, Connection], tuple[Connection, Connection]] | None

    def bell(self, flag: memoryview, *, callers: bool) -> Bell:
        """Return the bell that wakes whom ``flag`` belongs to: the caller or this worker."""
        return FutexBell(self.memory.map, flag) if self.bells is None else PipeBell(*self.bells[callers])


def run_worker(post: WorkerConfig) -> None:
    """Be a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: it is the caller's to act on
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    alive = _watch(post)
    if post.cpu is not None:
        pinning.restrict([post.cpu])
    register()
    with contextlib.suppress(ConnectionError, EOFError):  # the caller is gone, or has closed its end
        _Worker(post, alive).run()


def _watch(post: WorkerConfig) -> Callable[[], bool]:
    """End with the caller, even in the middle of a step that hangs; return how to ask whether it lives."""
    parent = os.getppid()
    if sys.platform == "linux" and post.bound:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent of one started by a fork server is that server, which ends with the caller.
    if (post.forked and parent != post.caller) or os.getppid() != parent:
        os._exit(1)
    if not post.bound:
        # The signal comes when the thread that started this process ends, which may be long before the caller does.
        threading.Thread(target=_end_with, args=(post.caller,), daemon=True).start()
    return lambda: os.getppid() == parent


def _end_with(process: int) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        os._exit(1)
    except (OSError, AttributeError):
        return  # the worker looks for itself whenever it sleeps
    gone = select.poll()  # select() knows no descriptors from 1024 on
    gone.register(descriptor, select.POLLIN)
    gone.poll()
    os.kill(os.getpid(), signal.SIGKILL)


class _Worker:
    """The loop of a worker, between its words in shared memory and its share of the environments."""

    def __init__(self, post: WorkerConfig, alive: Callable[[], bool]) -> None:
        self._post = post
        self._alive = alive
        layout, memory = post.layout, post.memory.map
        self._words = layout.words(memory, post.number)
        self._caller_asleep = layout.caller_asleep(memory)
        self._caller_bell = post.bell(self._caller_asleep, callers=True)
        self._waiter = Waiter(self._words.asleep, post.bell(self._words.asleep, callers=False), post.spin_ns)
        self._share: Share | None = None

    def run(self) -> None:
        try:
            self._run()
        finally:
            if self._share is not None:
                self._share.close()

    def _run(self) -> None:
        request, done, _, entries, remarks = self._words
        fence, caller_asleep = light_fence(), self._caller_asleep
        ring = len(entries)
        count = 0

        def changed() -> bool:
            return request[0] != count

        while True:
            if request[0] == count and not self._wait(changed):
                return
            if fence:
                fence()
            place = count % ring
            if (entry := entries[place]) == END:
                return
            remark = self._handle(entry)
            if remark is not None:
                remarks[place] = 1
            count += 1
            if fence:
                fence()
            done[0] = count
            if caller_asleep[0]:
                self._wake_caller()
            # Only now, since a long one is not sent off before the caller reads it.
            if remark is not None:
                self._post.channel.send_bytes(remark)

    def _wait(self, changed: Callable[[], bool]) -> bool:
        """Return True once ``changed()``, and False if nobody is left to change anything."""
        while not self._waiter.wait(changed, LOOK_SECONDS):
            if not self._alive():
                return False
        return True

    def _wake_caller(self) -> None:
        self._caller_asleep[0] = 0
        self._caller_bell.ring()

    def _handle(self, entry: int) -> bytes | None:
        """Do what an entry asks for, and return the bytes of what the caller is to be told, if anything."""
        message = self._post.channel.recv_bytes() if entry == MESSAGE else None
        try:
            remark = self._obey(entry, message)
            return None if remark is None else pickle.dumps(remark, pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller raises it
            return WorkerFailure.of(error, self._post.start, self._share).pickled()

    def _obey(self, entry: int, message: bytes | None) -> object:
        share, post = self._share, self._post
        if entry == ALL and share is not None:
            return share.step()
        if share is None:
            rows = post.layout.arrays(post.memory.map).rows(post.start, post.stop)
            share = self._share = post.make_share(rows, post.start, post.stop)
            opened = share.open()
            # What was built stays: the collector need not look through it again, in the middle of a step.
            gc.freeze()
            return opened
        if message is not None:
            name, argument = pickle.loads(message)  # noqa: S301 - from the caller
            return share.answer(name, argument)
        return share.step_one(entry)
