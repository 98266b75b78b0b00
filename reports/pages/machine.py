"""The machine as a page, for ``doctor``: its parts and facts for readers, and the same as data for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from vebench.errors import one_line
from vebench.machine.placement import format_cpu_list
from vebench.reports.document import Document, Remark, SimplePage, Table, TableRow, Text
from vebench.reports.figures import DASH, by_key, counted, size, tasks_in_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.findings import Finding
    from vebench.backends.registry import Standing
    from vebench.machine.host import Host, Topology
    from vebench.machine.kernel import Cpus
    from vebench.machine.placement import Placement

_THIRD_LEVEL = 3
_MOST_IN_ORDER = 32
_FEWEST_IN_SERIES = 4


@dataclass(frozen=True)
class Machine:
    """A machine as vebench sees it."""

    host: Host
    placement: Placement
    orders: Mapping[str, Cpus]
    """All allowed CPUs as each policy takes them, second threads last."""
    workers: int | None
    """How many workers to show on the CPUs that ``placement`` gives them."""
    versions: Mapping[str, str]
    """Installed packages; empty for a copy of another machine's files."""
    memory_available: int | None
    """Bytes."""
    findings: tuple[Finding, ...]
    standings: tuple[Standing, ...] = ()
    """The tasks that backends with their own environment classes step here."""

    @property
    def owned(self) -> Cpus:
        """The CPUs of the workers."""
        return () if self.workers is None else self.placement.owned(self.workers)


def machine_page(machine: Machine) -> SimplePage:
    """Return the machine's parts, facts and findings."""
    facts = tuple((name, one_line(text)) for name, text in _facts(machine) if text)
    findings = tuple(map(Remark.of, machine.findings))
    document = Document(one_line(machine.host.cpu_model), facts, (_parts(machine),), findings=findings)
    return SimplePage("machine", document, _data(machine))


def _data(machine: Machine) -> dict[str, object]:
    """Return facts by name: CPU sets as Linux lists, unknown facts as None."""
    host, topology, allowance = machine.host, machine.host.topology, machine.host.allowance
    third = [format_cpu_list(cache.cpus) for cache in topology.caches if cache.level == _THIRD_LEVEL]
    facts: dict[str, object] = {
        "online": format_cpu_list(topology.online),
        "allowed": format_cpu_list(allowance.cpus),
        "cores": [format_cpu_list(core) for core in topology.cores],
        "packages": {label: format_cpu_list(cpus) for label, cpus in topology.packages.items()},
        "nodes": {str(node.id): format_cpu_list(node.cpus) for node in topology.nodes if node.cpus},
        "cpuless_nodes": [node.id for node in topology.nodes if not node.cpus],
        "l3_groups": third or None,
        "kinds_slow_to_fast": [format_cpu_list(kind) for kind in topology.kinds],
        "quota_cpus": host.quota_cpus,
        "usable_cpus": machine.placement.usable,
        "order": {policy: list(order) for policy, order in machine.orders.items()},
        "cpus_without_node": format_cpu_list(topology.without_node),
        "distances": {str(node.id): {str(to): far for to, far in node.distances.items()} for node in topology.nodes},
        "node_memory_bytes": {str(node.id): node.memory_bytes for node in topology.nodes},
        "last_level": [format_cpu_list(cache.cpus) for cache in topology.last_level],
        "allowed_nodes": None if allowance.nodes is None else format_cpu_list(allowance.nodes),
        "quota_source": allowance.quota.source if allowance.quota else None,
        "memory_bytes": host.memory_bytes,
        "memory_available_bytes": machine.memory_available,
        **{name: getattr(host, name) for name in ("cpu_model", "microcode", "kernel", "smt", "governor", "boost")},
        "transparent_huge_pages": host.thp,
        "isolated": format_cpu_list(host.isolated),
        "container": host.container,
        "virtual": host.virtual,
        "versions": dict(machine.versions),
        "own_classes": [{"backends": it.backends, "tasks": it.tasks, **asdict(it.own)} for it in machine.standings],
        "findings": machine.findings,
    }
    if machine.workers is not None:
        facts["workers"] = [machine.owned[worker % len(machine.owned)] for worker in range(machine.workers)]
    return facts


def _facts(machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield facts for readers, by name; the text is empty if a fact is unknown."""
    host, topology = machine.host, machine.host.topology
    yield (
        "CPUs",
        _listed(
            f"{format_cpu_list(topology.online)} online",
            counted(len(topology.packages), "package") if topology.packages else "",
            counted(len(topology.nodes), "memory node") if topology.nodes else "",
            counted(len(topology.cores), "core"),
            f"{topology.threads_per_core} threads a core" if topology.threads_per_core > 1 else "",
            f"{len(topology.kinds)} kinds of core" if len(topology.kinds) > 1 else "",
            f"no node for {_brief(topology.without_node)}" if topology.without_node else "",
        ),
    )
    if topology.threads_per_core > 1:
        yield "share a core", _first("+".join(map(str, core)) for core in topology.cores)
    caches = Counter((cache.level, cache.size_bytes) for cache in topology.caches)  # data or unified
    yield "caches", _listed(*(f"{_cache(*one)}{f' x {many}' if many > 1 else ''}" for one, many in caches.items()))
    nodes = host.allowance.nodes
    yield (
        "memory",
        _listed(
            size(host.memory_bytes) if host.memory_bytes else "",
            f"{size(machine.memory_available)} available" if machine.memory_available else "",
            f"nodes {format_cpu_list(nodes)} allowed" if nodes is not None and len(topology.nodes) > 1 else "",
        ),
    )
    yield "usable", _usable(machine)
    for policy, order in machine.orders.items():
        yield policy, _first(map(str, order))
    yield "workers", _workers(machine)
    on = {True: "on", False: "off"}
    yield (
        "settings",
        _listed(
            f"governor {host.governor}" if host.governor else "",
            f"boost {on[host.boost]}" if host.boost is not None else "",
            f"SMT {on[host.smt]}" if host.smt is not None else "",
            f"transparent huge pages {host.thp}" if host.thp else "",
            f"microcode {host.microcode}" if host.microcode else "",
            f"isolated CPUs {_brief(host.isolated)}" if host.isolated else "",
        ),
    )
    kernel = f"{host.system} {host.kernel} {host.machine}".strip()
    virtual, container = "virtual machine" if host.virtual else "", "in a container" if host.container else ""
    yield "system", _listed(kernel, virtual, container)
    yield "versions", _listed(*(f"{name} {version}" for name, version in sorted(machine.versions.items())))
    kinds = by_key(((_listed(*one.backends), one.own.words_for_kind), tasks_in_words(one)) for one in machine.standings)
    for (backends, words), names in kinds.items():
        yield backends, f"{', '.join(names)}: {words}"


def _listed(*texts: str) -> str:
    return ", ".join(text for text in texts if text)


def _cache(level: int, size_bytes: int | None) -> str:
    return f"L{level} {size(size_bytes)}" if size_bytes else f"L{level}"


def _usable(machine: Machine) -> str:
    allowance, online = machine.host.allowance, machine.host.topology.online
    allowed = "all may be used" if allowance.cpus == online else f"{_brief(allowance.cpus)} may be used"
    quota = f"quota of {allowance.quota.cpus:g} ({allowance.quota.source})" if allowance.quota else "no quota"
    return f"{machine.placement.usable} of {counted(len(online), 'CPU')}: {allowed}, {quota}"


def _first(texts: Iterable[str]) -> str:
    every = list(texts)
    shown = ", ".join(every[:_MOST_IN_ORDER])
    return shown if len(every) <= _MOST_IN_ORDER else f"{shown}, ... ({len(every)} in all)"


def _workers(machine: Machine) -> str:
    if machine.workers is None:
        return ""
    owned, workers = machine.owned, counted(machine.workers, "worker")
    if not machine.placement.pinned:
        return f"{workers} on any of CPUs {_brief(owned)}"
    how = "share" if machine.workers > len(owned) else "in this order on" if len(owned) > 1 else "on"
    return f"{workers} {how} CPU {_first(map(str, owned))}"


def _brief(cpus: Collection[int]) -> str:
    """Return a set of CPUs in short form: a Linux list, or ``1,3..79`` for a series with a wider step."""
    ordered = sorted(cpus)
    steps = {after - before for before, after in pairwise(ordered)}
    if len(ordered) >= _FEWEST_IN_SERIES and len(steps) == 1 and steps != {1}:
        return f"{ordered[0]},{ordered[1]}..{ordered[-1]}"
    return format_cpu_list(ordered)


class Part(NamedTuple):
    """A set of CPUs that belong together."""

    name: str
    cpus: frozenset[int]


def _parts(machine: Machine) -> Table:
    """Return the machine's parts, each indented below the one that contains it."""
    topology = machine.host.topology
    barred = frozenset(topology.online).difference(machine.host.allowance.cpus)
    marks = {"with workers": frozenset(machine.owned), "not allowed": barred}
    marks = {head: cpus for head, cpus in marks.items() if cpus}
    rows = []
    for (depth, name), alike in groupby(_nested(_named_parts(topology)), key=lambda item: (item[0], item[1].name)):
        parts = [part for _, part in alike]
        label = f"{'  ' * depth}{name}{f' x {len(parts)}' if len(parts) > 1 else ''}"
        whole = frozenset[int]().union(*(part.cpus for part in parts))
        marked = (_brief(cpus & whole) or DASH for cpus in marks.values())
        texts = ("; ".join(_brief(part.cpus) for part in parts), *marked)
        rows.append(TableRow(label, tuple(Text((text,)) for text in texts)))
    for node in topology.nodes:
        if not node.cpus:
            memory = f" ({size(node.memory_bytes)})" if node.memory_bytes else ""
            rows.append(TableRow(f"node {node.id}: memory only{memory}", (Text((DASH,)),) * (1 + len(marks))))
    return Table("Its CPUs", ("CPUs", *marks), tuple(rows), "part", numbers=False)


def _named_parts(topology: Topology) -> list[Part]:
    parts = [Part(f"package {label}", frozenset(cpus)) for label, cpus in topology.packages.items()]
    for node in topology.nodes:
        if node.cpus:
            memory = f" ({size(node.memory_bytes)})" if node.memory_bytes else ""
            parts.append(Part(f"node {node.id}{memory}", frozenset(node.cpus)))
    fastest_first = topology.kinds[::-1] if len(topology.kinds) > 1 else ()
    for rank, kind in enumerate(fastest_first, 1):
        parts.append(Part(f"cores of kind {rank}{' (fastest)' if rank == 1 else ''}", frozenset(kind)))
    # A cache of a single core groups nothing: it is listed with the facts.
    cores = {frozenset(core) for core in topology.cores}
    caches = [Part(_cache(one.level, one.size_bytes), frozenset(one.cpus)) for one in topology.last_level]
    parts += [cache for cache in caches if cache.cpus not in cores]
    return sorted(parts, key=lambda part: (-len(part.cpus), min(part.cpus)))


def _nested(parts: Sequence[Part], depth: int = 0) -> Iterator[tuple[int, Part]]:
    """Yield each part with its depth, after the part that contains it; larger parts come first in ``parts``."""
    left = list(parts)
    while left:
        first, *others = left
        inner = [part for part in others if part.cpus <= first.cpus]
        yield depth, first
        yield from _nested(inner, depth + 1)
        left = [part for part in others if part not in inner]
