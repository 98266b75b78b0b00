"""The folders of this process' control groups, and its CPU quota: version 1, version 2, and both together.

Formats: cgroups(7), proc_pid_mountinfo(5), Documentation/admin-guide/cgroup-v2.rst and
Documentation/scheduler/sched-bwc.rst in the kernel's tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.machine.sysfs import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DEFAULT_PERIOD_US = 100_000
_SYSTEMS = ("cgroup", "cgroup2", "cpuset")  # the last is older than control groups: cpuset(7)
# The usual mount points, for trees that do not list their mounts.
_CUSTOMARY = ("sys/fs/cgroup/unified", "sys/fs/cgroup")
_CUSTOMARY_V1 = ("sys/fs/cgroup/{0}", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct,cpu")


@dataclass(frozen=True)
class Quota:
    """The CPU time that a control group may use at any one time, in CPUs, and the file that sets this limit."""

    cpus: float
    source: str


@dataclass(frozen=True)
class Mount:
    """A visible hierarchy: its folder, the group that this folder shows, and its controllers (version 1)."""

    folder: Path
    shows: str
    controllers: frozenset[str]
    version: int


def groups(controller: str, root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the folders of this process' control groups that may govern ``controller``, each before its ancestors.

    If both versions are mounted, the folders of both are returned: a file that does not exist governs nothing.
    """
    found: dict[Path, None] = {}
    for version, path in _memberships(controller, root):
        mounts = [mount for mount in _mounts(controller, root) if mount.version == version]
        for mount in mounts:
            own = _inside(mount, path)
            if own is not None:
                found.update(dict.fromkeys(_up_to(mount.folder, own)))
                break
    return tuple(found)


def quota(root: Path = Path("/")) -> Quota | None:
    """Return the smallest CPU quota of this process' control groups and their ancestors, None if there is none."""
    found = []
    for folder in groups("cpu", root):
        for name in ("cpu.max", "cpu.cfs_quota_us"):
            cpus = _quota_v2(folder) if name == "cpu.max" else _quota_v1(folder)
            if cpus is not None:
                found.append(Quota(cpus, f"/{(folder / name).relative_to(root)}"))
    return min(found, key=lambda quota: quota.cpus, default=None)


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder that this process can access."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _quota_v2(folder: Path) -> float | None:
    limit, _, period = text_of(folder / "cpu.max").partition(" ")
    return _cpus(limit, period.strip() or str(_DEFAULT_PERIOD_US))


def _quota_v1(folder: Path) -> float | None:
    return _cpus(text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us") or str(_DEFAULT_PERIOD_US))


def _cpus(limit: str, period: str) -> float | None:
    """Return the quota in CPUs, None if the limit is ``max``, ``-1`` or not a number."""
    whole = re.compile(r"[1-9]\d{0,14}", re.ASCII)
    return int(limit) / int(period) if whole.fullmatch(limit) and whole.fullmatch(period) else None


def _memberships(controller: str, root: Path) -> Iterator[tuple[int, str]]:
    """Yield (version, path) of the groups that this process is in, from ``/proc/self/cgroup``."""
    lines = text_of(root / "proc/self/cgroup").splitlines()
    for line in lines:
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            yield 2, path
        elif controller in controllers.split(","):
            yield 1, path
    if not lines and controller == "cpuset" and (path := text_of(root / "proc/self/cpuset")):
        yield from ((1, path), (2, path))


def _mounts(controller: str, root: Path) -> Iterator[Mount]:
    """Yield the hierarchies that may hold ``controller``: the mounted ones or, if unknown, the usual mount points."""
    mounts = list(_from_mountinfo(root)) or list(_from_mounts(root))
    yield from (mount for mount in mounts if mount.version != 1 or controller in mount.controllers)
    if not mounts:
        yield from (Mount(root / place, "/", frozenset(), 2) for place in _CUSTOMARY)
        places = dict.fromkeys(place.format(controller) for place in _CUSTOMARY_V1)
        yield from (Mount(root / place, "/", frozenset({controller}), 1) for place in places)


def _from_mountinfo(root: Path) -> Iterator[Mount]:
    for line in text_of(root / "proc/self/mountinfo").splitlines():
        own, _, system = (part.split() for part in line.partition(" - "))
        if len(own) > 4 and len(system) > 2 and system[0] in _SYSTEMS:  # noqa: PLR2004 - fields by position
            yield _mount(root, own[4], own[3], system[0], system[2])


def _from_mounts(root: Path) -> Iterator[Mount]:
    for line in (text_of(root / "proc/self/mounts") or text_of(root / "proc/mounts")).splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[2] in _SYSTEMS:  # noqa: PLR2004 - fields by position
            yield _mount(root, fields[1], "/", fields[2], fields[3])


def _mount(root: Path, folder: str, shows: str, system: str, options: str) -> Mount:
    # Blanks in paths are written as octal numbers.
    plain, group = (re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path) for path in (folder, shows))
    controllers = frozenset({system, *options.split(",")})
    return Mount(root / plain.lstrip("/"), group, controllers, 2 if system == "cgroup2" else 1)


def _inside(mount: Mount, path: str) -> Path | None:
    """Return the folder of the group ``path``, or the mount's own folder if that is hidden; None without the mount.

    In a container, the path is often the host's path, while the mount shows this process' group or one of its
    ancestors.
    """
    if not is_folder(mount.folder):
        return None
    shown = mount.shows.rstrip("/")
    below = path[len(shown) :] if path == shown or path.startswith(f"{shown}/") else path
    parts = [part for part in below.split("/") if part]
    if ".." in parts:  # outside the part that this namespace can see
        return mount.folder
    folder = mount.folder.joinpath(*parts)
    return folder if is_folder(folder) else mount.folder


def _up_to(mount: Path, folder: Path) -> Iterable[Path]:
    return [above for above in (folder, *folder.parents) if above.is_relative_to(mount)]
