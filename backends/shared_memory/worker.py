"""A worker process: it steps its share of the environments on request, until asked to end or its caller is gone."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import select
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.backends.shared_memory.errors import WorkerFailure
from vebench.backends.shared_memory.handshake import FutexBell, PipeBell, Waiter, light_fence, register
from vebench.backends.shared_memory.interrupts import leave_to_caller
from vebench.backends.shared_memory.memory_layout import MESSAGE_PLACE
from vebench.machine import pinning

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from vebench.backends.shared_memory.division import Division
    from vebench.backends.shared_memory.handshake import Bell
    from vebench.backends.shared_memory.memory_layout import Memory, MemoryLayout
    from vebench.backends.shared_memory.share import MakeShare, Share

    Pipe = tuple[Connection, Connection]

# An entry of the ring is the index of an environment within the share, or one of these.
ALL, MESSAGE, END = -1, -2, -3
LOOK_SECONDS = 0.5  # how often a process that waits checks that the other side is still there
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class TeamConfig:
    """What all processes of a team have in common.

    ``context`` is the start method, Python's default if None. ``daemon`` and ``name`` are those of the processes.
    """

    division: Division
    layout: MemoryLayout
    make_share: MakeShare
    context: str | None = None
    daemon: bool = True
    name: str = "worker"


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is started with: what its team has in common, its number, and what it knows of the caller.

    ``caller`` is the process id of the caller. ``forked``: the worker is its child. ``bound``: besides, the thread that
    started the worker lives as long as the caller. ``pipe`` and ``caller_pipe`` are those of their bells.
    """

    team: TeamConfig
    memory: Memory
    number: int
    caller: int
    forked: bool
    bound: bool
    pipe: Pipe | None
    caller_pipe: Pipe | None


def make_bell(memory: Memory, flag: memoryview, pipe: Pipe | None) -> Bell:
    """Return the bell of the process whose ``asleep`` word is ``flag``: a futex, or ``pipe`` where there is none."""
    return FutexBell(memory.map, flag) if pipe is None else PipeBell(*pipe)


def run_worker(config: WorkerConfig) -> None:
    """Run a worker until it is to end."""
    leave_to_caller()
    caller_lives = _end_with_caller(config)
    cpu = config.team.division.cpu_of(config.number)
    if cpu is not None:
        pinning.restrict([cpu])
    register()
    _Worker(config, caller_lives).run()


def _end_with_caller(config: WorkerConfig) -> Callable[[], bool]:
    """End this process when the caller ends, even in a step that hangs; return how to ask whether the caller lives."""
    parent = os.getppid()
    if sys.platform == "linux" and config.bound:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent of a worker started by a fork server is that server, which ends with the caller.
    if (config.forked and parent != config.caller) or os.getppid() != parent:
        os._exit(1)
    if not config.bound:
        # The signal comes when the thread that started this process ends, which may be long before the caller does.
        threading.Thread(target=_end_with, args=(config.caller,), daemon=True).start()
    return lambda: os.getppid() == parent


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

    def __init__(self, config: WorkerConfig, caller_lives: Callable[[], bool]) -> None:
        self._config = config
        self._caller_lives = caller_lives
        division, layout, memory = config.team.division, config.team.layout, config.memory
        self._start, self._stop = division.shares[config.number]
        self._words = layout.words(memory.map, config.number)
        self._message = layout.message(memory.map)
        self._caller_asleep = layout.caller_asleep(memory.map)
        self._caller_bell = make_bell(memory, self._caller_asleep, config.caller_pipe)
        asleep = self._words.asleep
        self._waiter = Waiter(asleep, make_bell(memory, asleep, config.pipe), division.spin_ns)
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
        said = bytearray(ring)  # 1 where ``remarks`` is not 0
        count = 0

        def changed() -> bool:
            return request[0] != count

        while True:
            if request[0] == count and not self._wait(changed):
                return
            if fence:
                fence()
            slot = count % ring
            if (entry := entries[slot]) == END:
                return
            remark = self._handle(entry)
            if remark is not None:
                remarks[slot] = self._say(slot, remark)
                said[slot] = 1
            elif said[slot]:
                remarks[slot] = said[slot] = 0
            count += 1
            if fence:
                fence()
            done[0] = count
            if caller_asleep[0]:
                self._wake_caller()

    def _wait(self, changed: Callable[[], bool]) -> bool:
        """Return True once ``changed()``, and False if the caller is gone, so that nothing will change any more."""
        while not self._waiter.wait(changed, LOOK_SECONDS):
            if not self._caller_lives():
                return False
        return True

    def _wake_caller(self) -> None:
        self._caller_asleep[0] = 0
        self._caller_bell.ring()

    def _handle(self, entry: int) -> bytes | None:
        """Do what an entry asks for, and return the bytes of the remark on it, None if there is none."""
        try:
            remark = self._answer(entry)
            return None if remark is None else pickle.dumps(remark, pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller raises it
            return WorkerFailure.of(error, self._start, self._share).pickled()

    def _say(self, slot: int, remark: bytes) -> int:
        """Write a remark where the caller reads it; return its length."""
        config = self._config
        place = config.team.layout.place_of(config.number, slot)
        try:
            config.memory.write(place, remark)
        except OSError as error:  # there is no memory for it
            remark = WorkerFailure.of(error, self._start, self._share).pickled()
            config.memory.write(place, remark)
        return len(remark)

    def _answer(self, entry: int) -> object:
        share = self._share
        if entry == ALL and share is not None:
            return share.step()
        if share is None:
            return self._open()
        if entry == MESSAGE:
            message = self._config.memory.read(MESSAGE_PLACE, self._message[0])
            return share.answer(*pickle.loads(message))  # noqa: S301 - from the caller
        return share.step_one(entry)

    def _open(self) -> object:
        team, start, stop = self._config.team, self._start, self._stop
        rows = team.layout.arrays(self._config.memory.map).rows(start, stop)
        self._share = team.make_share(rows, start, stop)
        opened = self._share.open()
        # What was built stays: the garbage collector need not look through it again, in the middle of a step.
        gc.freeze()
        return opened
