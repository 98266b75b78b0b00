"""What a cell's processes used and what disturbed them, read from the kernel between windows.

Loaded by the measuring child: standard library only. Every counter is None where the system does not have it.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.machine.sysfs import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROC = Path("/proc")
NANOSECONDS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000_000
# Fields of a cpuN line in /proc/stat, proc(5), the label being field 0. Guests' time is in user and nice already.
BUSY = (1, 2, 3, 6, 7)  # user, nice, system, irq, softirq
STEAL = 8


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
    return _stat_ns(cpus, (STEAL,))


def busy_ns(cpus: list[int]) -> int | None:
    """Return the time that these CPUs have worked since boot, for whomever, in nanoseconds, tick by tick."""
    return _stat_ns(cpus, BUSY)


def _stat_ns(cpus: list[int], columns: tuple[int, ...]) -> int | None:
    try:
        lines = (PROC / "stat").read_text().splitlines()
    except OSError:
        return None
    names = {f"cpu{cpu}" for cpu in cpus}
    fields = [line.split() for line in lines if line.partition(" ")[0] in names]
    return sum(int(field[at]) for field in fields for at in columns if len(field) > at) * NANOSECONDS_PER_TICK


def throttling(groups: tuple[Path, ...]) -> tuple[int, int] | None:
    """Return how often these control groups were held back by their CPU quotas, and for how many nanoseconds.

    Both are sums: a group's own file does not tell of what held back its ancestors. None where no file tells.
    """
    told = [values for group in groups if (values := _throttling(group)) is not None]
    return (sum(times for times, _ in told), sum(spent for _, spent in told)) if told else None


def _throttling(group: Path) -> tuple[int, int] | None:
    values = dict(re.findall(r"^(\w+) (\d+)$", text_of(group / "cpu.stat"), re.ASCII | re.MULTILINE))
    if "nr_throttled" not in values:
        return None
    # Version 1 counts nanoseconds, version 2 microseconds.
    spent = int(values.get("throttled_time", 0)) or int(values.get("throttled_usec", 0)) * 1000
    return int(values["nr_throttled"]), spent


def involuntary_switches(pids: list[int]) -> int | None:
    """Return how often all threads of these processes were made to leave a CPU that they still wanted."""
    return _sum_of(pids, "status", re.compile(r"^nonvoluntary_ctxt_switches:\s+(\d+)", re.MULTILINE))


def migrations(pids: list[int]) -> int | None:
    """Return how often all threads of these processes were moved to another CPU, where the kernel tells that."""
    return _sum_of(pids, "sched", re.compile(r"^se\.nr_migrations\s+:\s+(\d+)", re.MULTILINE))


def _sum_of(pids: list[int], name: str, pattern: re.Pattern[str]) -> int | None:
    matches = [match for task in _tasks(pids) if (match := pattern.search(text_of(task / name)))]
    return sum(int(match[1]) for match in matches) if matches else None


def seats(pids: list[int]) -> list[list[str]]:
    """Return the CPUs that each thread of each process may use, as the kernel has them: Linux lists.

    Processes come in the order of ``pids``, threads in that of their ids; a process that has ended has none.
    """
    allowed = re.compile(r"^Cpus_allowed_list:\s+([\d,-]+)", re.MULTILINE)
    return [[match[1] for task in _tasks([pid]) if (match := allowed.search(text_of(task / "status")))] for pid in pids]


def _tasks(pids: list[int]) -> Iterator[Path]:
    for pid in pids:
        folder = PROC / str(pid) / "task"
        try:
            threads = sorted(map(int, os.listdir(folder)))  # noqa: PTH208 - half the time of Path.iterdir, in windows
        except OSError:  # it has ended
            continue
        yield from (folder / str(thread) for thread in threads)
