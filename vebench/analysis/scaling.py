"""Rates of numbers of workers that were not measured, by Amdahl's law (AFIPS 1967) in effective cores. Pure functions.

With c cores at work the rate is rate_1 * c / (1 + s (c - 1)), where a second thread of a core counts as ``THREAD``
cores. A simulation chose the law and the band on published curves; docs/scaling.md has their errors.
Which CPUs workers take, one after the other, is read from the first line of the run file.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log2, sqrt
from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate, estimate
from vebench.errors import UsageError
from vebench.machine.placement import order_of, place
from vebench.results.header import topology_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.analysis.cell import CellSummary, Curve
    from vebench.results.records import RunRecord

    Points = Sequence[tuple[float, float]]  # cores at work and rate
    Rates = Mapping[int, Estimate]  # by numbers of workers

THREAD = 0.2
BAND = 0.12  # half width of the 90 % band of log rates, just beyond the last point
FEWEST = 4  # numbers of workers
_WIDEST = 0.1  # half width of a measured rate, over it
FARTHEST = 2  # times the largest number of workers measured
UNPINNED = "unpinned workers use all cores before second threads"
BOOST = "boost clocks keep falling with the number of busy cores as they did so far"


@dataclass(frozen=True)
class Forecast:
    """The predicted frames per second with ``workers`` workers, or why there is no prediction (``refused``).

    The ends of ``rate`` are those of a 90 % band, not of a 95 % interval. ``back_test`` is the root mean square error
    when each measured point is predicted from those with fewer workers. ``assumed``: assumptions that no point tests.
    """

    workers: int
    rate: Estimate | None = None
    back_test: float | None = None
    assumed: tuple[str, ...] = ()
    refused: str = ""


def amdahl(points: Points, cores: float) -> float:
    """Return the rate with ``cores`` cores, by weighted least squares: residuals are relative to the measured times."""
    times = [(at - 1, at / rate, (rate / at) ** 2) for at, rate in points]
    total = sum(weight for *_, weight in times)
    center = sum(more * weight for more, _, weight in times) / total
    time = sum(each * weight for _, each, weight in times) / total
    spread = sum((more - center) ** 2 * weight for more, _, weight in times)
    slope = sum((more - center) * each * weight for more, each, weight in times) / spread
    first = time - slope * center
    share = max(0.0, slope / first) if first > 0 else 1.0
    serial = min(share, 1.0)  # the rates of a law with more would fall
    shape = [(1 + serial * more, each, weight) for more, each, weight in times]
    level = sum(part * each * w for part, each, w in shape) / sum(part**2 * w for part, _, w in shape)
    return cores / (level * (1 + serial * (cores - 1)))


def forecast(curve: Curve, order: CpuOrder, workers: int) -> Forecast:
    """Return the rate that a backend would reach with ``workers`` workers, or why it cannot be predicted."""
    left_out = {cell.workers: why for cell in curve if (why := _unfit(cell, order))}
    rates = {cell.workers: estimate(cell.sample) for cell in curve if cell.workers not in left_out}
    known = {count: rate for count, rate in rates.items() if rate is not None}
    if refused := _refused(curve, order, workers, known, left_out):
        return Forecast(workers, refused=refused)
    points = [(order.cores(count, THREAD), rate.median) for count, rate in known.items()]
    middle = amdahl(points, order.cores(workers, THREAD))
    half = BAND * sqrt(1 + max(0.0, log2(workers / max(known))))
    errors = [log(amdahl(points[:n], points[n][0]) / points[n][1]) for n in range(2, len(points))]
    back_test = exp(sqrt(sum(error**2 for error in errors) / len(errors))) - 1
    threads = any(cpu.second for cpu in order.cpus[:workers])
    assumed = (*order.assumed, *((f"a second thread adds {THREAD:.0%} of a core",) if threads else ()))
    return Forecast(workers, Estimate(middle, middle * exp(-half), middle * exp(half)), back_test, assumed)


def _unfit(cell: CellSummary, order: CpuOrder) -> str:
    rate = estimate(cell.sample)
    if cell.status != "ok":
        return cell.status
    if cell.exclusion is not None:
        return cell.exclusion
    reasons = {
        "throttled by a quota": cell.conditions.throttled,
        "disturbed": cell.conditions.disturbed,
        "more workers than CPUs": cell.workers > len(order.cpus),
        "no interval": rate is None or not rate.low,
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


def _refused(curve: Curve, order: CpuOrder, workers: int, known: Rates, left_out: Mapping[int, str]) -> str:
    at_work = {cell.workers: cell.at_work for cell in curve if cell.workers in known}
    idle = min((count for count, busy in at_work.items() if busy < count), default=0)
    groups = {why: ", ".join(str(count) for count in left_out if left_out[count] == why) for why in left_out.values()}
    without = "".join(f", without {counts} ({why})" for why, counts in groups.items())
    least, most = min(known, default=0), max(known, default=0)
    widest = max(known, key=lambda count: known[count].half_width or 0.0, default=0)
    width = (known[widest].half_width or 0.0) if known else 0.0
    reasons = {
        f"only {len(order.cpus)} CPUs are usable: more workers add nothing": workers > len(order.cpus),
        f"{workers} workers were measured": workers in {cell.workers for cell in curve},
        f"its {idle} workers do not all step at the same time": idle > 0,
        f"{len(known)} worker counts measured{without}: {FEWEST} are needed": len(known) < FEWEST,
        f"the interval of {widest} workers is ±{width:.0%}: measure with --until {_WIDEST:.0%}": width > _WIDEST,
        f"below the smallest measured count, {least}": workers < least,
        f"more than {FARTHEST} times the largest measured count, {most}": workers > FARTHEST * most,
        "some of these workers would run on slower cores": any(cpu.slower for cpu in order.cpus[:workers]),
    }
    return next((reason for reason, is_so in reasons.items() if is_so), "")


@dataclass(frozen=True)
class Cpu:
    """One CPU. ``second``: an earlier CPU is on the same core. ``slower`` counts the kinds of core that are faster.

    ``region`` is its package, or its memory node on a machine of one package, None if unknown.
    """

    second: bool = False
    slower: int = 0
    region: int | None = None


@dataclass(frozen=True)
class CpuOrder:
    """The CPUs that can work at the same time, in the order in which workers take them, and assumptions about it."""

    cpus: tuple[Cpu, ...]
    region_name: str = "package"
    assumed: tuple[str, ...] = ()

    def cores(self, workers: int, thread: float) -> float:
        """Return the cores in use by ``workers`` workers; a second thread of a core counts as ``thread`` cores."""
        return sum(thread if cpu.second else 1.0 for cpu in self.cpus[:workers])

    @property
    def kinks(self) -> tuple[tuple[int, str], ...]:
        """The numbers of workers after which the gain per worker changes, ascending, each with the reason."""
        found = []
        for after, cpu in enumerate(self.cpus):
            before = self.cpus[:after]
            if before and cpu.region not in {one.region for one in before}:
                found.append((after, f"another {self.region_name} begins"))
            if before and cpu.slower not in {one.slower for one in before}:
                found.append((after, "another kind of core begins"))
            if cpu.second and not any(one.second for one in before):
                found.append((after, "second threads begin"))
        return tuple(found)


def cpu_order(header: RunRecord, cells: Sequence[CellSummary]) -> CpuOrder | None:
    """Return the CPUs of a run in the order in which workers take them; None if they belong to several hosts."""
    if header.hosts:
        return None
    host, spec = header.host, header.spec
    topology = topology_of(host.topology)
    allowed = frozenset(host.cpus_allowed)
    pinned = host.pinning and spec.pin.pins
    if pinned:  # the cell with most CPUs shows how the order begins
        most = max((cell.built.cpus for cell in cells), key=len, default=())
        try:
            planned = place(spec.pin.cpus, allowed, topology=topology, smt=spec.pin.smt).order
        except UsageError:  # a list of CPUs that the rest of the file does not have
            planned = ()
        order = tuple(dict.fromkeys((*most, *planned)))
    else:
        order = order_of(topology, allowed, "compact", "off" if spec.pin.smt == "off" else "last")
    assumed = [] if pinned else [UNPINNED]
    if host.boost:
        assumed.append(BOOST)
    if host.quota_cpus is not None and host.quota_cpus < len(host.cpus_allowed):
        assumed.append(f"the quota remains {host.quota_cpus:g} CPUs")
    order = order[: host.usable_cpus]
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
    return CpuOrder(tuple(cpus), "package" if by_package else "memory node", tuple(assumed))
