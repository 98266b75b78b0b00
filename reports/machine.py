"""What was found of the machine: as JSON for programs, and as a drawing for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from vebench.machine.placement import format_cpu_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from vebench.analysis.findings import Finding
    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.machine.topology import Cpus

THIRD_LEVEL = 3


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
    """Print the examination."""
    console.print_json(as_json_text(found))
