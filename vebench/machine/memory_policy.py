"""The memory nodes that a process' pages come from: set by a system call, and read back.

The measuring child loads this before any large library. Three numbers need no library (libnuma would set the same
policy), and the calls need no privilege, but some containers forbid them.
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
_MODE_BITS = 0xFFF  # higher bits are flags
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)
_MOST_NODES = 1024  # the most that a kernel can be built for (CONFIG_NODES_SHIFT)
_KIB = 1024
# File names of shared memory: anonymous, memfd_create(2), POSIX, System V.
_SHARED_MEMORY = ("/dev/zero", "/memfd:", "/dev/shm/", "/SYSV")  # noqa: S108 - only compared, never written to


def apply(policy: str, nodes: tuple[int, ...] | list[int]) -> str | None:
    """Set the memory policy of this process and of all that it will start. Returns None, or why it was not set.

    ``local``: memory comes from the node of the CPU that touches it first. ``bind``: only from ``nodes``.
    ``preferred``: from ``nodes`` while they have free memory; kernels before 5.15 support one node only, and get the
    first. If the policy cannot be set, nothing changes: memory then comes from the node whose CPU touches it first,
    which usually suits a pinned process.
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
    """Return 0, or the error number."""
    words = (ctypes.c_ulong * (_MOST_NODES // _WORD))()
    for node in nodes:
        words[node // _WORD] |= 1 << (node % _WORD)
    assert _NUMBERS is not None  # noqa: S101 - the caller has checked
    # The kernel uses one bit less than the given count.
    mask, bits = (words, _MOST_NODES + 1) if nodes else (None, 0)
    done = _libc().syscall(_NUMBERS[1], ctypes.c_int(mode), mask, ctypes.c_ulong(bits))
    return ctypes.get_errno() if done else 0


def read_back() -> str | None:
    """Return the policy of this thread in the style of ``numa_maps``, such as ``bind:0``; None if it cannot be read."""
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
    """Return how many bytes of their own these processes have on each node, None if the kernel does not report it.

    Counts pages without a file, and shared memory, but not the code of libraries, which may have been loaded long ago
    on another node. Memory that several processes share counts once in each of them.
    Format: Documentation/filesystems/proc.rst, ``numa_maps``.
    """
    found: Counter[int] = Counter()
    known = False
    for pid in pids:
        try:
            lines = (PROC / str(pid) / "numa_maps").read_text(errors="replace").splitlines()
        except OSError:  # it has ended, or there is no such file here
            continue
        known = True
        for line in lines:
            found.update(_of_line(line))
    return dict(sorted(found.items())) if known else None


def _of_line(line: str) -> dict[int, int]:
    behind = re.search(r" file=(\S+)", line)
    if behind is not None and " anon=" not in line and not behind.group(1).startswith(_SHARED_MEMORY):
        return {}
    size = re.search(r" kernelpagesize_kB=(\d+)", line)
    page = int(size.group(1)) * _KIB if size else os.sysconf("SC_PAGE_SIZE")
    return {int(node): int(pages) * page for node, pages in re.findall(r" N(\d+)=(\d+)", line)}
