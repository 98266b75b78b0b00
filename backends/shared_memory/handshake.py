"""How two processes wait for each other: each polls a sequence number in shared memory for a while, then sleeps.

A word has one writer. The writer writes its data, then the word. The other side polls the word, then reads the data.

    worker:  polls ``request`` --changed--> works --> writes ``done``, wakes the caller if it is asleep --> polls again
    caller:  writes ``request``, wakes the worker if it is asleep --> works --> polls ``done`` --changed--> reads
    either:  polled too long -> ``asleep`` = 1 --> heavy fence --> looks once more --> sleeps until a byte comes

docs/shared-memory.md ("The handshake") explains why the other side then sees the data, and why no wake-up is lost.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection

from vebench.machine import kernel

_MACHINE = platform.machine()
KEEPS_ORDER = _MACHINE in ("x86_64", "AMD64", "i686", "i386")

# A wake-up takes 30 to 50 microseconds, so polling for about that time pays. A process polls longer if that was enough
# in the last waits, like a hypervisor that polls before it halts a virtual CPU (Linux,
# Documentation/virt/kvm/halt-polling.rst).
_LEAST_SPIN_NS = 50_000
MOST_SPIN_NS = 400_000

_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 2, 4  # linux/membarrier.h
# The number of the system call on each machine, from the kernel's tables.
_MEMBARRIERS = {"x86_64": 324, "aarch64": 283}
_MEMBARRIER = _MEMBARRIERS.get(_MACHINE, 0) if sys.platform == "linux" and sys.maxsize > 1 << 32 else 0


def _new_fence() -> Callable[[], None]:
    """Return a fence: all loads and stores of this thread before the call happen before all those after it."""
    lock = threading.Lock()

    def fence() -> None:
        with lock:
            pass
        with lock:
            pass

    return fence


@cache
def _registered(_process: int) -> bool:
    return bool(_MEMBARRIER) and kernel.libc().syscall(_MEMBARRIER, _REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0


def register() -> bool:
    """Let this process take part in the heavy fences of other processes. Return whether the kernel has such fences."""
    return _registered(os.getpid())


def light_fence() -> Callable[[], None] | None:
    """Return a new fence, or None if the processor and the heavy fences of other processes suffice."""
    return None if register() and KEEPS_ORDER else _new_fence()


def heavy_fence() -> None:
    """Fence this process and, if the kernel supports it, every registered process that is running."""
    if not register() or kernel.libc().syscall(_MEMBARRIER, _GLOBAL_EXPEDITED, 0, 0) != 0:
        _new_fence()()


def ring(writer: Connection) -> None:
    """Wake the process that sleeps on the other end of this pipe, unless it has ended. Clear its flag first."""
    with contextlib.suppress(OSError):
        os.write(writer.fileno(), b"!")


class Waiter:
    """Waits for one side: it polls for at most ``spin_ns``, less if polling failed lately, and then sleeps.

    ``flag`` is the word that says that this side is asleep. This side sleeps until ``pipe`` has a byte to read. A byte
    from an earlier wake-up only makes it check once more.
    """

    def __init__(self, flag: memoryview, pipe: Connection, spin_ns: int = MOST_SPIN_NS) -> None:
        self._flag = flag
        self._pipe = pipe
        self._bell = select.poll()  # select() refuses descriptors from 1024 on
        self._bell.register(pipe.fileno(), select.POLLIN)
        self._most_ns = spin_ns
        self._least_ns = self._spin_ns = min(spin_ns, _LEAST_SPIN_NS)
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
            heavy_fence()
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
