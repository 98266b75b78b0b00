"""A cell over all its repeats, and all cells of a run together, with their curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import log
from typing import Literal, NamedTuple

from vebench.analysis.findings import Code, Finding
from vebench.analysis.pooling import Condition
from vebench.analysis.statistics import Contrast, Estimate, Sample, contrast, estimate, verdicts
from vebench.analysis.windows import DRIFT, STEADY, BatchSizes, Learning, PolicyTime, Stability, trend
from vebench.backends.entry import BackendEntry
from vebench.backends.interface import Engine, OwnClasses
from vebench.backends.registry import CEILING, NULL, REFERENCE, YARDSTICK, find
from vebench.child.answers import CellProof, HostShare, WorkVerdict
from vebench.plan.cells import CellKey, report_order
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.plan.verdicts import SAME
from vebench.results.records import RunRecord

Curve = tuple["CellSummary", ...]

# A step takes at least this share of the bare simulator's CPU time. It is below 1, because caches, resets and clock
# speeds differ.
LEAST_CPU_TIME = 2 / 3
_AGEING_LEVEL = 0.005  # the one-sided level of the test of a trend
_NO_RATES = Sample((), one_process=False)


class Exclusion(StrEnum):
    """Why a rate is not compared with others. Tables show the first four in these words."""

    OTHER_WORK = "other work"
    ABOVE_CEILING = "above ceiling"
    NOT_PINNED = "not pinned"
    CONTESTED = "contested"
    BELOW_SIMULATOR = "below simulator"
    UNVERIFIED = "unverified"
    NO_INTERVAL = "no interval"


@dataclass(frozen=True)
class BuiltCell:
    """The parts of a cell: as built, or as planned if the cell was never ready."""

    choice: BackendChoice  # the backend with its options and the interpreter that the user named
    num_envs: int
    batch_size: int  # the number of rows in one batch
    processes: int  # the number of processes that step environments
    threads: int  # the number of threads in each process that step environments
    cpus: tuple[int, ...]
    cpus_owned: int  # the number of CPUs for this cell: at most one for each worker
    frame_skip: int
    replicas: int
    differences: tuple[str, ...]  # the differences from the reference that the adapter declares
    engines: tuple[Engine, ...]
    own_classes: OwnClasses | None

    @property
    def at_work(self) -> int:
        """The number of threads in all processes that step environments at the same time."""
        return self.choice.entry.at_work(self.processes, self.threads, self.choice.options)

    @property
    def steps_own_classes(self) -> bool:
        """Whether the cell steps vebench's own environment classes, not Gymnasium's."""
        return self.own_classes is not None and not self.own_classes.refused


@dataclass(frozen=True)
class Work:
    """Whether a cell does the same work as the reference."""

    verdict: WorkVerdict | None  # None for reference rows, and for other cells without a rate or a known difference
    reason: str  # why the verdict is ``unverified`` or ``different``, or the source of the verdict
    proof: CellProof | None  # the comparison of rows of the measured cell; None if no rows were to be compared
    unproven_repeats: int = 0  # the number of repeats whose rows could have been compared, but were not
    known_to_differ: bool = False  # a difference was known before the cell was measured

    @property
    def found_to_differ(self) -> bool:
        """Whether rows of the measured cell differ, although no difference was known before."""
        return self.proof is not None and self.proof.verdict == "different" and not self.known_to_differ


@dataclass(frozen=True)
class Conditions:
    """The machine's influence on a cell. Only windows of successful repeats count."""

    windows: int
    throttled_windows: int  # the number of windows that a CPU quota slowed
    disturbed_windows: int  # the number of windows in which other processes used too much of the cell's CPUs
    disturbed: bool  # the hypervisor and other processes took too much CPU time from the windows that count
    taken_is_known: bool  # the kernel's counters of the time taken could be read
    stolen_share: float  # the share of CPU time that the hypervisor took, 0 to 1
    others_share: float  # the share of CPU time that other processes took, 0 to 1
    strayed: bool  # a thread was free to run on CPUs that the cell does not own
    oversubscribed_by: Literal["workers", "threads"] | None  # there are more workers or threads than CPUs
    unbound: str | None  # why the cell's memory is not bound as requested
    most_threads: int  # the largest number of threads of one process; 0 if unknown
    priorities: tuple[str, ...]  # the priorities of the cell's threads that differ from the command's
    hosts: tuple[HostShare, ...]  # the part of each host in each repeat; empty if all replicas ran on this machine

    @property
    def oversubscribed(self) -> bool:
        """Whether the cell has more workers, processes or threads at work than CPUs."""
        return self.oversubscribed_by is not None

    @property
    def throttled(self) -> bool:
        """Whether the cell has windows, and a CPU quota slowed all of them."""
        return 0 < self.windows == self.throttled_windows

    @property
    def share_left(self) -> float:
        """The share of CPU time that other processes and the hypervisor left to the cell: 1 unless disturbed."""
        return max(0.0, 1 - self.stolen_share - self.others_share) if self.disturbed else 1.0

    @property
    def host_rates(self) -> dict[str, Estimate]:
        """Steps per second by the name of the host, with an interval if there are at least two repeats."""
        rates: dict[str, tuple[float, ...]] = {}
        for share in self.hosts:
            rates[share.host] = (*rates.get(share.host, ()), share.steps_per_second)
        levels = {host: estimate(Sample(each, one_process=False)) for host, each in rates.items()}
        return {host: level for host, level in levels.items() if level is not None}


@dataclass(frozen=True)
class Figures:
    """The numbers of a cell in reports. None: nothing was measured, or the number does not apply."""

    rows: int = 0
    resets: int = 0  # the number of rows that only report a reset
    startup_seconds: float | None = None
    peak_rss_bytes: int | None = None
    steps_per_second: Estimate | None = None
    frames_per_second: Estimate | None = None
    frames_per_cpu_second: Estimate | None = None
    ns_per_batch: Estimate | None = None  # wall time
    speedup: Estimate | None = None  # over the reference with one worker
    efficiency: Estimate | None = None
    of_ceiling: Estimate | None = None
    stability: Stability = STEADY
    acting: PolicyTime | None = None
    batch_sizes: BatchSizes | None = None
    learning: Learning | None = None


@dataclass(frozen=True)
class CellSummary:
    """One cell over all its repeats."""

    key: CellKey
    status: Literal["ok", "failed", "skipped"]  # ok if any repeat went well
    reason: str | None  # why one repeat failed, or why the cell was skipped
    repeats: int
    failed_repeats: int
    faulty_repeats: int  # the number of failed repeats that the user did not interrupt
    built: BuiltCell
    work: Work
    conditions: Conditions
    sample: Sample = _NO_RATES  # frames per second of the windows that count
    by_cpu_time: Sample = _NO_RATES  # frames per second of CPU time
    excluded_for: Exclusion | None = None  # why the rate is excluded; other work is in ``work``
    figures: Figures = Figures()
    findings: tuple[Finding, ...] = ()

    @property
    def env(self) -> str:
        """The task's full name."""
        return self.key.env

    @property
    def label(self) -> str:
        """The backend as a user writes it, options included."""
        return self.key.backend

    @property
    def backend(self) -> str:
        """The backend's name, without options."""
        return self.built.choice.name

    @property
    def workers(self) -> int:
        """The number of workers that the user requested."""
        return self.key.workers

    @property
    def envs_per_worker(self) -> int:
        """The number of environments for each worker that the user requested."""
        return self.key.envs_per_worker

    @property
    def verdict(self) -> WorkVerdict | None:
        """Whether the cell does the same work as the reference; None if this does not apply."""
        return self.work.verdict

    @property
    def frames_per_second(self) -> Estimate | None:
        """The rate with its 95 % interval; None if nothing was measured."""
        return self.figures.frames_per_second

    @property
    def speedup(self) -> Estimate | None:
        """The rate divided by the reference's rate with one worker in the same run; None without one of them."""
        return self.figures.speedup

    @property
    def rate(self) -> float:
        """Frames per second; 0 if nothing was measured."""
        return self.sample.middle or 0.0

    @property
    def half_width(self) -> float | None:
        """The larger half of the rate's interval divided by the rate; None without an interval."""
        return self.frames_per_second.half_width if self.frames_per_second else None

    @property
    def exclusion(self) -> Exclusion | None:
        """Why the rate is excluded from all ratios; None if it is not excluded."""
        return Exclusion.OTHER_WORK if self.verdict == "different" else self.excluded_for

    @property
    def excluded(self) -> bool:
        """Whether the rate is excluded from all ratios."""
        return self.exclusion is not None

    @property
    def objection(self) -> Exclusion | None:
        """Why the cell cannot win: its rate is excluded, unverified, implausible or without an interval."""
        if self.excluded:
            return self.exclusion
        if self.verdict == "unverified" and self.label != REFERENCE:
            return Exclusion.UNVERIFIED
        implausible = {Code.ABOVE_CEILING: Exclusion.ABOVE_CEILING, Code.BELOW_SIMULATOR: Exclusion.BELOW_SIMULATOR}
        for finding in self.findings:
            if finding.code in implausible:
                return implausible[finding.code]
        return None if self.half_width is not None else Exclusion.NO_INTERVAL

    @property
    def work_in_words(self) -> str:
        """The verdict on the work, with ``(before)`` if no rows of the cell itself were compared."""
        proof, replicas = self.work.proof, self.built.replicas
        if self.verdict not in SAME or self.label == REFERENCE:
            return self.verdict or ""
        if proof is None or not proof.rows:
            return f"{self.verdict} (before)"
        return f"{self.verdict} (1 of {replicas} replicas)" if replicas > 1 else self.verdict

    @property
    def condition(self) -> Condition:
        """The condition of the measurement: it decides which cells vary alike."""
        if self.backend == NULL:
            return "overhead"
        if self.conditions.disturbed:
            return "disturbed"
        return "oversubscribed" if self.conditions.oversubscribed else "undisturbed"

    @property
    def entry(self) -> BackendEntry:
        """The entry of its backend in the registry."""
        return find(self.backend)

    @property
    def reference_row(self) -> bool:
        """Whether the cell is a reference row, not a backend to choose."""
        return self.entry.reference_row

    @property
    def loop_ns_per_batch(self) -> Estimate | None:
        """The cost of the measuring loop per batch; None for every backend but ``null``."""
        return self.figures.ns_per_batch if self.backend == NULL else None


def base_of(key: CellKey) -> CellKey:
    """Return the base of a speedup: the reference with one worker, all else the same."""
    return key.beside(REFERENCE, workers=1)


def yardstick_of(key: CellKey) -> CellKey:
    """Return the yardstick's cell, which shows how fast the machine was in the same passes."""
    return key._replace(backend=YARDSTICK, workers=1, envs_per_worker=1)


def is_base(key: CellKey) -> bool:
    """Return whether the cell is its own base, so that its speedup is 1 by definition."""
    return key == base_of(key)


def of_key(key: CellKey) -> CellKey:
    """Return the key that all cells of a curve share: it has 0 as the number of workers."""
    return key.beside(key.backend, workers=0)


def curves(cells: Iterable[CellSummary]) -> tuple[Curve, ...]:
    """Return the curves of ``cells`` in the order of their first cells. Within a curve, workers increase."""
    by_key: dict[CellKey, list[CellSummary]] = {}
    for cell in cells:
        by_key.setdefault(of_key(cell.key), []).append(cell)
    return tuple(tuple(sorted(members, key=lambda cell: cell.workers)) for members in by_key.values())


def in_report_order(cells: Iterable[CellSummary], spec: RunSpec) -> tuple[CellSummary, ...]:
    """Return ``cells`` sorted by task, then by backend, then by size. ``spec`` is the spec of their run."""
    by_size = sorted(cells, key=lambda cell: (cell.workers, cell.envs_per_worker))
    return tuple(sorted(by_size, key=lambda cell: report_order(cell.env, cell.built.choice, spec)))


class Ageing(NamedTuple):
    """The change of a rate with the number of steps that an environment has made."""

    slope: float  # the slope of log rates over log steps
    words: str  # the amount by which the environment slows down or speeds up


def ageing(cells: Iterable[CellSummary]) -> Ageing | None:
    """Return how the rate of similar cells changes with the steps of an environment; None without a clear change."""
    aged = tuple(each for cell in cells if not cell.conditions.disturbed for each in cell.figures.stability.aged)
    slope, ages = trend(aged), [age for _, points in aged for age in points[:, 0].tolist()]
    if slope is None or min(slope.chance_above(1.0), slope.chance_below(1.0)) > _AGEING_LEVEL:
        return None
    first, last = min(ages), max(ages)
    span = log(last / first)
    if abs(slope.log) * span <= log(1 + DRIFT):
        return None
    change = Contrast(slope.log * span, slope.error.times(span**2)).estimate
    middle, *ends = (f"{value - 1:+.0%}" for value in (change.median, change.low or 0.0, change.high or 0.0))
    verb = "slows down" if slope.log < 0 else "speeds up"
    steps = f"from step {first:,.0f} to {last:,.0f}"
    return Ageing(slope.log, f"the environment {verb}: {middle} ({' to '.join(ends)}) {steps}")


@dataclass(frozen=True)
class Sweep:
    """All cells of a run, and findings from tests of all cells together."""

    cells: tuple[CellSummary, ...]
    head: RunRecord
    file: str  # the name of the run file, which remedies quote

    @cached_property
    def by_key(self) -> Mapping[CellKey, CellSummary]:
        """All cells by their keys."""
        return {cell.key: cell for cell in self.cells}

    @cached_property
    def resume(self) -> str:
        """The command that continues the run."""
        return self.head.resume_command(self.file)

    @cached_property
    def ageing(self) -> Mapping[str, Ageing]:
        """The ageing of each task's environments, where the plain loop shows it."""
        loops = defaultdict(list)
        for cell in self.cells:
            if cell.label == REFERENCE:
                loops[cell.env].append(cell)
        return {env: found for env, cells in loops.items() if (found := ageing(cells)) is not None}

    @cached_property
    def above_ceiling(self) -> frozenset[CellKey]:
        """The cells that seem significantly faster than the bare simulator."""
        return _slower((cell.key, bare.key, bare.sample, cell.sample) for cell, bare in self._with_ceilings())

    @cached_property
    def below_simulator(self) -> frozenset[CellKey]:
        """The cells whose steps take significantly less than ``LEAST_CPU_TIME`` of the bare simulator's CPU time."""
        tests = (
            (cell.key, bare.key, bare.by_cpu_time, cell.by_cpu_time)
            for cell, bare in self._with_ceilings()
            # The cell itself may be disturbed, because unknown processes that work for it count as a disturbance.
            if not bare.conditions.disturbed
        )
        found = _slower(tests, LEAST_CPU_TIME)
        # If even the plain loop takes less CPU time than the simulator, the ceiling was disturbed.
        slow = {key.env for key in found if key.backend == REFERENCE}
        return frozenset(key for key in found if key.env not in slow)

    @cached_property
    def below_loop(self) -> frozenset[CellKey]:
        """The cells that are significantly slower than a plain loop with one worker."""
        tests = []
        for cell in self.cells:
            if cell.speedup is not None and not cell.reference_row and cell.label != REFERENCE:
                base = self.by_key[base_of(cell.key)]
                tests.append((cell.key, base.key, cell.sample, base.sample))
        return _slower(tests)

    @cached_property
    def retrograde(self) -> frozenset[CellKey]:
        """The cells that are significantly slower than with fewer workers, although each worker has a CPU."""
        return _slower(
            (cell.key, fewer.key, cell.sample, fewer.sample)
            for curve in curves(self.cells)
            for number, cell in enumerate(curve)
            if cell.built.processes * cell.built.threads > 1
            if not (cell.reference_row or cell.conditions.oversubscribed)
            for fewer in curve[:number]
        )

    def ceiling_of(self, cell: CellSummary) -> CellSummary | None:
        """Return the bare simulator on the same CPUs; None if the cell or the simulator is not comparable."""
        if cell.reference_row or cell.exclusion not in (None, Exclusion.ABOVE_CEILING):
            return None
        bare = self.by_key.get(cell.key.beside(CEILING, cell.workers))
        return None if bare is None or bare.excluded else bare

    def _with_ceilings(self) -> Iterator[tuple[CellSummary, CellSummary]]:
        for cell in self.cells:
            if (bare := self.ceiling_of(cell)) is not None:
                yield cell, bare


def _slower(tests: Iterable[tuple[CellKey, CellKey, Sample, Sample]], low: float = 1.0) -> frozenset[CellKey]:
    """Return the first keys of tests whose first sample is significantly below ``low`` times the second sample.

    All are tested together. The second key distinguishes several tests of one cell.
    """
    ratios = {}
    for key, other, one, against in tests:
        if one.measurable and against.measurable:
            # A cell at least as fast in the same passes cannot be significantly slower. Skip the test, but count it in
            # the Holm correction.
            as_fast = one.passes == against.passes and one.level >= low * against.level
            ratios[key, other] = None if as_fast else contrast([(1.0, one), (-1.0, against)])
    return frozenset(key for (key, _), verdict in verdicts(ratios, low=low).items() if verdict == "slower")
