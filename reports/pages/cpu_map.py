"""The CPUs of the machine that a run ran on, as parts within parts, and from how many workers on cells own each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.machine.sysfs import parse_list
from vebench.reports.pages.boxes import cache, kind_name, nested

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.reports.pages.boxes import Box
    from vebench.results.records import HostRecord, TopologyRecord


@dataclass(frozen=True)
class MarkedCpu:
    """A CPU. ``workers`` is the fewest workers of a cell that owns it, None if no cell does.

    ``barred``: vebench was not allowed to use it.
    """

    number: int
    workers: int | None
    barred: bool


@dataclass(frozen=True)
class Part:
    """A part of the machine, such as ``package 0, node 0``: its CPUs that are in no smaller part, and smaller parts.

    The whole has no title.
    """

    title: str
    cpus: tuple[MarkedCpu, ...]
    parts: tuple[Part, ...]


def cpu_map(host: HostRecord, cells: Iterable[CellSummary]) -> Part:
    """Return the whole machine."""
    fewest: dict[int, int] = {}
    for cell in cells:
        for cpu in cell.cpus:
            fewest[cpu] = min(cell.workers, fewest.get(cpu, cell.workers))
    kinds = [parse_list(kind) for kind in host.topology.kinds]
    online = sorted({*host.cpus_allowed, *fewest, *(cpu for kind in kinds for cpu in kind)})
    allowed = frozenset(host.cpus_allowed)
    marked = {cpu: MarkedCpu(cpu, fewest.get(cpu), cpu not in allowed) for cpu in online}
    return _part(nested(online, _named(host.topology)), [*reversed(kinds)], marked)


def _named(topology: TopologyRecord) -> Iterator[tuple[frozenset[int], str, str]]:
    """Yield packages, nodes with CPUs and last-level caches, without caches that belong to one core."""
    for what, sets in (("package", topology.packages), ("node", topology.nodes)):
        for label, cpus in sets.items():
            if cpus:
                yield frozenset(parse_list(cpus)), one_line(f"{what} {label}"), ""
    level = max((record.level for record in topology.caches), default=0)
    sizes = {record.size_bytes for record in topology.caches if record.level == level}
    name, detail = cache(level, sizes.pop() if len(sizes) == 1 else None)
    for shared in map(parse_list, topology.last_level):
        if len(shared) > topology.threads_per_core:
            yield frozenset(shared), name, detail


def _part(box: Box, fastest_first: Sequence[Sequence[int]], marked: Mapping[int, MarkedCpu]) -> Part:
    """Return ``box`` as a part. CPUs of several kinds are parts of their own."""
    loose = box.loose
    kinds = [
        Part(kind_name(rank, len(fastest_first)), tuple(marked[cpu] for cpu in kind if cpu in loose), ())
        for rank, kind in enumerate(fastest_first)
        if len(fastest_first) > 1 and not loose.isdisjoint(kind)
    ]
    own = () if kinds else tuple(marked[cpu] for cpu in sorted(loose))
    inner = (_part(inner, fastest_first, marked) for inner in sorted(box.inner, key=lambda inner: min(inner.cpus)))
    return Part(box.title, own, (*kinds, *inner))
