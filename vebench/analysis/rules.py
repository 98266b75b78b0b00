"""The findings on cells and runs: how they ended, how they were measured, what the machine did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, log
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.cell import CellSummary, Exclusion, base_of, curves, of_key
from vebench.analysis.findings import GRAVEST_FIRST, NO_REASON, Code, Finding, quota, way_out
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Contrast, contrast, estimate, verdicts
from vebench.analysis.windows import DRIFT, trend
from vebench.backends.bracketed import written
from vebench.backends.environments.suites import DRIFTING_ENGINES
from vebench.backends.registry import BY_NAME, CEILING, NULL, REFERENCE
from vebench.child.window import TAKEN_SHARE
from vebench.plan.spec import UNTIL_BUDGET
from vebench.plan.tasks import recorded_task
from vebench.results.paths import LOG_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.statistics import Sample
    from vebench.plan.cells import CellKey
    from vebench.results.records import Run, RunRecord

    Size = tuple[int, int]

_VERIFIED_ENVS, _VERIFIED_STEPS = 2, 400  # what vebench verify covers in any case
# With fewer windows, Student's quantile alone makes intervals too wide: it is 3.18 for four windows, 4.30 for three and
# 12.7 for two. Fewer repeats are enough where many cells together show how processes vary.
ENOUGH = 4
_LEAST_FREEDOM = 2
WIDE = 0.2
_FEWEST_BATCHES = 30
_LOOP_LIMIT_NS = 1_000
# Rounded to these values, so that cells with similar shares have the same finding.
_LOOP_SHARES = (0.01, 0.1)
_RANGE_LENGTH = 3
# The episodes of each environment that a pass should hold where resets take more than this share of the time. With
# fewer, or while environments that began together still end together, intervals hold too rarely (docs/method.md).
_ENOUGH_EPISODES, _RESETS_MATTER = 5, 0.02
# A step takes this share of the bare simulator's CPU time at least: caches and resets differ, and CPUs' speeds change.
LEAST_CPU_TIME = 2 / 3
# A run is unusable if a larger share of its cells was disturbed or throttled.
UNUSABLE_ABOVE = 0.5
_AGEING_LEVEL = 0.005  # one-sided, of the plain loop's trend


class Ageing(NamedTuple):
    """How a rate changes with the steps of an environment: the slope of logarithms, and the ages that it is from."""

    slope: Contrast
    first: float
    last: float

    @property
    def words(self) -> str:
        """By how much the environment slows down, or speeds up."""
        span = log(self.last / self.first)
        change = Contrast(self.slope.log * span, self.slope.error.times(span**2)).estimate
        middle, *ends = (f"{value - 1:+.0%}" for value in (change.median, change.low or 0.0, change.high or 0.0))
        verb = "slows down" if self.slope.log < 0 else "speeds up"
        return f"the environment {verb}: {middle} ({' to '.join(ends)}) from step {self.first:,.0f} to {self.last:,.0f}"


def ageing(cells: Iterable[CellSummary]) -> Ageing | None:
    """Return how the rate of similar cells changes with the steps of an environment, None if it does not."""
    aged = tuple(each for cell in cells if not cell.conditions.disturbed for each in cell.figures.stability.aged)
    slope, ages = trend(aged), [age for _, points in aged for age, _ in points]
    if slope is None or min(slope.chance_above(1.0), slope.chance_below(1.0)) > _AGEING_LEVEL:
        return None
    found = Ageing(slope, min(ages), max(ages))
    return found if abs(slope.log) * log(found.last / found.first) > log(1 + DRIFT) else None


@dataclass(frozen=True)
class Sweep:
    """All cells of a run, its header, and the name of the run file, which remedies quote."""

    cells: tuple[CellSummary, ...]
    head: RunRecord
    file: str
    _ratios: dict[tuple[CellKey, CellKey], Contrast | None] = field(default_factory=dict)

    @cached_property
    def by_key(self) -> Mapping[CellKey, CellSummary]:
        """All cells by their keys."""
        return {cell.key: cell for cell in self.cells}

    @cached_property
    def resume(self) -> str:
        """The command that goes on with the run."""
        return self.head.resume_command(self.file)

    def all_fail(self, env: str) -> bool:
        """Return whether several backends were to step a task, the reference among them, and all have failed."""
        cells = [cell for cell in self.cells if cell.env == env and not cell.reference_row and cell.status != "skipped"]
        labels = {cell.label for cell in cells if cell.faulty_repeats and cell.status == "failed"}
        return len(labels) > 1 and REFERENCE in labels and labels == {cell.label for cell in cells}

    @cached_property
    def ageing(self) -> Mapping[str, Ageing]:
        """The tasks whose environments change with the steps that they have made, as the plain loop shows."""
        loops = [cell for cell in self.cells if cell.label == REFERENCE]
        by_env = {env: ageing(one for one in loops if one.env == env) for env in {cell.env for cell in loops}}
        return {env: found for env, found in by_env.items() if found is not None}

    def ratio(self, cell: CellSummary, other: CellSummary) -> Contrast | None:
        """Return the rate of ``cell`` over another's, None if one has no interval. It is computed once."""
        if (cell.key, other.key) not in self._ratios:
            self._ratios[cell.key, other.key] = contrast([(1.0, cell.sample), (-1.0, other.sample)])
        return self._ratios[cell.key, other.key]

    @cached_property
    def above_ceiling(self) -> frozenset[CellKey]:
        """The cells that seem significantly faster than the bare simulator."""
        above = {}
        for cell in self.cells:
            bare = self.ceiling_of(cell)
            if bare is not None and (found := self.ratio(cell, bare)) is not None:
                above[cell.key] = found.inverse
        return frozenset(key for key, verdict in verdicts(above).items() if verdict == "slower")

    @cached_property
    def below_simulator(self) -> frozenset[CellKey]:
        """The cells whose steps take significantly less than ``LEAST_CPU_TIME`` of the bare simulator's CPU time."""
        found = _slower(
            (cell.key, bare.key, bare.by_cpu_time.scaled(1 / LEAST_CPU_TIME), cell.by_cpu_time)
            for cell in self.cells
            # The cell may be disturbed: processes that work for it count as others.
            if (bare := self.ceiling_of(cell)) and not bare.conditions.disturbed
        )
        slow = {
            key.env for key in found if key.backend == REFERENCE
        }  # if even the loop is below, the ceiling was disturbed
        return frozenset(key for key in found if key.env not in slow)

    def ceiling_of(self, cell: CellSummary) -> CellSummary | None:
        """Return the bare simulator on the same CPUs, None if the cell is not compared with it, or both are not."""
        if cell.reference_row or cell.exclusion not in (None, Exclusion.ABOVE_CEILING):
            return None
        bare = self.by_key.get(cell.key.beside(CEILING, cell.workers))
        return None if bare is None or bare.excluded else bare

    @cached_property
    def below_loop(self) -> frozenset[CellKey]:
        """The cells that are significantly slower than a plain loop with one worker."""
        speedups = {
            cell.key: found
            for cell in self.cells
            if cell.speedup is not None and not cell.reference_row and cell.label != REFERENCE
            if (found := self.ratio(cell, self.by_key[base_of(cell.key)])) is not None
        }
        return frozenset(key for key, verdict in verdicts(speedups).items() if verdict == "slower")

    @cached_property
    def retrograde(self) -> frozenset[CellKey]:
        """The cells that are significantly slower than with fewer workers, although each worker has a CPU."""
        by_curve = {of_key(curve[0].key): curve for curve in curves(self.cells)}
        return _slower(
            (cell.key, fewer.key, cell.sample, fewer.sample)
            for cell in self.cells
            if cell.built.processes * cell.built.threads > 1
            if not (cell.reference_row or cell.conditions.oversubscribed)
            for fewer in by_curve[of_key(cell.key)]
            if fewer.workers < cell.workers
        )


def _slower(tests: Iterable[tuple[CellKey, CellKey, Sample, Sample]]) -> frozenset[CellKey]:
    """Return the first key of each test whose first sample is slower than its second; all are tested together.

    The second key tells apart several tests of one cell.
    """
    ratios = {}
    for key, other, one, against in tests:
        if one.measurable and against.measurable:
            # A cell at least as fast in the same passes cannot be significantly slower. Skip the test, but count it in
            # the Holm correction.
            as_fast = one.passes == against.passes and one.level >= against.level
            ratios[key, other] = None if as_fast else contrast([(1.0, one), (-1.0, against)])
    judged = verdicts(ratios)
    return frozenset(key for (key, _), verdict in judged.items() if verdict == "slower")


def of_cell(cell: CellSummary, sweep: Sweep) -> tuple[Finding, ...]:
    """Return the findings on ``cell``, one of the sweep's, in the order in which JSON and CSV list them."""
    rules = (_outcome, _work, _precision, _speed, _machine, _places_and_threads, _loop_cost, _course)
    return tuple(finding for rule in rules for finding in rule(cell, sweep))


def _outcome(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    if cell.failed_repeats:
        share = f"{cell.faulty_repeats or cell.failed_repeats} of {cell.repeats} passes: " if cell.repeats > 1 else ""
        again = f"measure it again with: {sweep.head.resume_command(sweep.file)}"
        if cell.faulty_repeats:
            reason, forks = (
                cell.reason or NO_REASON,
                "context" in cell.entry.options and "context" not in cell.built.choice.options,
            )
            spawned = written(cell.backend, {**cell.built.choice.options, "context": "spawn"}) if forks else ""
            whose = "all backends fail: it is the environment, not a backend; " if sweep.all_fail(cell.env) else ""
            see = f"see {sweep.file}{LOG_SUFFIX} for its output, if any; after fixing the problem, {again}"
            yield Finding(Code.FAILED, share + reason, whose + way_out(reason, spawned) + see)
        else:
            yield Finding(Code.INCOMPLETE, f"{share}interrupted by the user", again)
    if cell.status == "skipped":
        remedy = "provide what is missing, or leave it out with -b and --workers"
        yield Finding(Code.SKIPPED, cell.reason or NO_REASON, remedy)


def _work(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    # A backend of the table is compared together with all others.
    verify = ""
    if cell.verdict in ("different", "unverified"):
        verify = sweep.head.verify_command(cell.env, () if cell.label in BY_NAME else [cell.label])
    if cell.exclusion == Exclusion.OTHER_WORK:
        message = f"not the same work as {REFERENCE}: {cell.work.reason or 'rows differ'}; excluded from comparisons"
        again = f"see where with: {verify}"
        if (
            cell.work.found_to_differ and cell.work.proof is not None
        ):  # stepping the backend shows more than a recording
            options = ["--num-envs", str(cell.built.num_envs)] if cell.built.num_envs > _VERIFIED_ENVS else []
            if cell.work.proof.mismatch is not None and cell.work.proof.mismatch.step > _VERIFIED_STEPS:
                options += ["--steps", str(cell.work.proof.mismatch.step + 100)]
            command = sweep.head.verify_command(cell.env, [cell.label], *options)
            again = f"look for the fault with: {command}"
        yield Finding(Code.DIFFERENT_WORK, message, f"leave it out with -b, choose another task, or {again}")
    if cell.verdict == "unverified" and cell.status == "ok":
        reason, seen = (
            cell.work.reason or why_never(cell, sweep.head),
            cell.work.proof is not None and cell.work.proof.rows,
        )
        message = f"its work could not be compared with that of {REFERENCE}: {reason}"
        remedy = "choose a task on which it can be compared, or compare its rows yourself"
        if seen or not reason:
            message = f"it is unknown whether it does the same work as {REFERENCE}: {reason or 'not compared'}"
            remedy = f"{'' if sweep.head.interpreter else 'measure with --verify, or '}compare it with: {verify}"
        yield Finding(Code.UNVERIFIED, message, remedy)
    if cell.work.proof is None:
        return
    if cell.status == "ok" and cell.work.unproven_repeats and cell.work.proof.verdict != "different":
        share = f"{cell.work.unproven_repeats} of {cell.repeats} passes: " if cell.repeats > 1 else ""
        message = (
            f"{share}the rows recorded while it was measured were not compared: {cell.work.proof.reason or NO_REASON}"
        )
        remedy = "if you need this proof, start a new run: --resume does not repeat cells that succeeded"
        yield Finding(Code.UNVERIFIED, message, remedy)
    if cell.work.proof.invalid is not None:
        message = f"the environment returns invalid values, with every backend: {cell.work.proof.invalid}"
        remedy = "fix the environment, or the spaces that it declares"
        yield Finding(Code.INVALID_VALUES, message, remedy)


def why_never(cell: CellSummary, head: RunRecord) -> str | None:
    """Return why rows of a cell's backend cannot be compared with the reference's, None if they can."""
    task = recorded_task(cell.env, cell.built.frame_skip, head.spec.envs)
    return cell.entry.scope.chance(replace(task, exact=True))


def _precision(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    spec, seen = sweep.head.spec, len(cell.sample.rates)
    half = known.half_width if (known := estimate(cell.sample)) else None  # of this run, which further passes narrow
    until = None if spec.until == UNTIL_BUDGET else spec.until
    found = cell.sample.alone
    if found is None or (cell.sample.one_process and cell.sample.spread is None):
        too_few = seen < ENOUGH
    else:
        too_few = found.error.freedom < _LEAST_FREEDOM
    if cell.status == "ok" and too_few:
        effect = "no interval" if seen < FEWEST_FOR_INTERVAL else "a poor interval"
        if cell.repeats - cell.failed_repeats > 1 and seen > 1:
            message = f"{seen} passes give {effect}: each pass is one observation"
            yield Finding(Code.IMPRECISE, message, f"measure with --passes {ENOUGH} or more")
        else:
            counted = "1 window gives" if seen == 1 else f"{seen or 'no'} windows give"
            more = "again" if spec.windows >= ENOUGH else f"with --windows {ENOUGH} or more"
            remedy = f"continue with: {sweep.resume}" if cell.repeats < spec.passes else f"measure {more}"
            yield Finding(Code.IMPRECISE, f"{counted} {effect}", remedy)
    elif (
        half is not None
        and half > WIDE
        and until is None
        and not cell.conditions.disturbed
        and not cell.conditions.throttled_windows
    ):
        message = f"the interval is wider than ±{WIDE:.0%}: the rate is only a rough estimate"
        remedy = "measure on an idle machine, with a longer --duration, more --windows or more --passes"
        yield Finding(Code.IMPRECISE, message, remedy)
    if cell.status == "ok" and until is not None and (half is None or half > until):
        message = f"the interval was still wider than ±{100 * until:.3g}% when the time was up (--until)"
        remedy = f"measure with a larger --budget, on an idle machine, or continue with: {sweep.resume}"
        yield Finding(Code.IMPRECISE, message, remedy)


def _speed(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    if cell.key in sweep.above_ceiling:
        yield Finding(
            Code.ABOVE_CEILING,
            "significantly faster than the bare simulator: it does less work, or the ceiling was disturbed",
            "do not trust it: measure again with more --windows, and check that it resets finished environments",
        )
    elif cell.key in sweep.below_simulator:
        yield Finding(
            Code.BELOW_SIMULATOR,
            f"a step takes significantly less than {LEAST_CPU_TIME:.0%} of the bare simulator's CPU time: it does less "
            "work, processes that are not its own do it, or the ceiling was disturbed",
            "do not trust it: measure again with more --windows, and look for processes that it does not start itself",
        )
    if cell.key in sweep.below_loop:
        # More environments for each worker are then more processes, not more work for each of them.
        more_work = "" if cell.entry.process_per_environment else ", or try a larger --envs-per-worker"
        remedy = f"use {REFERENCE} here{more_work}"
        yield Finding(Code.SLOWER, "slower than a plain Python loop with one worker", remedy)
    if cell.key in sweep.retrograde:
        message = "slower than with fewer workers, although each worker has a CPU"
        remedy = "use fewer workers, or a larger --envs-per-worker"
        yield Finding(Code.SLOWER, message, remedy)
    if cell.status != "ok":
        return
    unlike = [engine for engine in cell.built.engines if engine.unlike]
    if diverging := [engine for engine in unlike if engine.name in DRIFTING_ENGINES]:
        words = "; ".join(engine.words for engine in diverging)
        remedy = " and ".join(
            f"install {engine.matching} in {engine.within}" if engine.elsewhere else f"pip install {engine.matching}"
            for engine in diverging
        )
        yield Finding(Code.OTHER_PACKAGES, f"{words}: not the same simulation", remedy)
    if others := [engine for engine in unlike if engine.elsewhere and engine not in diverging]:
        matching = " ".join(engine.matching for engine in others)
        message = "; ".join(engine.words for engine in others)
        yield Finding(Code.OTHER_PACKAGES, message, f"install {matching} there, if its library allows it")
    own = cell.built.own_classes
    if own is not None and own.refused:
        message = f"used Gymnasium's class instead of its own: {own.refused}"
        yield Finding(Code.FALLBACK, message, own.remedy or "leave it out with -b")


def _machine(cell: CellSummary, _sweep: Sweep) -> Iterator[Finding]:
    backend = cell.entry
    if cell.conditions.oversubscribed and cell.status != "skipped":
        cpus = f"its {cell.built.cpus_owned} CPU{'' if cell.built.cpus_owned == 1 else 's'}"
        if cell.conditions.oversubscribed_by == "threads":
            smaller = "with a smaller --envs-per-worker, or " if cell.envs_per_worker > 1 else ""
            message = f"more processes or threads than {cpus}"
            yield Finding(Code.OVERSUBSCRIBED, message, f"measure {smaller}on more CPUs")
        else:
            workers = "1" if cell.built.cpus_owned == 1 else f"1..{cell.built.cpus_owned}"
            remedy = f"measure with --workers {workers}, or on more CPUs"
            yield Finding(Code.OVERSUBSCRIBED, f"more workers than {cpus}", remedy)
    if cell.conditions.throttled_windows:
        message = "throttled by the container's CPU quota; throttled windows are left out if others remain"
        remedy = "give the container more CPUs (--cpus), or measure with fewer --workers"
        yield Finding(Code.THROTTLED, message, remedy)
    if cell.conditions.disturbed:
        # At least one of the two took that much.
        takers = [("other processes", cell.conditions.others_share), ("the hypervisor", cell.conditions.stolen_share)]
        culprits = " and ".join(name for name, share in takers if share > TAKEN_SHARE / 2) or "others"
        hosts = dict.fromkeys(share.host for share in cell.conditions.hosts if share.disturbed)
        whose = f"the time of the CPUs of {' and '.join(hosts)}" if hosts else "its CPUs' time"
        message = f"{culprits} took over {TAKEN_SHARE:.0%} of {whose}"
        yield Finding(Code.DISTURBED, message, "measure on an idle machine; vebench doctor shows the load of others")
    if cell.exclusion == Exclusion.CONTESTED:
        yield Finding(
            Code.POLLING,
            "its processes busy-wait, and other processes used the same CPUs: its rate is invalid and excluded from "
            "comparisons",
            "measure on an idle machine, with no more --workers than CPUs",
        )
    too_few_cpus = (
        not cell.conditions.strayed and cell.built.processes + 1 > cell.built.cpus_owned
    )  # the caller polls, too
    if cell.status == "ok" and not cell.excluded and backend.library.spins and too_few_cpus:
        yield Finding(
            Code.POLLING,
            "its processes or the caller busy-wait and outnumber their CPUs: this is the worst case, not the rate with "
            "a CPU for each",
            "measure with fewer --workers than CPUs and --pin none",
        )


def _places_and_threads(cell: CellSummary, _sweep: Sweep) -> Iterator[Finding]:
    if cell.conditions.strayed:
        message = f"ran on CPUs other than its own{'; excluded from comparisons' if cell.excluded else ''}"
        remedy = "measure on a system that can set CPU affinity, or pass --pin none"
        yield Finding(Code.UNPINNED, message, remedy)
    if cell.conditions.unbound is not None:
        message = f"its memory could not be bound to nodes: {cell.conditions.unbound}; it was allocated by first touch"
        remedy = "allow the container set_mempolicy (Docker: --cap-add SYS_NICE), or leave out mem of --pin"
        yield Finding(Code.UNPINNED, message, remedy)
    if cell.conditions.priorities:
        message = f"changed the priority of its threads to {', '.join(cell.conditions.priorities)}"
        remedy = "let it leave priorities as they are, or give all backends the same: nice -n N vebench ..."
        yield Finding(Code.PRIORITY, message, remedy)
    # W processes with W threads each are W x W threads on W CPUs (pytorch/rl #1325). Checked only for processes that
    # step Gymnasium's environments: EnvPool has threads that wait and distribute work.
    backend = cell.entry
    in_threads = backend.steppers == "threads" or cell.built.threads > 1
    in_processes = backend.steps_gymnasium and not in_threads and not cell.reference_row
    if in_processes and cell.conditions.most_threads > 1 and cell.status == "ok":
        message = "its processes have extra threads: a library has started threads of its own"
        remedy = "limit that library to one thread; OMP_NUM_THREADS and similar variables are already 1"
        yield Finding(Code.EXTRA_THREADS, message, remedy)


def _loop_cost(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    null = sweep.by_key.get(cell.key.beside(NULL, cell.workers))
    loop = None if null is None or cell.figures.ns_per_batch is None else null.figures.ns_per_batch
    if loop is not None and cell.figures.ns_per_batch is not None:
        remedy = "measure on an idle machine, or with a larger --envs-per-worker"
        shares = [share for share in _LOOP_SHARES if loop.median > share * cell.figures.ns_per_batch.median]
        if cell is null and loop.median > _LOOP_LIMIT_NS:
            message = f"the measuring loop itself costs over {_LOOP_LIMIT_NS / 1_000:g} microsecond per batch"
            yield Finding(Code.LOOP_COST, message, remedy)
        elif cell is not null and shares:
            yield Finding(Code.LOOP_COST, f"the measuring loop itself takes over {shares[-1]:.0%} of the time", remedy)


def _course(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    steady, aged = cell.figures.stability, sweep.ageing.get(cell.env)
    own = aged if aged is None or cell.label == REFERENCE else ageing([cell])
    if aged is not None and own is not None and aged.slope.log * own.slope.log > 0:
        remedy = "end what grows in the environment, or let it settle with a longer warm-up (--warmup 30s)"
        yield Finding(Code.AGEING, f"{aged.words} of the plain loop", remedy)
    elif steady.drifts:
        verb, how = "falls", "on a cooler or idle machine"
        if steady.drift > 0:
            verb, how = "rises", "with a longer warm-up (--warmup 1s)"
        message = f"the rate {verb} significantly, by more than {DRIFT:.0%} from the first window to the last"
        remedy = f"measure {how}; the median of these windows is not a steady rate"
        yield Finding(Code.DRIFTING, message, remedy)
    elif steady.unsettled and not cell.conditions.disturbed and not cell.conditions.throttled_windows:
        share = f" in {steady.unsettled} of {cell.repeats} passes" if cell.repeats > 1 else ""
        message = f"the rate had not settled when warm-up reached its limit{share}"
        remedy = "measure with a longer warm-up (--warmup 1s); on a busy machine the rate may never settle"
        yield Finding(Code.DRIFTING, message, remedy)
    if steady.fewest_batches is not None and steady.fewest_batches < _FEWEST_BATCHES:
        message = f"windows have fewer than {_FEWEST_BATCHES} batches"
        remedy = "measure with a longer --duration, or with fewer --workers or --envs-per-worker"
        yield Finding(Code.SHORT_WINDOWS, message, remedy)
    if steady.outliers:
        what = "1 window is an outlier" if steady.outliers == 1 else f"{steady.outliers} windows are outliers"
        message = f"{what}; kept, and included in the interval"
        remedy = "ignore a few; if there are many, look for other programs, timers or virtual machines"
        yield Finding(Code.OUTLIERS, message, remedy)
    yield from _episodes(cell, sweep)


def _episodes(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    """Yield a finding if resets take much of the time, and windows held few of them.

    The lengths of episodes and resets belong to the task. A plain loop of one environment shows them best.
    """
    loop = (sweep.by_key.get(base_of(cell.key)._replace(envs_per_worker=1)) or cell).figures.stability
    # Steps of each environment in a pass.
    steps = (cell.figures.rows - cell.figures.resets) / max(1, cell.built.num_envs) / max(1, cell.sample.processes)
    if loop.reset_share > _RESETS_MATTER and steps < _ENOUGH_EPISODES * loop.episode:
        seen = steps / loop.episode
        many = ceil(sweep.head.spec.duration * _ENOUGH_EPISODES / max(seen, 1 / _ENOUGH_EPISODES))
        most = "" if loop.ended else "may "
        message = f"resets {most}take {loop.reset_share:.0%} of the time, and windows hold too few of them"
        yield Finding(Code.FEW_RESETS, message, f"measure with --duration {many}")


def of_run(run: Run, cells: Sequence[CellSummary], file: str = "FILE") -> tuple[Finding, ...]:
    """Return the findings on the run as a whole, which has these cells, and on its file, named ``file``."""
    found = [unusable(cells), *quota(run.header.host)]
    pins = run.header.spec.pin.pins
    if not pins or not run.header.host.pinning:
        remedy = "measure on Linux, which can set CPU affinity" if pins else "measure without --pin none"
        message = "cells were not pinned: those with few workers could use all CPUs"
        found.append(Finding(Code.UNPINNED, message, remedy))
    found.append(incomplete(run, file))
    remedy = f"measure the cell of this line again with: {run.header.resume_command(file)}"
    found += [Finding(Code.INCOMPLETE, note, remedy) for note in run.notes]
    return tuple(finding for finding in found if finding is not None)


def unusable(cells: Sequence[CellSummary]) -> Finding | None:
    """Return a finding if most cells of a run, including reference rows, were disturbed or throttled."""
    measured = [cell for cell in cells if cell.conditions.windows]
    disturbed, throttled = (
        sum(cell.conditions.disturbed for cell in measured),
        sum(cell.conditions.throttled for cell in measured),
    )
    bad = sum(cell.conditions.disturbed or cell.conditions.throttled for cell in measured)
    if bad <= UNUSABLE_ABOVE * len(measured):
        return None
    count = f"{bad} of {len(measured)} cell{'s' * (len(measured) != 1)}"
    if not throttled:
        return Finding(Code.UNUSABLE, f"other processes disturbed {count}", "measure on an idle machine")
    culprits = "other processes or a CPU quota" if disturbed else "a CPU quota"
    return Finding(Code.UNUSABLE, f"{culprits} slowed {count}", "measure on more CPUs, or with fewer --workers")


def incomplete(run: Run, file: str) -> Finding | None:
    """Return a finding if planned cells are missing from the file, or were interrupted by the user."""
    there, planned = sum(not cell.interrupted for cell in run.cells), run.header.cells
    if planned is None or there >= planned:
        return None
    return Finding(
        Code.INCOMPLETE, f"{there} of {planned} cells", f"measure the rest with: {run.header.resume_command(file)}"
    )


@dataclass(frozen=True)
class Group:
    """A finding of several cells, named in ``places``: ``Ant-v5: gym-sync, gym-async at 4..256 workers``."""

    finding: Finding
    places: tuple[str, ...]


def grouped(cells: Sequence[CellSummary]) -> tuple[Group, ...]:
    """Return the findings of all cells, the gravest first, each once with the cells that it applies to."""
    groups: dict[Finding, list[CellSummary]] = {}
    swept: dict[str, tuple[set[str], set[Size]]] = {}
    for cell in cells:
        labels, of_env = swept.setdefault(cell.env, (set(), set()))
        labels.add(cell.label)
        of_env.add((cell.workers, cell.envs_per_worker))
        for finding in cell.findings:
            groups.setdefault(finding, []).append(cell)
    return tuple(
        Group(finding, _places(members, swept))
        for finding, members in sorted(groups.items(), key=lambda group: GRAVEST_FIRST.index(group[0].code))
    )


def _places(members: Sequence[CellSummary], swept: Mapping[str, tuple[set[str], set[Size]]]) -> tuple[str, ...]:
    """Describe some cells of those ``swept``: one line per task, or per group of tasks with the same members."""
    envs_by_text: dict[str, list[str]] = {}
    by_env: dict[str, dict[str, list[Size]]] = {}
    for cell in members:
        by_label = by_env.setdefault(cell.env, {})
        by_label.setdefault(cell.label, []).append((cell.workers, cell.envs_per_worker))
    for env, sizes_by_label in by_env.items():
        every, of_env = swept[env]
        labels_by_sizes: dict[str, list[str]] = {}
        for label, measured in sizes_by_label.items():
            labels_by_sizes.setdefault(sizes(measured, of_env), []).append(label)
        text = "; ".join(
            f"{'every backend' if len(labels) == len(every) > 1 else ', '.join(labels)} at {words}"
            for words, labels in labels_by_sizes.items()
        )
        envs_by_text.setdefault(text, []).append(env)
    return tuple(f"{', '.join(envs)}: {text}" for text, envs in envs_by_text.items())


def sizes(members: Iterable[Size], swept: Iterable[Size]) -> str:
    """Describe the sizes of some cells among all ``swept``: ``4..256 workers``, ``1, 4 workers x 16 envs``."""
    every_workers, every_envs = (sorted(set(counts)) for counts in zip(*swept, strict=True))
    workers_by_envs: dict[int, list[int]] = {}
    for workers, envs in sorted(set(members)):
        workers_by_envs.setdefault(envs, []).append(workers)
    envs_by_workers: dict[tuple[int, ...], list[int]] = {}
    for envs, counts in sorted(workers_by_envs.items()):
        envs_by_workers.setdefault(tuple(counts), []).append(envs)
    return " and ".join(
        _counted(list(counts), every_workers, "worker")
        + (f" x {_counted(envs, every_envs, 'env')}" if envs != every_envs else "")
        for counts, envs in envs_by_workers.items()
    )


def _counted(counts: list[int], swept: list[int], noun: str) -> str:
    """Return ``4..256 workers`` for a contiguous range of the counts swept, else ``1, 4 workers``."""
    first = swept.index(counts[0])
    if len(counts) >= _RANGE_LENGTH and swept[first : first + len(counts)] == counts:
        return f"{counts[0]}..{counts[-1]} {noun}s"
    return f"{', '.join(map(str, counts))} {noun}{'s' * (counts != [1])}"
