"""Restricts a process to the CPUs and memory nodes of its cell, and reads the restrictions back from the kernel.

The measuring child loads this module before any large library. Memory policies are set by system calls, as libnuma
does. They need no privilege, but some containers forbid them.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from vebench.machine.kernel import PROC, text_of

SUPPORTED = hasattr(os, "sched_setaffinity")

# The user's choices.
PIN_POLICIES = ("compact", "scatter", "none")  # the CPUs that cells run on
SMT_POLICIES = ("last", "off", "close")  # the use of second threads of cores
MEMORY_POLICIES = ("local", "bind", "preferred")

# Each library gets one thread in each worker. Otherwise W workers on W CPUs run W x W threads (pytorch/rl #1325).
# A library reads these variables when it is loaded, so the parent sets them.
_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")
ONE_THREAD_EACH = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES} | {
    "VECLIB_MAXIMUM_THREADS": "1",
    "OPENCV_FOR_THREADS_NUM": "1",
}

# The numbers of get_mempolicy and set_mempolicy in the kernel's tables of system calls.
_CALLS = {"x86_64": (239, 238), "aarch64": (236, 237), "riscv64": (236, 237)}
_NUMBERS = _CALLS.get(os.uname().machine) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
# Policies by their numbers in linux/mempolicy.h. Number 5 allows several preferred nodes, since Linux 5.15.
_NAMES = ("default", "preferred", "bind", "interleave", "local", "preferred")
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)
_MOST_NODES = 1024  # the largest number of nodes that a kernel can be built for (CONFIG_NODES_SHIFT)
# How file names of shared memory begin: anonymous, memfd_create(2), POSIX, System V.
_SHARED_MEMORY = ("/dev/zero", "/memfd:", "/dev/shm/", "/SYSV")  # noqa: S108 - only compared, never written to


def restrict(cpus: list[int] | tuple[int, ...]) -> tuple[int, ...] | None:
    """Restrict this thread, and all that it will start, to ``cpus``, if any. Return the CPUs that the kernel reports.

    Returns None if the system has no CPU affinity. Raises OSError if the kernel refuses, for example because no CPU is
    in the cpuset.
    """
    if not SUPPORTED:
        return None
    if cpus:
        os.sched_setaffinity(0, cpus)
    return allowed()


def keep_off(cpus: Sequence[int], home: Sequence[int] | None) -> None:
    """Restrict this process to its CPUs ``home`` without a cell's ``cpus``, or to ``home`` if none would be left."""
    if home is not None:
        restrict(sorted(set(home).difference(cpus)) or list(home))


def allowed() -> tuple[int, ...] | None:
    """Return the CPUs that this process may use, sorted; None if the system has no CPU affinity."""
    return tuple(sorted(os.sched_getaffinity(0))) if SUPPORTED else None


def own_threads() -> set[int]:
    """Return the ids of this process's threads; none if the system does not list them."""
    tasks = Path("/proc/self/task")
    return {int(thread.name) for thread in tasks.iterdir()} if tasks.exists() else set()


def pin_threads(threads: Sequence[int], cpus: Sequence[int]) -> None:
    """Pin each thread to a separate CPU, because the kernel sometimes puts two of them on the same CPU."""
    for thread, cpu in zip(threads, cpus):  # noqa: B905 - there may be more CPUs than threads
        os.sched_setaffinity(thread, {cpu})


def set_memory_policy(policy: str, nodes: Sequence[int]) -> str | None:
    """Set the memory policy of this thread and of all that it will start. Return why it was not set, None if it was.

    ``local``: memory comes from the node of the CPU that touches it first, which is the kernel's default. ``bind``:
    memory comes only from ``nodes``. ``preferred``: memory comes from ``nodes`` while they have free memory.
    """
    if policy == "local":
        nodes = ()
    elif not nodes:
        return "no memory node is known for these CPUs"
    if _NUMBERS is None:
        return None if policy == "local" else "not supported on this system"
    mode = ctypes.c_int({"local": 4, "bind": 2, "preferred": 5}[policy])
    words = (ctypes.c_ulong * (_MOST_NODES // _WORD))()
    for node in nodes:
        words[node // _WORD] |= 1 << (node % _WORD)
    # The kernel uses one bit less than the count that it gets.
    mask, bits = (words, _MOST_NODES + 1) if nodes else (None, 0)
    failed = libc().syscall(_NUMBERS[1], mode, mask, ctypes.c_ulong(bits))
    return os.strerror(ctypes.get_errno()) if failed else None


def memory_policy() -> str | None:
    """Return the policy of this thread in the style of ``numa_maps``, such as ``bind:0``; None if it cannot be read."""
    if _NUMBERS is None:
        return None
    mode, words = ctypes.c_int(), (ctypes.c_ulong * (_MOST_NODES // _WORD))()
    none, bits = ctypes.c_ulong(0), ctypes.c_ulong(_MOST_NODES + 1)
    if libc().syscall(_NUMBERS[0], ctypes.byref(mode), words, bits, None, none):
        return None
    number = mode.value & 0xFFF  # higher bits are flags
    name = _NAMES[number] if number < len(_NAMES) else f"mode {number}"
    nodes = [index for index in range(_MOST_NODES) if words[index // _WORD] >> (index % _WORD) & 1]
    return name + (f":{','.join(map(str, nodes))}" if nodes else "")


@cache
def libc() -> ctypes.CDLL:
    """Return the C library, whose ``syscall`` makes any system call."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def bytes_by_node(pids: list[int]) -> dict[int, int] | None:
    """Return the bytes that these processes have on each node, None if the kernel does not report them.

    The code of libraries is not counted, because an earlier process may have loaded it on another node. Shared memory
    counts once in each process. Format: Documentation/filesystems/proc.rst, ``numa_maps``.
    """
    found: Counter[int] = Counter()
    texts = [text_of(PROC / str(pid) / "numa_maps") for pid in pids]
    for text in texts:
        for line in text.splitlines():
            behind = re.search(r" file=(\S+)", line)
            if behind is None or " anon=" in line or behind[1].startswith(_SHARED_MEMORY):
                size = re.search(r" kernelpagesize_kB=(\d+)", line)
                page = int(size[1]) * 1024 if size else os.sysconf("SC_PAGE_SIZE")
                found.update({int(node): int(pages) * page for node, pages in re.findall(r" N(\d+)=(\d+)", line)})
    return dict(sorted(found.items())) if any(texts) else None
