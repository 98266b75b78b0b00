"""From a pin policy to the CPUs that each cell owns. Pure: what the machine is and allows is passed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, TypeVar

from vebench.errors import UsageError
from vebench.machine import policies
from vebench.machine.sysfs import MAX_CPU
from vebench.machine.topology import Topology, flat

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from vebench.machine.sysfs import Cpus

T = TypeVar("T")


@dataclass(frozen=True)
class Placement:
    """The CPUs that cells may own, in the order in which workers take them.

    ``order`` is prefix-stable: one worker more owns the same CPUs plus one. ``usable`` is how many of them do work at
    the same time: their number, or the container's quota where that is less. Without ``pinned`` nothing is restricted.
    ``homes`` maps CPUs to the memory nodes nearest to them, as far as they are known.
    """

    order: tuple[int, ...]
    usable: int
    pinned: bool = True
    homes: Mapping[int, Cpus] = field(default_factory=dict)

    def owned(self, workers: int) -> tuple[int, ...]:
        """Return the CPUs that a cell owns: the first ``min(workers, usable)``, or all of them if not pinned."""
        return self.order[: min(workers, self.usable)] if self.pinned else self.order

    def nodes(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Return the memory nodes nearest to these CPUs, ascending; none where nothing is known of them."""
        return tuple(sorted({node for cpu in cpus for node in self.homes.get(cpu, ())}))


@dataclass(frozen=True)
class Seat:
    """A core's allowed threads, ascending, and where it lies; ``speed`` is the rank of its kind, the slowest's 0."""

    threads: Cpus
    package: str | None
    node: int | None
    cache: int | None
    speed: int


def place(  # noqa: PLR0913 - one for each thing that decides
    pin: str,
    allowed: frozenset[int],
    quota: float | None = None,
    *,
    topology: Topology | None = None,
    smt: str = "last",
    nodes: Cpus | None = None,
) -> Placement:
    """Return the placement that ``pin`` (``compact``, ``scatter``, ``none`` or a list such as ``0-3,8``) gives here.

    ``quota`` is the CPU time that the container may use at any one time, in CPUs, None if it is not limited. Of a
    list, ``smt`` takes away later threads of a core (``off``) and otherwise leaves the order alone; without pinning it
    only counts. ``nodes`` are the memory nodes allowed, None for all. Raises UsageError for a list that is not one, or
    that names CPUs which are not allowed.
    """
    machine = topology or flat(allowed)
    if pin == "none":
        order = tuple(sorted(allowed))
        count = len(order_of(machine, allowed, "compact", smt))
    elif pin in policies.PIN:
        order = order_of(machine, allowed, pin, smt)
        count = len(order)
    else:
        order = _listed(pin, allowed, machine, smt)
        count = len(order)
    limit = count if quota is None else max(1, int(quota))
    homes = {cpu: home for cpu in order if (home := _home(cpu, machine, nodes))}
    return Placement(order, min(count, limit), pinned=pin != "none", homes=homes)


def _home(cpu: int, topology: Topology, allowed: Cpus | None) -> Cpus:
    """Return the allowed nodes with memory that are nearest to a CPU; nothing where its own node is not known."""
    own = next((node for node in topology.nodes if cpu in node.cpus), None)
    with_memory = [
        node.id for node in topology.nodes if node.memory_bytes != 0 and (allowed is None or node.id in allowed)
    ]
    if own is None or not with_memory:
        return ()
    if own.id in with_memory:
        return (own.id,)
    far = max(own.distances.values(), default=0) + 1
    return (min(with_memory, key=lambda node: (own.distances.get(node, far), node)),)


def order_of(topology: Topology, allowed: Iterable[int], policy: str = "compact", smt: str = "last") -> Cpus:
    """Return the allowed CPUs in the order in which workers take them, each once.

    ``compact`` fills a package before the next, in it a node, in that the fastest kind, a last-level cache, a core;
    ``scatter`` takes nodes in turn, of one package after another. With ``smt`` ``last`` every core has one worker
    before any has two, with ``close`` a core is filled before the next, and with ``off`` it never has two.
    """
    seats = _compact(_seats(topology, frozenset(allowed)))
    if policy == "scatter":
        seats = _scatter(seats)
    if smt == "close":
        return tuple(cpu for seat in seats for cpu in seat.threads)
    rounds = 1 if smt == "off" else max((len(seat.threads) for seat in seats), default=0)
    return tuple(seat.threads[turn] for turn in range(rounds) for seat in seats if turn < len(seat.threads))


def _seats(topology: Topology, allowed: frozenset[int]) -> list[Seat]:
    """Return the cores that have allowed CPUs; a CPU that the topology does not know is a core of its own."""
    package = {cpu: label for label, cpus in topology.packages.items() for cpu in cpus}
    node = {cpu: node.id for node in topology.nodes for cpu in node.cpus}
    cache = {cpu: index for index, cache in enumerate(topology.last_level) for cpu in cache.cpus}
    speed = {cpu: rank for rank, cpus in enumerate(topology.kinds) for cpu in cpus}
    unknown = sorted(allowed - set(topology.online))
    cores = chain(topology.cores, ((cpu,) for cpu in unknown))
    shares = (tuple(cpu for cpu in core if cpu in allowed) for core in cores)
    return [
        Seat(own, package.get(own[0]), node.get(own[0]), cache.get(own[0]), speed.get(own[0], 0))
        for own in shares
        if own
    ]


def _compact(seats: list[Seat]) -> list[Seat]:
    """Return the cores so that packages and nodes hang together, whichever of the two holds the other.

    A package's rank begins with that of its first node: where nodes hold packages, as on some virtual machines, all
    packages of a node follow each other.
    """
    node_rank = _ranks(seats, lambda seat: seat.node, _fastest_first)
    package_rank = _ranks(
        seats,
        lambda seat: seat.package,
        lambda members: (min(node_rank[seat.node] for seat in members), *_fastest_first(members)),
    )
    cache_rank = _ranks(seats, lambda seat: seat.cache, _fastest_first)
    return sorted(
        seats,
        key=lambda seat: (
            package_rank[seat.package],
            node_rank[seat.node],
            -seat.speed,
            cache_rank[seat.cache],
            seat.threads,
        ),
    )


def _scatter(seats: list[Seat]) -> list[Seat]:
    """Return the cores, taken from one node after another in turn; from packages where no node is known."""
    by_node = any(seat.node is not None for seat in seats)
    nodes = _grouped(seats, lambda seat: seat.node if by_node else seat.package)
    packages = _grouped(nodes, lambda members: members[0].package)
    return _in_turn(_in_turn(packages))


def _in_turn(groups: Iterable[Sequence[T]]) -> list[T]:
    """Return the first of each group, then the second of each, and so on."""
    gap = object()
    return [item for turn in zip_longest(*groups, fillvalue=gap) for item in turn if item is not gap]  # type: ignore[misc] # the gap is none of them


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Return the items that share a key together, in the order in which keys first appear."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _ranks(
    seats: list[Seat], key: Callable[[Seat], Hashable], rank: Callable[[list[Seat]], tuple[int, ...]]
) -> dict[Hashable, int]:
    """Return the place of each key's seats in the order of their ``rank``."""
    groups = sorted(_grouped(seats, key), key=rank)
    return {key(members[0]): index for index, members in enumerate(groups)}


def _fastest_first(members: list[Seat]) -> tuple[int, ...]:
    return -max(seat.speed for seat in members), min(seat.threads[0] for seat in members)


def _listed(pin: str, allowed: frozenset[int], topology: Topology, smt: str) -> Cpus:
    order = parse_cpu_list(pin)
    if outside := sorted(set(order) - allowed):
        raise UsageError(
            f"--pin {pin}: CPU {format_cpu_list(outside)} is not allowed here (allowed: {format_cpu_list(allowed)})"
        )
    if smt != "off":
        return order
    core = {cpu: cpus for cpus in topology.cores for cpu in cpus}
    first: dict[Cpus, int] = {}
    for cpu in order:
        first.setdefault(core.get(cpu, (cpu,)), cpu)
    return tuple(first.values())


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs of a Linux CPU list (``0-3,8``), in the order given. Raises UsageError if it is none."""
    cpus: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise UsageError(
                f"--pin {text}: not a policy ({', '.join(policies.PIN)}) and not a list of CPUs such as 0-3,8"
            )
        start, end = int(first), int(last or first)
        if end < start or end > MAX_CPU:
            raise UsageError(f"--pin {text}: {part.strip()} is no range of CPUs")
        cpus.extend(range(start, end + 1))
    if len(set(cpus)) != len(cpus):
        raise UsageError(f"--pin {text}: a CPU is named twice")
    return tuple(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the CPUs, sorted, as a Linux CPU list: the inverse of ``parse_cpu_list`` for sorted input."""
    parts: list[str] = []
    ordered = sorted(cpus)
    start = 0
    for index, cpu in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != cpu + 1:
            first = ordered[start]
            parts.append(str(first) if first == cpu else f"{first}-{cpu}")
            start = index + 1
    return ",".join(parts)
