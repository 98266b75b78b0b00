"""The machine's CPUs as the Linux kernel describes them in sysfs: cores, packages, caches, nodes, kinds of core.

Every file is read below a root folder, so that a copy of another machine's tree can be read as well. Nothing is taken
for granted: files may be missing, empty or unreadable, numbers may have gaps, and what contradicts itself is made a
partition of the CPUs online. Format: Documentation/ABI/stable/sysfs-devices-system-cpu and -node in the kernel's tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Cpus = tuple[int, ...]

CPU_FOLDER = Path("sys/devices/system/cpu")
NODE_FOLDER = Path("sys/devices/system/node")
MAX_CPU = 1 << 16  # beyond any kernel's NR_CPUS: a typing error or a damaged file, not a machine
KIBIBYTE = 1024
# Performance counters of hybrid x86, each kind of core its own, fastest last.
HYBRID_KINDS = ("cpu_lowpower", "cpu_atom", "cpu_core")
# Before package_cpus_list and core_cpus_list (Linux 5.3) there were these names; the masks are older still.
CORE_FILES = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")


@dataclass(frozen=True)
class Cache:
    """A data or unified cache and the CPUs that share it, ascending. ``size_bytes`` is None where it is not told."""

    level: int
    size_bytes: int | None
    cpus: Cpus


@dataclass(frozen=True)
class Node:
    """A memory node. It may have no CPUs. ``distances`` are by node id, 10 being local (ACPI SLIT), as far as told."""

    id: int
    cpus: Cpus
    memory_bytes: int | None = None
    distances: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Topology:
    """What the machine consists of. All CPU sets are ascending and hold CPUs that are online.

    ``cores`` partitions the CPUs online, each core with its hardware threads. ``packages`` maps the kernel's labels,
    which mean nothing else, to CPUs. CPUs may be in no package, node or cache. ``kinds`` partitions the CPUs by how
    fast their cores are built, the slowest first: one kind on most machines.
    """

    online: Cpus
    cores: tuple[Cpus, ...]
    packages: Mapping[str, Cpus]
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...]
    kinds: tuple[Cpus, ...]

    @property
    def last_level(self) -> tuple[Cache, ...]:
        """The last-level caches: for each CPU, the highest that it has."""
        highest = {cpu: cache for cache in sorted(self.caches, key=lambda cache: cache.level) for cpu in cache.cpus}
        return tuple(cache for cache in self.caches if any(highest[cpu] is cache for cpu in cache.cpus))

    @property
    def without_node(self) -> Cpus:
        """The CPUs that belong to no memory node."""
        placed = {cpu for node in self.nodes for cpu in node.cpus}
        return tuple(cpu for cpu in self.online if cpu not in placed)

    @property
    def threads_per_core(self) -> int:
        """The hardware threads of the widest core."""
        return max(len(core) for core in self.cores)


def flat(cpus: Iterable[int]) -> Topology:
    """Return a machine of which nothing is known but its CPUs: each a core of its own."""
    online = tuple(sorted(cpus))
    return Topology(online, tuple((cpu,) for cpu in online), {}, (), (), (online,))


def read_topology(root: Path = Path("/")) -> Topology | None:
    """Return the topology of the tree below ``root``, None if there is none: no Linux, or no copy of its sysfs."""
    folder = root / CPU_FOLDER
    online = _online(folder)
    if not online:
        return None
    return Topology(
        online=online,
        cores=_partition(online, lambda cpu: _core(folder, cpu)),
        packages=_packages(folder, online),
        nodes=_nodes(root / NODE_FOLDER, online),
        caches=_caches(folder, online),
        kinds=_kinds(root, online),
    )


def text_of(path: Path) -> str:
    """Return what a file holds, stripped; nothing where it is missing or cannot be read."""
    try:
        return path.read_text(errors="replace").strip(" \t\r\n\0")
    except OSError:
        return ""


def parse_list(text: str) -> Cpus:
    """Return the numbers of a Linux list (``0-3,8``), ascending; nothing if it is none."""
    numbers: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part, re.ASCII)
        if match is None:
            return ()
        first, last = int(match[1]), int(match[2] or match[1])
        if last > MAX_CPU:
            return ()
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def parse_mask(text: str) -> Cpus:
    """Return the numbers of a Linux mask (``00000000,0000000f``: words of 32 bits, the highest first), ascending."""
    if re.fullmatch(r"[0-9a-f]{1,8}(,[0-9a-f]{1,8})*", text, re.ASCII | re.IGNORECASE) is None:
        return ()
    bits = 0
    for word in text.split(","):
        bits = bits << 32 | int(word, 16)
    return tuple(index for index, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")


def _cpus_in(path: Path) -> Cpus:
    """Return the CPUs that a file names: a list by the kernel's names for those, a mask by the others."""
    text = text_of(path)
    return parse_list(text) if path.name.endswith("list") else parse_mask(text)


def _number(path: Path) -> int | None:
    text = text_of(path)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def _entries(folder: Path, prefix: str) -> list[int]:
    """Return the numbers N of the entries ``prefixN`` of a folder, ascending."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    matches = (re.fullmatch(rf"{prefix}(\d{{1,6}})", name, re.ASCII) for name in names)
    return sorted(int(match[1]) for match in matches if match)


def _online(folder: Path) -> Cpus:
    """Return the CPUs online: as listed, or, where there is no such list, those that do not say that they are not."""
    return parse_list(text_of(folder / "online")) or tuple(
        cpu for cpu in _entries(folder, "cpu") if text_of(folder / f"cpu{cpu}" / "online") != "0"
    )


def _partition(online: Cpus, group_of: Callable[[int], Iterable[int]]) -> tuple[Cpus, ...]:
    """Return groups of the CPUs online, each in one: what the first of a group says of it counts, and itself belongs.

    A CPU for which ``group_of`` is empty stands alone.
    """
    left = dict.fromkeys(online)
    groups = []
    for cpu in online:
        if cpu in left:
            group = tuple(sorted({cpu, *(other for other in group_of(cpu) if other in left)}))
            groups.append(group)
            for member in group:
                del left[member]
    return tuple(groups)


def _core(folder: Path, cpu: int) -> Cpus:
    topology = folder / f"cpu{cpu}" / "topology"
    return next(filter(None, (_cpus_in(topology / name) for name in CORE_FILES)), ())


def _packages(folder: Path, online: Cpus) -> dict[str, Cpus]:
    """Return the CPUs of each package by its label; where books or drawers (s390) repeat labels, by all of them."""
    labels: dict[int, tuple[int | None, ...]] = {}
    for cpu in online:
        topology = folder / f"cpu{cpu}" / "topology"
        if (package := _number(topology / "physical_package_id")) is not None:
            labels[cpu] = (*(_number(topology / name) for name in ("drawer_id", "book_id")), package)
    distinct = set(labels.values())
    ambiguous = len({label[-1] for label in distinct}) < len(distinct)
    packages: dict[str, list[int]] = {}
    for cpu, label in labels.items():
        parts = [str(part) for part in label if part is not None]
        packages.setdefault(".".join(parts) if ambiguous else parts[-1], []).append(cpu)
    return {label: tuple(cpus) for label, cpus in packages.items()}


def _caches(folder: Path, online: Cpus) -> tuple[Cache, ...]:
    """Return the data and unified caches, the lowest level first, each once."""
    found: dict[tuple[int, Cpus], int | None] = {}
    known: set[tuple[int, int]] = set()  # (level, CPU): its siblings have told of this one
    there = frozenset(online)
    for cpu in online:
        caches = folder / f"cpu{cpu}" / "cache"
        for index in _entries(caches, "index"):
            cache = caches / f"index{index}"
            level = _number(cache / "level")
            if level is None or (level, cpu) in known or text_of(cache / "type") == "Instruction":
                continue
            listed = _cpus_in(cache / "shared_cpu_list") or _cpus_in(cache / "shared_cpu_map")
            sharing = tuple(sorted(other for other in {cpu, *listed} if other in there and (level, other) not in known))
            if listed:
                found[level, sharing] = _size(text_of(cache / "size"))
                known.update((level, other) for other in sharing)
    return tuple(Cache(level, size, cpus) for (level, cpus), size in sorted(found.items(), key=lambda item: item[0]))


def _size(text: str) -> int | None:
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", text, re.ASCII)
    return int(match[1]) * KIBIBYTE ** " KMG".index(match[2] or " ") if match else None


def _nodes(folder: Path, online: Cpus) -> tuple[Node, ...]:
    """Return the memory nodes online. A kernel without NUMA has one for all CPUs, as its own memory management has."""
    ids = _entries(folder, "node")
    if not ids:
        return (Node(0, online),)
    if listed := parse_list(text_of(folder / "online")):
        ids = [node for node in ids if node in listed]
    left = dict.fromkeys(online)
    nodes = []
    for node in ids:
        own = folder / f"node{node}"
        said = _cpus_in(own / "cpulist") or _cpus_in(own / "cpumap") or _entries(own, "cpu")
        cpus = tuple(cpu for cpu in said if cpu in left)
        for cpu in cpus:
            del left[cpu]
        nodes.append(Node(node, cpus, _node_memory(own), _distances(folder, own, ids)))
    return tuple(nodes)


def _node_memory(node: Path) -> int | None:
    match = re.search(r"MemTotal:\s+(\d{1,15}) kB", text_of(node / "meminfo"), re.ASCII)
    return int(match[1]) * KIBIBYTE if match else None


def _distances(folder: Path, node: Path, ids: list[int]) -> dict[int, int]:
    """Return the node's distances. They are listed without ids, for the nodes online when the kernel was asked."""
    values = text_of(node / "distance").split()
    for columns in (ids, *(parse_list(text_of(folder / name)) for name in ("has_memory", "possible"))):
        if len(columns) == len(values) and all(value.isdecimal() for value in values):
            return {other: int(value) for other, value in zip(columns, values, strict=True) if other in ids}
    return {}


def _kinds(root: Path, online: Cpus) -> tuple[Cpus, ...]:
    """Return the kinds of core, slowest first.

    By the counters of hybrid x86, else by the capacities that Arm's and RISC-V's device trees give, else by base
    frequencies; never by the highest frequency, in which cores of one kind differ.
    """
    hybrid = [(name, parse_list(text_of(root / "sys/devices" / name / "cpus"))) for name in HYBRID_KINDS]
    ranks = {cpu: HYBRID_KINDS.index(name) for name, cpus in hybrid for cpu in cpus}
    folder = root / CPU_FOLDER
    sources: tuple[Callable[[], Mapping[int, int]], ...] = (
        lambda: ranks,
        lambda: _told(online, lambda cpu: _number(folder / f"cpu{cpu}" / "cpu_capacity")),
        lambda: _told(online, lambda cpu: _number(folder / f"cpu{cpu}" / "cpufreq/base_frequency")),
        lambda: _base_frequencies(folder),
    )
    for source in sources:
        speeds = source()
        if all(cpu in speeds for cpu in online):
            by_speed = sorted(online, key=lambda cpu: (speeds[cpu], cpu))
            return tuple(tuple(cpus) for _, cpus in groupby(by_speed, key=lambda cpu: speeds[cpu]))
    return (online,)


def _told(online: Cpus, speed: Callable[[int], int | None]) -> dict[int, int]:
    """Return the speed of each CPU; of none if one does not tell its own."""
    speeds: dict[int, int] = {}
    for cpu in online:
        value = speed(cpu)
        if value is None:
            return {}
        speeds[cpu] = value
    return speeds


def _base_frequencies(folder: Path) -> dict[int, int]:
    """Return base frequencies by CPU as frequency policies tell them, each of several CPUs."""
    frequencies: dict[int, int] = {}
    for policy in _entries(folder / "cpufreq", "policy"):
        own = folder / "cpufreq" / f"policy{policy}"
        frequency = _number(own / "base_frequency")
        if frequency is not None:
            cpus = text_of(own / "related_cpus") or text_of(own / "affected_cpus") or str(policy)
            frequencies.update(dict.fromkeys(parse_list(cpus.replace(" ", ",")), frequency))
    return frequencies
