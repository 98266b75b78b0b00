"""The machine's CPUs as the Linux kernel describes them in sysfs: cores, packages, caches, nodes, kinds of core.

Files are read below a root folder, so that a copy of another machine's tree can be read, too. They may be missing,
empty or unreadable, and numbers may have gaps. Contradictory sets are turned into a partition of the online CPUs.
Format: Documentation/ABI/stable/sysfs-devices-system-cpu and -node in the kernel's tree.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from vebench.errors import UsageError, shown
from vebench.machine import pinning
from vebench.machine.kernel import (
    Cpus,
    Quota,
    control_groups,
    cpu_quota,
    entries,
    is_folder,
    number_in,
    parse_list,
    text_of,
)

CPU_FOLDER = Path("sys/devices/system/cpu")
_NODE_FOLDER = Path("sys/devices/system/node")
_KIBIBYTE = 1024
# Hybrid x86 has one device of performance counters for each kind of core; the fastest kind is last.
_HYBRID_KINDS = ("cpu_lowpower", "cpu_atom", "cpu_core")
_CORE_FILES = ("core_cpus_list", "thread_siblings_list")  # the second until Linux 5.3


@dataclass(frozen=True)
class Cache:
    """A data or unified cache and the CPUs that share it, ascending. ``size_bytes`` is None if unknown."""

    level: int
    size_bytes: int | None
    cpus: Cpus


@dataclass(frozen=True)
class Node:
    """A memory node, which may have no CPUs. ``distances`` are by node id, if known: 10 is local (ACPI SLIT)."""

    id: int
    cpus: Cpus
    memory_bytes: int | None = None
    distances: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Topology:
    """The parts of the machine. All CPU sets are ascending and hold only online CPUs.

    A CPU may be in no package, node or cache.
    """

    online: Cpus
    cores: tuple[Cpus, ...]  # a partition of the online CPUs: the hardware threads of each core
    packages: Mapping[str, Cpus]  # by the kernel's label, which has no other meaning
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...]
    kinds: tuple[Cpus, ...]  # a partition by the speed that cores are designed for, slowest first; mostly one kind

    @property
    def last_level(self) -> tuple[Cache, ...]:
        """The last-level caches: the cache of the highest level of each CPU."""
        highest = {cpu: cache for cache in sorted(self.caches, key=lambda cache: cache.level) for cpu in cache.cpus}
        return tuple(cache for cache in self.caches if any(highest[cpu] is cache for cpu in cache.cpus))

    @property
    def without_node(self) -> Cpus:
        """The CPUs that belong to no memory node."""
        placed = {cpu for node in self.nodes for cpu in node.cpus}
        return tuple(cpu for cpu in self.online if cpu not in placed)

    @property
    def threads_per_core(self) -> int:
        """The number of hardware threads of the core that has most."""
        return max(len(core) for core in self.cores)


def flat(cpus: Iterable[int]) -> Topology:
    """Return a topology with only the CPUs: each is a core of its own."""
    online = tuple(sorted(cpus))
    return Topology(online, tuple((cpu,) for cpu in online), {}, (), (), (online,))


def read_topology(root: Path = Path("/")) -> Topology | None:
    """Return the topology in the tree below ``root``, None if it holds no sysfs: not Linux, or not a copy of it."""
    folder = root / CPU_FOLDER
    # Without a list of the CPUs online: all that are not marked offline.
    online = parse_list(text_of(folder / "online")) or tuple(
        cpu for cpu in entries(folder, "cpu") if text_of(folder / f"cpu{cpu}" / "online") != "0"
    )
    if not online:
        return None
    return Topology(
        online=online,
        cores=_cores(folder, online),
        packages=_packages(folder, online),
        nodes=_nodes(root / _NODE_FOLDER, online),
        caches=_caches(folder, online),
        kinds=_kinds(root, online),
    )


def _cores(folder: Path, online: Cpus) -> tuple[Cpus, ...]:
    """Divide the online CPUs into cores, by the siblings that the first CPU of each names."""
    left = set(online)
    cores = []
    for cpu in online:
        if cpu in left:
            topology = folder / f"cpu{cpu}" / "topology"
            listed = (parse_list(text_of(topology / name)) for name in _CORE_FILES)
            core = {cpu, *left.intersection(next((cpus for cpus in listed if cpu in cpus), ()))}
            cores.append(tuple(sorted(core)))
            left -= core
    return tuple(cores)


def _packages(folder: Path, online: Cpus) -> dict[str, Cpus]:
    packages: dict[str, list[int]] = {}
    for cpu in online:
        label = number_in(folder / f"cpu{cpu}" / "topology/physical_package_id")
        if label is not None:
            packages.setdefault(str(label), []).append(cpu)
    return {label: tuple(cpus) for label, cpus in packages.items()}


def _caches(folder: Path, online: Cpus) -> tuple[Cache, ...]:
    """Return the data and unified caches, lowest level first, each once."""
    found: dict[tuple[int, Cpus], int | None] = {}
    known: set[tuple[int, int]] = set()  # (level, CPU): this cache was already found at another CPU
    are_online = frozenset(online)
    for cpu in online:
        caches = folder / f"cpu{cpu}" / "cache"
        for index in entries(caches, "index"):
            cache = caches / f"index{index}"
            level = number_in(cache / "level")
            if level is None or (level, cpu) in known or text_of(cache / "type") == "Instruction":
                continue
            listed = parse_list(text_of(cache / "shared_cpu_list"))
            sharing = tuple(other for other in listed if other in are_online and (level, other) not in known)
            if cpu in listed:
                size = re.fullmatch(r"(\d{1,12})([KMG]?)", text_of(cache / "size"), re.ASCII)
                found[level, sharing] = int(size[1]) * _KIBIBYTE ** " KMG".index(size[2] or " ") if size else None
                known.update((level, other) for other in sharing)
    return tuple(Cache(level, each, cpus) for (level, cpus), each in sorted(found.items(), key=itemgetter(0)))


def _nodes(folder: Path, online: Cpus) -> tuple[Node, ...]:
    """Return the online memory nodes. A kernel without NUMA has one node with all CPUs."""
    ids = entries(folder, "node")
    if not ids:
        return (Node(0, online),)
    if listed := parse_list(text_of(folder / "online")):
        ids = [node for node in ids if node in listed]
    left = set(online)
    cpus_of: dict[int, Cpus] = {}
    for node in ids:
        listed_cpus = parse_list(text_of(folder / f"node{node}" / "cpulist"))
        cpus = tuple(cpu for cpu in listed_cpus if cpu in left)
        left.difference_update(cpus)
        # Faulty firmware shows one node under several ids, each with all CPUs: only the first counts.
        if cpus or not set(listed_cpus).intersection(online):
            cpus_of[node] = cpus
    nodes = []
    for node, cpus in cpus_of.items():
        size = re.search(r"MemTotal:\s+(\d{1,15}) kB", text_of(folder / f"node{node}" / "meminfo"), re.ASCII)
        memory = int(size[1]) * _KIBIBYTE if size else None
        nodes.append(Node(node, cpus, memory, _distances(folder, node, ids, cpus_of)))
    return tuple(nodes)


def _distances(folder: Path, node: int, ids: list[int], kept: Collection[int]) -> dict[int, int]:
    """Return the distances to the nodes in ``kept``. The kernel lists them without ids, for the nodes online then."""
    values = text_of(folder / f"node{node}" / "distance").split()
    for columns in (ids, *(parse_list(text_of(folder / name)) for name in ("has_memory", "possible"))):
        if len(columns) == len(values) and all(re.fullmatch(r"\d{1,6}", value, re.ASCII) for value in values):
            return {other: int(value) for other, value in zip(columns, values, strict=True) if other in kept}
    return {}


def _kinds(root: Path, online: Cpus) -> tuple[Cpus, ...]:
    """Return the kinds of core, slowest first.

    They come from the performance counters of hybrid x86, else from the capacities in the device trees of Arm and
    RISC-V, else from base frequencies. The highest frequency is not used: cores of one kind differ in it.
    """
    hybrid = [parse_list(text_of(root / "sys/devices" / name / "cpus")) for name in _HYBRID_KINDS]
    ranks = {cpu: rank for rank, cpus in enumerate(hybrid) for cpu in cpus}
    folder = root / CPU_FOLDER
    # A policy applies to several CPUs.
    frequencies: dict[int, int | None] = {}
    for policy in entries(folder / "cpufreq", "policy"):
        own = folder / "cpufreq" / f"policy{policy}"
        cpus = text_of(own / "related_cpus") or text_of(own / "affected_cpus") or str(policy)
        frequencies.update(dict.fromkeys(parse_list(cpus.replace(" ", ",")), number_in(own / "base_frequency")))
    capacities = {cpu: number_in(folder / f"cpu{cpu}" / "cpu_capacity") for cpu in online}
    for source in (ranks.get, capacities.get, frequencies.get):
        speeds: dict[int, list[int]] = {}
        for cpu in online:
            speed = source(cpu)
            if speed is None:
                break
            speeds.setdefault(speed, []).append(cpu)
        else:
            return tuple(tuple(cpus) for _, cpus in sorted(speeds.items()))
    return (online,)


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
