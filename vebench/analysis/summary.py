"""From raw windows to what each cell of a run achieved: rates, speedup, efficiency, and whether its work is the same.

Pure functions. Which windows count is decided in ``windows.py``.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING

from vebench.analysis.cell import Built, CellSummary, Conditions, Exclusion, Figures, Work, base_of
from vebench.analysis.pooling import pooled
from vebench.analysis.rules import Sweep, of_cell
from vebench.analysis.statistics import Estimate, Sample, estimate, estimate_of_rate, ratio
from vebench.analysis.windows import acting, all_of, batch_sizes, disturbed, learning, stability, that_count
from vebench.backends.registry import NULL, REFERENCE, YARDSTICK
from vebench.child.answers import CellProof
from vebench.machine.sysfs import ranges
from vebench.plan.spec import PASSES_OF_ALL
from vebench.plan.verdicts import BEST_FIRST, SAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal

    from vebench.analysis.statistics import Counts
    from vebench.analysis.windows import Counting
    from vebench.child.answers import WorkVerdict
    from vebench.child.window import Window
    from vebench.plan.cells import CellKey
    from vebench.results.records import CellRecord, Run, RunRecord

_NANO = 1e-9
_NOT_COMPARED = CellProof("unverified", reason="the run ended before it was compared")
# A proof in the cell is a verdict if none was known and each environment has ended this often or made this many steps.
_ENOUGH_ENDS, _ENOUGH_STEPS = 3, 5000
# To stop as soon as an interval looks narrow favours those that are narrow by chance. After this many processes that
# costs little: docs/method.md has how much.
FEWEST_PROCESSES = 5


def summarise(run: Run, file: str = "FILE") -> tuple[CellSummary, ...]:
    """Return every cell of ``run``, which is in ``file``, with its findings, in the order in which they appear."""
    measured = _measured(run)
    rated = _rated(measured, run.header)
    sweep = Sweep(tuple(rated.values()), run.header, file)
    conditions = {key: cell.condition for key, cell in rated.items()}
    by_cpu_time, batches = (
        pooled({key: _sample(measured[key][1], counts) for key in rated}, conditions)
        for counts in (_frames_by_cpu_time, _times_by_batch)
    )
    cells = {}
    for key, cell in rated.items():
        speedup, ceiling = _speedup(cell, rated), sweep.ceiling_of(cell)
        frames_per_second = estimate_of_rate(cell.sample)
        steps_per_second = frames_per_second
        if cell.built.frame_skip != 1:
            steps_per_second = estimate_of_rate(cell.sample.scaled(1 / cell.built.frame_skip))
        records, counted = measured[key]
        well = [window for record in _well(records) for window in record.windows]
        counting = [window for _, windows in counted for window in windows]
        startups = [record.startup_ns * _NANO for record in records if record.startup_ns is not None]
        learner = None if cell.reference_row else run.header.spec.learner
        figures = Figures(
            rows=sum([window.rows for window in well]),
            resets=sum([window.resets for window in well]),
            startup_seconds=median(startups) if startups else None,
            peak_rss_bytes=max((r.peak_rss_bytes for r in records if r.peak_rss_bytes is not None), default=None),
            steps_per_second=steps_per_second,
            frames_per_second=frames_per_second,
            frames_per_cpu_second=estimate_of_rate(by_cpu_time[key]),
            ns_per_batch=estimate_of_rate(batches[key]),
            speedup=speedup,
            efficiency=speedup and speedup.scaled(1 / cell.built.cpus_owned),
            of_ceiling=None if ceiling is None else ratio(cell.sample, ceiling.sample),
            stability=stability(records, _observed(counted, run.header)),
            acting=acting(counting),
            batch_sizes=batch_sizes(counting),
            learning=learning(learner, steps_per_second, cell.built.batch_size),
        )
        cells[key] = replace(cell, by_cpu_time=by_cpu_time[key], figures=figures)
    sweep = Sweep(tuple(cells.values()), run.header, file)
    return tuple(replace(cell, findings=of_cell(cell, sweep)) for cell in sweep.cells)


def _speedup(cell: CellSummary, cells: Mapping[CellKey, CellSummary]) -> Estimate | None:
    base = cells.get(base_of(cell.key))
    if base is None or cell.excluded or base.excluded:
        return None
    if cell is base:
        rates = cell.sample.rates
        return Estimate(1.0, 1.0, 1.0) if rates and median(rates) > 0 else None
    return None if cell.backend in (NULL, YARDSTICK) else ratio(cell.sample, base.sample)


def rated(run: Run) -> tuple[CellSummary, ...]:
    """Return every cell of ``run`` with its sample and exclusion, for histories: no figures, no findings.

    This takes a fraction of the time of ``summarise``.
    """
    return tuple(_rated(_measured(run), run.header).values())


def _measured(run: Run) -> dict[CellKey, tuple[list[CellRecord], Counting]]:
    return {key: (records, that_count(records)) for key, records in by_cell(run).items()}


def _observed(counted: Counting, header: RunRecord) -> Counting:
    """Return the windows of each process. In a comparison windows are short, so return them as one."""
    if header.interpreter is None or len(counted) == 1:
        return counted
    return [(record, [all_of(windows)] if windows else []) for record, windows in counted]


def _rated(
    measured: Mapping[CellKey, tuple[list[CellRecord], Counting]], header: RunRecord
) -> dict[CellKey, CellSummary]:
    cells = {key: _cell(records, counted, header) for key, (records, counted) in measured.items()}
    samples = {key: _sample(counted, _frames) for key, (_, counted) in measured.items()}
    frames = pooled(samples, {key: cell.condition for key, cell in cells.items()})
    for key, cell in cells.items():
        cells[key] = replace(cell, sample=frames[key])
    for key in Sweep(tuple(cells.values()), header, "").above_ceiling:
        if cells[key].label != REFERENCE:  # if the reference is above the ceiling, the ceiling was disturbed
            cells[key] = replace(cells[key], excluded_for=Exclusion.ABOVE_CEILING)
    return cells


def by_cell(run: Run) -> dict[CellKey, list[CellRecord]]:
    """Return the records of each cell by its key without a repeat, but those that were ended and measured again."""
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
    return _sample(that_count(records), _frames)


def batch_times(records: Sequence[CellRecord]) -> Sample:
    """Return the wall time from one batch to the next in nanoseconds, given all repeats of a cell and nothing else."""
    return _sample(that_count(records), _times_by_batch)


def _frames(record: CellRecord, windows: Sequence[Window]) -> list[Counts]:
    return [((one.rows - one.resets) * record.frame_skip, one.ns * _NANO) for one in windows]


def _frames_by_cpu_time(record: CellRecord, windows: Sequence[Window]) -> list[Counts]:
    return [((one.rows - one.resets) * record.frame_skip, one.cpu_ns * _NANO) for one in windows if one.cpu_ns]


def _times_by_batch(record: CellRecord, windows: Sequence[Window]) -> list[Counts]:
    # Where batches differ in size, windows count them.
    return [(one.ns, one.batches or one.rows / record.batch_size) for one in windows if one.batches or one.rows]


def _sample(counted: Counting, counts: Callable[[CellRecord, Sequence[Window]], list[Counts]]) -> Sample:
    return Sample.of({record.repeat: counts(record, windows) for record, windows in counted})


def _well(records: Sequence[CellRecord]) -> list[CellRecord]:
    return [record for record in records if record.status == "ok"]


def _usable(records: Sequence[CellRecord], header: RunRecord) -> int:
    """Return how many CPUs a cell could have: with replicas on other hosts, each of these has its own."""
    hosts, here = header.hosts, header.host.usable_cpus
    there = [hosts[name].machine.usable_cpus if name in hosts else here for name in records[0].replica_hosts]
    return sum(there) or here


def _cell(records: Sequence[CellRecord], counted: Counting, header: RunRecord) -> CellSummary:
    """Return a cell without its rates."""
    failed = [record for record in records if record.status == "failed"]
    faulty = [record for record in failed if not record.interrupted]
    first = (_well(records) or failed or records)[0]
    usable = _usable(records, header)
    built = Built(
        choice=first.choice,
        num_envs=first.num_envs,
        batch_size=first.batch_size,
        processes=first.processes,
        threads=first.threads,
        cpus=first.cpus,
        cpus_owned=max(1, min(len(first.cpus), first.workers, usable)),
        frame_skip=first.frame_skip,
        replicas=max(1, len(first.replicas)),
        differences=first.differences,
        engines=first.engines,
        own_classes=first.own_classes,
    )
    cell = CellSummary(
        key=first.key.without_repeat,
        status=first.status,
        reason=next((record.reason for record in (*faulty, *failed, *records) if record.reason is not None), None),
        repeats=len(records),
        failed_repeats=len(failed),
        faulty_repeats=len(faulty),
        built=built,
        work=_work(records, first, header),
        conditions=_conditions(records, built, counted, usable),
    )
    if cell.conditions.strayed and header.spec.pin.pins and header.host.pinning:
        return replace(cell, excluded_for=Exclusion.NOT_PINNED)
    contested = cell.conditions.disturbed or cell.conditions.throttled or cell.workers > usable
    return replace(cell, excluded_for=Exclusion.CONTESTED) if contested and cell.entry.library.spins else cell


def _conditions(records: Sequence[CellRecord], built: Built, counted: Counting, usable: int) -> Conditions:
    every = [(len(record.cpus), window) for record in _well(records) for window in record.windows]
    shaken = [(cpus, window) for cpus, window in every if not window.undisturbed(cpus)]
    span = sum([len(record.cpus) * sum([window.ns for window in windows]) for record, windows in counted])
    stolen = sum([window.steal_ns or 0 for _, windows in counted for window in windows])
    others = sum([window.others_ns or 0 for _, windows in counted for window in windows])
    hosts = tuple(share for record in records for share in record.hosts or ())
    at_work = built.choice.entry.at_work(built.processes, built.threads, built.choice.options)
    oversubscribed_by: Literal["workers", "threads"] | None = None
    if records[0].workers > usable:
        oversubscribed_by = "workers"
    elif at_work > built.cpus_owned:
        oversubscribed_by = "threads"
    return Conditions(
        windows=len(every),
        throttled_windows=sum([window.held_back for _, window in shaken]),
        disturbed_windows=sum([window.disturbed(cpus) for cpus, window in shaken]),
        # The loss of one host slows the replicas on all of them.
        disturbed=disturbed(counted) or any(host.disturbed for host in hosts),
        taken_is_known=any((one.steal_ns, one.others_ns) != (None, None) for _, each in counted for one in each),
        stolen_share=stolen / max(1, span),
        others_share=others / max(1, span),
        strayed=any(map(_strayed, records)),
        oversubscribed_by=oversubscribed_by,
        unbound=next((record.unbound for record in records if record.unbound), None),
        most_threads=max((len(threads) for record in records for threads in record.seats or ()), default=0),
        priorities=tuple(dict.fromkeys(each for record in records for each in record.priorities)),
        hosts=hosts,
    )


def _strayed(record: CellRecord) -> bool:
    """Return whether a process or thread could run elsewhere than on the CPUs owned, as far as was read back."""
    owned = set(record.cpus)
    if record.affinity is not None and set(record.affinity) != owned:
        return True
    seats = {thread for threads in record.seats or () for thread in threads}
    return any(not owned.issuperset(part) for thread in seats for part in ranges(thread))


def wide_cells(run: Run, until: float) -> frozenset[CellKey]:
    """Return the keys, without repeats, of all cells whose interval is not within ``until`` of its level yet."""
    return frozenset(
        cell.key
        for cell in rated(run)
        if cell.sample.processes < FEWEST_PROCESSES
        or (half := (estimate(cell.sample) or Estimate(0.0)).half_width) is None
        or half > until
    )


def next_repeats(run: Run) -> dict[CellKey, int]:
    """Return the number of the next repeat of every cell whose last one went well, or was ended and is the next."""
    last = [max(records, key=attrgetter("repeat")) for records in by_cell(run).values()]
    again = {record.key.without_repeat: record.repeat for record in last if record.interrupted}
    return again | {record.key.without_repeat: record.repeat + 1 for record in last if record.status == "ok"}


def _work(records: Sequence[CellRecord], first: CellRecord, header: RunRecord) -> Work:
    proves = header.spec.proof != "off"
    # The proofs of repeats that have one, or need one.
    proofs = [
        _counted_as_returned(record) or _NOT_COMPARED
        for record in records
        if record.proof is not None
        or (
            (proves and record.status == "ok" and record.repeat < PASSES_OF_ALL)
            and not (record.label == REFERENCE or record.entry.reference_row)
        )
    ]
    # A proof that was broken off does not hide what another repeat has shown.
    shown = [proof for proof in proofs if proof.cause is None] or proofs
    proof = _together(shown)
    verdict, reason = _verdict(records, shown, proof)
    shows_none = first.entry.reference_row or (first.status != "ok" and verdict != "different")
    return Work(
        verdict=None if shows_none else verdict,
        reason=reason,
        proof=proof,
        unproven_repeats=sum(proof.verdict == "unverified" and not proof.impossible for proof in proofs),
        known_to_differ=any(record.verdict == "different" for record in records),
    )


def _verdict(
    records: Sequence[CellRecord], proofs: Sequence[CellProof], proof: CellProof | None
) -> tuple[WorkVerdict, str]:
    """Return the verdict on the work of a cell, and why it is not plainly ``identical``, or where it comes from.

    Work that was seen to differ in the cell is different, whatever was known before. Work of which nothing was known
    is what it was seen to be in the cell, if enough was seen. Otherwise, what was known before counts.
    """
    each: list[tuple[WorkVerdict, str]] = [(one.verdict or "unverified", one.verdict_reason) for one in records]
    known = max(each, key=lambda work: BEST_FIRST.index(work[0]))
    if proof is None:
        return known
    if proof.verdict == "different":
        return "different", f"in the measured cell: {difference(proof)}"
    # Each environment of one process was seen for long enough; those of another are others.
    enough = any(one.rows > 0 and (one.ends >= _ENOUGH_ENDS or one.steps >= _ENOUGH_STEPS) for one in proofs)
    if known[0] == "unverified" and proof.verdict in SAME and enough:
        return proof.verdict, f"seen in the measured cell: {steps(proof)}"
    if known == ("unverified", "") and proof.verdict in SAME:
        return "unverified", f"too few ends of episodes in {steps(proof)} that were compared"
    return known


def steps(proof: CellProof) -> str:
    """Describe how much a proof covers."""
    environments = f"{proof.environments} environment{'s' * (proof.environments != 1)}"
    if proof.environments < proof.num_envs:
        environments = f"{proof.environments} of {proof.num_envs} environments"
    whole = "all" if proof.steps >= proof.of_steps else f"{proof.steps:,} of"
    return f"{proof.rows:,} rows of {environments} over {whole} {proof.of_steps:,} steps"


def difference(proof: CellProof) -> str:
    """Describe the difference that a proof has found."""
    where, found = "", proof.mismatch
    if found is not None:
        at = f"environment {found.env_id} after {found.step:,} steps"
        where = f"{found.place} of {at} are {found.found} instead of {found.expected}"
    return "; ".join(filter(None, (proof.fault, where))) or "rows differ"


def why_not_same(proof: CellProof) -> str | None:
    """Return why a proof does not show that the work is the same, None if it does."""
    return difference(proof) if proof.verdict == "different" else proof.reason


def _counted_as_returned(record: CellRecord) -> CellProof | None:
    """Return the proof of a cell: ``different`` if its windows count other rows than were seen while it was measured.

    The windows of replicas are put together from those of each, of which one is compared.
    """
    proof, rows = record.proof, sum(window.rows for window in record.windows)
    if proof is None or record.replicas or proof.timed_rows in (0, rows) or proof.verdict == "different":
        return proof
    fault = f"rows were counted but not returned: {rows:,} in windows with {proof.timed_rows:,}"
    return replace(proof, verdict="different", fault=fault)


def _together(proofs: Sequence[CellProof]) -> CellProof | None:
    """Return the proofs of several repeats as one, with the worst verdict; None if there is none."""
    if not proofs:
        return None
    if len(proofs) == 1:
        return proofs[0]
    # Each repeat takes other environments, as long as there are any.
    covered = sum([proof.environments for proof in proofs])
    worst = max(proofs, key=lambda proof: BEST_FIRST.index(proof.verdict))
    return replace(
        worst,
        rows=sum([proof.rows for proof in proofs]),
        ends=sum([proof.ends for proof in proofs]),
        environments=min(covered, max(proof.num_envs for proof in proofs) or covered),
        steps=sum([proof.steps for proof in proofs]),
        of_steps=sum([proof.of_steps for proof in proofs]),
        timed_rows=sum([proof.timed_rows for proof in proofs]),
        seconds=sum([proof.seconds for proof in proofs]),
        invalid=next((proof.invalid for proof in proofs if proof.invalid), None),
    )
