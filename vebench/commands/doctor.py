"""``vebench doctor``: show the machine as vebench sees it. Changes nothing."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from vebench.analysis.findings import Surroundings, of_host
from vebench.backends.registry import missing_packages, standings
from vebench.interpreters.interpreter import packages_here
from vebench.machine import counters
from vebench.machine.host import memory_available, read_host
from vebench.machine.limits import LIVE
from vebench.machine.placement import order_of, place
from vebench.plan.spec import MAX_WORKERS, check_count, check_smt
from vebench.reports.formats.registry import JSON, TERMINAL
from vebench.reports.output import show
from vebench.reports.pages.machine import MachinePage
from vebench.results import header

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.machine.host import Host

# How long the CPUs are watched for other processes' work: about twenty ticks of the kernel's clock.
WATCH_S = 0.2


def examine(sysroot: Path | None, workers: int | None, pin: str, smt: str, *, as_json: bool) -> int:
    """Print what vebench sees of this machine, or of the one whose files are in ``sysroot``. Returns the exit status.

    Raises UsageError if there is no such folder.
    """
    if workers is not None:
        check_count("--workers", workers, 1, MAX_WORKERS)
    check_smt(smt)
    root = LIVE if sysroot is None else sysroot
    host = read_host(root)
    placement = place(pin, frozenset(host.cpus_allowed), host.quota_cpus, topology=host.topology, smt=smt)
    facts = header.host_record(host, placement)
    here = root == LIVE
    now = _surroundings(host) if here else Surroundings()
    page = MachinePage(
        host=host,
        placement=placement,
        orders={policy: order_of(host.topology, host.cpus_allowed, policy) for policy in ("compact", "scatter")},
        workers=workers,
        versions=packages_here() if here else {},
        memory_available=memory_available(root),
        findings=tuple(of_host(facts, now)),
        standings=now.standings,
    )
    show(page, JSON if as_json else TERMINAL)
    return 0


def _surroundings(host: Host) -> Surroundings:
    return Surroundings(_others_share(host), _shared_memory(), missing_packages(), standings())


def _others_share(host: Host) -> float | None:
    """Return the share of the allowed CPUs' time that is used while this process sleeps, None if unknown."""
    cpus = list(host.cpus_allowed)
    before, start = counters.busy_ns(cpus), time.monotonic_ns()
    time.sleep(WATCH_S)
    after, end = counters.busy_ns(cpus), time.monotonic_ns()
    if before is None or after is None:
        return None
    return max(0.0, min(1.0, (after - before) / (len(cpus) * (end - start))))


def _shared_memory() -> int | None:
    try:
        system = os.statvfs("/dev/shm")  # noqa: S108 - only its free space is read
    except (AttributeError, OSError):
        return None
    return system.f_bavail * system.f_frsize
