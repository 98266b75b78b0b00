"""Predictions: the time that a plan takes, and the rates of more workers than were measured.

Pure functions. ``docs/scaling.md`` says how the band of rates was calibrated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import NamedTuple

from vebench.analysis.cell import CellSummary, Curve
from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import SUITES
from vebench.errors import UsageError
from vebench.machine.host import order_of, place
from vebench.plan.cells import LEAST_STEPPED, MOST_STEPPED, Cell, needs_proof
from vebench.plan.spec import FORK, RunSpec
from vebench.results.records import CellRecord, RunRecord, topology_of

_NANO = 1e9
# Runs of Pong and CartPole on two idle CPUs took these times.
LOAD_S = 1.0  # seconds to load the libraries of the process that cells are forked from
FORK_S = 0.05  # seconds to fork a cell
END_S = 0.05  # seconds to end a cell
AROUND_S = 0.02  # seconds to step before a window, and to read counters
_WARMUPS = 1.6  # a warm-up takes this many times its shortest length, because of noise
_PHASE = 1 / 8  # the time before the first window, as a share of the time of all windows: 0 to 1/4 with long episodes
_PROOF = 0.2  # a proof takes this share of the stepping time, which is limited to LEAST_STEPPED and MOST_STEPPED

THREAD = 0.2  # the gain from the second thread of a core, as a share of a core
BAND = (0.73, 1.13)  # 90 % of rates, divided by their prediction, are in this band
_FARTHEST = 2  # predict at most this many times the measured number of workers


class Spent(NamedTuple):
    """Seconds by purpose. ``rest``: loading libraries, steps before windows, reading counters, and ending cells."""

    starts: float = 0.0
    warm_up: float = 0.0
    windows: float = 0.0
    proofs: float = 0.0
    rest: float = 0.0


def time_spent(cells: Iterable[CellRecord]) -> Spent | None:
    """Return the seconds that cells took, by purpose; None if there are no cells, or if a cell's time is unknown."""
    of_each = []
    for cell in cells:
        if cell.took_ns is None:
            return None
        known = [cell.startup_ns or 0, cell.warmup_ns or 0, sum(window.ns for window in cell.windows)]
        proof = (cell.proof.seconds or 0.0) if cell.proof else 0.0
        starts, warm_up, windows = (ns / _NANO for ns in known)
        of_each.append((starts, warm_up, windows, proof, max(0, cell.took_ns - sum(known)) / _NANO))
    return Spent(*map(sum, zip(*of_each, strict=True))) if of_each else None


def time_planned(cells: Iterable[Cell], spec: RunSpec) -> list[Spent]:
    """Return the expected seconds of each cell, by purpose. Here, ``starts`` includes loading libraries.

    A proof starts a process of its own, unless cells take turns.
    """
    loaded: set[object] = set()
    found = []
    for cell in cells:
        shape, modules = cell.shape, cell.entry.preloaded(cell.task) if spec.isolation == FORK else None
        libraries = cell.repeat, cell.python, modules
        begin = LOAD_S if modules is None or libraries not in loaded else FORK_S
        loaded.add(libraries)
        at_once = max(1, min(shape.processes * shape.threads, len(cell.cpus)))
        start = begin + SUITES[cell.task.suite].environment_seconds * shape.num_envs / at_once
        proof = _PROOF * min(max(LEAST_STEPPED, spec.cell_seconds), MOST_STEPPED)
        found.append(
            Spent(
                starts=start,
                warm_up=_WARMUPS * spec.warmup + _PHASE * spec.windows * spec.duration,
                windows=spec.windows * (spec.duration + AROUND_S),
                proofs=(proof if spec.takes_turns else start + proof) if needs_proof(cell, spec) else 0.0,
                rest=END_S,
            )
        )
    return found


@dataclass(frozen=True)
class Forecast:
    """The predicted frames/s with ``workers`` workers, or why there is no prediction."""

    workers: int
    rate: Estimate | None = None  # ``low`` and ``high`` are a 90 % band, not a 95 % interval
    measured: int = 0  # the number of workers of the measured rate that the prediction starts from
    refused: str = ""  # why there is no prediction


@dataclass(frozen=True)
class CpuOrder:
    """The order in which workers take CPUs."""

    # The number of cores that 1, 2, 3 ... workers use, up to the number of CPUs. A second thread counts as ``THREAD``.
    cores: tuple[float, ...]
    kinks: tuple[tuple[int, str], ...]  # numbers of workers after which a further worker gains less, with the reason
    alike: int  # the largest number of workers whose cores are all of one kind


def forecast(curve: Curve, order: CpuOrder, workers: int) -> Forecast:
    """Return the rate that a backend would reach with ``workers`` workers, or why it cannot be predicted."""
    cores = order.cores
    if workers > len(cores):
        return Forecast(workers, refused=f"only {len(cores)} CPUs are usable: more workers add nothing")
    if workers > order.alike:
        return Forecast(workers, refused="some of these workers would run on slower cores")
    if workers in {cell.workers for cell in curve}:
        return Forecast(workers, refused=f"{workers} workers were measured")
    fit = [cell for cell in curve if cell.workers < workers <= _FARTHEST * cell.workers and _is_fit(cell)]
    last = max(fit, key=lambda cell: cell.workers, default=None)
    if last is None or last.frames_per_second is None:
        least = -(-workers // _FARTHEST)
        return Forecast(workers, refused=f"no undisturbed rate of {least} or more workers was measured")
    if last.built.at_work < last.workers:
        return Forecast(workers, refused=f"its {last.workers} workers do not all step at the same time")
    known = last.frames_per_second
    rate = known.median * cores[workers - 1] / cores[last.workers - 1]
    half = log(known.median / known.low) if known.low else 0.0  # ``BAND`` excludes the error of the measured rate
    low, high = (exp(sqrt(log(end) ** 2 + half**2)) for end in BAND)
    return Forecast(workers, Estimate(rate, rate / low, rate * high), last.workers)


def _is_fit(cell: CellSummary) -> bool:
    found = cell.conditions
    slowed = found.throttled or found.disturbed or found.oversubscribed
    return cell.status == "ok" and cell.half_width is not None and not (cell.excluded or slowed)


def cpu_order(header: RunRecord, cells: Sequence[CellSummary]) -> CpuOrder | None:
    """Return the order in which the workers of a run take CPUs; None if the run used other hosts."""
    if header.hosts:
        return None
    host, pin = header.host, header.spec.pin
    topology, allowed = topology_of(host.topology), frozenset(host.cpus_allowed)
    if host.pinning and pin.pins:  # the CPUs of the largest cell are the first in the order
        most = max((cell.built.cpus for cell in cells), key=len, default=())
        try:
            planned = place(pin.cpus, allowed, topology=topology, smt=pin.smt).order
        except UsageError:  # the run's --pin lists CPUs that its topology lacks
            planned = ()
        order = tuple(dict.fromkeys((*most, *planned)))
    else:  # unpinned workers are assumed to use all cores before second threads
        order = order_of(topology, allowed, "compact", "off" if pin.smt == "off" else "last")
    order = order[: host.usable_cpus]
    cores: list[float] = []
    seconds: list[int] = []  # the indices of second threads in the order
    for after, cpu in enumerate(order):
        if any(cpu in core and not {*core}.isdisjoint(order[:after]) for core in topology.cores):
            seconds.append(after)
        cores.append(after + 1 - (1 - THREAD) * len(seconds))
    nodes, what = [node.cpus for node in topology.nodes], "memory node"
    if len(topology.packages) > 1:
        nodes, what = [*topology.packages.values()], "package"
    kinds_begin = _begin(order, topology.kinds)
    kinks = [(after, f"another {what} begins") for after in _begin(order, nodes)]
    kinks += [(after, "another kind of core begins") for after in kinds_begin]
    kinks += [(after, "second threads begin") for after in seconds[:1]]
    return CpuOrder(tuple(cores), tuple(sorted(kinks, key=lambda kink: kink[0])), min(kinds_begin, default=len(order)))


def _begin(order: Sequence[int], sets: Sequence[Sequence[int]]) -> list[int]:
    """Return the indices, above 0, at which the first CPU of a set appears in ``order``."""
    places = [min((order.index(cpu) for cpu in cpus if cpu in order), default=0) for cpus in sets]
    return sorted(place for place in places if place)
