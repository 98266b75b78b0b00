"""The parts of the machine that this process may use: CPUs, memory nodes, and CPU time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.machine import cgroups, pinning
from vebench.machine.cgroups import Quota  # noqa: TC001 - fields' types are read where another host's are decoded
from vebench.machine.sysfs import Cpus, parse_list, text_of

if TYPE_CHECKING:
    from vebench.machine.topology import Topology

LIVE = Path("/")
# Version 2, version 1, and version 1 mounted without prefixes.
_CPUSET_CPUS = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus", "cpus")
_CPUSET_NODES = ("cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems", "mems")


@dataclass(frozen=True)
class Allowance:
    """The CPUs (online, ascending) and memory nodes that may be used, and the CPU quota, None if there is none.

    ``nodes`` is None if unknown.
    """

    cpus: Cpus
    nodes: Cpus | None
    quota: Quota | None


def read_allowance(topology: Topology, root: Path = LIVE) -> Allowance:
    """Return what this process may use or, in a copied tree, what the process that copied it could use.

    On this machine, the kernel reports the affinity, which already respects the cpuset. In the tree of another machine,
    affinity (``proc/self/status``) and cpuset are read if present, and the affinity of this process is not used.
    """
    status = _status(root)
    affinity = pinning.allowed() if root == LIVE else None
    cpus = [affinity or parse_list(status.get("Cpus_allowed_list", ""))]
    nodes = [parse_list(status.get("Mems_allowed_list", ""))]
    if affinity is None:
        cpus.append(_cpuset(root, _CPUSET_CPUS))
        nodes.append(_cpuset(root, _CPUSET_NODES))
    allowed = set(topology.online)
    for named in cpus:
        # A set without any CPU that is online is out of date or damaged.
        allowed = allowed & set(named) or allowed
    known = [set(named) for named in nodes if named]
    here = {node.id for node in topology.nodes}
    allowed_nodes = tuple(sorted(here.intersection(*known))) if known else None
    return Allowance(tuple(sorted(allowed)), allowed_nodes, cgroups.quota(root))


def _status(root: Path) -> dict[str, str]:
    lines = text_of(root / "proc/self/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _cpuset(root: Path, names: tuple[str, ...]) -> Cpus:
    """Return the numbers in the file of the nearest control group that has one, empty if there is none."""
    for folder in cgroups.groups("cpuset", root):
        for name in names:
            if numbers := parse_list(text_of(folder / name)):
                return numbers
    return ()
