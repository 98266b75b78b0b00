"""Counters of the kernel for a cell's processes and CPUs, read between windows.

A counter is None if the system does not have it. ``child/answers.py`` declares which of them a window has.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vebench.machine.sysfs import PROC, text_of

NANOSECONDS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 10_000_000
# Fields of a cpuN line in /proc/stat, proc(5); field 0 is the label. User and nice already include guest time.
_BUSY = (1, 2, 3, 6, 7)  # user, nice, system, irq, softirq
_STEAL = 8
_PRIORITY = 15  # field 18 of /proc/PID/stat, counted from the state, which follows the name


def process_tree(root: int) -> list[int]:
    """Return ``root`` and all its descendants, parents before children; only ``root`` without /proc."""
    children: dict[int, list[int]] = {}
    for pid in map(int, filter(str.isdecimal, os.listdir(PROC) if PROC.is_dir() else ())):  # noqa: PTH208 - faster
        try:
            with open(f"{PROC}/{pid}/stat", "rb") as file:  # noqa: PTH123 - faster
                # The command name is in parentheses and may contain anything, even parentheses: proc(5).
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(pid)
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, []))
    return tree


def cpu_time_ns(pids: list[int]) -> int | None:
    """Return the CPU time of these processes and all their threads, summed, in nanoseconds."""
    try:
        # The ids of the processes' CPU clocks, computed as ``clock_getcpuclockid(3)`` does on Linux.
        return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in pids)
    except (AttributeError, OSError):
        return None


def proportional_memory(pids: list[int]) -> int | None:
    """Return the memory of these processes in bytes; a page that n processes share counts as 1/n in each of them."""
    total = 0
    for pid in pids:
        try:
            lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total or None


def steal_ns(cpus: Sequence[int]) -> int | None:
    """Return the time that the hypervisor has taken from these CPUs since boot, in nanoseconds, in whole ticks."""
    return _stat_ns(cpus, (_STEAL,))


def busy_ns(cpus: Sequence[int]) -> int | None:
    """Return the time that these CPUs have worked for any process since boot, in nanoseconds, in whole ticks."""
    return _stat_ns(cpus, _BUSY)


def _stat_ns(cpus: Sequence[int], columns: tuple[int, ...]) -> int | None:
    try:
        lines = (PROC / "stat").read_text().splitlines()
    except OSError:
        return None
    names = {f"cpu{cpu}" for cpu in cpus}
    fields = [line.split() for line in lines if line.partition(" ")[0] in names]
    return sum(int(field[at]) for field in fields for at in columns if len(field) > at) * NANOSECONDS_PER_TICK


def throttles(groups: Sequence[Path]) -> int | None:
    """Return how often CPU quotas throttled these control groups, summed; None if no file reports it."""
    return _throttling(groups, "nr_throttled")


def throttled_ns(groups: Sequence[Path]) -> int | None:
    """Return for how many nanoseconds CPU quotas throttled these control groups, summed; None if unknown."""
    microseconds = _throttling(groups, "throttled_usec")
    return None if microseconds is None else 1000 * microseconds


def _throttling(groups: Sequence[Path], name: str) -> int | None:
    texts = [text_of(group / "cpu.stat") for group in groups]
    found = [match for text in texts if (match := re.search(rf"^{name} (\d+)$", text, re.ASCII | re.MULTILINE))]
    return sum(int(match[1]) for match in found) if found else None


def cpus_by_thread(pids: list[int]) -> list[list[str]]:
    """Return the CPUs that each thread of each process may use, as the kernel's own text: Linux lists.

    Processes are in the order of ``pids``, threads ordered by id; a process that has ended has no threads.
    """
    allowed = re.compile(r"^Cpus_allowed_list:\s+([\d,-]+)", re.MULTILINE)
    return [[match[1] for task in _tasks([pid]) if (match := allowed.search(text_of(task / "status")))] for pid in pids]


def priorities(pids: list[int]) -> list[str]:
    """Return the priorities of all threads of these processes, each once: ``nice -5``, ``real-time 1``."""
    stats = [text_of(task / "stat").rpartition(")")[2].split() for task in _tasks(pids)]
    # proc(5): 20 more than the nice value, below 0 with a policy of real time.
    found = dict.fromkeys(int(fields[_PRIORITY]) for fields in stats if fields)
    return [f"nice {each - 20}" if each >= 0 else f"real-time {-1 - each}" for each in found]


def _tasks(pids: list[int]) -> Iterator[Path]:
    for pid in pids:
        folder = PROC / str(pid) / "task"
        try:
            threads = sorted(map(int, os.listdir(folder)))  # noqa: PTH208 - half the time of Path.iterdir, in windows
        except OSError:  # it has ended
            continue
        yield from (folder / str(thread) for thread in threads)
