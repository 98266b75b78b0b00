"""From raw windows to what each cell of a run achieved: rates, speedup, efficiency, share of the ceiling.

Pure functions. Which windows count is decided in ``windows.py``.
"""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.cell import ABOVE_CEILING, CONTESTED, NOT_PINNED, NOTHING, CellSummary, base_of, ceiling_of
from vebench.analysis.pooling import pooled
from vebench.analysis.rules import Sweep, of_cell
from vebench.analysis.statistics import Estimate, Sample, estimate, ratio
from vebench.analysis.windows import acting, batch_sizes, learning, stability, that_count
from vebench.analysis.work import proofs_of, together, unproven, work_of
from vebench.backends.registry import NULL, REFERENCE, YARDSTICK
from vebench.child.window import OF_LOOP, Window, too_much
from vebench.machine.sysfs import parse_list

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vebench.plan.cells import CellKey
    from vebench.results.records import CellRecord, Run, RunRecord

_NANO = 1e-9
_COUNTERS = tuple(item.name for item in fields(Window) if item.name not in OF_LOOP)
# To stop as soon as an interval looks narrow favours those that are narrow by chance. After so many processes that
# costs little: docs/method.md has how much.
FEWEST_PROCESSES = 5


def summarise(run: Run, file: str = "FILE") -> tuple[CellSummary, ...]:
    """Return every cell of ``run`` with its findings, in the order in which cells first appear.

    ``file`` is the run file's name, which remedies quote.
    """
    repeats = by_cell(run)
    cells = {
        key: _struck(_with_machine(_as_built(records, run.header), records, run.header), run.header)
        for key, records in repeats.items()
    }
    conditions = {key: cell.condition for key, cell in cells.items()}
    frames, frames_by_cpu_time, batches = (
        pooled({key: _sample(records, rate) for key, records in repeats.items()}, conditions)
        for rate in (_frame_rate, _rate_by_cpu_time, _batch_time)
    )
    rates = _Rates(frames, frames_by_cpu_time, batches, frozenset(key for key, cell in cells.items() if cell.struck))
    rated = tuple(_with_rates(cell, repeats[key], rates) for key, cell in cells.items())
    above = Sweep(rated, run.header, file).above_ceiling
    sound = []
    for cell in rated:
        learner = None if cell.reference_row else run.header.spec.learner
        learned = replace(cell, learning=learning(learner, cell.steps_per_second, cell.batch_size))
        # If the reference is above the ceiling, that was disturbed.
        struck = cell.key in above and cell.label != REFERENCE
        sound.append(replace(learned, struck_for=ABOVE_CEILING, speedup=None, efficiency=None) if struck else learned)
    sweep = Sweep(tuple(sound), run.header, file)
    return tuple(replace(cell, findings=of_cell(cell, sweep)) for cell in sound)


class _Rates(NamedTuple):
    """The samples of all cells of a run: frames per second, the same per CPU second, and nanoseconds per batch.

    With those of the cells ``struck``, no other is compared.
    """

    frames: Mapping[CellKey, Sample]
    frames_by_cpu_time: Mapping[CellKey, Sample]
    batch_times: Mapping[CellKey, Sample]
    struck: frozenset[CellKey]

    def compared(self, key: CellKey) -> Sample:
        """Return the frames per second of a cell that others are compared with, nothing if it is struck."""
        return NOTHING if key in self.struck else self.frames.get(key, NOTHING)


def by_cell(run: Run) -> dict[CellKey, list[CellRecord]]:
    """Return the records of each cell, all its repeats, by its key without a repeat.

    A repeat that the user ended is left out if the cell has a later one: it was measured instead.
    """
    repeats: dict[CellKey, list[CellRecord]] = {}
    for record in run.cells:
        repeats.setdefault(record.key.without_repeat, []).append(record)
    last = {key: max(record.repeat for record in records) for key, records in repeats.items()}
    return {
        key: [record for record in records if not record.interrupted or record.repeat == last[key]]
        for key, records in repeats.items()
    }


def frame_rates(records: Sequence[CellRecord]) -> Sample:
    """Return frames per second of a cell, given all its repeats and nothing of the other cells."""
    return _sample(records, _frame_rate)


def batch_times(records: Sequence[CellRecord]) -> Sample:
    """Return the wall time from one batch to the next in nanoseconds, given all repeats of a cell and nothing else."""
    return _sample(records, _batch_time)


def _frame_rate(record: CellRecord, window: Window) -> float | None:
    return window.transitions * record.frame_skip / (window.ns * _NANO)


def _rate_by_cpu_time(record: CellRecord, window: Window) -> float | None:
    return window.transitions * record.frame_skip / (window.cpu_ns * _NANO) if window.cpu_ns else None


def _batch_time(record: CellRecord, window: Window) -> float | None:
    if window.batches:  # where they differ in size
        return window.ns / window.batches
    return window.ns * record.batch_size / window.rows if window.rows else None


def _sample(records: Sequence[CellRecord], rate: Callable[[CellRecord, Window], float | None]) -> Sample:
    """Return the rates of the windows that count; each repeat is a process."""
    return Sample.of(
        {
            record.repeat: [value for window in windows if (value := rate(record, window)) is not None]
            for record, windows in that_count(records)
        }
    )


def _well(records: Sequence[CellRecord]) -> list[CellRecord]:
    return [record for record in records if record.status == "ok"]


def _usable(records: Sequence[CellRecord], header: RunRecord) -> int:
    """Return how many CPUs a cell could have: with replicas on other hosts, each of these has its own."""
    hosts, here = header.hosts, header.host.usable_cpus
    there = [hosts[name].machine.usable_cpus if name in hosts else here for name in records[0].replica_hosts]
    return sum(there) or here


def _as_built(records: Sequence[CellRecord], header: RunRecord) -> CellSummary:
    """Return what the cell is and how it went; what was counted and derived is still to come."""
    failed = [record for record in records if record.status == "failed"]
    faulty = [record for record in failed if not record.interrupted]
    first = (_well(records) or failed or records)[0]
    proofs = proofs_of(records, proves=header.spec.proof != "off")
    work = work_of(records, proofs)
    startups = [record.startup_ns * _NANO for record in records if record.startup_ns is not None]
    cell = CellSummary(
        key=first.key.without_repeat,
        backend=first.backend,
        options=first.options,
        python=first.python,
        num_envs=first.num_envs,
        batch_size=first.batch_size,
        processes=first.processes,
        threads=first.threads,
        cpus=first.cpus,
        cpus_owned=max(1, min(len(first.cpus), first.workers, _usable(records, header))),
        frame_skip=first.frame_skip,
        replicas=max(1, len(first.replicas)),
        hosts=tuple(share for record in records for share in record.hosts or ()),
        status=first.status,
        reason=next((record.reason for record in (*faulty, *failed, *records) if record.reason is not None), None),
        repeats=len(records),
        failed_repeats=len(failed),
        faulty_repeats=len(faulty),
        verdict=work.verdict,
        verdict_reason=work.reason,
        proof=together(proofs),
        unproven_repeats=sum(map(unproven, proofs)),
        known_to_differ=any(record.verdict == "different" for record in records),
        differences=first.differences,
        engines=first.engines,
        own_classes=first.own_classes,
        startup_seconds=median(startups) if startups else None,
        peak_rss_bytes=max((r.peak_rss_bytes for r in records if r.peak_rss_bytes is not None), default=None),
    )
    return replace(cell, verdict=None) if cell.reference_row else cell


def _with_machine(cell: CellSummary, records: Sequence[CellRecord], header: RunRecord) -> CellSummary:
    """Return ``cell`` with what was seen of the machine while it ran."""
    spans = [(len(record.cpus), window) for record, windows in that_count(records) for window in windows]
    span = sum(cpus * window.ns for cpus, window in spans)
    taken = sum(window.taken_ns for _, window in spans)
    usable = _usable(records, header)
    return replace(
        cell,
        # One host's loss is none of the others', and slows what all of them do.
        disturbed=too_much(taken, span, sum(cpus for cpus, _ in spans)) or any(one.disturbed for one in cell.hosts),
        stolen_share=sum(window.steal_ns or 0 for _, window in spans) / max(1, span),
        others_share=sum(window.others_ns or 0 for _, window in spans) / max(1, span),
        strayed=any(map(_strayed, records)),
        oversubscribed=cell.workers > usable,
        crowded=cell.at_work > cell.cpus_owned and cell.workers <= usable,
        unbound=next((record.unbound for record in records if record.unbound), None),
        most_threads=max((len(threads) for record in records for threads in record.seats or ()), default=0),
    )


def _strayed(record: CellRecord) -> bool:
    """Return whether a process or thread could run elsewhere than on the CPUs owned, as far as was read back."""
    owned = set(record.cpus)
    if record.affinity is not None and set(record.affinity) != owned:
        return True
    return any(not owned.issuperset(parse_list(thread)) for threads in record.seats or () for thread in threads)


def _struck(cell: CellSummary, header: RunRecord) -> CellSummary:
    """Return ``cell``, struck if it was not held to its CPUs, or if it polls on CPUs that others had, too."""
    if cell.strayed and header.spec.pin.pins and header.host.pinning:
        return replace(cell, struck_for=NOT_PINNED)
    contested = cell.disturbed or cell.throttled or cell.oversubscribed
    return replace(cell, struck_for=CONTESTED) if contested and cell.entry.spins else cell


def _with_rates(cell: CellSummary, records: Sequence[CellRecord], rates: _Rates) -> CellSummary:
    """Return ``cell`` with what was counted, and the rates that follow; ``rates`` are those of all cells."""
    own = rates.frames[cell.key]
    windows = [(record, window) for record in _well(records) for window in record.windows]
    counting = [window for _, counted in that_count(records) for window in counted]
    speedup = _speedup(cell, rates)
    steps = own.scaled(1 / cell.frame_skip)
    unlike = cell.reference_row or cell.struck
    row_bytes = next((record.row_bytes for record in _well(records) if record.row_bytes is not None), None)
    return replace(
        cell,
        windows=len(windows),
        rows=sum(window.rows for _, window in windows),
        resets=sum(window.resets for _, window in windows),
        throttled_windows=sum(window.held_back for _, window in windows),
        disturbed_windows=sum(window.disturbed(len(record.cpus)) for record, window in windows),
        totals={name: _total([getattr(window, name) for window in counting]) for name in _COUNTERS},
        sample=own,
        stability=stability(records),
        frames_per_second=estimate(own),
        steps_per_second=estimate(steps),
        delivered_bytes_per_second=None if row_bytes is None else estimate(steps.scaled(row_bytes)),
        frames_per_cpu_second=estimate(rates.frames_by_cpu_time[cell.key]),
        ns_per_batch=estimate(rates.batch_times[cell.key]),
        speedup=speedup,
        efficiency=speedup and speedup.scaled(1 / cell.cpus_owned),
        of_ceiling=None if unlike else ratio(own, rates.compared(ceiling_of(cell.key))),
        acting=acting(counting),
        batch_sizes=batch_sizes(counting),
    )


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _speedup(cell: CellSummary, rates: _Rates) -> Estimate | None:
    """Return the ratio to the reference with one worker; None for a cell that is not compared."""
    if cell.backend in (NULL, YARDSTICK) or cell.struck:
        return None
    own, base = rates.frames[cell.key], base_of(cell.key)
    if cell.key != base:
        return ratio(own, rates.compared(base))
    return Estimate(1.0, 1.0, 1.0) if own.rates and median(own.rates) > 0 else None


def wide_cells(run: Run, until: float) -> frozenset[CellKey]:
    """Return the keys, without repeats, of all cells whose interval is not within ``until`` of its level yet."""
    return frozenset(
        cell.key
        for cell in summarise(run)
        if cell.sample.processes < FEWEST_PROCESSES or cell.half_width is None or cell.half_width > until
    )


def next_repeats(run: Run) -> dict[CellKey, int]:
    """Return the number of the next repeat of every cell whose last one went well, by its key without a repeat.

    A last repeat that the user ended is itself the next.
    """
    last = [max(records, key=attrgetter("repeat")) for records in by_cell(run).values()]
    again = {record.key.without_repeat: record.repeat for record in last if record.interrupted}
    return again | {record.key.without_repeat: record.repeat + 1 for record in last if record.status == "ok"}
