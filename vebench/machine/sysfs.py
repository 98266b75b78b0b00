"""Files of sysfs, procfs and control groups: their text, the sets of numbers in them, and this process' own groups.

A missing or damaged file reads as an empty one. Only version 2 of control groups is read. Formats: cgroups(7),
proc_pid_mountinfo(5), and Documentation/admin-guide/cgroup-v2.rst in the kernel's tree.
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
