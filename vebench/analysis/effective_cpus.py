"""The CPUs that workers take, one after the other: which are whole cores, which are second threads, and where.

Rates follow the cores at work rather than the workers. Pure functions of the first line of a run file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.errors import UsageError
from vebench.machine.placement import order_of, place
from vebench.results.header import topology_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.machine.topology import Topology
    from vebench.results.records import HostRecord, RunRecord

UNPINNED = "workers, which were not pinned, use all cores before second threads"
BOOST = "clocks, which may rise above their base, fall with more cores at work as they did so far"


@dataclass(frozen=True)
class Cpu:
    """One CPU in the order in which workers take them.

    ``second``: a CPU before it is on the same core. ``slower`` counts the kinds of core that are faster. ``region`` is
    its package, or its memory node on a machine of one package, None if unknown.
    """

    second: bool = False
    slower: int = 0
    region: int | None = None


@dataclass(frozen=True)
class Kink:
    """Where workers begin to gain something else: those after the first ``after``. ``text`` says what begins."""

    after: int
    text: str


@dataclass(frozen=True)
class CpuOrder:
    """The CPUs that can work at the same time, in the order in which workers take them.

    ``region_name`` is what regions are. ``assumed`` says in words what the run file does not.
    """

    cpus: tuple[Cpu, ...]
    region_name: str = "package"
    assumed: tuple[str, ...] = ()

    def cores(self, workers: int, thread: float) -> float:
        """Return the cores at work with so many workers, where a second thread of a core counts as ``thread`` cores."""
        return sum(thread if cpu.second else 1.0 for cpu in self.cpus[:workers])

    @property
    def kinks(self) -> tuple[Kink, ...]:
        """Where second threads, another region, or another kind of core begins, by rising number of workers."""
        return tuple(self._kinks())

    def _kinks(self) -> Iterator[Kink]:
        if not self.cpus:
            return
        regions, kinds, threads = {self.cpus[0].region}, {self.cpus[0].slower}, False
        for after, cpu in enumerate(self.cpus):
            if cpu.region not in regions:
                yield Kink(after, f"another {self.region_name} begins")
            if cpu.slower not in kinds:
                yield Kink(after, "another kind of core begins")
            if cpu.second and not threads:
                yield Kink(after, "second threads begin")
            threads = threads or cpu.second
            regions.add(cpu.region)
            kinds.add(cpu.slower)


def cpu_order(header: RunRecord, cells: Sequence[CellSummary]) -> CpuOrder | None:
    """Return the CPUs of a run in the order in which workers take them.

    None if they are of several hosts. The cell with most CPUs shows how the order begins; the rest is what ``--pin``
    gives on this topology.
    """
    if header.hosts:
        return None
    host, spec = header.host, header.spec
    topology = topology_of(host.topology)
    allowed = frozenset(host.cpus_allowed)
    pinned = host.pinning and spec.pin.pins
    if pinned:
        most = max((cell.cpus for cell in cells), key=len, default=())
        try:
            planned = place(spec.pin.cpus, allowed, topology=topology, smt=spec.pin.smt).order
        except UsageError:  # a list of CPUs that the rest of the file does not have
            planned = ()
        order = tuple(dict.fromkeys((*most, *planned)))
    else:
        order = order_of(topology, allowed, "compact", "off" if spec.pin.smt == "off" else "last")
    assumed = (*(() if pinned else (UNPINNED,)), *((BOOST,) if host.boost else ()), *_quota(host))
    return _described(order[: host.usable_cpus], topology, assumed)


def _quota(host: HostRecord) -> Iterator[str]:
    if host.quota_cpus is not None and host.quota_cpus < len(host.cpus_allowed):
        yield f"the quota remains {host.quota_cpus:g} CPUs"


def _described(order: Sequence[int], topology: Topology, assumed: tuple[str, ...]) -> CpuOrder:
    core_of = {cpu: index for index, core in enumerate(topology.cores) for cpu in core}
    kinds = [kind for kind in reversed(topology.kinds) if set(kind).intersection(order)]
    slower = {cpu: rank for rank, kind in enumerate(kinds) for cpu in kind}
    by_package = len(topology.packages) > 1
    regions = topology.packages.values() if by_package else [node.cpus for node in topology.nodes]
    region_of = {cpu: index for index, cpus in enumerate(regions) for cpu in cpus}
    seen: set[int] = set()
    cpus = []
    for cpu in order:
        core = core_of.get(cpu)
        cpus.append(Cpu(core in seen, slower.get(cpu, 0), region_of.get(cpu)))
        if core is not None:
            seen.add(core)
    return CpuOrder(tuple(cpus), "package" if by_package else "memory node", assumed)
