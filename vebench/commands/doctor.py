"""``vebench doctor``: show the machine as vebench sees it. Changes nothing."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from vebench.analysis.rules import Surroundings, of_host
from vebench.backends.registry import missing_packages, standings
from vebench.interpreters import packages_here
from vebench.machine import kernel
from vebench.machine.host import LIVE, memory_available, order_of, place, read_host
from vebench.plan.spec import OPTIONS
from vebench.reports.console import show
from vebench.reports.overview import Machine, machine_page
from vebench.results import records

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.machine.host import Host
    from vebench.plan.grammar import Pinning
    from vebench.reports.formats import Format

# Seconds for which the load by other processes is measured: about twenty ticks of the kernel's clock.
_WATCH_S = 0.2


def examine(sysroot: Path | None, workers: int | None, pin: Pinning, form: Format) -> int:
    """Print the facts of this machine, or of another machine with its files in ``sysroot``. Returns the exit status.

    Raises UsageError if the folder does not exist.
    """
    OPTIONS["pin"].check(pin)
    root = LIVE if sysroot is None else sysroot
    host = read_host(root)
    allowed, whole = frozenset(host.cpus_allowed), host.topology
    placement = place(pin.cpus, allowed, host.quota_cpus, topology=whole, smt=pin.smt, reserve=pin.reserve)
    facts = records.host_record(host, placement)
    here, now = root == LIVE, Surroundings()
    if here:
        now = Surroundings(_others_share(host), _shared_memory(), missing_packages(), standings())
    machine = Machine(
        host=host,
        placement=placement,
        orders={policy: order_of(host.topology, host.cpus_allowed, policy) for policy in ("compact", "scatter")},
        workers=workers,
        versions=packages_here() if here else {},
        memory_available=memory_available(root),
        findings=tuple(of_host(facts, now)),
        standings=now.standings,
    )
    show(machine_page(machine), form)
    return 0


def _others_share(host: Host) -> float | None:
    """Return the share of the allowed CPUs' time that other processes use, None if unknown."""
    cpus = list(host.cpus_allowed)
    before, start = kernel.busy_ns(cpus), time.monotonic_ns()
    time.sleep(_WATCH_S)
    after, end = kernel.busy_ns(cpus), time.monotonic_ns()
    if before is None or after is None:
        return None
    return max(0.0, min(1.0, (after - before) / (len(cpus) * (end - start))))


def _shared_memory() -> int | None:
    try:
        system = os.statvfs("/dev/shm")  # noqa: S108 - only its free space is read
    except (AttributeError, OSError):
        return None
    return system.f_bavail * system.f_frsize
