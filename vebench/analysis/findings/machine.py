"""Findings on the machine: what it did while a cell ran, and what makes figures on it lower or harder to repeat.

What is not known is not warned of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.cell import CONTESTED, Finding
from vebench.analysis.finding_codes import Code
from vebench.backends.packages import how_to_install
from vebench.child.window import TAKEN_SHARE
from vebench.machine.host import MEBIBYTE
from vebench.machine.sysfs import parse_list

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings.sweep import Rule, Sweep
    from vebench.backends.packages import Package
    from vebench.backends.registry import Standing
    from vebench.results.records import HostRecord

# A container's /dev/shm is 64 MiB unless it was given more.
LITTLE_SHARED_MEMORY = 128 * MEBIBYTE
# The share of the allowed CPUs' time that others may take before figures are in doubt.
OTHERS_SHARE = 0.05
# Governors that keep the clock up under load at once.
STEADY_GOVERNORS = frozenset({"performance"})


@dataclass(frozen=True)
class Surroundings:
    """The machine right now. Each is None if nobody looked.

    ``others_share``: how much of the allowed CPUs' time others take, 0 to 1. ``shared_memory_bytes``: what is free in
    /dev/shm. ``missing``: packages without which some backends cannot run. ``standings``: with what backends step that
    have environment classes of their own.
    """

    others_share: float | None = None
    shared_memory_bytes: int | None = None
    missing: tuple[Package, ...] | None = None
    standings: tuple[Standing, ...] = ()


def oversubscribed(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if there are more workers, processes or threads than CPUs that do work at the same time."""
    if not (cell.oversubscribed or cell.crowded) or cell.status == "skipped":
        return None
    one = cell.cpus_owned == 1
    if cell.crowded:
        message = f"more processes or threads than the {cell.cpus_owned} CPU{'' if one else 's'} owned"
        remedy = "with a smaller --envs-per-worker, or " if cell.envs_per_worker > 1 else ""
        return Finding(Code.OVERSUBSCRIBED, message, f"measure {remedy}on more CPUs")
    return Finding(
        Code.OVERSUBSCRIBED,
        f"more workers than the {cell.cpus_owned} CPU{'' if one else 's'} owned",
        f"measure with --workers {'1' if one else f'1..{cell.cpus_owned}'}, or on more CPUs",
    )


def throttled(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if a CPU quota held the cell back while it was measured."""
    if not cell.throttled_windows:
        return None
    return Finding(
        Code.THROTTLED,
        "held back by the container's CPU quota; windows that were are left out where there are others",
        "give the container more CPUs (--cpus), or measure with fewer --workers",
    )


def disturbed(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if its CPUs worked for others in the windows that count, on this machine or on its host."""
    if not cell.disturbed:
        return None
    culprits = [
        name
        for name, share in (("other processes", cell.others_share), ("the hypervisor", cell.stolen_share))
        if share > TAKEN_SHARE / 2  # of the two, one at least took so much
    ]
    hosts = dict.fromkeys(share.host for share in cell.hosts if share.disturbed)
    whose = f"the time of the CPUs of {' and '.join(hosts)}" if hosts else "its CPUs' time"
    return Finding(
        Code.DISTURBED,
        f"{' and '.join(culprits) or 'others'} took over {TAKEN_SHARE:.0%} of {whose}",
        "measure on an idle machine; vebench doctor shows others' load",
    )


def contested(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if a backend whose processes poll for each other was not alone on its CPUs."""
    if cell.why_struck != CONTESTED:
        return None
    return Finding(
        Code.CONTESTED,
        "its processes poll for each other without sleeping, and others had its CPUs, too: its rate is not low but "
        "invalid, and compared with nothing",
        "measure on an idle machine, with no more --workers than CPUs",
    )


def polling(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if processes that poll were held to fewer CPUs than they are, the caller among them."""
    spins = cell.status == "ok" and not cell.struck and cell.entry.spins
    if not spins or cell.strayed or cell.processes + 1 <= cell.cpus_owned:
        return None
    return Finding(
        Code.POLLING,
        "its processes, or the caller, poll without sleeping and have fewer CPUs than they are: the worst that it can "
        "do, which says nothing of it with a CPU for each",
        "measure with fewer --workers than CPUs and --pin none",
    )


def strayed(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if a process or thread was free to run on other CPUs than those owned."""
    if not cell.strayed:
        return None
    return Finding(
        Code.UNPINNED,
        f"ran on other CPUs than those it owns{'; compared with nothing' if cell.struck else ''}",
        "measure where the CPU affinity of a process can be set, or say so with --pin none",
    )


def unbound(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if memory could not be bound to nodes as it was asked for."""
    if cell.unbound is None:
        return None
    return Finding(
        Code.MEMORY_UNBOUND,
        f"its memory could not be bound to nodes: {cell.unbound}; it came from the node that touched it first",
        "allow the container set_mempolicy (Docker: --cap-add SYS_NICE), or measure with --membind local",
    )


def extra_threads(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if processes have more threads than step, such as those that some library has started in each.

    W processes with W threads each are W x W threads on W CPUs (pytorch/rl #1325). Only processes that step Gymnasium's
    environments are looked at: EnvPool has threads that wait and hand out work.
    """
    in_processes = cell.entry.steps_gymnasium and cell.threads == 1
    if not in_processes or cell.most_threads <= 1 or cell.reference_row or cell.status != "ok":
        return None
    return Finding(
        Code.EXTRA_THREADS,
        "processes with more threads than the one that steps: some library has started threads of its own",
        "limit that library to one thread; OMP_NUM_THREADS and similar variables are set to 1 already",
    )


CELL: tuple[Rule, ...] = (
    oversubscribed,
    throttled,
    disturbed,
    contested,
    polling,
    strayed,
    unbound,
    extra_threads,
)


def of_host(host: HostRecord, now: Surroundings) -> tuple[Finding, ...]:
    """Return the findings about a machine, the most costly first."""
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
    return (*(finding for finding in found if finding is not None), *own_classes(now.standings))


def quota(host: HostRecord) -> Finding | None:
    """Return a finding if the quota is less than the allowed CPUs: workers are held back at times."""
    if host.quota_cpus is None or host.quota_cpus >= len(host.cpus_allowed):
        return None
    where = f" ({host.quota_source})" if host.quota_source else ""
    limit = f"a quota of {host.quota_cpus:g} CPU{'' if host.quota_cpus == 1 else 's'}{where}"
    if host.quota_cpus < 1:
        return Finding(
            Code.QUOTA,
            f"{limit} is less than one CPU: every cell will be held back",
            "give the container a whole CPU or more (--cpus)",
        )
    return Finding(
        Code.QUOTA,
        f"{limit} allows {host.usable_cpus} worker{'s' * (host.usable_cpus != 1)} at a time, "
        f"though {len(host.cpus_allowed)} CPUs may be used",
        f"measure with --workers up to {host.usable_cpus}, or give the container CPUs of its own (--cpuset-cpus)",
    )


def others(now: Surroundings) -> Finding | None:
    """Return a finding if the CPUs that cells will own do other work."""
    if now.others_share is None or now.others_share <= OTHERS_SHARE:
        return None
    return Finding(
        Code.OTHER_LOAD,
        f"others take {now.others_share:.0%} of the allowed CPUs' time",
        "end them, or wait until they have ended",
    )


def shared_memory(now: Surroundings) -> Finding | None:
    """Return a finding if there is little room for what processes share."""
    if now.shared_memory_bytes is None or now.shared_memory_bytes >= LITTLE_SHARED_MEMORY:
        return None
    return Finding(
        Code.LITTLE_SHM,
        f"{now.shared_memory_bytes // MEBIBYTE} MiB of /dev/shm are left for what processes share",
        "give the container more (--shm-size 1g), or free it",
    )


def governor(host: HostRecord) -> Finding | None:
    """Return a finding if clocks are raised only after a while."""
    if host.governor is None or set(host.governor.split(", ")) <= STEADY_GOVERNORS:
        return None
    return Finding(
        Code.GOVERNOR,
        f"the frequency governor is {host.governor}: clocks follow the load, and so do figures",
        "as root: cpupower frequency-set -g performance",
    )


def boost(host: HostRecord) -> Finding | None:
    """Return a finding if clocks depend on how many cores are at work: no sweep over workers is straight then."""
    if not host.boost:
        return None
    return Finding(
        Code.BOOST,
        "boost is on: few busy cores clock higher than many, so efficiency falls with workers also without contention",
        "leave it on to see what users see; to compare machines or versions, switch it off in the firmware or in sysfs",
    )


def siblings(host: HostRecord) -> Finding | None:
    """Return a finding if hardware threads share a core, and workers will use them."""
    if host.topology.threads_per_core == 1 or host.smt is False:
        return None
    return Finding(
        Code.SMT,
        f"cores run {host.topology.threads_per_core} threads: workers beyond the number of cores share one",
        "measure up to the number of cores, or with --smt off",
    )


def without_cpus(host: HostRecord) -> Finding | None:
    """Return a finding if CPUs may be used but not the memory of their node, as in a poorly configured container."""
    if host.nodes_allowed is None:
        return None
    allowed = set(host.cpus_allowed)
    near = [
        node
        for node, cpus in host.topology.nodes.items()
        if int(node) not in host.nodes_allowed and allowed.intersection(parse_list(cpus))
    ]
    if not near:
        return None
    return Finding(
        Code.MEMORY_NODES,
        f"the memory of node {', '.join(near)} may not be used, though its CPUs may",
        "allow the memory nodes of the allowed CPUs (--cpuset-mems)",
    )


def virtual(host: HostRecord) -> Finding | None:
    """Return a finding if there is a hypervisor, which may take CPUs away unseen."""
    if not host.virtual:
        return None
    return Finding(
        Code.VIRTUAL_MACHINE,
        "a virtual machine: others may use the same CPUs, and their load shows in figures",
        "measure often (--repeats), compare within one run only, and look at the time stolen",
    )


def missing(now: Surroundings) -> Finding | None:
    """Return a finding if packages are not installed."""
    if not now.missing:
        return None
    names = ", ".join(package.name for package in now.missing)
    return Finding(Code.MISSING_PACKAGES, f"not installed: {names}", how_to_install(now.missing))


def own_classes(standings: Iterable[Standing]) -> tuple[Finding, ...]:
    """Return findings about own classes that must not step here, or are slower than they could be, each once."""
    found: dict[Finding, None] = {}
    for backends, _, _, own in standings:
        names = ", ".join(backends)
        if own.refused:
            message = f"{names} will step Gymnasium's class: {own.refused}"
            found[Finding(Code.FALLBACK, message, own.remedy or "leave them out with -b")] = None
        elif own.uncompiled:
            found[Finding(Code.NOT_COMPILED, f"{names} could be faster: {own.how}", own.remedy)] = None
    return tuple(found)
