"""Facts about the machine: its parts, what this process may use, its settings, and the memory that is available."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vebench.errors import UsageError, shown
from vebench.machine import pinning
from vebench.machine.sysfs import Cpus, Quota, control_groups, cpu_quota, is_folder, number_in, parse_list, text_of
from vebench.machine.topology import CPU_FOLDER, Topology, flat, read_topology

LIVE = Path("/")
MEBIBYTE = 1 << 20
_ONE_IS_ON = {"1": True, "0": False}
# Fields of /proc/cpuinfo with the model: x86, POWER, RISC-V, s390.
_MODEL_KEYS = ("model name", "cpu", "uarch", "vendor_id")
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv")
_CONTAINER_GROUPS = re.compile(r"/(docker|kubepods|containerd|libpod|lxc)", re.ASCII)
_HYPERVISOR_MARKS = ("sys/hypervisor/type", "proc/device-tree/hypervisor/compatible")
_HYPERVISOR_VENDORS = re.compile(r"QEMU|KVM|VMware|Xen|innotek|VirtualBox|Virtual Machine|Amazon EC2|Google Compute")


@dataclass(frozen=True)
class Allowance:
    """The CPUs and memory nodes that this process may use."""

    cpus: Cpus  # online, ascending
    nodes: Cpus | None  # None if unknown
    quota: Quota | None


@dataclass(frozen=True)
class Host:
    """The facts that decide whether the rates of two runs can be compared. None means unknown."""

    system: str
    kernel: str
    machine: str
    cpu_model: str
    topology: Topology  # only CPUs, if the system reports nothing else
    allowance: Allowance
    memory_bytes: int | None
    container: bool | None
    virtual: bool | None
    smt: bool | None = None  # whether cores run several threads
    governor: str | None = None  # one name, or several with commas
    boost: bool | None = None  # whether CPUs may clock above their base frequency
    thp: str | None = None  # when transparent huge pages are used
    microcode: str | None = None
    isolated: tuple[int, ...] = ()  # CPUs that the scheduler leaves alone

    @property
    def cpus_online(self) -> int:
        """The number of CPUs that are online, allowed or not."""
        return len(self.topology.online)

    @property
    def cpus_allowed(self) -> tuple[int, ...]:
        """The CPUs that this process may use, ascending."""
        return self.allowance.cpus

    @property
    def quota_cpus(self) -> float | None:
        """The CPU time that this process may use at any one time, in CPUs, None if it is not limited."""
        return self.allowance.quota.cpus if self.allowance.quota else None


def read_host(root: Path = LIVE) -> Host:
    """Return the facts of this machine, or of another one, whose ``/sys`` and ``/proc`` were copied into ``root``.

    Raises UsageError if ``root`` is another folder and holds no such tree.
    """
    here = root == LIVE
    cpus = root / CPU_FOLDER
    topology = read_topology(root)
    if topology is None and not here:
        what = "names no CPU" if is_folder(cpus) else f"has no folder {CPU_FOLDER}"
        raise UsageError(f"{shown(str(root))} {what}: give the root of a copy of another machine's /sys and /proc")
    if topology is None:
        topology = flat(pinning.allowed() or range(os.cpu_count() or 1))
    info = _cpu_info(root)
    governors = (*cpus.glob("cpufreq/policy*/scaling_governor"), *cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    no_turbo = text_of(cpus / "intel_pstate/no_turbo")
    # sysfs shows choices as ``always [madvise] never``.
    huge_pages = re.search(r"\[(\w+)\]", text_of(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return Host(
        system=platform.system() if here else "Linux",
        kernel=platform.release() if here else text_of(root / "proc/sys/kernel/osrelease"),
        machine=platform.machine() if here else "",
        cpu_model=_cpu_model(info) or (platform.processor() or platform.machine() if here else "unknown CPU"),
        topology=topology,
        allowance=read_allowance(topology, root),
        memory_bytes=_meminfo("MemTotal", root),
        container=_in_container(root),
        virtual=_virtual(root, info),
        smt=_ONE_IS_ON.get(text_of(cpus / "smt/active")),
        governor=", ".join(sorted({text_of(file) for file in governors} - {""})) or None,
        boost=no_turbo == "0" if no_turbo else _ONE_IS_ON.get(text_of(cpus / "cpufreq/boost")),
        thp=huge_pages[1] if huge_pages else None,
        microcode=info.get("microcode"),
        isolated=parse_list(text_of(cpus / "isolated")),
    )


def read_allowance(topology: Topology, root: Path = LIVE) -> Allowance:
    """Return what this process may use or, in a copied tree, what the process that copied it could use.

    On this machine, the kernel reports the affinity, which already respects the cpuset. In a copied tree, affinity
    (``proc/self/status``) and cpuset are read if present, and the affinity of this process is not used.
    """
    lines = text_of(root / "proc/self/status").splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    affinity = pinning.allowed() if root == LIVE else None
    cpus = [affinity or parse_list(status.get("Cpus_allowed_list", ""))]
    nodes = [parse_list(status.get("Mems_allowed_list", ""))]
    if affinity is None:
        cpus.append(_cpuset(root, "cpuset.cpus.effective"))
        nodes.append(_cpuset(root, "cpuset.mems.effective"))
    allowed = set(topology.online)
    for named in cpus:
        # A set without any online CPU is out of date or damaged.
        allowed = allowed & set(named) or allowed
    known = [set(named) for named in nodes if named]
    here = {node.id for node in topology.nodes}
    allowed_nodes = tuple(sorted(here.intersection(*known))) if known else None
    return Allowance(tuple(sorted(allowed)), allowed_nodes, cpu_quota(root))


def _cpuset(root: Path, name: str) -> Cpus:
    """Return the numbers in this file of the nearest control group that has one, empty if there is none."""
    return next(filter(None, (parse_list(text_of(folder / name)) for folder in control_groups(root))), ())


def memory_available(root: Path = LIVE) -> int | None:
    """Return the bytes that new processes can use without swapping, in the system or, if that is less, the cgroup."""
    candidates = [_meminfo("MemAvailable", root)]
    for folder in control_groups(root):
        limit, used = number_in(folder / "memory.max"), number_in(folder / "memory.current")
        if limit is not None and used is not None:
            # The kernel frees cached files when processes need memory.
            stat = text_of(folder / "memory.stat")
            cached = re.findall(r"^(?:in)?active_file (\d{1,18})$", stat, re.ASCII | re.MULTILINE)
            candidates.append(max(0, limit - used + sum(map(int, cached))))
    return min((candidate for candidate in candidates if candidate is not None), default=None)


def _meminfo(key: str, root: Path) -> int | None:
    match = re.search(rf"^{key}:\s+(\d{{1,15}})", text_of(root / "proc/meminfo"), re.ASCII | re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _cpu_info(root: Path) -> dict[str, str]:
    """Return the fields of /proc/cpuinfo, each from the first CPU that has a value for it."""
    found: dict[str, str] = {}
    for line in text_of(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if value.strip():
            found.setdefault(name.strip(), " ".join(value.split()))
    return found


def _cpu_model(info: Mapping[str, str]) -> str | None:
    if named := [info[key] for key in _MODEL_KEYS if key in info]:
        return named[0]
    implementer, part = info.get("CPU implementer"), info.get("CPU part")
    return f"Arm implementer {implementer} part {part}" if implementer and part else None


def _virtual(root: Path, info: Mapping[str, str]) -> bool | None:
    dmi = [text_of(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    if any(text_of(root / mark) for mark in _HYPERVISOR_MARKS) or any(map(_HYPERVISOR_VENDORS.search, dmi)):
        return True
    if "flags" in info:
        return "hypervisor" in info["flags"].split()
    return False if any(dmi) else None


def _in_container(root: Path) -> bool | None:
    groups = text_of(root / "proc/self/cgroup")
    if not groups:
        return None
    marked = any(os.access(root / mark, os.F_OK) for mark in _CONTAINER_MARKS) or _CONTAINER_GROUPS.search(groups)
    return bool(marked) or (root == LIVE and "container" in os.environ)
