"""The cells of a run, from its windows: rates, speedups, conditions, and whether the work is the same.

Pure functions. ``windows`` decides which windows count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import median
from typing import NamedTuple

import numpy as np

from vebench.analysis import windows as of_windows
from vebench.analysis.cell import CellSummary, Conditions, Exclusion, Figures, Work, base_of
from vebench.analysis.rules import Sweep, of_cell
from vebench.analysis.statistics import Estimate, Sample, estimate, estimate_of_rate, pooled, ratio
from vebench.analysis.windows import Windows, windows_of
from vebench.backends.registry import REFERENCE
from vebench.child.answers import CellProof, WorkVerdict, too_much
from vebench.machine.kernel import ranges
from vebench.plan.cells import CellKey
from vebench.plan.spec import PASSES_OF_ALL
from vebench.plan.verdicts import BEST_FIRST, SAME
from vebench.results.records import CellRecord, Run, RunRecord

_NANO = 1e-9
_NOT_COMPARED = CellProof("unverified", reason="the run ended before it was compared")
# Stopping at the first narrow interval favours intervals that are narrow by chance. After this many processes, the
# effect is small (docs/reference/statistics.md).
FEWEST_PROCESSES = 5


class _Repeats(NamedTuple):
    records: Sequence[CellRecord]
    windows: Windows  # the windows of successful repeats
    counting: Windows  # the windows that count


# The roles of backends with a speedup. Rows on a device and rollouts are not compared with rows on the host.
_SPED_UP = frozenset({"contestant", "reference", "ceiling"})


def summarise(run: Run, file: str = "FILE") -> tuple[CellSummary, ...]:
    """Return every cell of ``run``, with its findings, in the order of the run. Remedies quote the name ``file``."""
    measured = _repeats_of(run)
    sweep = _rated(measured, run.header, file)
    conditions = {cell.key: cell.condition for cell in sweep.cells}
    by_cpu_time = pooled({key: _frames(each.counting, "cpu_ns") for key, each in measured.items()}, conditions)
    by_batch = pooled({key: _times_by_batch(each.counting) for key, each in measured.items()}, conditions)
    startup = pooled({key: _cost(each.records, "startup_ns", 1) for key, each in measured.items()}, conditions)
    environments = {cell.key: cell.built.num_envs for cell in sweep.cells}
    memories = {key: _cost(each.records, "peak_rss_bytes", environments[key]) for key, each in measured.items()}
    memory = pooled(memories, conditions)
    cells = []
    for cell in sweep.cells:
        key = cell.key
        records, windows, counting = measured[key]
        frames_per_second = estimate_of_rate(cell.sample)
        steps_per_second = None if frames_per_second is None else frames_per_second.scaled(1 / cell.built.frame_skip)
        speedup, ceiling = _speedup(cell, sweep), sweep.ceilings.get(key)
        # Windows of a comparison are short, so join the windows of each process for its stability.
        joined = run.header.interpreter is not None and len({*counting["process"].tolist()}) > 1
        varied = counting[counting["batches"] > 0]  # windows count batches only if batches differ in size
        learner = None if cell.reference_row else run.header.spec.learner
        learner = learner and learner.on(run.header.usable_cpus + run.header.spec.pin.reserve - cell.cpus_owned)
        figures = Figures(
            rows=int(windows["rows"].sum()),
            resets=int(windows["resets"].sum()),
            startup_seconds=_seconds(records, "startup_ns"),
            imports_seconds=_seconds(records, "imports_ns"),
            making_seconds=_seconds(records, "making_ns"),
            reset_seconds=_seconds(records, "reset_ns"),
            first_step_seconds=_seconds(records, "first_step_ns"),
            compile_seconds=_seconds(records, "compile_ns"),
            gpu_bytes_per_env=_cost(records, "peak_gpu_bytes", environments[key]).middle,
            recompiled=of_windows.recompiled(windows),
            steps_per_joule=estimate(Sample.of(counting["repeat"], counting["steps"], counting["energy_uj"] * 1e-6)),
            peak_rss_bytes=max((r.peak_rss_bytes for r in records if r.peak_rss_bytes is not None), default=None),
            memory_per_env=estimate(memory[key]),
            growth=of_windows.growth(windows),
            steps_per_second=steps_per_second,
            frames_per_cpu_second=estimate_of_rate(by_cpu_time[key]),
            ns_per_batch=estimate_of_rate(by_batch[key]),
            efficiency=None if speedup is None else speedup.scaled(1 / cell.cpus_owned),
            of_ceiling=None if ceiling is None else ratio(cell.sample, ceiling.sample),
            stability=of_windows.stability(records, of_windows.one_for_each_process(counting) if joined else counting),
            acting=of_windows.acting(counting),
            rows_per_batch=float(varied["rows"].sum() / varied["batches"].sum()) if len(varied) else None,
            learning=of_windows.learning(learner, steps_per_second, cell.built.batch_size),
        )
        costs = replace(cell, by_cpu_time=by_cpu_time[key], startup=startup[key], memory=memory[key])
        cells.append(replace(costs, figures=figures, frames_per_second=frames_per_second, speedup=speedup))
    sweep = replace(sweep, cells=tuple(cells))
    return tuple(replace(cell, findings=of_cell(cell, sweep)) for cell in cells)


def _speedup(cell: CellSummary, sweep: Sweep) -> Estimate | None:
    base = sweep.by_key.get(base_of(cell.key))
    if base is None or cell.exclusion or base.exclusion or cell.entry.role not in _SPED_UP:
        return None
    if cell is base:
        return Estimate(1.0, 1.0, 1.0) if cell.rate > 0 else None
    return ratio(cell.sample, base.sample)


def rated(run: Run) -> tuple[CellSummary, ...]:
    """Return every cell with its sample and exclusion, in a fraction of the time that all numbers and findings take."""
    return _rated(_repeats_of(run), run.header, "").cells


def _repeats_of(run: Run) -> dict[CellKey, _Repeats]:
    cells = by_cell(run)
    windows = windows_of(cells.values())
    ends = np.searchsorted(windows["cell"], range(1, len(cells)))
    parts = zip(cells.items(), np.split(windows, ends), strict=False)
    return {key: _Repeats(records, part, part[part["counts"]]) for (key, records), part in parts}


def _rated(measured: Mapping[CellKey, _Repeats], header: RunRecord, file: str) -> Sweep:
    """Return the cells with their rates."""
    cells = {key: _cell(each, header) for key, each in measured.items()}
    samples = {key: _frames(each.counting) for key, each in measured.items()}
    frames = pooled(samples, {key: cell.condition for key, cell in cells.items()})
    cells = {key: replace(cell, sample=frames[key]) for key, cell in cells.items()}
    sweep = Sweep(tuple(cells.values()), header, file)
    for key in sweep.above_ceiling:
        if cells[key].label != REFERENCE:  # if the reference is above the ceiling, the ceiling was disturbed
            cells[key] = replace(cells[key], excluded_for=Exclusion.ABOVE_CEILING)
    return replace(sweep, cells=tuple(cells.values()))


def by_cell(run: Run) -> dict[CellKey, list[CellRecord]]:
    """Return the records of each cell, without repeats that were broken off before its last repeat."""
    repeats: dict[CellKey, list[CellRecord]] = {}
    for record in run.cells:
        repeats.setdefault(record.key.without_repeat, []).append(record)
    for key, records in repeats.items():
        last = max(record.repeat for record in records)
        repeats[key] = [record for record in records if not record.broken_off or record.repeat == last]
    return repeats


def samples_of(record: CellRecord) -> tuple[Sample, Sample]:
    """Return the frames per second of one repeat of a cell, and its nanoseconds of wall time per batch."""
    windows = windows_of([[record]])
    counting = windows[windows["counts"]]
    return _frames(counting), _times_by_batch(counting)


def _frames(windows: Windows, time: str = "ns") -> Sample:
    return Sample.of(windows["repeat"], windows["steps"] * windows["frame_skip"], windows[time] * _NANO)


def _cost(records: Sequence[CellRecord], name: str, divisor: int) -> Sample:
    """Return the sample of a field of the successful records, divided by a number. An unknown value is left out."""
    known = [record for record in records if record.status == "ok" and getattr(record, name)]
    return Sample.of([one.repeat for one in known], [getattr(one, name) for one in known], [divisor] * len(known))


def _seconds(records: Sequence[CellRecord], name: str) -> float | None:
    known = [getattr(record, name) for record in records if getattr(record, name) is not None]
    return median(known) * _NANO if known else None


def _times_by_batch(windows: Windows) -> Sample:
    # Windows count batches only if batches differ in size.
    batches = np.where(windows["batches"] > 0, windows["batches"], windows["rows"] / windows["batch_size"])
    return Sample.of(windows["repeat"], windows["ns"], batches)


def _cell(measured: _Repeats, header: RunRecord) -> CellSummary:
    """Return a cell without its rates."""
    records = measured.records
    well = [record for record in records if record.status == "ok"]
    failed = [record for record in records if record.status == "failed"]
    faulty = [record for record in failed if not record.broken_off]
    first = (well or failed or records)[0]
    # Replicas on other hosts use the CPUs of those hosts.
    hosts, here = header.hosts, header.host.usable_cpus
    there = [hosts[name].machine.usable_cpus if name in hosts else here for name in records[0].replica_hosts]
    usable = sum(there) or here
    cpus_owned = max(1, min(len(first.cpus), first.workers, usable))
    conditions = _conditions(measured, first, cpus_owned, usable)
    excluded_for = None
    if conditions.strayed and header.spec.pin.pins and header.host.pinning:
        excluded_for = Exclusion.NOT_PINNED
    elif first.entry.library.spins and (conditions.disturbed or conditions.throttled or first.workers > usable):
        excluded_for = Exclusion.CONTESTED
    return CellSummary(
        key=first.key.without_repeat,
        status=first.status,
        reason=next((record.reason for record in (*faulty, *failed, *records) if record.reason is not None), None),
        repeats=len(records),
        failed_repeats=len(failed),
        faulty_repeats=len(faulty),
        built=first,
        cpus_owned=cpus_owned,
        work=_work(records, first, header),
        conditions=conditions,
        excluded_for=excluded_for,
    )


def _conditions(measured: _Repeats, built: CellRecord, cpus_owned: int, usable: int) -> Conditions:
    records, windows, counting = measured
    span = max(1.0, float((counting["cpus"] * counting["ns"]).sum()))
    hosts = tuple(share for record in records for share in record.hosts or ())
    steal, others = counting["steal_ns"], counting["others_ns"]
    disturbed = bool(too_much(counting["taken_ns"].sum(), span, counting["cpus"].sum()))
    at_work = built.entry.at_work(built.processes, built.threads, built.options)
    return Conditions(
        windows=len(windows),
        throttled_windows=int(windows["throttled"].sum()),
        disturbed_windows=int(windows["disturbed"].sum()),
        # A disturbance of one host slows the replicas on all hosts.
        disturbed=disturbed or any(host.disturbed for host in hosts),
        taken_is_known=not np.isnan((steal, others)).all(),
        stolen_share=float(np.nansum(steal)) / span,
        others_share=float(np.nansum(others)) / span,
        strayed=any(map(_strayed, records)),
        oversubscribed=built.workers > usable or at_work > cpus_owned,
        unbound=next((record.unbound for record in records if record.unbound), None),
        most_threads=max((len(threads) for record in records for threads in record.seats or ()), default=0),
        priorities=tuple(dict.fromkeys(each for record in records for each in record.priorities)),
        hosts=hosts,
    )


def _strayed(record: CellRecord) -> bool:
    """Return whether a process or thread could run on CPUs that the cell does not own, as far as is known."""
    owned = set(record.cpus)
    if record.affinity is not None and set(record.affinity) != owned:
        return True
    seats = {thread for threads in record.seats or () for thread in threads}
    return any(not owned.issuperset(part) for thread in seats for part in ranges(thread))


def is_wide(cell: CellSummary, until: float) -> bool:
    """Return whether the interval of a cell is wider than ``until``, or comes from too few processes."""
    known = estimate(cell.sample)
    half = None if known is None else known.half_width
    return cell.sample.processes < FEWEST_PROCESSES or half is None or half > until


def next_repeats(run: Run) -> dict[CellKey, int]:
    """Return the number of the next repeat of each cell. A cell whose last repeat failed or was skipped has none."""
    last = [max(records, key=attrgetter("repeat")) for records in by_cell(run).values()]
    again = {record.key.without_repeat: record.repeat for record in last if record.broken_off}
    return again | {record.key.without_repeat: record.repeat + 1 for record in last if record.status == "ok"}


def _work(records: Sequence[CellRecord], first: CellRecord, header: RunRecord) -> Work:
    proves = header.spec.proof != "off"
    proofs = []
    for number, record in enumerate(records):
        due = proves and record.status == "ok" and number < PASSES_OF_ALL
        if record.proof is not None:
            proofs.append(record.proof)
        elif due and not (record.label == REFERENCE or record.entry.reference_row):
            proofs.append(_NOT_COMPARED)
    # A proof that was broken off must not hide the proof of another repeat.
    shown = [proof for proof in proofs if proof.cause is None] or proofs
    proof = _together(shown)
    verdict, reason = _verdict(records, shown, proof)
    shows_none = first.entry.reference_row or (first.status != "ok" and verdict != "different")
    known_to_differ = any(record.verdict == "different" for record in records)
    return Work(
        verdict=None if shows_none else verdict,
        reason=reason,
        proof=proof,
        unproven_repeats=sum(proof.verdict == "unverified" and not proof.impossible for proof in proofs),
        found_to_differ=proof is not None and proof.verdict == "different" and not known_to_differ,
    )


def _together(proofs: Sequence[CellProof]) -> CellProof | None:
    """Return the proofs of several repeats as one, with the worst verdict; None without proofs."""
    if not proofs:
        return None
    # Each repeat compares other environments, until all were compared.
    covered = sum([proof.environments for proof in proofs])
    worst = max(proofs, key=lambda proof: BEST_FIRST.index(proof.verdict))
    counts = ("rows", "ends", "steps", "of_steps", "seconds")
    return replace(
        worst,
        environments=min(covered, max(proof.num_envs for proof in proofs) or covered),
        invalid=next((proof.invalid for proof in proofs if proof.invalid), None),
        costs=tuple(cost for proof in proofs for cost in proof.costs),
        **{name: sum([getattr(proof, name) for proof in proofs]) for name in counts},
    )


def _verdict(
    records: Sequence[CellRecord], proofs: Sequence[CellProof], proof: CellProof | None
) -> tuple[WorkVerdict, str]:
    """Return the verdict on the work of a cell, and its reason or source.

    A difference found in the cell overrides the earlier verdict. Otherwise, a long proof replaces only ``unverified``.
    """
    each: list[tuple[WorkVerdict, str]] = [(one.verdict or "unverified", one.verdict_reason) for one in records]
    known = max(each, key=lambda work: BEST_FIRST.index(work[0]))
    if proof is None:
        return known
    if proof.verdict == "different":
        return "different", f"in the measured cell: {proof_difference(proof)}"
    # One process must have shown enough of its environments. Other processes have other environments.
    ends, steps = 3, 5000
    enough = any(one.rows > 0 and (one.ends >= ends or one.steps >= steps) for one in proofs)
    several = "" if proof.environments == 1 else "s"
    seen = f"{proof.rows:,} rows of {proof.environments} environment{several}"
    if known[0] == "unverified" and proof.verdict in SAME and enough:
        return proof.verdict, f"seen in the measured cell: {seen}"
    if known == ("unverified", "") and proof.verdict in SAME:
        return "unverified", f"too few ends of episodes in {seen} that were compared"
    return known


def proof_difference(proof: CellProof) -> str:
    """Return the difference that a proof found, in words."""
    first = "" if proof.mismatch is None else f"first at {proof.mismatch.words}"
    return "; ".join(filter(None, (proof.fault, first))) or "rows differ"


def why_not_same(proof: CellProof) -> str | None:
    """Return why a proof does not show that the work is the same; None if it shows this."""
    return proof_difference(proof) if proof.verdict == "different" else proof.reason
