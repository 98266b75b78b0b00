"""From raw windows to what each cell of a run achieved: rates, speedup, efficiency, share of the ceiling.

Pure functions. Windows that a CPU quota held back count only if a cell has no others: what they show is the quota.
"""

from __future__ import annotations

from dataclasses import fields, replace
from statistics import median
from typing import TYPE_CHECKING

from vebench.analysis.cell import NOTHING, CellSummary, base_of, ceiling_of
from vebench.analysis.findings.rules import of_cell
from vebench.analysis.findings.sweep import Sweep
from vebench.analysis.stability import stability
from vebench.analysis.statistics import Estimate, Sample, estimate, ratio
from vebench.backends.registry import NULL, find_recorded
from vebench.child.window import Window
from vebench.machine.sysfs import parse_list
from vebench.plan.known_work import BEST_FIRST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vebench.child.answers import WorkVerdict
    from vebench.plan.cells import CellKey
    from vebench.results.records import CellRecord, Run

NANO = 1e-9
COUNTERS = tuple(item.name for item in fields(Window))
LEAST_TAKEN_NS = 100_000_000  # ten ticks of the kernel's clock, by which steal and others' work are counted


def summarise(run: Run, file: str = "FILE") -> tuple[CellSummary, ...]:
    """Return every cell of ``run`` with its findings, in the order in which cells first appear.

    ``file`` is the run file's name, which remedies quote.
    """
    repeats = by_cell(run)
    samples = {key: frame_rates(records) for key, records in repeats.items()}
    usable = run.header.host.usable_cpus
    cells = tuple(
        _with_rates(_with_machine(_as_built(records, usable), records, usable), records, samples)
        for records in repeats.values()
    )
    sweep = Sweep(cells, run.header, file)
    return tuple(replace(cell, findings=of_cell(cell, sweep)) for cell in cells)


def by_cell(run: Run) -> dict[CellKey, list[CellRecord]]:
    """Return the records of each cell, all its repeats, by its key without a repeat."""
    repeats: dict[CellKey, list[CellRecord]] = {}
    for record in run.cells:
        repeats.setdefault(record.key.without_repeat, []).append(record)
    return repeats


def frame_rates(records: Sequence[CellRecord]) -> Sample:
    """Return frames per second of a cell, given all its repeats."""
    return _sample(records, lambda record, window: window.transitions * record.frame_skip / (window.ns * NANO))


def batch_time(records: Sequence[CellRecord]) -> Estimate | None:
    """Return the wall time from one batch to the next, in nanoseconds, given all repeats of a cell."""
    return estimate(
        _sample(
            records,
            lambda record, window: window.ns * record.batch_size / window.rows if window.rows else None,
        )
    )


def _rates_by_cpu_time(records: Sequence[CellRecord]) -> Sample:
    return _sample(
        records,
        lambda record, window: (
            window.transitions * record.frame_skip / (window.cpu_ns * NANO) if window.cpu_ns else None
        ),
    )


def _sample(records: Sequence[CellRecord], rate: Callable[[CellRecord, Window], float | None]) -> Sample:
    """Return the rates of the windows that count; each repeat is a process."""
    return Sample.of(
        {
            record.repeat: [value for window in windows if (value := rate(record, window)) is not None]
            for record, windows in _that_count(records)
        }
    )


def _that_count(records: Sequence[CellRecord]) -> list[tuple[CellRecord, Sequence[Window]]]:
    """Return every repeat that went well, with its windows that count."""
    well = _well(records)
    free = [(record, [window for window in record.windows if not window.held_back]) for record in well]
    return [*free] if any(windows for _, windows in free) else [(record, record.windows) for record in well]


def _well(records: Sequence[CellRecord]) -> list[CellRecord]:
    return [record for record in records if record.status == "ok"]


def _as_built(records: Sequence[CellRecord], usable: int) -> CellSummary:
    """Return what the cell is and how it went; what was counted and derived is still to come."""
    failed = [record for record in records if record.status == "failed"]
    first = (_well(records) or failed or records)[0]
    verdict = max((_verdict(record) for record in records), key=BEST_FIRST.index)
    startups = [record.startup_ns * NANO for record in records if record.startup_ns is not None]
    cell = CellSummary(
        key=first.key.without_repeat,
        backend=first.backend,
        options=first.options,
        num_envs=first.num_envs,
        batch_size=first.batch_size,
        processes=first.processes,
        threads=first.threads,
        cpus=first.cpus,
        cpus_owned=max(1, min(len(first.cpus), first.workers, usable)),
        frame_skip=first.frame_skip,
        replicas=max(1, len(first.replicas)),
        status=first.status,
        reason=next((record.reason for record in (*failed, *records) if record.reason is not None), None),
        repeats=len(records),
        failed_repeats=len(failed),
        verdict=verdict,
        verdict_reason=next((record.verdict_reason for record in records if record.verdict == verdict), ""),
        differences=first.differences,
        engines=first.engines,
        startup_seconds=median(startups) if startups else None,
        peak_rss_bytes=max((r.peak_rss_bytes for r in records if r.peak_rss_bytes is not None), default=None),
    )
    return replace(cell, verdict=None) if cell.reference_row else cell


def _verdict(record: CellRecord) -> WorkVerdict:
    return record.verdict or "unverified"


def _with_machine(cell: CellSummary, records: Sequence[CellRecord], usable: int) -> CellSummary:
    """Return ``cell`` with what was seen of the machine while it ran."""
    well = _well(records)
    return replace(
        cell,
        stolen_share=_share(well, lambda window: window.steal_ns),
        others_share=_share(well, lambda window: window.others_ns),
        strayed=any(map(_strayed, records)),
        oversubscribed=cell.workers > usable,
        crowded=_at_work(cell) > cell.cpus_owned and cell.workers <= usable,
        unbound=next((record.unbound for record in records if record.unbound), None),
        most_threads=max((len(threads) for record in records for threads in record.seats or ()), default=0),
    )


def _share(records: Sequence[CellRecord], taken: Callable[[Window], int | None]) -> float:
    """Return the share of the CPUs' time that was taken, over all windows; 0 if it was too few ticks to say."""
    spans = [(len(record.cpus) * window.ns, taken(window) or 0) for record in records for window in record.windows]
    total = sum(span for _, span in spans)
    return total / sum(span for span, _ in spans) if total >= LEAST_TAKEN_NS else 0.0


def _strayed(record: CellRecord) -> bool:
    """Return whether a process or thread could run elsewhere than on the CPUs owned, as far as was read back."""
    owned = set(record.cpus)
    if record.affinity is not None and set(record.affinity) != owned:
        return True
    return any(not owned.issuperset(parse_list(thread)) for threads in record.seats or () for thread in threads)


def _at_work(cell: CellSummary) -> int:
    """Return how many threads of all processes step environments at the same time."""
    return find_recorded(cell.backend).at_work(cell.processes, cell.threads, cell.options)


def _with_rates(cell: CellSummary, records: Sequence[CellRecord], samples: Mapping[CellKey, Sample]) -> CellSummary:
    """Return ``cell`` with what was counted, and the rates that follow; ``samples`` are those of all cells."""
    own = samples[cell.key]
    windows = [window for record in _well(records) for window in record.windows]
    speedup = _speedup(cell, samples)
    return replace(
        cell,
        windows=len(windows),
        rows=sum(window.rows for window in windows),
        resets=sum(window.resets for window in windows),
        throttled_windows=sum(window.held_back for window in windows),
        totals=_totals([window for _, counted in _that_count(records) for window in counted]),
        observations=len(own.rates),
        sample=own,
        stability=stability(records),
        frames_per_second=estimate(own),
        steps_per_second=estimate(own.scaled(1 / cell.frame_skip)),
        frames_per_cpu_second=estimate(_rates_by_cpu_time(records)),
        ns_per_batch=batch_time(records),
        speedup=speedup,
        efficiency=speedup and speedup.scaled(1 / cell.cpus_owned),
        of_ceiling=_of_ceiling(cell, samples),
    )


def _totals(windows: Sequence[Window]) -> dict[str, int | None]:
    """Return the sum of every counter by its name, None if a window lacks it."""
    return {name: _sum([getattr(window, name) for window in windows]) for name in COUNTERS}


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _speedup(cell: CellSummary, samples: Mapping[CellKey, Sample]) -> Estimate | None:
    """Return the ratio to the reference with one worker; None for a cell that is not compared."""
    if cell.backend == NULL or cell.struck:
        return None
    own, base = samples[cell.key], base_of(cell.key)
    return _unity(own) if cell.key == base else ratio(own, samples.get(base, NOTHING))


def _unity(sample: Sample) -> Estimate | None:
    """Return a cell's ratio to itself, which is exact."""
    return Estimate(1.0, 1.0, 1.0) if sample.rates and median(sample.rates) > 0 else None


def _of_ceiling(cell: CellSummary, samples: Mapping[CellKey, Sample]) -> Estimate | None:
    """Return the ratio to the bare simulator of the same size; None for a cell that is not compared."""
    if cell.reference_row or cell.struck:
        return None
    return ratio(samples[cell.key], samples.get(ceiling_of(cell.key), NOTHING))
