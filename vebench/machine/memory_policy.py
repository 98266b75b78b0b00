"""On which memory nodes a process' pages come to lie: asked for by system call, and read back.

Loaded by the measuring child before anything heavy: the standard library of Python 3.10. No library is needed for three
numbers (libnuma would set the same policy), and no privilege; only some containers forbid the calls.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections import Counter
from pathlib import Path

PROC = Path("/proc")
# From the kernel's tables of system calls: get_mempolicy, set_mempolicy.
_GENERIC = (236, 237)
_CALLS = {"x86_64": (239, 238), "aarch64": _GENERIC, "riscv64": _GENERIC, "ppc64le": (260, 261), "s390x": (269, 270)}
_NUMBERS = _CALLS.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
# linux/mempolicy.h
_DEFAULT, _PREFERRED, _BIND, _INTERLEAVE, _LOCAL, _PREFERRED_MANY = range(6)
_NAMES = ("default", "preferred", "bind", "interleave", "local", "preferred")
_MODES = {"local": (_LOCAL,), "bind": (_BIND,), "preferred": (_PREFERRED_MANY, _PREFERRED)}
_MODE_BITS = 0xFFF  # above are flags
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)
_MOST_NODES = 1024  # what kernels are built for at the most (CONFIG_NODES_SHIFT)
_KIB = 1024
# The names by which shared memory goes: anonymous, of memfd_create(2), POSIX's, System V's.
_SHARED_MEMORY = ("/dev/zero", "/memfd:", "/dev/shm/", "/SYSV")  # noqa: S108 - to be recognised, not written to


def apply(policy: str, nodes: tuple[int, ...] | list[int]) -> str | None:
    """Have this process, and all that it will start, take memory by ``policy``; return why not, None if it does.

    ``local``: from the node of the CPU that touches it first. ``bind``: from ``nodes`` only. ``preferred``: from
    ``nodes`` while they have any; kernels before 5.15 know one of them only, and get the first. Where it cannot be done
    nothing is changed: memory then comes from the node that touches it first, which a pinned process mostly wants.
    """
    if policy != "local" and not nodes:
        return "no memory node is known for these CPUs"
    if _NUMBERS is None:
        return "not on this system"
    reason = ""
    for mode in _MODES[policy]:
        wanted = [] if mode == _LOCAL else nodes[:1] if mode == _PREFERRED else nodes
        error = _set(mode, wanted)
        if not error:
            return None
        reason = os.strerror(error)
    return reason


def _set(mode: int, nodes: tuple[int, ...] | list[int]) -> int:
    """Return 0, or the error's number."""
    words = (ctypes.c_ulong * (_MOST_NODES // _WORD))()
    for node in nodes:
        words[node // _WORD] |= 1 << (node % _WORD)
    assert _NUMBERS is not None  # noqa: S101 - the callers have looked
    # The kernel takes one bit less than it is told of.
    mask, bits = (words, _MOST_NODES + 1) if nodes else (None, 0)
    done = _libc().syscall(_NUMBERS[1], ctypes.c_int(mode), mask, ctypes.c_ulong(bits))
    return ctypes.get_errno() if done else 0


def read_back() -> str | None:
    """Return the policy of this thread as ``numa_maps`` writes it, such as ``bind:0-1``; None if it cannot be read."""
    if _NUMBERS is None:
        return None
    mode, words = ctypes.c_int(), (ctypes.c_ulong * (_MOST_NODES // _WORD))()
    none, bits = ctypes.c_ulong(0), ctypes.c_ulong(_MOST_NODES + 1)
    if _libc().syscall(_NUMBERS[0], ctypes.byref(mode), words, bits, None, none):
        return None
    number = mode.value & _MODE_BITS
    if number >= len(_NAMES):
        return f"mode {number}"
    nodes = [index for index in range(_MOST_NODES) if words[index // _WORD] >> (index % _WORD) & 1]
    return _NAMES[number] + (f":{','.join(map(str, nodes))}" if nodes else "")


def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def bytes_by_node(pids: list[int]) -> dict[int, int] | None:
    """Return how much memory of their own these processes have on each node, None where the kernel does not tell.

    Counted are pages that no file is behind, and shared memory; a library's code may long have lain elsewhere. What
    several processes share is counted for each. Format: Documentation/filesystems/proc.rst, ``numa_maps``.
    """
    found: Counter[int] = Counter()
    told = False
    for pid in pids:
        try:
            lines = (PROC / str(pid) / "numa_maps").read_text(errors="replace").splitlines()
        except OSError:  # it has ended, or there is no such file here
            continue
        told = True
        for line in lines:
            found.update(_of_line(line))
    return dict(sorted(found.items())) if told else None


def _of_line(line: str) -> dict[int, int]:
    behind = re.search(r" file=(\S+)", line)
    if behind is not None and " anon=" not in line and not behind.group(1).startswith(_SHARED_MEMORY):
        return {}
    size = re.search(r" kernelpagesize_kB=(\d+)", line)
    page = int(size.group(1)) * _KIB if size else os.sysconf("SC_PAGE_SIZE")
    return {int(node): int(pages) * page for node, pages in re.findall(r" N(\d+)=(\d+)", line)}
