"""Files of sysfs, procfs and control groups: their text, the sets of numbers in them, and this process' own groups.

A missing or damaged file reads as an empty one. Only version 2 of control groups is read. Formats: cgroups(7),
proc_pid_mountinfo(5), and Documentation/admin-guide/cgroup-v2.rst in the kernel's tree.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Cpus = tuple[int, ...]

PROC = Path("/proc")

MAX_CPU = 1 << 16  # beyond any kernel's NR_CPUS: a typing error or a damaged file, not a machine
_MOST_CHARACTERS = 1 << 22  # of a copied tree, whose files may be anything
# In ``mountinfo``: which control group is mounted, and where.
_MOUNTED = re.compile(r"^(?:\S+ ){3}(\S+) (\S+) (?:\S+ )*?- cgroup2 ", re.MULTILINE)
_IN_MOUNTS = re.compile(r"^\S+ (\S+) cgroup2 ", re.MULTILINE)  # where, in ``proc/mounts``


@dataclass(frozen=True)
class Quota:
    """The CPU time that a control group may use at any one time, in CPUs, and the file that sets this limit."""

    cpus: float
    source: str


def text_of(path: Path) -> str:
    """Return the text of a file, stripped; an empty string if it is missing or cannot be read."""
    try:
        with path.open(errors="replace") as file:
            return file.read(_MOST_CHARACTERS).strip(" \t\r\n\0")
    except OSError:
        return ""


@cache  # a run file has the same lists again and again
def parse_list(text: str) -> Cpus:
    """Return the numbers of a Linux list (``0-3,8``), ascending; empty if ``text`` is not such a list."""
    return tuple(sorted({number for part in ranges(text) for number in part}))


def ranges(text: str) -> list[range]:
    """Return the parts of a Linux list; none if ``text`` is not such a list."""
    parts: list[range] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part, re.ASCII)
        if match is None:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        if last > MAX_CPU:
            return []
        parts.append(range(first, last + 1))
    return parts


def number_in(path: Path) -> int | None:
    """Return the integer in a file, None if there is none."""
    text = text_of(path)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def entries(folder: Path, prefix: str) -> list[int]:
    """Return the numbers N of all entries named ``prefixN`` in a folder, ascending."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    matches = (re.fullmatch(rf"{prefix}(\d{{1,6}})", name, re.ASCII) for name in names)
    return sorted(int(match[1]) for match in matches if match)


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder that this process can access."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir may raise PermissionError before Python 3.14


def control_groups(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the folder of this process' control group, then its ancestors; none without version 2."""
    groups = text_of(root / "proc/self/cgroup").splitlines()
    path = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    mounts = _MOUNTED.findall(text_of(root / "proc/self/mountinfo"))
    mounts += [("/", folder) for folder in _IN_MOUNTS.findall(text_of(root / "proc/mounts"))]  # dumps may have it alone
    if path is None or not mounts:
        return ()
    shows, folder = mounts[0]
    top = root / _unescaped(folder).lstrip("/")
    own = _inside(top, _unescaped(shows), path)
    return tuple(one for one in (own, *own.parents) if one.is_relative_to(top))


def cpu_quota(root: Path = Path("/")) -> Quota | None:
    """Return the smallest CPU quota of this process' control group and its ancestors, None if there is none."""
    found = []
    for folder in control_groups(root):
        limit = re.fullmatch(r"([1-9]\d{0,14}) ([1-9]\d{0,14})", text_of(folder / "cpu.max"), re.ASCII)
        if limit is not None:  # not "max 100000"
            found.append(Quota(int(limit[1]) / int(limit[2]), f"/{(folder / 'cpu.max').relative_to(root)}"))
    return min(found, key=lambda one: one.cpus, default=None)


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)  # blanks are written as octal numbers


def _inside(top: Path, shows: str, path: str) -> Path:
    """Return the folder of the group ``path`` below a mount at ``top``, which shows the group ``shows``.

    A container may hide its own group, and shows another at ``top``: then return ``top``.
    """
    shown = shows.rstrip("/")
    below = path[len(shown) :] if path == shown or path.startswith(f"{shown}/") else path
    parts = [part for part in below.split("/") if part]
    if ".." in parts:  # outside the part that this namespace can see
        return top
    folder = top.joinpath(*parts)
    return folder if is_folder(folder) else top


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
