"""How two processes wait for each other: sequence numbers in shared memory, polled for a while and then slept on.

A word has one writer. The writer writes its data, then the word. The other side polls the word, then reads the data.

    worker:  polls ``request`` --changed--> works --> writes ``done``, wakes the caller if it is asleep --> polls again
    caller:  writes ``request``, wakes the worker if it is asleep --> works --> polls ``done`` --changed--> reads
    either:  polled too long -> ``asleep`` = 1 --> heavy fence --> looks once more --> sleeps while ``asleep`` is 1

Why the other side then sees the data, and why no wake-up is lost: docs/shared-memory.md, "The handshake". In short: x86
keeps the order of stores and of loads, and elsewhere both sides call a ``light_fence`` between word and data. The waker
writes the word and then reads ``asleep``, the sleeper the other way round, with a ``heavy_fence`` in between, which
orders both sides; where the kernel refuses ``membarrier``, sleeps are short, and a lost wake-up costs one of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import sys
import threading
import time
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING

from vebench.machine import pinning

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_MACHINE = platform.machine()
KEEPS_ORDER = _MACHINE in ("x86_64", "AMD64", "i686", "i386")

# Polling pays for about as long as waking up takes, 30 to 50 microseconds. It goes on for longer where that has proved
# to be enough, as a hypervisor polls before it halts a virtual CPU (Linux, Documentation/virt/kvm/halt-polling.rst).
_LEAST_SPIN_NS = 50_000
MOST_SPIN_NS = 400_000
# Without membarrier no sleep lasts longer than this: the first one, and those after a while of sleeping.
_FIRST_NAP_SECONDS = 0.001
_LAST_NAP_SECONDS = 0.064

_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 2, 4
# From the kernel's tables: futex, membarrier.
_CALLS = {"x86_64": (202, 324), "aarch64": (98, 283)}
FUTEX, _MEMBARRIER = _CALLS.get(_MACHINE, (0, 0)) if sys.platform == "linux" and sys.maxsize > 1 << 32 else (0, 0)


def light_fence() -> Callable[[], None] | None:
    """Return a new fence, for one thread; None where the processor keeps the order by itself.

    On Arm all that comes before a release is done before it, a release before a later acquire, and an acquire before
    all that comes after it (Arm ARM B2.3, "barrier-ordered-before"). POSIX asks the same of semaphores, as locks are.
    """
    if KEEPS_ORDER:
        return None
    lock = threading.Lock()
    lock.acquire()

    def fence() -> None:
        lock.acquire(False)  # it is held already, unless an interrupt came between the other two lines
        lock.release()
        lock.acquire()

    return fence


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@cache
def _registered(_process: int) -> bool:
    return bool(_MEMBARRIER) and pinning.libc().syscall(_MEMBARRIER, _REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0


def register() -> bool:
    """Let this process take part in the heavy fences of others; return whether the kernel has them."""
    return _registered(os.getpid())


def heavy_fence() -> bool:
    """Fence every registered process that is running, this one too; return whether the kernel did."""
    return register() and pinning.libc().syscall(_MEMBARRIER, _GLOBAL_EXPEDITED, 0, 0) == 0


class FutexBell:
    """Puts one process to sleep, and wakes it: on its flag itself, in the kernel (``futex(2)``)."""

    def __init__(self, memory: mmap.mmap, flag: memoryview) -> None:
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        offset = ctypes.addressof(ctypes.c_char.from_buffer(flag)) - base
        # It holds the memory as long as it has its address.
        self._word = ctypes.c_int32.from_buffer(memory, offset)
        self._address = ctypes.c_void_p(base + offset)
        self._call = pinning.libc().syscall

    def wait(self, seconds: float) -> None:
        """Sleep while the flag is 1, until rung, for ``seconds`` at most. It may return for no reason."""
        timeout = _Timespec(int(seconds), int(seconds % 1 * 1e9))
        code = self._call(FUTEX, self._address, _FUTEX_WAIT, 1, ctypes.byref(timeout), None, 0)
        if code == -1 and (error := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
            raise OSError(error, f"futex: {os.strerror(error)}")

    def ring(self) -> None:
        """Wake the sleeper, whose flag was cleared before."""
        self._call(FUTEX, self._address, _FUTEX_WAKE, 1, None, None, 0)


class PipeBell:
    """Sleeps on a pipe, where there is no futex. A byte left over from before only wakes the sleeper to look again."""

    def __init__(self, reader: Connection, writer: Connection) -> None:
        self._reader, self._writer = reader, writer

    def wait(self, seconds: float) -> None:
        """Sleep until there is a byte to read, or for ``seconds``."""
        if self._reader.poll(seconds):
            os.read(self._reader.fileno(), 64)

    def ring(self) -> None:
        """Write a byte, unless the sleeper is gone."""
        with contextlib.suppress(OSError):
            os.write(self._writer.fileno(), b"!")


Bell = FutexBell | PipeBell


@cache
def _poll_ns() -> float:
    """Return how long one look takes, in nanoseconds: the best of a few tries, since others may be running too."""
    word = memoryview(bytearray(8)).cast("q")

    def changed() -> bool:
        return word[0] != 0

    best = 1000.0
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in repeat(None, 200):
            if changed():
                break
        best = min(best, (time.perf_counter_ns() - start) / 200)
    return max(10.0, best)


class Waiter:
    """Waits for one side: it polls for at most ``spin_ns``, less if polling failed lately, and then sleeps.

    ``flag`` is the word that says that this side is asleep.
    """

    def __init__(self, flag: memoryview, bell: Bell, spin_ns: int = MOST_SPIN_NS) -> None:
        self._flag = flag
        self._bell = bell
        self._most = int(spin_ns / _poll_ns())
        self._least = min(self._most, int(_LEAST_SPIN_NS / _poll_ns()))
        self._polls = self._least
        self._most_ns = spin_ns
        self.sleeps = 0

    def wait(self, changed: Callable[[], bool], seconds: float) -> bool:
        """Return True as soon as ``changed()``, which must be cheap, or False after about ``seconds``."""
        for _ in repeat(None, self._polls):
            if changed():
                return True
        return self._sleep(changed, seconds)

    def _sleep(self, changed: Callable[[], bool], seconds: float) -> bool:
        start = now = time.monotonic()
        nap = _FIRST_NAP_SECONDS
        flag = self._flag
        while True:
            flag[0] = 1
            sound = heavy_fence()
            if changed():
                break
            left = start + seconds - now
            if left <= 0.0:
                flag[0] = 0
                self._polls = self._least
                return changed()
            self.sleeps += 1
            self._bell.wait(left if sound else min(left, nap))
            nap = min(2 * nap, _LAST_NAP_SECONDS)
            now = time.monotonic()
        flag[0] = 0
        # In reach: it would not have slept if it had polled for a little longer. Otherwise polling was useless.
        in_reach = (time.monotonic() - start) * 1e9 < self._most_ns
        self._polls = min(self._most, 2 * self._polls) if in_reach else self._least
        return True
