"""The first line of a run file, gathered from this machine: the host, the packages, the command."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from vebench.machine import packages, pinning
from vebench.results.records import SCHEMA, HostRecord, RunRecord

if TYPE_CHECKING:
    from datetime import datetime

    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.plan.cells import Plan

# Facts that, where they differ, make two runs incomparable; a kernel update or another amount of memory need not.
DECISIVE = ("system", "machine", "cpu_model", "cpus_online", "usable_cpus")


def gather(plan: Plan, host: Host, placement: Placement, command: str, now: datetime) -> RunRecord:
    """Return the header of a run that starts ``now`` with this plan on this host."""
    return RunRecord(
        schema=SCHEMA,
        spec=plan.spec,
        host=HostRecord(
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
        ),
        packages=packages.installed(),
        command=command,
        started=now.isoformat(timespec="seconds"),
        cells=len(plan.cells),
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
