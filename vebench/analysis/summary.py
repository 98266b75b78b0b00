"""From a run's raw windows to what each cell achieved: rates, speedup, efficiency, share of the ceiling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from vebench.analysis.findings import rules, windows
from vebench.analysis.stability import STEADY, Stability, stability
from vebench.analysis.statistics import Estimate, Sample, estimate, ratio
from vebench.backends.registry import CEILING, NULL, REFERENCE, find_recorded
from vebench.machine.sysfs import parse_list
from vebench.plan.known_work import BEST_FIRST
from vebench.plan.spec import BackendChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal

    from vebench.backends.environments.engines import Engine
    from vebench.plan.known_work import WorkVerdict
    from vebench.results.records import CellRecord, Run, WindowRecord

NANO = 1e-9
LEAST_TAKEN_NS = 100_000_000  # ten ticks of the kernel's clock, by which steal and others' work are counted
NOTHING = Sample((), one_process=False)


@dataclass(frozen=True)
class CellSummary:
    """One cell over all its repeats. An estimate that does not apply, or that nothing was measured for, is None.

    ``cpus_owned`` counts CPUs; ``windows``, ``rows`` and ``resets`` are totals over the repeats that went well, as
    rates are theirs. ``status`` is ``ok`` if any repeat went well; ``failed_repeats`` counts those that did not, and
    ``reason`` is that of one. ``speedup`` is over ``for-loop`` with one worker; ``ns_per_batch`` is wall time.
    ``observations`` is how many values each estimate stands on: windows of a single repeat, or else repeats.
    ``sample`` holds the frames per second that the estimates stand on, ``stability`` how steady they were.
    ``throttled_windows`` were held back by a CPU quota, and count only where there are no others. ``stolen_share``
    and ``others_share``: what the hypervisor, and others on this machine, took of its CPUs' time, 0 where too little
    was seen to tell. ``strayed``: some thread might run on other CPUs than those owned. ``oversubscribed``: more
    workers than CPUs that do work at the same time; ``crowded``: not that, but more processes or threads at work than
    CPUs owned. ``verdict`` is whether it does the same work as the reference, None where that makes no sense.
    ``unbound`` is why its memory is not bound as was asked for, ``most_threads`` how many threads its widest process
    was seen to have, 0 where nobody looked, ``pools`` how many replicas it consists of.
    """

    env: str
    backend: str
    options: Mapping[str, bool | int | float | str]
    workers: int
    envs_per_worker: int
    num_envs: int
    batch_size: int
    processes: int
    threads: int
    cpus: tuple[int, ...]
    cpus_owned: int
    frame_skip: int
    status: Literal["ok", "failed", "skipped"]
    reason: str | None
    repeats: int
    failed_repeats: int
    observations: int
    windows: int
    rows: int
    resets: int
    throttled_windows: int
    stolen_share: float
    others_share: float
    strayed: bool
    oversubscribed: bool
    crowded: bool
    differences: tuple[str, ...]
    verdict: WorkVerdict | None
    verdict_reason: str
    engines: tuple[Engine, ...]
    unbound: str | None
    most_threads: int
    startup_seconds: float | None
    peak_rss_bytes: int | None
    pools: int = 1
    sample: Sample = NOTHING
    stability: Stability = STEADY
    steps_per_second: Estimate | None = None
    frames_per_second: Estimate | None = None
    frames_per_cpu_second: Estimate | None = None
    ns_per_batch: Estimate | None = None
    speedup: Estimate | None = None
    efficiency: Estimate | None = None
    of_ceiling: Estimate | None = None
    findings: tuple[rules.Finding, ...] = ()

    @property
    def label(self) -> str:
        """The backend as a user writes it, options included."""
        return BackendChoice(self.backend, dict(self.options)).label

    @property
    def struck(self) -> bool:
        """Whether the cell's rate is compared with no other: it stands for other work."""
        return self.verdict == "different"

    @property
    def reference(self) -> bool:
        """Whether the cell is there to be compared with, and not a backend to choose."""
        return find_recorded(self.backend).reference_row

    @property
    def loop_ns_per_batch(self) -> Estimate | None:
        """What the measuring loop itself costs for each batch; None for every backend but ``null``."""
        return self.ns_per_batch if self.backend == NULL else None


def summarise(run: Run, file: str = "FILE") -> tuple[CellSummary, ...]:
    """Return every cell of ``run`` with its findings, in the order in which cells first appear.

    ``file`` is the run file's name, which remedies quote.
    """
    groups: dict[tuple[str, str, int, int], list[CellRecord]] = {}
    for record in run.cells:
        groups.setdefault(record.key[:-1], []).append(record)
    rates = {key: frame_rates(records) for key, records in groups.items()}
    cells = []
    for (env, backend, workers, envs_per_worker), records in groups.items():
        cell = _counted(records, run.header.host.usable_cpus)
        base = (env, REFERENCE, 1, envs_per_worker)
        own = rates[env, backend, workers, envs_per_worker]
        speedup = None
        if cell.backend != NULL and not cell.struck:
            itself = base == (env, backend, workers, envs_per_worker)
            speedup = _unity(own) if itself else ratio(own, rates.get(base, NOTHING))
        alone = cell.reference or cell.struck
        bare = NOTHING if alone else rates.get((env, CEILING, workers, envs_per_worker), NOTHING)
        cells.append(
            replace(
                cell,
                frames_per_second=estimate(own),
                steps_per_second=estimate(own.scaled(1 / cell.frame_skip)),
                sample=own,
                stability=stability(records),
                frames_per_cpu_second=estimate(_rates_by_cpu_time(records)),
                ns_per_batch=batch_time(records),
                speedup=speedup,
                efficiency=speedup and speedup.scaled(1 / cell.cpus_owned),
                of_ceiling=ratio(own, bare),
            )
        )
    nulls = {(cell.env, cell.workers, cell.envs_per_worker): cell for cell in cells if cell.backend == NULL}
    return tuple(
        replace(
            cell,
            findings=(
                *rules.of_cell(cell, nulls.get((cell.env, cell.workers, cell.envs_per_worker)), file),
                *windows.of_cell(cell, cells, run.header.spec),
            ),
        )
        for cell in cells
    )


def frame_rates(records: Sequence[CellRecord]) -> Sample:
    """Return frames per second of a cell, given all its repeats."""
    return _observed(records, lambda record, window: window.transitions * record.frame_skip / (window.ns * NANO))


def batch_time(records: Sequence[CellRecord]) -> Estimate | None:
    """Return the wall time from one batch to the next, in nanoseconds."""
    return estimate(
        _observed(
            records,
            lambda record, window: window.ns * record.batch_size / window.rows if window.rows else None,
        )
    )


def _rates_by_cpu_time(records: Sequence[CellRecord]) -> Sample:
    return _observed(
        records,
        lambda record, window: (
            window.transitions * record.frame_skip / (window.cpu_ns * NANO) if window.cpu_ns else None
        ),
    )


def _observed(records: Sequence[CellRecord], rate: Callable[[CellRecord, WindowRecord], float | None]) -> Sample:
    """Return the rates of every repeat that went well, each of which is a process.

    Windows that a CPU quota held back are left out where others remain.
    """
    repeats = [
        (record, [window for window in record.windows if not window.held_back])
        for record in records
        if record.status == "ok"
    ]
    if not any(windows for _, windows in repeats):
        repeats = [(record, list(record.windows)) for record, _ in repeats]
    return Sample.of(
        {
            record.repeat: [value for window in windows if (value := rate(record, window)) is not None]
            for record, windows in repeats
        }
    )


def _unity(sample: Sample) -> Estimate | None:
    """Return a cell's ratio to itself, which is exact."""
    return Estimate(1.0, 1.0, 1.0) if sample.rates and median(sample.rates) > 0 else None


def _counted(records: Sequence[CellRecord], usable: int) -> CellSummary:
    well = [record for record in records if record.status == "ok"]
    failed = [record for record in records if record.status == "failed"]
    first = (well or failed or records)[0]
    windows = [window for record in well for window in record.windows]
    cpus_owned = max(1, min(len(first.cpus), first.workers, usable))
    verdict = max((_verdict(record) for record in records), key=BEST_FIRST.index)
    startups = [record.startup_ns * NANO for record in records if record.startup_ns is not None]
    return CellSummary(
        env=first.env,
        backend=first.backend,
        options=first.options,
        workers=first.workers,
        envs_per_worker=first.envs_per_worker,
        num_envs=first.num_envs,
        batch_size=first.batch_size,
        processes=first.processes,
        threads=first.threads,
        cpus=first.cpus,
        cpus_owned=cpus_owned,
        pools=max(1, len(first.replicas)),
        frame_skip=first.frame_skip,
        status=first.status,
        reason=next((record.reason for record in (*failed, *records) if record.reason is not None), None),
        repeats=len(records),
        failed_repeats=len(failed),
        observations=len(frame_rates(records).rates),
        windows=len(windows),
        rows=sum(window.rows for window in windows),
        resets=sum(window.resets for window in windows),
        throttled_windows=sum(window.held_back for window in windows),
        stolen_share=_share(well, lambda window: window.steal_ns),
        others_share=_share(well, lambda window: window.others_ns),
        strayed=any(map(_strayed, records)),
        oversubscribed=first.workers > usable,
        crowded=_at_work(first) > cpus_owned and first.workers <= usable,
        differences=first.differences,
        verdict=None if find_recorded(first.backend).reference_row else verdict,
        verdict_reason=next((record.verdict_reason for record in records if record.verdict == verdict), ""),
        engines=first.engines,
        unbound=next((record.unbound for record in records if record.unbound), None),
        most_threads=max((len(threads) for record in records for threads in record.seats or ()), default=0),
        startup_seconds=median(startups) if startups else None,
        peak_rss_bytes=max((r.peak_rss_bytes for r in records if r.peak_rss_bytes is not None), default=None),
    )


def _verdict(record: CellRecord) -> WorkVerdict:
    return record.verdict or "unverified"


def _share(records: Sequence[CellRecord], taken: Callable[[WindowRecord], int | None]) -> float:
    """Return the share of the CPUs' time that was taken, over all windows; 0 where the kernel's ticks cannot tell."""
    spans = [(len(record.cpus) * window.ns, taken(window) or 0) for record in records for window in record.windows]
    total = sum(span for _, span in spans)
    return total / sum(span for span, _ in spans) if total >= LEAST_TAKEN_NS else 0.0


def _strayed(record: CellRecord) -> bool:
    """Return whether a process or thread could run elsewhere than on the CPUs owned, as far as was read back."""
    owned = set(record.cpus)
    if record.affinity is not None and set(record.affinity) != owned:
        return True
    return any(not owned.issuperset(parse_list(thread)) for threads in record.seats or () for thread in threads)


def _at_work(record: CellRecord) -> int:
    """Return how many threads of all processes step environments at the same time."""
    return find_recorded(record.backend).at_work(record.processes, record.threads, record.options)
