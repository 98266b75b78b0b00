"""What was found of the machine: as JSON for programs, and as a drawing for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from vebench.errors import one_line
from vebench.machine.placement import format_cpu_list
from vebench.reports.figures import counted
from vebench.reports.formats.terminal import write_document
from vebench.reports.pages.drawing import brief, by_level, drawing, size
from vebench.reports.pages.run import Document, Remark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console

    from vebench.analysis.cell import Finding
    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.machine.sysfs import Cpus
    from vebench.machine.topology import Topology

THIRD_LEVEL = 3
MOST_IN_ORDER = 32


@dataclass(frozen=True)
class Examination:
    """A machine as vebench sees it. ``orders``: all allowed CPUs as each policy takes them, second threads last.

    ``workers`` are to be shown where ``placement`` puts them, None if that was not asked. ``versions`` are those of the
    packages here, empty for another machine's tree.
    """

    host: Host
    placement: Placement
    orders: Mapping[str, Cpus]
    workers: int | None
    versions: Mapping[str, str]
    memory_available: int | None
    findings: tuple[Finding, ...]


def as_json_text(found: Examination) -> str:
    """Return the examination as JSON: CPU sets as Linux lists, what is not known as null."""
    return json.dumps(_facts(found), indent=1) + "\n"


def _facts(found: Examination) -> dict[str, object]:
    host, topology, allowance = found.host, found.host.topology, found.host.allowance
    third = [format_cpu_list(cache.cpus) for cache in topology.caches if cache.level == THIRD_LEVEL]
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
        "usable_cpus": found.placement.usable,
        "order": {policy: list(order) for policy, order in found.orders.items()},
        # Beyond what placement follows from.
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
        "memory_available_bytes": found.memory_available,
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
        "versions": dict(found.versions),
        "findings": [asdict(finding) for finding in found.findings],
    }
    if found.workers is not None:
        owned = found.placement.owned(found.workers)
        facts["workers"] = [owned[worker % len(owned)] for worker in range(found.workers)]
    return facts


def write(found: Examination, console: Console) -> None:
    """Print the machine as a drawing, what is to be known of it, and what is to be mended."""
    topology = found.host.topology
    owned = () if found.workers is None else found.placement.owned(found.workers)
    console.print(drawing(topology, owned, found.host.allowance.cpus))
    for node in topology.nodes:
        if not node.cpus:
            console.print(Text(f"node {node.id}: memory alone{_in_brackets(node.memory_bytes)}"))
    console.print()
    remarks = (Remark(finding.code, one_line(finding.message), (), finding.remedy) for finding in found.findings)
    facts = ((name, one_line(text)) for name, text in _told(found) if text)
    write_document(Document(one_line(found.host.cpu_model), tuple(facts), (), remarks=tuple(remarks)), console)


def _in_brackets(count: int | None) -> str:
    return "" if count is None else f" ({size(count)})"


def _told(found: Examination) -> Iterator[tuple[str, str]]:
    """Yield facts for people, by name; empty where there is nothing to tell."""
    host, topology = found.host, found.host.topology
    yield "CPUs", _cpus(host)
    yield "caches", _caches(topology)
    yield "memory", _memory(found)
    yield "usable", _usable(found)
    for policy, order in found.orders.items():
        yield policy, _in_order(order)
    yield "workers", _workers(found)
    yield "settings", _settings(host)
    yield "system", _system(host)
    yield "versions", ", ".join(f"{name} {version}" for name, version in sorted(found.versions.items()))


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
    return ", ".join(
        f"L{level}{f' {size(count)}' if count else ''}{f' x {number}' if number > 1 else ''}"
        for (level, count), number in by_level(topology).items()
    )


def _memory(found: Examination) -> str:
    nodes = found.host.allowance.nodes
    parts = [
        size(found.host.memory_bytes) if found.host.memory_bytes else "",
        f"{size(found.memory_available)} available" if found.memory_available else "",
        f"nodes {format_cpu_list(nodes)} allowed" if nodes is not None and len(found.host.topology.nodes) > 1 else "",
    ]
    return ", ".join(part for part in parts if part)


def _usable(found: Examination) -> str:
    """Return how many CPUs do work at the same time, and why so many."""
    allowance, online = found.host.allowance, found.host.topology.online
    allowed = "all may be used" if allowance.cpus == online else f"{brief(allowance.cpus)} may be used"
    quota = f"quota of {allowance.quota.cpus:g} ({allowance.quota.source})" if allowance.quota else "no quota"
    return f"{found.placement.usable} of {counted(len(online), 'CPU')}: {allowed}, {quota}"


def _in_order(order: Cpus) -> str:
    shown = ", ".join(map(str, order[:MOST_IN_ORDER]))
    return shown if len(order) <= MOST_IN_ORDER else f"{shown}, ... ({len(order)} in all)"


def _workers(found: Examination) -> str:
    if found.workers is None:
        return ""
    owned = found.placement.owned(found.workers)
    if not found.placement.pinned:
        return f"{counted(found.workers, 'worker')} on any of CPUs {brief(owned)}"
    how = "share" if found.workers > len(owned) else "in this order on" if len(owned) > 1 else "on"
    return f"{counted(found.workers, 'worker')} {how} CPU {_in_order(owned)}"


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
