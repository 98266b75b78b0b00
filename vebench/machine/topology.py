"""The machine's CPUs as the Linux kernel describes them in sysfs: cores, packages, caches, nodes, kinds of core.

Files are read below a root folder, so that a copy of another machine's tree can be read, too. They may be missing,
empty or unreadable, and numbers may have gaps. Contradictory sets are turned into a partition of the online CPUs.
Format: Documentation/ABI/stable/sysfs-devices-system-cpu and -node in the kernel's tree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from vebench.machine.sysfs import Cpus, entries, number_in, parse_list, text_of

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
