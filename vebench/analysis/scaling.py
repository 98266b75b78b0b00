"""Rates of numbers of workers that were not measured: the last rate measured, times the CPUs. Pure functions.

``docs/scaling.md`` says how the band was calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate
from vebench.errors import UsageError
from vebench.machine.placement import order_of, place
from vebench.results.records import topology_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.cell import CellSummary, Curve
    from vebench.results.records import RunRecord

THREAD = 0.2  # the second thread of a core, as a share of a core
BAND = (0.73, 1.13)  # the 90 % band of rates over their prediction
FARTHEST = 2  # times the number of workers that was measured


@dataclass(frozen=True)
class Forecast:
    """The predicted frames/s with ``workers`` workers, or why there is no prediction."""

    workers: int
    rate: Estimate | None = None
    """Its ends are a 90 % band, not a 95 % interval."""
    measured: int = 0
    """The number of workers that it is predicted from."""
    refused: str = ""


@dataclass(frozen=True)
class CpuOrder:
    """The CPUs that workers take, one after the other."""

    cores: tuple[float, ...]
    """The cores in use by 1, 2, 3 ... workers, as far as there are CPUs."""
    kinks: tuple[tuple[int, str], ...]
    """The numbers of workers after which the gain per worker changes, ascending, each with the reason."""
    alike: int
    """The number of workers up to which all cores are of one kind."""


def forecast(curve: Curve, order: CpuOrder, workers: int) -> Forecast:
    """Return the rate that a backend would reach with ``workers`` workers, or why it cannot be predicted."""
    cores = order.cores
    if workers > len(cores):
        return Forecast(workers, refused=f"only {len(cores)} CPUs are usable: more workers add nothing")
    if workers > order.alike:
        return Forecast(workers, refused="some of these workers would run on slower cores")
    if workers in {cell.workers for cell in curve}:
        return Forecast(workers, refused=f"{workers} workers were measured")
    fit = [cell for cell in curve if cell.workers < workers and _is_fit(cell)]
    last = max(fit, key=lambda cell: cell.workers, default=None)
    if last is None or last.frames_per_second is None or workers > FARTHEST * last.workers:
        least = -(-workers // FARTHEST)
        return Forecast(workers, refused=f"no undisturbed rate of {least} or more workers was measured")
    if last.at_work < last.workers:
        return Forecast(workers, refused=f"its {last.workers} workers do not all step at the same time")
    known = last.frames_per_second
    rate = known.median * cores[workers - 1] / cores[last.workers - 1]
    half = log(known.median / known.low) if known.low else 0.0  # the band does not contain the error of that rate
    low, high = (exp(sqrt(log(end) ** 2 + half**2)) for end in BAND)
    return Forecast(workers, Estimate(rate, rate / low, rate * high), last.workers)


def _is_fit(cell: CellSummary) -> bool:
    rate, found = cell.frames_per_second, cell.conditions
    known = cell.status == "ok" and rate is not None and rate.low is not None
    return known and not (cell.excluded or found.throttled or found.disturbed or found.oversubscribed)


def cpu_order(header: RunRecord, cells: Sequence[CellSummary]) -> CpuOrder | None:
    """Return the CPUs of a run in the order in which workers take them; None if they belong to several hosts."""
    if header.hosts:
        return None
    host, pin = header.host, header.spec.pin
    topology = topology_of(host.topology)
    allowed = frozenset(host.cpus_allowed)
    if host.pinning and pin.pins:  # the cell with most CPUs shows how the order begins
        most = max((cell.built.cpus for cell in cells), key=len, default=())
        try:
            planned = place(pin.cpus, allowed, topology=topology, smt=pin.smt).order
        except UsageError:  # a list of CPUs that the rest of the file does not have
            planned = ()
        order = tuple(dict.fromkeys((*most, *planned)))
    else:  # unpinned workers are assumed to use all cores before second threads
        order = order_of(topology, allowed, "compact", "off" if pin.smt == "off" else "last")
    order = order[: host.usable_cpus]
    by_package = len(topology.packages) > 1
    regions = [*topology.packages.values()] if by_package else [node.cpus for node in topology.nodes]
    # Where the CPUs of the order begin to be in another region, or of another kind.
    regions_begin = _begin(order, regions)
    kinds_begin = _begin(order, topology.kinds)
    cores: list[float] = []
    seconds_begin: list[int] = []
    for after, cpu in enumerate(order):
        second = any(cpu in core and set(core).intersection(order[:after]) for core in topology.cores)
        cores.append((cores[-1] if cores else 0.0) + (THREAD if second else 1.0))
        if second and not seconds_begin:
            seconds_begin.append(after)
    kinks = [(after, f"another {'package' if by_package else 'memory node'} begins") for after in regions_begin]
    kinks += [(after, "another kind of core begins") for after in kinds_begin]
    kinks += [(after, "second threads begin") for after in seconds_begin]
    alike = min(kinds_begin, default=len(order))
    return CpuOrder(tuple(cores), tuple(sorted(kinks, key=lambda kink: kink[0])), alike)


def _begin(order: Sequence[int], sets: Sequence[Sequence[int]]) -> list[int]:
    """Return the places in the order, but the first, at which the CPUs of a set begin."""
    places = [min((order.index(cpu) for cpu in cpus if cpu in order), default=0) for cpus in sets]
    return sorted(place for place in places if place)
