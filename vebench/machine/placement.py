"""Assigns CPUs to cells by a pin policy. All functions are pure: the machine and its limits are arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from operator import attrgetter
from typing import TypeVar

from vebench.errors import UsageError, shown
from vebench.machine.host import Topology, flat
from vebench.machine.kernel import Cpus, ranges
from vebench.machine.pinning import PIN_POLICIES

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
        if smt == "off":
            order = tuple(cpus[0] for cpus in _grouped(order, lambda cpu: core.get(cpu, (cpu,))))
    most = len(order) if quota is None else min(len(order), max(1, int(quota)))
    if most <= reserve:
        raise UsageError(f"--pin: reserve={reserve}: no CPU is left for workers ({most} usable)")
    if not pinned:
        order = tuple(sorted(allowed))
    elif reserve:  # reserve the cores that workers would take last
        by_core = _grouped(order, lambda cpu: core.get(cpu, (cpu,)))
        last_first = [cpu for cpus in reversed(by_core) for cpu in reversed(cpus)]
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

    ``compact`` fills one package after another. It fills the nodes of a package one after another. In a node, it takes
    the fastest kind of core first, and fills one last-level cache after another. ``scatter`` takes nodes in turn, and
    alternates between packages. With ``smt`` ``last``, every core gets one worker before any core gets two. With
    ``close``, a core is filled before the next one. With ``off``, no core gets two workers.
    """
    cores = _compact(_cores(topology, frozenset(allowed)))
    if policy == "scatter":  # one core from each node in turn, or from each package if no node is known
        by_node = any(core.node is not None for core in cores)
        nodes = _grouped(cores, attrgetter("node" if by_node else "package"))
        packages = _grouped(nodes, lambda members: members[0].package)
        cores = _in_turn(_in_turn(packages))
    if smt == "close":
        return tuple(cpu for core in cores for cpu in core.cpus)
    rounds = 1 if smt == "off" else max((len(core.cpus) for core in cores), default=0)
    return tuple(core.cpus[turn] for turn in range(rounds) for core in cores if turn < len(core.cpus))


def _cores(topology: Topology, allowed: frozenset[int]) -> list[_Core]:
    """Return the cores that have allowed CPUs. A CPU that is not in the topology counts as a separate core."""
    package = {cpu: label for label, cpus in topology.packages.items() for cpu in cpus}
    node = {cpu: node.id for node in topology.nodes for cpu in node.cpus}
    cache = {cpu: index for index, cache in enumerate(topology.last_level) for cpu in cache.cpus}
    speed = {cpu: rank for rank, cpus in enumerate(topology.kinds) for cpu in cpus}
    cores = chain(topology.cores, ((cpu,) for cpu in sorted(allowed - set(topology.online))))
    allowed_of_each = (tuple(cpu for cpu in core if cpu in allowed) for core in cores)
    first = {cpus[0]: cpus for cpus in allowed_of_each if cpus}
    return [_Core(cpus, package.get(at), node.get(at), cache.get(at), speed.get(at, 0)) for at, cpus in first.items()]


def _compact(cores: list[_Core]) -> list[_Core]:
    """Return the cores in an order that keeps packages and nodes together. Either may contain the other."""
    groups = {part: _grouped(cores, attrgetter(part)) for part in ("package", "node", "cache")}
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
    gap = object()
    return [item for turn in zip_longest(*groups, fillvalue=gap) for item in turn if item is not gap]  # type: ignore[misc] # gaps are left out


def _grouped(items: Iterable[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Return lists of the items with equal keys, in the order in which the keys first appear."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def apart(text: str, allowed: frozenset[int], pin: str) -> frozenset[int]:
    """Return the allowed CPUs without the CPUs in ``text``, which ``--policy`` reserves.

    Raises UsageError if ``text`` is not a list of allowed CPUs, if no CPU is left, or if ``pin`` names a reserved CPU.
    """
    kept = frozenset(_allowed_in(text, "--policy: cpus", allowed))
    if not allowed - kept:
        raise UsageError(f"--policy: cpus {text}: no CPU is left for workers (allowed: {format_cpu_list(allowed)})")
    if pin not in PIN_POLICIES and (both := kept.intersection(parse_cpu_list(pin))):
        raise UsageError(f"--policy: cpus {text}: --pin {pin} also gives CPU {format_cpu_list(both)} to workers")
    return allowed - kept


def _allowed_in(text: str, option: str, allowed: frozenset[int]) -> Cpus:
    cpus = parse_cpu_list(text, option)
    if outside := set(cpus) - allowed:
        which, right = format_cpu_list(outside), format_cpu_list(allowed)
        raise UsageError(f"{option} {text}: CPU {which} is not allowed here (allowed: {right})")
    return cpus


def parse_cpu_list(text: str, option: str = "--pin") -> tuple[int, ...]:
    """Return the CPUs of a Linux CPU list (``0-3,8``), in its order. Raises UsageError if the list is invalid."""
    parts = ranges(text)
    cpus = tuple(cpu for part in parts for cpu in part) if all(parts) else ()
    if not cpus or len(set(cpus)) < len(cpus):
        policies = f" nor a policy ({', '.join(PIN_POLICIES)})" if option == "--pin" else ""
        raise UsageError(f"{option} {shown(text)}: not a list of CPUs such as 0-3,8, each once{policies}")
    return cpus


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the CPUs as a sorted Linux CPU list. ``parse_cpu_list`` is the inverse for sorted CPUs."""
    runs = _grouped(enumerate(sorted(cpus)), lambda item: item[1] - item[0])
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
