"""A cell over all its repeats: its records, rates and findings, and the curves of cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Self

from vebench.analysis.statistics import Condition, Estimate, Sample, estimate
from vebench.analysis.windows import Growth, Learning, PolicyTime, Stability
from vebench.backends.entry import BackendEntry
from vebench.backends.registry import NULL, REFERENCE, YARDSTICK, find
from vebench.child.answers import CellProof, HostShare, WorkVerdict
from vebench.machine.host import grouped
from vebench.plan.cells import CellKey, report_order
from vebench.plan.spec import RunSpec
from vebench.plan.verdicts import SAME
from vebench.results.records import CellRecord

Curve = tuple["CellSummary", ...]

_NO_RATES = Sample((), one_process=False)
NO_REASON = "no reason was recorded"  # why a cell failed


class Gravity(StrEnum):
    """The consequence of a finding for the results that it concerns. The gravest level comes first."""

    FAULT = "fault"  # the rate is missing or must not be used
    WARNING = "warning"  # the rate is uncertain, incomplete, or was measured in another way than requested
    NOTE = "note"  # the rate is valid; the finding explains it, or says how to get a higher rate


class Code(StrEnum):
    """The short name of a kind of finding, with its gravity. Users' scripts see the name, so it never changes.

    Reports list findings in this order. A test checks that it follows gravity. JSON and CSV use the order of the rules.
    """

    gravity: Gravity
    meaning: str  # what was found, for docs/reference/findings.md
    remedy: str  # what to do; the rules have more exact ones for some cases

    def __new__(cls, text: str, gravity: Gravity, meaning: str, remedy: str) -> Self:
        """Return the member whose value is ``text``."""
        code = str.__new__(cls, text)
        code._value_, code.gravity, code.meaning, code.remedy = text, gravity, meaning, remedy
        return code

    # fmt: off
    FAILED = ("failed", Gravity.FAULT, "a cell was not measured: its process failed, crashed or hung",
        "read the log beside the run file, correct the cause, and measure the cell again with --resume")
    DIFFERENT_WORK = ("different-work", Gravity.FAULT, "rows of the backend differ from the plain loop's",
        "leave the backend out with -b, choose another task, or look for the fault with vebench verify")
    ABOVE_CEILING = ("above-ceiling", Gravity.FAULT, "the rate is significantly above the bare simulator's",
        "do not trust it: measure again with more --windows, and check that it resets finished environments")
    BELOW_SIMULATOR = ("below-simulator", Gravity.FAULT, "steps take much less CPU time than the bare simulator's",
        "do not trust it: measure again with more --windows, and look for processes that it does not start")
    UNUSABLE = ("unusable", Gravity.FAULT, "most cells of the run were disturbed or throttled",
        "measure on an idle machine, on more CPUs, or with fewer --workers")
    INCOMPLETE = ("incomplete", Gravity.WARNING, "cells are missing, or lines of the run file are damaged",
        "measure the rest with --resume")
    OTHER_PACKAGES = ("other-packages", Gravity.WARNING, "the backend has another version of a simulator or package",
        "install the same version on both sides: versions of MuJoCo simulate differently")
    FALLBACK = ("fallback", Gravity.WARNING, "the backend steps Gymnasium's class, not vebench's own",
        "do what the message says, such as installing a compiler, or leave the backend out with -b")
    POLLING = ("polling", Gravity.WARNING, "a backend that busy-waits shares CPUs, or has fewer CPUs than processes",
        "measure on an idle machine, with fewer --workers than CPUs and --pin none")
    THROTTLED = ("throttled", Gravity.WARNING, "a CPU quota is less than the CPUs that cells use",
        "give the container more CPUs (--cpus), or measure with fewer --workers")
    UNPINNED = ("unpinned", Gravity.WARNING, "CPUs or memory are not bound as requested",
        "measure on Linux, which can set CPU affinity, or accept it with --pin none")
    PRIORITY = ("priority", Gravity.WARNING, "the backend changes the priority of its threads",
        "let it leave priorities as they are, or give all backends the same: nice -n N vebench ...")
    EXTRA_THREADS = ("extra-threads", Gravity.WARNING, "a library has started threads of its own in each process",
        "limit that library to one thread; OMP_NUM_THREADS and similar variables are already 1")
    DISTURBED = ("disturbed", Gravity.WARNING, "other processes or virtual machines used the cell's CPUs",
        "measure on an idle machine; vebench doctor shows the load of others")
    IMPRECISE = ("imprecise", Gravity.WARNING, "the rate has no interval, or a wide one",
        "measure on an idle machine, with a longer --duration, more --windows or more --passes")
    DRIFTING = ("drifting", Gravity.WARNING, "the rate changed during measurement, or had not settled before it",
        "measure with a longer warm-up (--warmup 1s), or on a cooler or idle machine")
    AGEING = ("ageing", Gravity.WARNING, "the rate depends on how many steps an environment has made",
        "end what grows in the environment, or let it settle with a longer warm-up (--warmup 30s)")
    LEAK = ("leak", Gravity.WARNING, "memory grows with each step",
        "look for a list, a cache or reference cycles that grow; a longer --duration shows whether this lasts")
    RECOMPILED = ("recompiled", Gravity.WARNING, "a library compiles while the cell is measured",
        "give all steps arrays of equal shapes and types (JAX_LOG_COMPILES=1)")
    LOOP_COST = ("loop-cost", Gravity.WARNING, "the measuring loop lowers the rate noticeably",
        "measure on an idle machine, or with a larger --envs-per-worker")
    SHORT_WINDOWS = ("short-windows", Gravity.WARNING, "windows have few batches",
        "measure with a longer --duration, or with fewer --workers or --envs-per-worker")
    NO_RESETS = ("no-resets", Gravity.WARNING, "no episode of a batched simulator ended, so the rate has no resets",
        "limit episodes, or compare the rate only with others without resets")
    FEW_RESETS = ("few-resets", Gravity.WARNING, "resets take much of the time, and windows hold few of them",
        "measure with a longer --duration")
    CHEAPER_STEPS = ("cheaper-steps", Gravity.WARNING, "batches of the rows that are ready first have fewer slow steps",
        "compare the stated rate with others, or measure backends with whole batches")
    UNVERIFIED = ("unverified", Gravity.WARNING, "too few rows were compared to know whether the work is the same",
        "compare them with vebench verify, or measure with a longer --duration")
    INVALID_VALUES = ("invalid-values", Gravity.WARNING, "the environment returns NaN, or values outside its spaces",
        "fix the environment, or the spaces that it declares")
    CLOCKS = ("clocks", Gravity.WARNING, "clock speeds of the CPUs depend on the load",
        "as root: cpupower frequency-set -g performance; to compare machines, turn boost off")
    MEMORY = ("memory", Gravity.WARNING, "little shared memory is free",
        "give the container more (--shm-size 1g), or free some")
    OUTLIERS = ("outliers", Gravity.NOTE, "a few windows differ much from the others; the interval includes them",
        "ignore a few; if there are many, look for other programs, timers or virtual machines")
    SLOWER = ("slower", Gravity.NOTE, "the backend is slower than a plain Python loop with one worker",
        "use the plain loop here, or try a larger --envs-per-worker")
    OVERSUBSCRIBED = ("oversubscribed", Gravity.NOTE, "there are more workers, processes or threads than CPUs or cores",
        "measure with fewer --workers, a smaller --envs-per-worker, or on more CPUs")
    WAITING = ("waiting", Gravity.NOTE, "steps wait, and more workers would give a higher rate",
        "measure with more --workers: each is a process or thread")
    VIRTUAL_MACHINE = ("virtual-machine", Gravity.NOTE, "other virtual machines may use the CPUs of this one",
        "use more --passes, compare only within one run, and check the stolen time")
    SKIPPED = ("skipped", Gravity.NOTE, "a cell cannot run here, or a package is missing",
        "provide what is missing, or leave it out with -b and --workers")
    # fmt: on


@dataclass(frozen=True)
class Finding:
    """A reason not to trust a rate, or a hint. Cells can share it, because the message has no details of one cell."""

    code: Code
    message: str  # the problem
    remedy: str


class Exclusion(StrEnum):
    """Why a cell cannot win. The first four also exclude its rate from comparisons, and tables show them."""

    OTHER_WORK = "other work"
    ABOVE_CEILING = "above ceiling"
    NOT_PINNED = "not pinned"
    CONTESTED = "contested"
    BELOW_SIMULATOR = "below simulator"
    UNVERIFIED = "unverified"
    NO_INTERVAL = "no interval"


@dataclass(frozen=True)
class Work:
    """Whether a cell does the same work as the reference."""

    verdict: WorkVerdict | None  # None for reference rows, and for cells with neither a rate nor a known difference
    reason: str  # why the verdict is ``unverified`` or ``different``, or the source of the verdict
    proof: CellProof | None  # the comparison of rows of the measured cell; None if no rows were to be compared
    unproven_repeats: int = 0  # the number of repeats whose rows could have been compared, but were not
    found_to_differ: bool = False  # rows of the measured cell differ, although no difference was known before


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
    oversubscribed: bool  # the cell has more workers, or processes or threads at work, than CPUs
    unbound: str | None  # why the cell's memory is not bound as requested
    most_threads: int  # the largest number of threads of one process; 0 if unknown
    priorities: tuple[str, ...]  # the priorities of the cell's threads that differ from the command's
    hosts: tuple[HostShare, ...]  # the part of each host in each repeat; empty if all replicas ran on this machine

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
    imports_seconds: float | None = None
    making_seconds: float | None = None
    reset_seconds: float | None = None
    first_step_seconds: float | None = None
    compile_seconds: float | None = None
    peak_rss_bytes: int | None = None
    gpu_bytes_per_env: float | None = None
    memory_per_env: Estimate | None = None  # the peak of all processes over the number of environments
    growth: Growth | None = None
    recompiled: int = 0  # the number of windows in which a library compiled, if there are several
    steps_per_joule: Estimate | None = None  # of CPU packages and GPUs
    steps_per_second: Estimate | None = None
    frames_per_cpu_second: Estimate | None = None
    ns_per_batch: Estimate | None = None  # wall time
    efficiency: Estimate | None = None
    of_ceiling: Estimate | None = None
    stability: Stability = field(default_factory=Stability)
    acting: PolicyTime | None = None
    rows_per_batch: float | None = None  # the mean; None if all batches have the same size
    learning: Learning | None = None


@dataclass(frozen=True)
class CellSummary:
    """One cell over all its repeats."""

    key: CellKey
    status: Literal["ok", "failed", "skipped"]  # ok if any repeat went well
    reason: str | None  # why one repeat failed, or why the cell was skipped
    repeats: int
    failed_repeats: int
    faulty_repeats: int  # the number of failed repeats that were not broken off
    built: CellRecord  # the record of the first successful repeat; if there is none, of the first failed repeat
    cpus_owned: int  # the number of CPUs for this cell: at most one for each worker
    work: Work
    conditions: Conditions
    sample: Sample = _NO_RATES  # frames per second of the windows that count
    by_cpu_time: Sample = _NO_RATES  # frames per second of CPU time
    startup: Sample = _NO_RATES  # nanoseconds from the start of the process to the first batch
    memory: Sample = _NO_RATES  # the peak memory of all processes, in bytes for each environment
    excluded_for: Exclusion | None = None  # why the rate is excluded; different work is in ``work``
    frames_per_second: Estimate | None = None  # the rate with its 95 % interval; None if nothing was measured
    speedup: Estimate | None = None  # over the reference with one worker in the same run; None without one of them
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
    def steps_own_classes(self) -> bool:
        """Whether the cell steps vebench's own environment classes, not Gymnasium's."""
        return self.built.own_classes is not None and not self.built.own_classes.refused

    @property
    def shape(self) -> dict[str, int]:
        """The numbers that are equal for cells that do the same work on the same resources."""
        replicas = max(1, len(self.built.replicas))
        counts = {name: getattr(self.built, name) for name in ("num_envs", "batch_size", "frame_skip")}
        return {**counts, "cpus_owned": self.cpus_owned, "replicas": replicas}

    @property
    def verdict(self) -> WorkVerdict | None:
        """Whether the cell does the same work as the reference; None if this does not apply."""
        return self.work.verdict

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
    def objection(self) -> Exclusion | None:
        """Why the cell cannot win: its rate is excluded, unverified, implausible or without an interval."""
        if self.exclusion:
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
        proof, replicas = self.work.proof, len(self.built.replicas)
        if self.verdict not in SAME or self.label == REFERENCE:
            return self.verdict or ""
        if proof is None or not proof.rows:
            return f"{self.verdict} (before)"
        return f"{self.verdict} (1 of {replicas} replicas)" if replicas > 1 else self.verdict

    @property
    def condition(self) -> Condition:
        """The condition of the measurement. Cells with the same condition are assumed to vary alike."""
        if self.backend == NULL:
            return "overhead"
        if self.conditions.disturbed:
            return "disturbed"
        return "oversubscribed" if self.conditions.oversubscribed else "undisturbed"

    @property
    def entry(self) -> BackendEntry:
        """The entry of its backend in the registry."""
        return find(self.backend, self.built.options)

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
    return key._replace(backend=REFERENCE, workers=1)


def yardstick_of(key: CellKey) -> CellKey:
    """Return the yardstick's cell, which shows how fast the machine was in the same passes."""
    return key._replace(backend=YARDSTICK, workers=1, envs_per_worker=1)


def of_key(key: CellKey) -> CellKey:
    """Return the key that all cells of a curve share: it has 0 as the number of workers."""
    return key._replace(workers=0)


def curves(cells: Iterable[CellSummary]) -> tuple[Curve, ...]:
    """Return the curves of ``cells`` in the order of their first cells. Within a curve, workers increase."""
    alike = grouped(cells, lambda cell: of_key(cell.key))
    return tuple(tuple(sorted(each, key=lambda cell: cell.workers)) for each in alike)


def in_report_order(cells: Iterable[CellSummary], spec: RunSpec) -> tuple[CellSummary, ...]:
    """Return ``cells`` sorted by task, then by backend, then by size. ``spec`` is the spec of their run."""
    by_size = sorted(cells, key=lambda cell: (cell.workers, cell.envs_per_worker))
    return tuple(sorted(by_size, key=lambda cell: report_order(cell.env, cell.built.choice, spec)))
