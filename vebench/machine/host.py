"""The machine: its CPUs, cores, caches, memory nodes, limits and settings, and the CPUs that each cell gets.

Files are read below a root folder, which may have a copy of another machine's ``/sys`` and ``/proc``. Files may be
missing, empty or unreadable, and numbers may have gaps. Formats: Documentation/ABI/stable/sysfs-devices-system-cpu
and -node in the kernel's tree. The functions for placement, at the end, read no files.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TypeVar

from vebench.errors import UsageError, shown
from vebench.machine import kernel
from vebench.machine.devices import read_gpus
from vebench.machine.kernel import PIN_POLICIES, Cpus, control_groups, entries, number_in, parse_list, text_of

LIVE = Path("/")
MEBIBYTE = 1 << 20
CPU_FOLDER = Path("sys/devices/system/cpu")
_ONE_IS_ON = {"1": True, "0": False}


@dataclass(frozen=True)
class Cache:
    """A data or unified cache and the CPUs that share it, ascending. ``size_bytes`` is None if unknown."""

    level: int
    size_bytes: int | None
    cpus: Cpus


@dataclass(frozen=True)
class Node:
    """A memory node, which may have no CPUs. ``distances`` are by node id, if known. 10 is local (ACPI SLIT)."""

    id: int
    cpus: Cpus
    memory_bytes: int | None = None
    distances: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Topology:
    """The parts of the machine. All CPU sets are ascending and hold only online CPUs. A CPU may be in no part."""

    online: Cpus
    cores: tuple[Cpus, ...]  # a partition of the online CPUs: the hardware threads of each core
    packages: Mapping[str, Cpus]  # by the kernel's label, which has no other meaning
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...]
    kinds: tuple[Cpus, ...]  # a partition by the cores' designed speed, slowest first; most machines have one kind

    @property
    def last_level(self) -> tuple[Cache, ...]:
        """The last-level caches: the cache of the highest level of each CPU."""
        highest = {cpu: cache for cache in sorted(self.caches, key=lambda cache: cache.level) for cpu in cache.cpus}
        return tuple(cache for cache in self.caches if any(highest[cpu] is cache for cpu in cache.cpus))

    @property
    def threads_per_core(self) -> int:
        """The largest number of hardware threads of a core."""
        return max(len(core) for core in self.cores)


@dataclass(frozen=True)
class Host:
    """The facts that decide whether the rates of two runs can be compared. None means unknown."""

    system: str
    kernel: str
    machine: str
    cpu_model: str
    topology: Topology  # only CPUs, if the system reports nothing else
    cpus_allowed: Cpus  # the online CPUs that this process may use, ascending
    nodes_allowed: Cpus | None  # the memory nodes that this process may use
    quota_cpus: float | None  # the CPU quota of this process, in CPUs, None if there is none
    quota_source: str | None  # the file that sets it
    memory_bytes: int | None
    container: bool | None
    virtual: bool | None
    smt: bool | None = None  # whether cores run several threads
    governor: str | None = None  # one name, or several with commas
    boost: bool | None = None  # whether CPUs may clock above their base frequency
    thp: str | None = None  # when transparent huge pages are used
    microcode: str | None = None
    isolated: Cpus = ()  # CPUs that the scheduler leaves alone
    gpus: tuple[str, ...] | None = None  # each in words

    @property
    def cpus_online(self) -> int:
        """The number of CPUs that are online, allowed or not."""
        return len(self.topology.online)


def read_host(root: Path = LIVE) -> Host:
    """Return the facts of this machine, or of another one, whose ``/sys`` and ``/proc`` were copied into ``root``.

    Raises UsageError if there is no such copy.
    """
    here = root == LIVE
    cpus = root / CPU_FOLDER
    topology = read_topology(root)
    if topology is None:
        if not here:
            why = f"has no CPU in {CPU_FOLDER}: give the root of a copy of another machine's /sys and /proc"
            raise UsageError(f"{shown(str(root))} {why}")
        topology = flat(kernel.allowed() or range(os.cpu_count() or 1))
    # In a copied tree, this is the status of the process that made the copy.
    status = dict(re.findall(r"^(\w+):\s*(.*)$", text_of(root / "proc/self/status"), re.MULTILINE))
    affinity = kernel.allowed() if here else None
    listed = affinity or parse_list(status.get("Cpus_allowed_list", "")) or topology.online
    allowed = set(listed).intersection(topology.online)
    nodes = parse_list(status.get("Mems_allowed_list", ""))
    groups = () if here else control_groups(root)[:1]  # here, the kernel has limited the affinity to the group's CPUs
    for group in groups:
        allowed = allowed & {*parse_list(text_of(group / "cpuset.cpus.effective"))} or allowed
        nodes = parse_list(text_of(group / "cpuset.mems.effective")) or nodes
    info: dict[str, str] = {}  # each key with the value of the first CPU that has one
    for line in text_of(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if value.strip():
            info.setdefault(name.strip(), " ".join(value.split()))
    governors = (*cpus.glob("cpufreq/policy*/scaling_governor"), *cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    hypervisor = "hypervisor" in info["flags"].split() if "flags" in info else None
    no_turbo = text_of(cpus / "intel_pstate/no_turbo")
    quota_cpus, quota_source = kernel.cpu_quota(root)
    # The brackets mark the choice: ``always [madvise] never``.
    huge_pages = re.search(r"\[(\w+)\]", text_of(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return Host(
        system=platform.system() if here else "Linux",
        kernel=platform.release() if here else text_of(root / "proc/sys/kernel/osrelease"),
        machine=platform.machine() if here else "",
        cpu_model=_cpu_model(info) or (platform.processor() or platform.machine() if here else "unknown CPU"),
        topology=topology,
        cpus_allowed=tuple(sorted(allowed)) or topology.online,
        nodes_allowed=tuple(node.id for node in topology.nodes if node.id in nodes) if nodes else None,
        quota_cpus=quota_cpus,
        quota_source=quota_source,
        memory_bytes=_kib_in(root / "proc/meminfo", "MemTotal"),
        container=_in_container(root),
        virtual=bool(text_of(root / "sys/hypervisor/type")) or hypervisor,
        smt=_ONE_IS_ON.get(text_of(cpus / "smt/active")),
        governor=", ".join(sorted({text_of(file) for file in governors} - {""})) or None,
        boost=no_turbo == "0" if no_turbo else _ONE_IS_ON.get(text_of(cpus / "cpufreq/boost")),
        thp=huge_pages[1] if huge_pages else None,
        microcode=info.get("microcode"),
        isolated=parse_list(text_of(cpus / "isolated")),
        gpus=read_gpus() if here else None,
    )


def _cpu_model(info: Mapping[str, str]) -> str | None:
    # The keys of x86, POWER, RISC-V and s390.
    if named := [info[key] for key in ("model name", "cpu", "uarch", "vendor_id") if key in info]:
        return named[0]
    implementer, part = info.get("CPU implementer"), info.get("CPU part")
    return f"Arm implementer {implementer} part {part}" if implementer and part else None


def _in_container(root: Path) -> bool | None:
    groups = text_of(root / "proc/self/cgroup")
    if not groups:
        return None
    marked = any(os.access(root / mark, os.F_OK) for mark in (".dockerenv", "run/.containerenv"))
    marked = marked or re.search(r"/(docker|kubepods|containerd|libpod|lxc)", groups) is not None
    return marked or (root == LIVE and "container" in os.environ)


def memory_available(root: Path = LIVE) -> int | None:
    """Return the bytes that new processes can use without swapping: the least of the system's and each cgroup's."""
    candidates = [_kib_in(root / "proc/meminfo", "MemAvailable")]
    for folder in control_groups(root):
        limit, used = number_in(folder / "memory.max"), number_in(folder / "memory.current")
        if limit is not None and used is not None:
            # The kernel frees cached files when processes need memory.
            stat = text_of(folder / "memory.stat")
            cached = re.findall(r"^(?:in)?active_file (\d{1,18})$", stat, re.ASCII | re.MULTILINE)
            candidates.append(max(0, limit - used + sum(map(int, cached))))
    return min((candidate for candidate in candidates if candidate is not None), default=None)


def _kib_in(path: Path, key: str) -> int | None:
    """Return the bytes that a line such as ``MemTotal:  1024 kB`` states, None if there is no such line."""
    match = re.search(rf"\b{key}:\s+(\d{{1,15}})", text_of(path), re.ASCII)
    return int(match[1]) * 1024 if match else None


def flat(cpus: Iterable[int]) -> Topology:
    """Return a topology of these CPUs, in which each CPU is a separate core."""
    online = tuple(sorted(cpus))
    return Topology(online, tuple((cpu,) for cpu in online), {}, (), (), (online,))


def read_topology(root: Path = LIVE) -> Topology | None:
    """Return the topology in the tree below ``root``, None if the tree has no sysfs with CPUs."""
    folder = root / CPU_FOLDER
    online = parse_list(text_of(folder / "online"))
    if not online:
        return None
    left = set(online)
    cores: list[Cpus] = []
    packages: dict[str, Cpus] = {}
    for cpu in online:
        own = folder / f"cpu{cpu}" / "topology"
        if label := text_of(own / "physical_package_id"):
            packages[label] = (*packages.get(label, ()), cpu)
        if cpu in left:
            siblings = parse_list(text_of(own / "core_cpus_list"))  # all CPUs of the core
            cores.append(tuple(sorted({cpu, *left.intersection(siblings)})))
            left.difference_update(cores[-1])
    nodes = _nodes(root / "sys/devices/system/node", online)
    return Topology(online, tuple(cores), packages, nodes, _caches(folder, online), _kinds(root, online))


def _caches(folder: Path, online: Cpus) -> tuple[Cache, ...]:
    """Return the data and unified caches, lowest level first, each once."""
    found: dict[tuple[int, Cpus], int | None] = {}
    known: set[tuple[int, int]] = set()  # (level, CPU) if this CPU's cache of this level is already in ``found``
    for cpu in online:
        caches = folder / f"cpu{cpu}" / "cache"
        for index in entries(caches, "index"):
            cache = caches / f"index{index}"
            level = number_in(cache / "level")
            if level is None or (level, cpu) in known or text_of(cache / "type") == "Instruction":
                continue
            sharing = tuple(sorted(set(online).intersection(parse_list(text_of(cache / "shared_cpu_list")))))
            size = re.fullmatch(r"(\d{1,12})([KMG]?)", text_of(cache / "size"), re.ASCII)
            found[level, sharing] = int(size[1]) * 1024 ** " KMG".index(size[2] or " ") if size else None
            known.update((level, other) for other in sharing)
    return tuple(Cache(level, each, cpus) for (level, cpus), each in sorted(found.items(), key=itemgetter(0)))


def _nodes(folder: Path, online: Cpus) -> tuple[Node, ...]:
    """Return the memory nodes. A kernel without NUMA has one node with all CPUs."""
    ids = entries(folder, "node")
    nodes = []
    for node in ids:
        own = folder / f"node{node}"
        cpus = tuple(cpu for cpu in parse_list(text_of(own / "cpulist")) if cpu in online)
        distances = text_of(own / "distance").split()  # one for each node, in the order of ``ids``
        known = len(distances) == len(ids) and all(map(str.isdecimal, distances))
        to_others = dict(zip(ids, map(int, distances), strict=True)) if known else {}
        nodes.append(Node(node, cpus, _kib_in(own / "meminfo", "MemTotal"), to_others))
    return tuple(nodes) or (Node(0, online),)


def _kinds(root: Path, online: Cpus) -> tuple[Cpus, ...]:
    """Return the kinds of core, slowest first: by counters of hybrid x86, else by capacities, else by frequencies."""
    ranks: dict[int, int | None] = {}
    for rank, name in enumerate(("cpu_lowpower", "cpu_atom", "cpu_core")):
        ranks |= dict.fromkeys(parse_list(text_of(root / "sys/devices" / name / "cpus")), rank)
    capacities = {cpu: number_in(root / CPU_FOLDER / f"cpu{cpu}" / "cpu_capacity") for cpu in online}
    frequencies: dict[int, int | None] = {}
    for policy in entries(root / CPU_FOLDER / "cpufreq", "policy"):
        own = root / CPU_FOLDER / "cpufreq" / f"policy{policy}"
        cpus = parse_list(text_of(own / "related_cpus").replace(" ", ",")) or (policy,)
        frequencies |= dict.fromkeys(cpus, number_in(own / "base_frequency"))
    for source in (ranks, capacities, frequencies):
        speeds: dict[int, list[int]] = {}
        for cpu in online:
            if (speed := source.get(cpu)) is not None:
                speeds.setdefault(speed, []).append(cpu)
        if sum(map(len, speeds.values())) == len(online):
            return tuple(tuple(speeds[speed]) for speed in sorted(speeds))
    return (online,)


_T = TypeVar("_T")


@dataclass(frozen=True)
class Placement:
    """The CPUs that cells may own. With one more worker, a cell owns the same CPUs plus one."""

    order: tuple[int, ...]  # the CPUs, in the order in which workers take them
    usable: int  # the number of CPUs that can work at the same time, given the container's quota
    pinned: bool = True
    homes: Mapping[int, Cpus] = field(default_factory=dict)  # the memory node of each CPU, if known and allowed

    def owned(self, workers: int) -> tuple[int, ...]:
        """Return the CPUs that a cell owns: the first ``min(workers, usable)``, or all of them if not pinned."""
        return self.order[: min(workers, self.usable)] if self.pinned else self.order

    def nodes(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Return the memory nodes of these CPUs, ascending; empty if unknown."""
        return tuple(sorted({node for cpu in cpus for node in self.homes.get(cpu, ())}))


def place(
    pin: str,
    allowed: frozenset[int],
    quota: float | None = None,
    *,
    topology: Topology | None = None,
    smt: str = "last",
    nodes: Cpus | None = None,
    reserve: int = 0,
) -> Placement:
    """Return the placement for ``pin``: ``compact``, ``scatter``, ``none`` or a list such as ``0-3,8``.

    - ``quota``: the container's CPU quota, in CPUs; None if there is none
    - ``smt``: see ``order_of``; with ``off``, a list also keeps only the first CPU of each core
    - ``nodes``: the allowed memory nodes, None for all
    - ``reserve``: the number of CPUs without workers, also subtracted from the quota; whole cores as far as possible

    Raises UsageError if ``pin`` is neither a policy nor a list of allowed CPUs, or if no CPU is left.
    """
    machine = topology or flat(allowed)
    core = {cpu: cpus for cpus in machine.cores for cpu in cpus}
    pinned = pin != "none"
    if pin in PIN_POLICIES:
        order = order_of(machine, allowed, pin if pinned else "compact", smt)
    else:
        order = _allowed_in(pin, "--pin", allowed)
    by_core = grouped(order, lambda cpu: core.get(cpu, (cpu,)))
    if pin not in PIN_POLICIES and smt == "off":
        order = tuple(cpus[0] for cpus in by_core)
    most = len(order) if quota is None else min(len(order), max(1, int(quota)))
    if most <= reserve:
        raise UsageError(f"--pin: reserve={reserve}: no CPU is left for workers ({most} usable)")
    if not pinned:
        order = tuple(sorted(allowed))
    elif reserve:  # reserve the cores that workers would take last
        last_first = [cpu for cpus in reversed(by_core) for cpu in reversed(cpus) if cpu in order]
        order = tuple(cpu for cpu in order if cpu not in last_first[:reserve])
    known = [node for node in machine.nodes if node.memory_bytes != 0 and (nodes is None or node.id in nodes)]
    homes = {cpu: (node.id,) for node in known for cpu in node.cpus}
    return Placement(order, most - reserve, pinned=pinned, homes=homes)


@dataclass(frozen=True)
class _Core:
    """A core with allowed CPUs, and its position."""

    cpus: Cpus  # the allowed CPUs, ascending
    package: str | None
    node: int | None
    cache: int | None
    speed: int  # the rank of its kind, 0 for the slowest


def order_of(topology: Topology, allowed: Iterable[int], policy: str = "compact", smt: str = "last") -> Cpus:
    """Return the allowed CPUs in the order in which workers take them, each once.

    ``compact`` fills one package after another, and one of its nodes after another. In a node, it takes the fastest
    kind of core first, and fills one last-level cache after another. ``scatter`` alternates between nodes. With ``smt``
    ``last``, every core gets one worker before any gets two. ``close`` fills a core before the next. ``off`` uses only
    the first allowed CPU of each core.
    """
    cores = _compact(topology, frozenset(allowed))
    if policy == "scatter":  # alternates between nodes, or between packages if no node is known
        by_node = any(core.node is not None for core in cores)
        nodes = grouped(cores, attrgetter("node" if by_node else "package"))
        packages = grouped(nodes, lambda members: members[0].package)
        cores = _in_turn(_in_turn(packages))
    if smt == "close":
        return tuple(cpu for core in cores for cpu in core.cpus)
    if smt == "off":
        return tuple(core.cpus[0] for core in cores)
    return tuple(_in_turn(core.cpus for core in cores))


def _compact(topology: Topology, allowed: frozenset[int]) -> list[_Core]:
    """Return the cores that have allowed CPUs, with packages and nodes together. Either may contain the other."""
    package = {cpu: label for label, cpus in topology.packages.items() for cpu in cpus}
    node = {cpu: node.id for node in topology.nodes for cpu in node.cpus}
    cache = {cpu: index for index, cache in enumerate(topology.last_level) for cpu in cache.cpus}
    speed = {cpu: rank for rank, cpus in enumerate(topology.kinds) for cpu in cpus}
    cores = []
    for core in (*topology.cores, *((cpu,) for cpu in sorted(allowed - set(topology.online)))):
        if cpus := tuple(cpu for cpu in core if cpu in allowed):
            at = cpus[0]
            cores.append(_Core(cpus, package.get(at), node.get(at), cache.get(at), speed.get(at, 0)))
    groups = {part: grouped(cores, attrgetter(part)) for part in ("package", "node", "cache")}
    # Groups with the fastest core come first, then those with the lowest CPU.
    ranks = {
        (part, getattr(members[0], part)): (-max(core.speed for core in members), min(core.cpus for core in members))
        for part, found in groups.items()
        for members in found
    }
    # Nodes contain packages on some virtual machines.
    parts = ("package", "node") if len(groups["package"]) <= len(groups["node"]) else ("node", "package")

    def rank(core: _Core) -> tuple[object, ...]:
        places = [ranks[part, getattr(core, part)] for part in parts]
        return *places, -core.speed, ranks["cache", core.cache], core.cpus

    return sorted(cores, key=rank)


def _in_turn(groups: Iterable[Sequence[_T]]) -> list[_T]:
    """Return the first of each group, then the second of each, and so on."""
    return [item for item in chain.from_iterable(zip_longest(*groups)) if item is not None]


def grouped(items: Iterable[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Return lists of the items with equal keys, in the order in which the keys first appear."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def apart(text: str, allowed: frozenset[int], pin: str) -> frozenset[int]:
    """Return the allowed CPUs without the CPUs in ``text``, which ``--policy`` reserves.

    Raises UsageError for a wrong list, if no CPU is left, or if ``pin`` names a reserved CPU.
    """
    kept = frozenset(_allowed_in(text, "--policy: cpus", allowed))
    if not allowed - kept:
        raise UsageError(f"--policy: cpus {text}: no CPU is left for workers (allowed: {format_cpu_list(allowed)})")
    if pin not in PIN_POLICIES and (both := kept.intersection(parse_list(pin))):
        raise UsageError(f"--policy: cpus {text}: --pin {pin} also gives CPU {format_cpu_list(both)} to workers")
    return allowed - kept


def _allowed_in(text: str, option: str, allowed: frozenset[int]) -> Cpus:
    """Return the CPUs of a Linux CPU list (``0-3,8``), in its order. Raises UsageError unless all are allowed."""
    parts = kernel.ranges(text)
    cpus = tuple(cpu for part in parts for cpu in part) if all(parts) else ()
    if not cpus or len(set(cpus)) < len(cpus):
        policies = f" nor a policy ({', '.join(PIN_POLICIES)})" if option == "--pin" else ""
        raise UsageError(f"{option} {shown(text)}: not a list of CPUs such as 0-3,8, each once{policies}")
    if outside := set(cpus) - allowed:
        which, right = format_cpu_list(outside), format_cpu_list(allowed)
        raise UsageError(f"{option} {text}: CPU {which} is not allowed here (allowed: {right})")
    return cpus


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the CPUs as a sorted Linux CPU list. ``parse_list`` is the inverse."""
    runs = grouped(enumerate(sorted(cpus)), lambda item: item[1] - item[0])
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
