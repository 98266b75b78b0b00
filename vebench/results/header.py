"""The first line of a run file, gathered from this machine: the host, the packages, the command."""

from __future__ import annotations

import json
import platform
from collections import Counter
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING

from vebench.backends.packages import TORCH
from vebench.backends.registry import ENTRIES
from vebench.errors import NotComparableError
from vebench.interpreters.interpreter import packages_here
from vebench.machine import pinning
from vebench.machine.placement import format_cpu_list
from vebench.machine.sysfs import parse_list
from vebench.machine.topology import Cache, Node, Topology
from vebench.plan.cells import placement_of
from vebench.plan.spec import OF_LENGTH
from vebench.results.records import (
    SCHEMA,
    CacheRecord,
    HostFactsRecord,
    HostRecord,
    InterpreterRecord,
    RunRecord,
    TopologyRecord,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from vebench.hosts.site import HostFacts
    from vebench.interpreters.interpreter import Interpreter
    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.plan.cells import Plan

_PYTHON = platform.python_version()
# Two runs that differ in one of these facts are not comparable; another kernel or amount of memory does not matter.
_DECISIVE = ("system", "machine", "cpu_model", "cpus_online", "usable_cpus")
# The same, but only if both runs know the fact: not every system or container reports it.
DECISIVE_IF_KNOWN = ("smt", "governor", "boost", "thp", "quota_cpus", "virtual")

# Facts that a run file has as they were read.
_AS_READ = (
    *("system", "kernel", "machine", "cpu_model", "cpus_online", "cpus_allowed", "memory_bytes", "container"),
    *("virtual", "smt", "governor", "boost", "thp", "microcode", "isolated"),
)

# The backends that alone use a package.
_USED_BY = {
    name: {user.name for user in ENTRIES if package in user.library.packages}
    for entry in ENTRIES
    if entry.library.installation is not None
    for package in entry.library.packages
    for name in package.deciding_names
}
# The measured work does not depend on these.
OUR_PACKAGES = frozenset({"vebench", TORCH.name})


def gather(
    plan: Plan,
    host: Host,
    placement: Placement,
    command: str,
    now: datetime,
    *,
    interpreter: Interpreter | None = None,
    hosts: Mapping[str, HostFacts] = MappingProxyType({}),
) -> RunRecord:
    """Return the header of a run that starts ``now``, on ``host`` or ``hosts``, in this Python or ``interpreter``."""
    return RunRecord(
        schema=SCHEMA,
        spec=plan.spec,
        host=host_record(host, placement, _PYTHON if interpreter is None else interpreter.version),
        packages=packages_here() if interpreter is None else interpreter.packages,
        command=command,
        started=now.isoformat(timespec="seconds"),
        cells=len(plan.cells),
        interpreter=None if interpreter is None or hosts else interpreter.path,
        interpreters={
            name: InterpreterRecord(it.path, it.version, it.packages) for name, it in plan.interpreters.items()
        },
        hosts={
            name: HostFactsRecord(
                name=one.name,
                machine=host_record(one.host, placement_of(plan.spec, one.host), one.python),
                packages=one.packages,
                load=one.load,
                interpreter=one.path,
                memory_available_bytes=one.memory_available,
            )
            for name, one in hosts.items()
        },
    )


def host_record(host: Host, placement: Placement, python: str = _PYTHON) -> HostRecord:
    """Return the facts about ``host`` for a run file, with the version of the Python there."""
    quota = host.allowance.quota
    return HostRecord(
        **{name: getattr(host, name) for name in _AS_READ},
        usable_cpus=placement.usable,
        python=python,
        pinning=placement.pinned and pinning.SUPPORTED,
        topology=topology_record(host.topology),
        nodes_allowed=host.allowance.nodes,
        quota_cpus=quota.cpus if quota else None,
        quota_source=quota.source if quota else None,
    )


def topology_record(topology: Topology) -> TopologyRecord:
    """Return the machine's parts for a run file."""
    counts = Counter((cache.level, cache.size_bytes) for cache in topology.caches)
    return TopologyRecord(
        cores=len(topology.cores),
        threads_per_core=topology.threads_per_core,
        packages={label: format_cpu_list(cpus) for label, cpus in topology.packages.items()},
        nodes={str(node.id): format_cpu_list(node.cpus) for node in topology.nodes},
        caches=tuple(CacheRecord(level, size, count) for (level, size), count in counts.items()),
        last_level=tuple(format_cpu_list(cache.cpus) for cache in topology.last_level),
        kinds=tuple(map(format_cpu_list, topology.kinds)),
        core_cpus=tuple(map(format_cpu_list, topology.cores)),
    )


def topology_of(record: TopologyRecord) -> Topology:
    """Return the machine's parts from a run file: caches of the last level only, nodes numbered in their order."""
    cores = tuple(map(parse_list, record.core_cpus))
    return Topology(
        online=tuple(sorted(cpu for core in cores for cpu in core)),
        cores=cores,
        packages={label: parse_list(cpus) for label, cpus in record.packages.items()},
        nodes=tuple(Node(index, parse_list(cpus)) for index, cpus in enumerate(record.nodes.values())),
        caches=tuple(Cache(3, None, parse_list(cpus)) for cpus in record.last_level),
        kinds=tuple(map(parse_list, record.kinds)),
    )


def refuse_foreign(run: RunRecord, path: Path, instead: str) -> None:
    """Raise NotComparableError if ``vebench compare`` ran the cells in another Python than vebench's own."""
    if run.interpreter is not None:
        raise NotComparableError(f"{path} was measured in {run.interpreter} by vebench compare: {instead}")


def what_differs(one: RunRecord, other: RunRecord) -> list[str]:
    """Return the facts in which two runs differ so that their cells are not comparable, each with both values."""
    ours, theirs = _decisive(one), _decisive(other)
    optional = {*DECISIVE_IF_KNOWN}
    # A backend that only one of them has is not compared.
    both = one.interpreters.keys() & other.interpreters.keys()
    optional |= {name for run in (one, other) for label in run.interpreters.keys() - both for name in _own(run, label)}
    pairs = [(name, ours.get(name, "none"), theirs.get(name, "none")) for name in dict.fromkeys((*ours, *theirs))]
    return [
        f"{name} {first} against {second}"
        for name, first, second in pairs
        if first != second and not (name in optional and "none" in (first, second))
    ]


def how_plans_differ(one: RunRecord, other: RunRecord) -> dict[str, str]:
    """Return the fields of the plan in which two runs differ, each with both options, without the options of length."""
    ours, theirs = (run.spec.conditions(OF_LENGTH) for run in (one, other))
    return {name: f"--{name} {value} against {theirs[name]}" for name, value in ours.items() if value != theirs[name]}


def measured_in_turn(one: RunRecord, other: RunRecord) -> bool:
    """Return whether two runs are the interleaved sides of one ``vebench compare``."""
    sides = one.interpreter is not None and other.interpreter is not None
    return sides and (one.command, one.spec, one.started) == (other.command, other.spec, other.started)


def fingerprint(run: RunRecord) -> str:
    """Return twelve hexadecimal digits, the same for runs that are comparable, if all know the same facts."""
    return _digits(_decisive(run))


def machine_fingerprint(run: RunRecord) -> str:
    """Return twelve hexadecimal digits, the same for all runs on one machine."""
    return _digits(_machine(run))


def work_fingerprint(run: RunRecord) -> str:
    """Return twelve hexadecimal digits, the same for runs on any machine in which the same packages did the work."""
    return _digits({name: fact for name, fact in _software(run).items() if name not in OUR_PACKAGES})


def _digits(facts: Mapping[str, str]) -> str:
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _decisive(run: RunRecord) -> dict[str, str]:
    """Return the facts that decide whether runs are comparable, by name, without unknown facts."""
    facts = ((one.machine, _digits(one.packages)) for one in run.hosts.values())
    machines = Counter(f"{host.cpu_model} with {host.usable_cpus} CPUs, {packages}" for host, packages in facts)
    hosts = {"hosts": "; ".join(f"{count} x {machine}" for machine, count in sorted(machines.items()))}
    return {**_machine(run), **_software(run), **(hosts if run.hosts else {})}


def _machine(run: RunRecord) -> dict[str, str]:
    facts = {name: getattr(run.host, name) for name in (*_DECISIVE, *DECISIVE_IF_KNOWN)}
    facts |= {"cores": run.host.topology.cores, "nodes": len(run.host.topology.nodes)}
    return {name: str(value) for name, value in facts.items() if value is not None}


def _software(run: RunRecord) -> dict[str, str]:
    # A policy is part of the work: the rate is of the whole loop.
    acts = {"policy": run.spec.policy.in_words} if run.spec.policy.in_words else {}
    own = {name: value for label in sorted(run.interpreters) for name, value in _own(run, label).items()}
    chosen = {choice.name for choice in run.spec.backends if not choice.python}
    # The package of another project is used by its own backends only.
    used = (name for name in sorted(run.packages) if name not in _USED_BY or _USED_BY[name] & chosen)
    packages = {name: run.packages[name] for name in used}
    return {"Python": _minor(run.host.python), **packages, **acts, **own}


def _own(run: RunRecord, label: str) -> dict[str, str]:
    """Return the software of a backend with an interpreter of its own, by names that begin with its label."""
    own = run.interpreters[label]
    return {f"{label}: {name}": version for name, version in {"Python": _minor(own.python), **own.packages}.items()}


def _minor(version: str) -> str:
    """Return ``3.11`` for ``3.11.9``: within a minor version, Python keeps its behaviour, and so its speed."""
    return ".".join(version.split(".")[:2])
