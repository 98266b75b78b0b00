"""The first line of a run file, gathered from this machine: the host, the packages, the command."""

from __future__ import annotations

import platform
from collections import Counter
from typing import TYPE_CHECKING

from vebench.machine import packages, pinning
from vebench.machine.placement import format_cpu_list
from vebench.results.records import SCHEMA, CacheRecord, HostRecord, RunRecord, TopologyRecord

if TYPE_CHECKING:
    from datetime import datetime

    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.machine.topology import Topology
    from vebench.plan.cells import Plan

# Facts that, where they differ, make two runs incomparable; a kernel update or another amount of memory need not.
DECISIVE = ("system", "machine", "cpu_model", "cpus_online", "usable_cpus")


def gather(plan: Plan, host: Host, placement: Placement, command: str, now: datetime) -> RunRecord:
    """Return the header of a run that starts ``now`` with this plan on this host."""
    return RunRecord(
        schema=SCHEMA,
        spec=plan.spec,
        host=host_record(host, placement),
        packages=packages.installed(),
        command=command,
        started=now.isoformat(timespec="seconds"),
        cells=len(plan.cells),
    )


def host_record(host: Host, placement: Placement) -> HostRecord:
    """Return the facts of ``host`` as a run file holds them, with this Python's version."""
    quota = host.allowance.quota
    return HostRecord(
        system=host.system,
        kernel=host.kernel,
        machine=host.machine,
        cpu_model=host.cpu_model,
        cpus_online=host.cpus_online,
        cpus_allowed=host.cpus_allowed,
        usable_cpus=placement.usable,
        memory_bytes=host.memory_bytes,
        python=platform.python_version(),
        container=host.container,
        virtual=host.virtual,
        pinning=placement.pinned and pinning.SUPPORTED,
        topology=_topology(host.topology),
        nodes_allowed=host.allowance.nodes,
        quota_cpus=quota.cpus if quota else None,
        quota_source=quota.source if quota else None,
        smt=host.smt,
        governor=host.governor,
        boost=host.boost,
        thp=host.thp,
        microcode=host.microcode,
        isolated=host.isolated,
    )


def _topology(topology: Topology) -> TopologyRecord:
    counts = Counter((cache.level, cache.size_bytes) for cache in topology.caches)
    return TopologyRecord(
        cores=len(topology.cores),
        threads_per_core=topology.threads_per_core,
        packages={label: format_cpu_list(cpus) for label, cpus in topology.packages.items()},
        nodes={str(node.id): format_cpu_list(node.cpus) for node in topology.nodes},
        caches=tuple(CacheRecord(level, size, count) for (level, size), count in counts.items()),
        last_level=tuple(format_cpu_list(cache.cpus) for cache in topology.last_level),
        kinds=tuple(map(format_cpu_list, topology.kinds)),
    )


def what_differs(one: RunRecord, other: RunRecord) -> list[str]:
    """Return what makes cells of the two runs incomparable, in words; empty if nothing does."""
    pairs = [(name, getattr(one.host, name), getattr(other.host, name)) for name in DECISIVE]
    pairs.append(("Python", _minor(one.host.python), _minor(other.host.python)))
    names = sorted({*one.packages, *other.packages})
    pairs += [(name, one.packages.get(name, "none"), other.packages.get(name, "none")) for name in names]
    return [f"{name} {first} against {second}" for name, first, second in pairs if first != second]


def _minor(version: str) -> str:
    """Return ``3.11`` for ``3.11.9``: what Python promises to keep within, and so does its speed."""
    return ".".join(version.split(".")[:2])
