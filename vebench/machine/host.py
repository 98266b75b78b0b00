"""The machine in a few facts: its fingerprint, the memory that is left, the CPU time that a container may use."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from vebench.machine import pinning
from vebench.machine.counters import own_cgroup

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Host:
    """What decides whether figures of two runs can be put beside each other. None where it cannot be told."""

    system: str
    kernel: str
    machine: str
    cpu_model: str
    cpus_online: int
    cpus_allowed: tuple[int, ...]
    quota_cpus: float | None
    memory_bytes: int | None
    container: bool | None
    virtual: bool | None


def read_host() -> Host:
    """Return the facts of the machine that this process runs on."""
    online = os.cpu_count() or 1
    allowed = pinning.allowed()
    return Host(
        system=platform.system(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu_model=_cpu_info("model name") or platform.processor() or platform.machine(),
        cpus_online=online,
        cpus_allowed=tuple(range(online)) if allowed is None else allowed,
        quota_cpus=quota_cpus(),
        memory_bytes=_meminfo("MemTotal"),
        container=_in_container(),
        virtual=_virtual(),
    )


def memory_available(root: Path = Path("/")) -> int | None:
    """Return the bytes that new processes can take without swapping: the system's, or the cgroup's if that is less."""
    candidates = [_meminfo("MemAvailable", root)]
    group = own_cgroup(root)
    for folder in _up_to_mount(group, root):
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if limit is not None and used is not None:
            candidates.append(max(0, int(limit - used + _file_cache(folder))))
    known = [candidate for candidate in candidates if candidate is not None]
    return min(known) if known else None


def quota_cpus(root: Path = Path("/")) -> float | None:
    """Return the least CPU quota of this process' cgroup (version 2) and its ancestors, in CPUs, None if none."""
    quotas: list[float] = []
    for folder in _up_to_mount(own_cgroup(root), root):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            quotas.append(int(quota) / int(period))
    return min(quotas) if quotas else None


def _up_to_mount(group: Path | None, root: Path) -> list[Path]:
    """Return the cgroup's folder and those above it, as far up as they can be seen."""
    mount = root / "sys/fs/cgroup"
    if group is None:
        return []
    return [folder for folder in (group, *group.parents) if folder.is_relative_to(mount)]


def _file_cache(group: Path) -> float:
    """Return the bytes of a cgroup's memory that hold files read, which the kernel gives up for processes."""
    lines = (line.split() for line in _text(group / "memory.stat").splitlines())
    return sum(float(line[1]) for line in lines if line[0] in ("active_file", "inactive_file"))


def _number(path: Path) -> float | None:
    text = _text(path)
    return float(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _meminfo(key: str, root: Path = Path("/")) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def _cpu_info(key: str) -> str | None:
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return " ".join(value.split())
    return None


def _virtual() -> bool | None:
    flags = _cpu_info("flags")
    return None if flags is None else "hypervisor" in flags.split()


def _in_container() -> bool | None:
    if platform.system() != "Linux":
        return None
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return any(mark.exists() for mark in marks) or "container" in os.environ
