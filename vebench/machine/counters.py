"""What a cell's processes used and what disturbed them, read from the kernel between windows.

Loaded by the measuring child: standard library only. Every counter is None where the system does not have it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
NANOSECONDS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000_000
STEAL = 8  # field of a cpuN line in /proc/stat, proc(5), the label being field 0


def process_tree(root: int) -> list[int]:
    """Return ``root`` and all processes below it, parents before children; ``root`` alone where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            # The command name stands in parentheses and may hold anything, also parentheses: proc(5).
            parent = int(entry.read_bytes().rpartition(b")")[2].split()[1])
        except OSError:  # it ended in the meantime
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, []))
    return tree


def cpu_time_ns(pids: list[int]) -> int | None:
    """Return the CPU time that these processes have used together, all their threads, in nanoseconds."""
    try:
        return sum(time.clock_gettime_ns(_cpu_clock(pid)) for pid in pids)
    except (AttributeError, OSError):
        return None


def _cpu_clock(pid: int) -> int:
    """Return the id of a process' CPU clock, as ``clock_getcpuclockid(3)`` makes it on Linux."""
    return (~pid << 3) | 2


def proportional_memory(pids: list[int]) -> int | None:
    """Return the memory of these processes in bytes, a page that n processes share counted as an n-th in each of them.

    Forked workers share most of their pages: a sum of resident sizes would count those once for every worker.
    """
    total = 0
    for pid in pids:
        try:
            lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total or None


def steal_ns(cpus: list[int]) -> int | None:
    """Return the time that the hypervisor has taken from these CPUs since boot, in nanoseconds, tick by tick."""
    try:
        lines = (PROC / "stat").read_text().splitlines()
    except OSError:
        return None
    names = {f"cpu{cpu}" for cpu in cpus}
    fields = [line.split() for line in lines if line.partition(" ")[0] in names]
    return sum(int(field[STEAL]) for field in fields if len(field) > STEAL) * NANOSECONDS_PER_TICK


def throttled_ns(root: Path = Path("/")) -> int | None:
    """Return how long this process' cgroup (version 2) has been held back by its CPU quota, in nanoseconds."""
    group = own_cgroup(root)
    if group is None:
        return None
    try:
        lines = (group / "cpu.stat").read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split() for line in lines if len(line.split()) == 2)  # noqa: PLR2004 - a key and its value
    microseconds = values.get("throttled_usec")
    return None if microseconds is None else int(microseconds) * 1000


def own_cgroup(root: Path = Path("/")) -> Path | None:
    """Return the folder of this process' cgroup (version 2) under the file system at ``root``, None if it has none."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        hierarchy, _, path = line.split(":", 2)
        if hierarchy == "0":
            # In a container the path is often the host's, and the mount shows the own group as its root.
            inside = root / "sys/fs/cgroup" / path.lstrip("/")
            return inside if inside.is_dir() else root / "sys/fs/cgroup"
    return None
