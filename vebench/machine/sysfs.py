"""Files of sysfs, procfs and control groups: their text, the sets of numbers in them, and this process' own groups.

A file that is missing or damaged reads as an empty one. Formats: cgroups(7), proc_pid_mountinfo(5), and in the kernel's
tree Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Cpus = tuple[int, ...]

PROC = Path("/proc")

MAX_CPU = 1 << 16  # beyond any kernel's NR_CPUS: a typing error or a damaged file, not a machine
_MOST_CHARACTERS = 1 << 22  # of a copied tree, whose files may be anything
_DEFAULT_PERIOD_US = "100000"
_POSITIVE = re.compile(r"[1-9]\d{0,14}", re.ASCII)
# Mounted control groups, in ``mountinfo``.
_MOUNTED = re.compile(r"^(?:\S+ ){3}(\S+) (\S+) (?:\S+ )*?- (cgroup2?) \S+ (\S+)", re.MULTILINE)
_IN_MOUNTS = re.compile(r"^\S+ (\S+) (cgroup2?) (\S+)", re.MULTILINE)  # of copied trees that lack the other file


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


def control_groups(controller: str, root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the folders of this process' control groups that may govern ``controller``, each before its ancestors.

    If both versions are mounted, the folders of both are returned: a file that does not exist governs nothing.
    """
    found: dict[Path, None] = {}
    mounted = _MOUNTED.findall(text_of(root / "proc/self/mountinfo")) or [
        ("/", *fields) for fields in _IN_MOUNTS.findall(text_of(root / "proc/mounts"))
    ]
    for line in text_of(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        unified = hierarchy == "0" and not controllers
        if not unified and controller not in controllers.split(","):
            continue
        for shows, folder, system, options in mounted:
            top = root / _unescaped(folder).lstrip("/")
            fits = system == ("cgroup2" if unified else "cgroup")
            if fits and (unified or controller in options.split(",")) and is_folder(top):
                own = _inside(top, _unescaped(shows), path)
                found.update(dict.fromkeys(one for one in (own, *own.parents) if one.is_relative_to(top)))
                break
    return tuple(found)


def cpu_quota(root: Path = Path("/")) -> Quota | None:
    """Return the smallest CPU quota of this process' control groups and their ancestors, None if there is none."""
    found = []
    for folder in control_groups("cpu", root):
        limit, _, period = text_of(folder / "cpu.max").partition(" ")
        v1 = text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us")
        for name, most, per in (("cpu.max", limit, period.strip()), ("cpu.cfs_quota_us", *v1)):
            per_us = per or _DEFAULT_PERIOD_US
            if _POSITIVE.fullmatch(most) and _POSITIVE.fullmatch(per_us):  # not "max" or "-1"
                found.append(Quota(int(most) / int(per_us), f"/{(folder / name).relative_to(root)}"))
    return min(found, key=lambda one: one.cpus, default=None)


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)  # blanks are written as octal numbers


def _inside(top: Path, shows: str, path: str) -> Path:
    """Return the folder of the group ``path``, or ``top``, which shows another, if it is hidden, as in a container."""
    shown = shows.rstrip("/")
    below = path[len(shown) :] if path == shown or path.startswith(f"{shown}/") else path
    parts = [part for part in below.split("/") if part]
    if ".." in parts:  # outside the part that this namespace can see
        return top
    folder = top.joinpath(*parts)
    return folder if is_folder(folder) else top
