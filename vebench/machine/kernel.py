"""Facts and services of the Linux kernel: sets of CPUs, control groups, counters, and pinning to CPUs and memory nodes.

The measuring child loads this module before any large library. A missing or damaged file counts as an empty one, and a
counter is None if the system does not have it. Only version 2 of control groups is read. Memory is bound by a system
call, as in libnuma. It needs no privilege, but some containers forbid it. Formats: proc(5), cgroups(7), and
Documentation/admin-guide/cgroup-v2.rst in the kernel's tree.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from operator import itemgetter
from pathlib import Path

from vebench.machine import guardian

Cpus = tuple[int, ...]

PROC = Path("/proc")
MAX_CPU = 1 << 16  # above the NR_CPUS of any kernel: a larger number is a typing error or a damaged file
NANOSECONDS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000_000


def text_of(path: Path) -> str:
    """Return the stripped text of a file, or an empty string if the file cannot be read."""
    try:
        with path.open(errors="replace") as file:
            return file.read(1 << 22).strip(" \t\r\n\0")  # files of a copied tree may have any size
    except OSError:
        return ""


def ranges(text: str) -> list[range]:
    """Return the parts of a Linux list (``0-3,8``); none if the list is invalid, or has a number above ``MAX_CPU``."""
    parts: list[range] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part, re.ASCII)
        if match is None or int(match[2] or match[1]) > MAX_CPU:
            return []
        parts.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return parts if sum(map(len, parts)) <= MAX_CPU + 1 else []


@cache  # because a run file repeats the same lists many times
def parse_list(text: str) -> Cpus:
    """Return the numbers of a Linux list, ascending; empty if ``text`` is not such a list."""
    return tuple(sorted({number for part in ranges(text) for number in part}))


def number_in(path: Path) -> int | None:
    """Return the integer in a file, None if the text is not an integer."""
    text = text_of(path)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def entries(folder: Path, prefix: str) -> list[int]:
    """Return the numbers N of all entries named ``prefixN`` in a folder, ascending."""
    matches = (re.fullmatch(rf"{prefix}(\d{{1,6}})", path.name, re.ASCII) for path in folder.glob(f"{prefix}*"))
    return sorted(int(match[1]) for match in matches if match)


def control_groups(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the folders of this process's control group and its ancestors; none without version 2."""
    found = re.search(r"^0::(.*)$", text_of(root / "proc/self/cgroup"), re.MULTILINE)
    mounted = re.search(r"^\S+ (\S+) cgroup2 ", text_of(root / "proc/mounts"), re.MULTILINE)
    top = root / (mounted[1].lstrip("/") if mounted else "sys/fs/cgroup")
    if found is None or not os.access(top, os.X_OK):
        return ()
    own = top / found[1].strip("/")
    if ".." in own.parts or not os.access(own, os.X_OK):  # a container may mount only its own group
        own = top
    return tuple(folder for folder in (own, *own.parents) if folder.is_relative_to(top))


def cpu_quota(root: Path = Path("/")) -> tuple[float, str] | tuple[None, None]:
    """Return the smallest CPU quota of this process's control group and its ancestors, in CPUs, and its file."""
    found = []
    for folder in control_groups(root):
        limit = re.fullmatch(r"([1-9]\d{0,14}) ([1-9]\d{0,14})", text_of(folder / "cpu.max"), re.ASCII)
        if limit is not None:  # not "max 100000"
            found.append((int(limit[1]) / int(limit[2]), f"/{(folder / 'cpu.max').relative_to(root)}"))
    return min(found, key=itemgetter(0), default=(None, None))


def process_tree(root: int) -> list[int]:
    """Return ``root`` and all its descendants, parents before children; only ``root`` without /proc."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for pid, parent, _ in guardian.processes():
            children.setdefault(parent, []).append(pid)
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, []))
    return tree


def cpu_time_ns(pids: list[int]) -> int | None:
    """Return the CPU time of these processes and all their threads, summed, in nanoseconds."""
    try:
        # Compute the id of a process's CPU clock as clock_getcpuclockid(3) does on Linux.
        return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in pids)
    except (AttributeError, OSError):
        return None


def demand_ns(pids: list[int]) -> int | None:
    """Return for how long these processes have used or waited for a CPU, summed, in nanoseconds; None if unknown."""
    used = cpu_time_ns(pids)
    fields = [text_of(task / "schedstat").split() for task in _tasks(pids)]
    return None if used is None else used + sum(int(waited) for _, waited, _ in filter(None, fields))


def proportional_memory(pids: list[int]) -> int | None:
    """Return the memory of these processes in bytes. A page that n processes share counts as 1/n in each process."""
    found = [re.search(r"^Pss:\s+(\d+)", text_of(PROC / str(pid) / "smaps_rollup"), re.MULTILINE) for pid in pids]
    return sum(int(match[1]) * 1024 for match in found if match) or None


def resident_memory(pids: list[int]) -> int | None:
    """Return these processes' memory in bytes, within microseconds. A shared page counts fully in each process."""
    pages = [int(text.split()[1]) for pid in pids if (text := text_of(PROC / str(pid) / "statm"))]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") or None


def steal_ns(cpus: Sequence[int]) -> int | None:
    """Return the time that the hypervisor has taken from these CPUs since boot, in nanoseconds, in whole ticks."""
    return _stat_ns(cpus, (8,))


def busy_ns(cpus: Sequence[int]) -> int | None:
    """Return the time that these CPUs have worked for any process since boot, in nanoseconds, in whole ticks."""
    # The fields user, nice, system, irq and softirq. User and nice include guest time.
    return _stat_ns(cpus, (1, 2, 3, 6, 7))


def _stat_ns(cpus: Sequence[int], columns: tuple[int, ...]) -> int | None:
    names = {f"cpu{cpu}" for cpu in cpus}
    lines = text_of(PROC / "stat").splitlines()
    fields = [line.split() for line in lines if line.partition(" ")[0] in names]
    ticks = sum(int(field[at]) for field in fields for at in columns if len(field) > at)
    return ticks * NANOSECONDS_PER_TICK if lines else None


def throttling(groups: Sequence[Path], name: str, unit: int = 1) -> int | None:
    """Return ``unit`` times the count ``name`` of CPU throttling, summed over control groups, None if none has it."""
    texts = [text_of(group / "cpu.stat") for group in groups]
    found = [match for text in texts if (match := re.search(rf"^{name} (\d+)$", text, re.ASCII | re.MULTILINE))]
    return unit * sum(int(match[1]) for match in found) if found else None


def cpus_by_thread(pids: list[int]) -> list[list[str]]:
    """Return the CPUs that each thread of each process may use, as Linux lists. An ended process has no threads."""
    allowed = re.compile(r"^Cpus_allowed_list:\s+([\d,-]+)", re.MULTILINE)
    return [[match[1] for task in _tasks([pid]) if (match := allowed.search(text_of(task / "status")))] for pid in pids]


def priorities(pids: list[int]) -> list[str]:
    """Return the priorities of all threads of these processes, each once: ``nice -5``, ``real-time 1``."""
    stats = [text_of(task / "stat").rpartition(")")[2].split() for task in _tasks(pids)]
    # Field 18 is the nice value plus 20, or negative with a real-time policy. The name before ")" is field 2.
    found = dict.fromkeys(int(fields[15]) for fields in stats if fields)
    return [f"nice {each - 20}" if each >= 0 else f"real-time {-1 - each}" for each in found]


def _tasks(pids: list[int]) -> Iterator[Path]:
    for pid in pids:
        folder = PROC / str(pid) / "task"
        try:
            threads = sorted(map(int, os.listdir(folder)))  # noqa: PTH208 - half the time of Path.iterdir, in windows
        except OSError:  # the process has ended
            continue
        yield from (folder / str(thread) for thread in threads)


SUPPORTED = hasattr(os, "sched_setaffinity")

PIN_POLICIES = ("compact", "scatter", "none")  # the CPUs that cells run on
SMT_POLICIES = ("last", "off", "close")  # the use of second threads of cores

# Each library gets one thread in each worker. Otherwise W workers on W CPUs run W x W threads (pytorch/rl #1325).
# A library reads these variables when it is loaded, so the parent sets them.
_LIMITS = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")]
ONE_THREAD_EACH = dict.fromkeys((*_LIMITS, "VECLIB_MAXIMUM_THREADS", "OPENCV_FOR_THREADS_NUM"), "1")


def restrict(cpus: list[int] | tuple[int, ...]) -> tuple[int, ...] | None:
    """Restrict this thread, and all that it will start, to ``cpus``, if any. Return the CPUs that the kernel reports.

    Returns None if the system has no CPU affinity. Raises OSError if the kernel refuses.
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


def own_threads() -> list[int]:
    """Return the ids of this process's threads, the oldest first; none if the system does not list them."""
    tasks = Path("/proc/self/task")
    return [int(thread.name) for thread in tasks.iterdir()] if tasks.exists() else []


def pin_threads(threads: Sequence[int], cpus: Sequence[int]) -> None:
    """Pin each thread to a separate CPU, because the kernel sometimes puts two of them on the same CPU."""
    for thread, cpu in zip(threads, cpus):  # noqa: B905 - there may be more CPUs than threads
        os.sched_setaffinity(thread, {cpu})


def bind_memory(nodes: Sequence[int]) -> str | None:
    """Bind the memory of this thread, and of all that it will start, to ``nodes``. Return why not, None on success."""
    if not nodes:
        return "no memory node is known for these CPUs"
    # The number of set_mempolicy in the kernel's tables of system calls.
    number = {"x86_64": 238, "aarch64": 237, "riscv64": 237}.get(os.uname().machine)
    if number is None or sys.platform != "linux" or sys.maxsize < 1 << 32:
        return "not supported on this system"
    most = 1024  # the largest number of nodes that a kernel can be built for. It uses one bit less than it is passed.
    mask = sum(1 << node for node in nodes).to_bytes(most // 8, "little")
    failed = libc().syscall(number, ctypes.c_int(2), mask, ctypes.c_ulong(most + 1))  # MPOL_BIND
    return os.strerror(ctypes.get_errno()) if failed else None


def die_with_parent() -> None:
    """Let the kernel end this process when the thread that started it ends. Linux only."""
    libc().prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


@cache
def libc() -> ctypes.CDLL:
    """Return the C library, whose ``syscall`` makes any system call."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library
