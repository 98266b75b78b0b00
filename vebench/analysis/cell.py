"""A cell over all its repeats, as reports show it, and the curves that such cells form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from vebench.analysis.findings import Code
from vebench.analysis.statistics import Sample, estimate
from vebench.analysis.windows import STEADY, Stability
from vebench.backends.registry import NULL, REFERENCE, YARDSTICK, find
from vebench.plan.cells import report_order
from vebench.plan.grammar import BackendChoice
from vebench.plan.known_work import SAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal, Self

    from vebench.analysis.findings import Finding
    from vebench.analysis.pooling import Condition
    from vebench.analysis.statistics import Estimate
    from vebench.analysis.windows import Acting, BatchSizes, Learning
    from vebench.backends.entry import BackendEntry
    from vebench.backends.interface import Engine, OwnClasses
    from vebench.child.answers import CellProof, HostShare, WorkVerdict
    from vebench.plan.cells import CellKey
    from vebench.plan.spec import RunSpec

    Curve = tuple["CellSummary", ...]

T = TypeVar("T")

NOTHING = Sample((), one_process=False)


class Doubt(StrEnum):
    """Why a rate is excluded from comparisons; the first four are shown in tables in these words."""

    OTHER_WORK = "other work"
    ABOVE_CEILING = "above ceiling"
    NOT_PINNED = "not pinned"
    CONTESTED = "contested"
    BELOW_SIMULATOR = "below simulator"
    UNVERIFIED = "unverified"
    NO_INTERVAL = "no interval"


@dataclass(frozen=True)
class CellSummary:
    """One cell over all its repeats. An estimate that does not apply, or that nothing was measured for, is None.

    What the cell is: environments, processes and threads are counted as built, or as planned if the cell was never
    ready. ``hosts`` is what each host did that replicas ran on, in each repeat, empty if that was the runner's.

    How it went: ``status`` is ``ok`` if any repeat went well; ``faulty_repeats`` are those of the ``failed_repeats``
    that the user did not end, ``reason`` that of one of them. ``verdict`` is whether it does the same work as the
    reference, None for reference rows, and for failed cells in which no difference was seen; ``proof`` is what was
    found in the cell itself, None if nothing was to be compared; ``unproven_repeats`` could have been compared, and
    were not; ``known_to_differ``: it was known to do other work before it was measured. ``struck_for`` is why its rate
    is struck although its work may be the same.

    What was counted, over all windows of the repeats that went well: ``throttled_windows``, which a CPU quota held
    back, and ``disturbed_windows`` count only where too few remain without them.

    How fast it was: ``sample`` holds the frames per second of the windows that count, one value for each window of a
    single repeat, or else for each repeat, and ``by_cpu_time`` those per second of CPU time. ``speedup`` is over the
    reference with one worker; ``ns_per_batch`` is wall time.

    What the machine did: ``stolen_share`` and ``others_share`` are the shares of its CPUs' time, 0 to 1, that the
    hypervisor and other processes took in the windows that count; ``disturbed``: both together took too much.
    ``strayed``: some thread was free to run on other CPUs than those owned. ``oversubscribed``: more workers than CPUs
    that do work at the same time; ``crowded``: not that, but more processes or threads at work than CPUs owned.
    ``unbound`` is why its memory is not bound as was asked for. ``most_threads`` is how many threads one of its
    processes had at the most, 0 if unknown. ``priorities``: those of its threads that differ from that of the command.
    """

    key: CellKey
    backend: str
    options: Mapping[str, bool | int | float | str]
    num_envs: int
    batch_size: int
    processes: int
    threads: int
    cpus: tuple[int, ...]
    cpus_owned: int
    frame_skip: int
    replicas: int
    status: Literal["ok", "failed", "skipped"]
    reason: str | None
    repeats: int
    failed_repeats: int
    faulty_repeats: int
    verdict: WorkVerdict | None
    verdict_reason: str
    proof: CellProof | None
    differences: tuple[str, ...]
    engines: tuple[Engine, ...]
    own_classes: OwnClasses | None
    startup_seconds: float | None
    peak_rss_bytes: int | None
    known_to_differ: bool = False
    unproven_repeats: int = 0
    python: str = ""
    windows: int = 0
    rows: int = 0
    resets: int = 0
    throttled_windows: int = 0
    disturbed_windows: int = 0
    sample: Sample = NOTHING
    by_cpu_time: Sample = NOTHING
    stability: Stability = STEADY
    steps_per_second: Estimate | None = None
    frames_per_second: Estimate | None = None
    frames_per_cpu_second: Estimate | None = None
    ns_per_batch: Estimate | None = None
    speedup: Estimate | None = None
    efficiency: Estimate | None = None
    of_ceiling: Estimate | None = None
    disturbed: bool = False
    taken_is_known: bool = False
    stolen_share: float = 0.0
    others_share: float = 0.0
    strayed: bool = False
    oversubscribed: bool = False
    crowded: bool = False
    unbound: str | None = None
    most_threads: int = 0
    priorities: tuple[str, ...] = ()
    struck_for: str = ""
    acting: Acting | None = None
    batch_sizes: BatchSizes | None = None
    learning: Learning | None = None
    hosts: tuple[HostShare, ...] = ()
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, **values: Any) -> Self:  # noqa: ANN401 - as fields are typed
        """Return a cell with these values in a tenth of the time of its constructor."""
        found = object.__new__(cls)
        vars(found).update(values)
        return found

    def having(self, **changes: Any) -> Self:  # noqa: ANN401 - as fields are typed
        """Return the cell with other values of these fields."""
        return altered(self, **changes)

    @property
    def share_left(self) -> float:
        """The share of its CPUs' time that it had to itself: 1 unless it was disturbed."""
        return max(0.0, 1 - self.stolen_share - self.others_share) if self.disturbed else 1.0

    @property
    def host_rates(self) -> dict[str, Estimate]:
        """Steps per second of each host that it ran on, by name, with an interval from two repeats on."""
        rates: dict[str, list[float]] = {}
        for share in self.hosts:
            rates.setdefault(share.host, []).append(share.steps_per_second)
        levels = {host: estimate(Sample(tuple(each), one_process=False)) for host, each in rates.items()}
        return {host: level for host, level in levels.items() if level is not None}

    @property
    def env(self) -> str:
        """The task's full name."""
        return self.key.env

    @property
    def label(self) -> str:
        """The backend as a user writes it, options included."""
        return self.key.backend

    @cached_property
    def choice(self) -> BackendChoice:
        """The backend with its options, in the interpreter that was named for it."""
        return BackendChoice(self.backend, dict(self.options), self.python)

    @property
    def workers(self) -> int:
        """How many workers it was asked to have."""
        return self.key.workers

    @property
    def envs_per_worker(self) -> int:
        """How many environments each worker was asked to have."""
        return self.key.envs_per_worker

    @property
    def rate(self) -> float:
        """Frames per second, 0 without any: the median of their estimate, which only ``summarise`` adds."""
        return self.sample.middle or 0.0

    @property
    def half_width(self) -> float | None:
        """The larger half of the rate's interval, over the rate; None without an interval."""
        return self.frames_per_second.half_width if self.frames_per_second else None

    @property
    def steps_own_classes(self) -> bool:
        """Whether its environments are of our own classes, and not Gymnasium's."""
        return self.own_classes is not None and not self.own_classes.refused

    @property
    def why_struck(self) -> str:
        """Why the cell's rate is excluded from comparisons, in a word or two; empty if it is not."""
        return Doubt.OTHER_WORK if self.verdict == "different" else self.struck_for

    @property
    def struck(self) -> bool:
        """Whether the cell's rate is excluded from comparisons."""
        return bool(self.why_struck)

    @property
    def doubt(self) -> Doubt | None:
        """Why its rate is excluded from comparisons, None if it is not. The reference does its own work."""
        if self.struck:
            return Doubt(self.why_struck)
        if self.verdict == "unverified" and self.label != REFERENCE:
            return Doubt.UNVERIFIED
        for code, doubt in ((Code.ABOVE_CEILING, Doubt.ABOVE_CEILING), (Code.BELOW_SIMULATOR, Doubt.BELOW_SIMULATOR)):
            if any(finding.code is code for finding in self.findings):
                return doubt
        return None if self.half_width is not None else Doubt.NO_INTERVAL

    @property
    def work(self) -> str:
        """Its verdict in words, with ``(before)`` if none of its own rows were compared."""
        if self.verdict not in SAME or self.label == REFERENCE:
            return self.verdict or ""
        if self.proof is None or not self.proof.rows:
            return f"{self.verdict} (before)"
        return f"{self.verdict} (1 of {self.replicas} replicas)" if self.replicas > 1 else self.verdict

    @property
    def found_to_differ(self) -> bool:
        """Whether its work was found to differ while it was measured, and this was not known before."""
        return self.proof is not None and self.proof.verdict == "different" and not self.known_to_differ

    @property
    def throttled(self) -> bool:
        """Whether a CPU quota held back all of its windows."""
        return 0 < self.windows == self.throttled_windows

    @property
    def condition(self) -> Condition:
        """The conditions of the measurement that decide how much its rate varies."""
        if self.backend == NULL:
            return "overhead"
        if self.disturbed:
            return "disturbed"
        return "crowded" if self.crowded or self.oversubscribed else "calm"

    @property
    def entry(self) -> BackendEntry:
        """What is known of its backend."""
        return find(self.backend)

    @property
    def at_work(self) -> int:
        """How many threads of all processes step environments at the same time."""
        return self.entry.at_work(self.processes, self.threads, self.options)

    @property
    def reference_row(self) -> bool:
        """Whether the cell is a reference row, not a backend to choose."""
        return self.entry.reference_row

    @property
    def loop_ns_per_batch(self) -> Estimate | None:
        """The cost of the measuring loop per batch; None for every backend but ``null``."""
        return self.ns_per_batch if self.backend == NULL else None


def altered(known: T, **changes: Any) -> T:  # noqa: ANN401 - as fields are typed
    """Return a frozen dataclass with other values, unchecked, in a tenth of the time of ``dataclasses.replace``."""
    found = object.__new__(type(known))
    vars(found).update(vars(known), **changes)
    return found


def base_of(key: CellKey) -> CellKey:
    """Return the cell that this one's speedup is relative to: the reference with one worker, all else the same."""
    return key.beside(REFERENCE, workers=1)


def yardstick_of(key: CellKey) -> CellKey:
    """Return the cell that shows how fast the machine was in the same passes."""
    return key._replace(backend=YARDSTICK, workers=1, envs_per_worker=1)


def is_base(key: CellKey) -> bool:
    """Return whether the cell is its own base, so that its speedup is 1 by definition."""
    return key == base_of(key)


def of_key(key: CellKey) -> CellKey:
    """Return what all cells of one curve have in common."""
    return key.beside(key.backend, workers=0)


def curves(cells: Iterable[CellSummary]) -> tuple[Curve, ...]:
    """Return the curves of ``cells``, in the order in which they first appear, each with the fewest workers first."""
    by_key: dict[CellKey, list[CellSummary]] = {}
    for cell in cells:
        by_key.setdefault(of_key(cell.key), []).append(cell)
    return tuple(tuple(sorted(members, key=lambda cell: cell.workers)) for members in by_key.values())


def in_report_order(cells: Iterable[CellSummary], spec: RunSpec) -> tuple[CellSummary, ...]:
    """Return ``cells`` of a run of ``spec`` by task, then by backend, then by size."""
    by_size = sorted(cells, key=lambda cell: (cell.workers, cell.envs_per_worker))
    return tuple(sorted(by_size, key=lambda cell: report_order(cell.env, cell.choice, spec)))
