"""The machine as a page: a drawing and facts for people, and the same as data for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from vebench.errors import one_line
from vebench.machine.placement import format_cpu_list
from vebench.reports.document import Document, FindingText
from vebench.reports.figures import counted, size
from vebench.reports.pages.drawing import brief, draw
from vebench.reports.stepping import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.analysis.findings import Finding
    from vebench.backends.registry import Standing
    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.machine.sysfs import Cpus
    from vebench.machine.topology import Topology
    from vebench.reports.page import Kind

_THIRD_LEVEL = 3
_MOST_IN_ORDER = 32


@dataclass(frozen=True)
class MachinePage:
    """A machine as vebench sees it. ``orders``: all allowed CPUs as each policy takes them, second threads last.

    ``workers`` is how many are to be shown where ``placement`` puts them, None for none. ``versions`` are those of the
    packages here, and ``standings`` with what backends step that have environment classes of their own; both are empty
    for a copy of another machine's files. ``memory_available`` is in bytes, None if unknown.
    """

    host: Host
    placement: Placement
    orders: Mapping[str, Cpus]
    workers: int | None
    versions: Mapping[str, str]
    memory_available: int | None
    findings: tuple[Finding, ...]
    standings: tuple[Standing, ...] = ()
    kind: ClassVar[Kind] = "machine"
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the drawing, facts of the machine, and what to fix."""
        owned = () if self.workers is None else self.placement.owned(self.workers)
        document = Document(
            title=one_line(self.host.cpu_model),
            facts=tuple((name, one_line(text)) for name, text in _facts(self) if text),
            tables=(),
            findings=tuple(
                FindingText(finding.code, one_line(finding.message), (), finding.remedy) for finding in self.findings
            ),
            drawing=draw(self.host.topology, owned, self.host.allowance.cpus),
        )
        return (document,)

    @property
    def data(self) -> dict[str, object]:
        """Facts of the machine by name: CPU sets as Linux lists, what is not known as None."""
        facts = {**_placement(self), **_details(self)}
        if self.workers is not None:
            owned = self.placement.owned(self.workers)
            facts["workers"] = [owned[worker % len(owned)] for worker in range(self.workers)]
        return facts


def _placement(page: MachinePage) -> dict[str, object]:
    """Return what decides where workers are placed."""
    topology = page.host.topology
    third = [format_cpu_list(cache.cpus) for cache in topology.caches if cache.level == _THIRD_LEVEL]
    return {
        "online": format_cpu_list(topology.online),
        "allowed": format_cpu_list(page.host.allowance.cpus),
        "cores": [format_cpu_list(core) for core in topology.cores],
        "packages": {label: format_cpu_list(cpus) for label, cpus in topology.packages.items()},
        "nodes": {str(node.id): format_cpu_list(node.cpus) for node in topology.nodes if node.cpus},
        "cpuless_nodes": [node.id for node in topology.nodes if not node.cpus],
        "l3_groups": third or None,
        "kinds_slow_to_fast": [format_cpu_list(kind) for kind in topology.kinds],
        "quota_cpus": page.host.quota_cpus,
        "usable_cpus": page.placement.usable,
        "order": {policy: list(order) for policy, order in page.orders.items()},
    }


def _details(page: MachinePage) -> dict[str, object]:
    """Return what else is known of the machine."""
    host, topology, allowance = page.host, page.host.topology, page.host.allowance
    return {
        "cpus_without_node": format_cpu_list(topology.without_node),
        "distances": {
            str(node.id): {str(other): distance for other, distance in node.distances.items()}
            for node in topology.nodes
        },
        "node_memory_bytes": {str(node.id): node.memory_bytes for node in topology.nodes},
        "last_level": [format_cpu_list(cache.cpus) for cache in topology.last_level],
        "allowed_nodes": None if allowance.nodes is None else format_cpu_list(allowance.nodes),
        "quota_source": allowance.quota.source if allowance.quota else None,
        "memory_bytes": host.memory_bytes,
        "memory_available_bytes": page.memory_available,
        "cpu_model": host.cpu_model,
        "microcode": host.microcode,
        "kernel": host.kernel,
        "smt": host.smt,
        "governor": host.governor,
        "boost": host.boost,
        "transparent_huge_pages": host.thp,
        "isolated": format_cpu_list(host.isolated),
        "container": host.container,
        "virtual": host.virtual,
        "versions": dict(page.versions),
        "own_classes": [
            {"backends": standing.backends, "tasks": standing.tasks, **asdict(standing.own)}
            for standing in page.standings
        ],
        "findings": page.findings,
    }


def _facts(page: MachinePage) -> Iterator[tuple[str, str]]:
    """Yield facts for people, by name; empty where nothing is known."""
    host, topology = page.host, page.host.topology
    yield "CPUs", _cpus(host)
    yield "caches", _caches(topology)
    yield "memory", _memory(page)
    yield "usable", _usable(page)
    for policy, order in page.orders.items():
        yield policy, _in_order(order)
    yield "workers", _workers(page)
    yield "settings", _settings(host)
    yield "system", _system(host)
    yield "versions", ", ".join(f"{name} {version}" for name, version in sorted(page.versions.items()))
    yield from _own_classes(page.standings)


def _own_classes(standings: Sequence[Standing]) -> Iterator[tuple[str, str]]:
    """Yield for backends with environment classes of their own which tasks they step with these here."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for standing in standings:
        kinds.setdefault((", ".join(standing.backends), standing.own.words_for_kind), []).append(kind_of(standing))
    for (backends, words), names in kinds.items():
        yield backends, f"{', '.join(names)}: {words}"


def _cpus(host: Host) -> str:
    topology = host.topology
    parts = [
        f"{format_cpu_list(topology.online)} online",
        counted(len(topology.packages), "package") if topology.packages else "",
        counted(len(topology.nodes), "memory node") if topology.nodes else "",
        counted(len(topology.cores), "core"),
        f"{topology.threads_per_core} threads a core" if topology.threads_per_core > 1 else "",
        f"{len(topology.kinds)} kinds of core" if len(topology.kinds) > 1 else "",
        f"no node for {brief(topology.without_node)}" if topology.without_node else "",
    ]
    return ", ".join(part for part in parts if part)


def _caches(topology: Topology) -> str:
    """Return how many data or unified caches there are of each level and size."""
    counts = Counter((cache.level, cache.size_bytes) for cache in topology.caches)
    return ", ".join(
        f"L{level}{f' {size(count)}' if count else ''}{f' x {number}' if number > 1 else ''}"
        for (level, count), number in counts.items()
    )


def _memory(page: MachinePage) -> str:
    nodes = page.host.allowance.nodes
    parts = [
        size(page.host.memory_bytes) if page.host.memory_bytes else "",
        f"{size(page.memory_available)} available" if page.memory_available else "",
        f"nodes {format_cpu_list(nodes)} allowed" if nodes is not None and len(page.host.topology.nodes) > 1 else "",
    ]
    return ", ".join(part for part in parts if part)


def _usable(page: MachinePage) -> str:
    """Return how many CPUs do work at the same time, and why so many."""
    allowance, online = page.host.allowance, page.host.topology.online
    allowed = "all may be used" if allowance.cpus == online else f"{brief(allowance.cpus)} may be used"
    quota = f"quota of {allowance.quota.cpus:g} ({allowance.quota.source})" if allowance.quota else "no quota"
    return f"{page.placement.usable} of {counted(len(online), 'CPU')}: {allowed}, {quota}"


def _in_order(order: Cpus) -> str:
    shown = ", ".join(map(str, order[:_MOST_IN_ORDER]))
    return shown if len(order) <= _MOST_IN_ORDER else f"{shown}, ... ({len(order)} in all)"


def _workers(page: MachinePage) -> str:
    if page.workers is None:
        return ""
    owned = page.placement.owned(page.workers)
    if not page.placement.pinned:
        return f"{counted(page.workers, 'worker')} on any of CPUs {brief(owned)}"
    how = "share" if page.workers > len(owned) else "in this order on" if len(owned) > 1 else "on"
    return f"{counted(page.workers, 'worker')} {how} CPU {_in_order(owned)}"


def _settings(host: Host) -> str:
    on = {True: "on", False: "off"}
    parts = [
        f"governor {host.governor}" if host.governor else "",
        f"boost {on[host.boost]}" if host.boost is not None else "",
        f"SMT {on[host.smt]}" if host.smt is not None else "",
        f"transparent huge pages {host.thp}" if host.thp else "",
        f"microcode {host.microcode}" if host.microcode else "",
        f"isolated CPUs {brief(host.isolated)}" if host.isolated else "",
    ]
    return ", ".join(part for part in parts if part)


def _system(host: Host) -> str:
    parts = [
        f"{host.system} {host.kernel} {host.machine}".strip(),
        "virtual machine" if host.virtual else "",
        "in a container" if host.container else "",
    ]
    return ", ".join(part for part in parts if part)
