"""What of the machine makes figures lower, or uncertain, or hard to repeat: typed warnings, none without a remedy.

Pure functions of facts. What is not known is not warned of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.findings.rules import Finding
from vebench.backends.packages import how_to_install
from vebench.machine.host import MEBIBYTE
from vebench.machine.sysfs import parse_list

if TYPE_CHECKING:
    from vebench.backends.packages import Package
    from vebench.results.records import HostRecord

# A container's /dev/shm is 64 MiB unless it was given more.
LITTLE_SHARED_MEMORY = 128 * MEBIBYTE
# The share of the allowed CPUs' time that others may take before figures are in doubt.
OTHERS_SHARE = 0.05
# Governors that keep the clock up under load at once.
STEADY_GOVERNORS = frozenset({"performance"})


@dataclass(frozen=True)
class Surroundings:
    """What is so at the moment. ``others_share``: how much of the allowed CPUs' time others took, 0 to 1.

    ``shared_memory_bytes``: what is free in /dev/shm. ``missing``: packages without which some backends cannot run.
    All are None where they were not looked at.
    """

    others_share: float | None = None
    shared_memory_bytes: int | None = None
    missing: tuple[Package, ...] | None = None


def of_host(host: HostRecord, now: Surroundings) -> tuple[Finding, ...]:
    """Return what is to be said of a machine, what costs most first."""
    found = (
        quota(host),
        others(now),
        shared_memory(now),
        governor(host),
        boost(host),
        siblings(host),
        without_cpus(host),
        virtual(host),
        missing(now),
    )
    return tuple(finding for finding in found if finding is not None)


def of_run(host: HostRecord) -> tuple[Finding, ...]:
    """Return what of the machine is to be said of every run on it: what makes its figures those of another machine."""
    found = quota(host)
    return () if found is None else (found,)


def quota(host: HostRecord) -> Finding | None:
    """Tell of CPU time that is less than a CPU, or no whole number of them: workers are held back at times."""
    if host.quota_cpus is None or host.quota_cpus >= len(host.cpus_allowed):
        return None
    where = f" ({host.quota_source})" if host.quota_source else ""
    said = f"a quota of {host.quota_cpus:g} CPU{'' if host.quota_cpus == 1 else 's'}{where}"
    if host.quota_cpus < 1:
        return Finding(
            "quota",
            f"{said} is less than one CPU: every cell will be held back",
            "give the container a whole CPU or more (--cpus)",
        )
    return Finding(
        "quota",
        f"{said} allows {host.usable_cpus} worker{'s' * (host.usable_cpus != 1)} at a time, "
        f"though {len(host.cpus_allowed)} CPUs may be used",
        f"measure with --workers up to {host.usable_cpus}, or give the container CPUs of its own (--cpuset-cpus)",
    )


def others(now: Surroundings) -> Finding | None:
    """Tell of other work on the CPUs that cells will own."""
    if now.others_share is None or now.others_share <= OTHERS_SHARE:
        return None
    return Finding(
        "other-load", f"others take {now.others_share:.0%} of the allowed CPUs' time", "end them, or wait for their end"
    )


def shared_memory(now: Surroundings) -> Finding | None:
    """Tell of too little room for what processes share."""
    if now.shared_memory_bytes is None or now.shared_memory_bytes >= LITTLE_SHARED_MEMORY:
        return None
    return Finding(
        "little-shm",
        f"{now.shared_memory_bytes // MEBIBYTE} MiB of /dev/shm are left for what processes share",
        "give the container more (--shm-size 1g), or free it",
    )


def governor(host: HostRecord) -> Finding | None:
    """Tell of clocks that are raised only after a while."""
    if host.governor is None or set(host.governor.split(", ")) <= STEADY_GOVERNORS:
        return None
    return Finding(
        "governor",
        f"the frequency governor is {host.governor}: clocks follow the load, and so do figures",
        "as root: cpupower frequency-set -g performance",
    )


def boost(host: HostRecord) -> Finding | None:
    """Tell of clocks that depend on how many cores are at work: no sweep over workers is straight then."""
    if not host.boost:
        return None
    return Finding(
        "boost",
        "boost is on: few busy cores clock higher than many, so efficiency falls with workers also without contention",
        "leave it on to see what users see; to compare machines or versions, switch it off in the firmware or in sysfs",
    )


def siblings(host: HostRecord) -> Finding | None:
    """Tell of hardware threads that share a core, if workers will use them."""
    if host.topology is None or host.topology.threads_per_core == 1 or host.smt is False:
        return None
    return Finding(
        "smt",
        f"cores run {host.topology.threads_per_core} threads: workers beyond the number of cores share one",
        "measure up to the number of cores, or with --smt off",
    )


def without_cpus(host: HostRecord) -> Finding | None:
    """Tell of memory nodes that may be used but have none of the CPUs, as in a poorly cut container."""
    if host.topology is None or host.nodes_allowed is None:
        return None
    nodes = host.topology.nodes
    allowed = set(host.cpus_allowed)
    near = [
        node
        for node, cpus in nodes.items()
        if int(node) not in host.nodes_allowed and allowed.intersection(parse_list(cpus))
    ]
    if not near:
        return None
    return Finding(
        "memory-nodes",
        f"the memory of node {', '.join(near)} may not be used, though its CPUs may",
        "allow the memory nodes of the allowed CPUs (--cpuset-mems)",
    )


def virtual(host: HostRecord) -> Finding | None:
    """Tell of a hypervisor, which may take CPUs away unseen."""
    if not host.virtual:
        return None
    return Finding(
        "virtual-machine",
        "a virtual machine: its CPUs may be others' threads, and its neighbours' load shows in figures",
        "measure often (--repeats), compare within one run only, and look at the time stolen",
    )


def missing(now: Surroundings) -> Finding | None:
    """Tell of packages that are not installed."""
    if not now.missing:
        return None
    names = ", ".join(package.name for package in now.missing)
    return Finding("missing-packages", f"not installed: {names}", how_to_install(now.missing))
