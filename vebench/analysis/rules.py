"""The findings: when each applies to a cell, a machine or a run, its message, and its remedy. Pure functions.

Each rule is an ``if`` and a ``Finding``. Unknown facts cause no finding. JSON and CSV list the findings of a cell in
the order of the functions in ``of_cell``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import ceil, log
from typing import NamedTuple

from vebench.analysis.cell import NO_REASON, CellSummary, Code, Exclusion, Finding, base_of
from vebench.analysis.statistics import Contrast, Sample, contrast, estimate, slower
from vebench.analysis.unevenness import cheaper
from vebench.analysis.windows import DRIFT, trend
from vebench.backends import bracketed
from vebench.backends.environments.suites import DRIFTING_ENGINES, SUITES, library_of
from vebench.backends.packages import Package, how_to_install
from vebench.backends.registry import BY_NAME, CEILING, NULL, REFERENCE, Standing
from vebench.child.answers import TAKEN_SHARE
from vebench.machine.host import MEBIBYTE, grouped
from vebench.plan.cells import CellKey
from vebench.plan.verdicts import ENOUGH_STEPS, SAME
from vebench.results.records import HostRecord, Run, RunRecord
from vebench.results.store import LOG_SUFFIX

# A step takes at least this share of the bare simulator's CPU time. It is below 1, because caches, resets and clock
# speeds differ.
LEAST_CPU_TIME = 2 / 3
# With fewer windows, Student's quantile makes intervals too wide. It is 3.18 for four windows, 4.30 for three and 12.7
# for two. Fewer passes are enough if many cells together show how processes vary.
_ENOUGH = 4
WIDE = 0.2
UNUSABLE_ABOVE = 0.5  # a run is unusable if a larger share of its cells was disturbed or throttled
# Patterns in the reason of a failure, each with its remedy; the first match counts.
_WAYS_OUT = {
    r"Too many open files": "allow more open files (ulimit -n 65536), or measure fewer environments",
    r"Resource temporarily|start new thread": "allow more processes (ulimit -u), or measure fewer environments",
    r"RESOURCE_EXHAUSTED|OutOfMemory|Unable to allocate": "measure fewer environments, or a shorter rollout",
    r"ended by SIGKILL": "find why memory grows (finding leak), or measure fewer environments",
    r"TypeError.*'Setup'": "write an adapter such as docs/examples/threads.py",
    r"daemonic processes": "choose a backend without workers, start a child by subprocess, or train with daemon=False",
    r"(in (a|each|one|the same)|per) process": (
        "measure a backend with a process for each environment (run compares rows up to one environment for each CPU)"
    ),
    r"its results vary": "make reset(seed=) seed all generators that it draws from",
    r"timed out .*(while it was built|in reset)": "if a fork lost a lock or thread, give -b NAME[context=spawn]",
    r"(Assertion|Index|Key|Value)Error.*, in step": (
        "if only some actions are legal, give --policy MODULE:FUNCTION (a wrapper can show it a mask of infos)"
    ),
}


class Ageing(NamedTuple):
    """The change of a rate with the number of steps that an environment has made."""

    slope: float  # the slope of log rates over log steps
    words: str  # the amount by which the environment slows down or speeds up


def ageing(cells: Iterable[CellSummary]) -> Ageing | None:
    """Return how the rate of similar cells changes with the steps of an environment; None without a clear change."""
    aged = tuple(each for cell in cells if not cell.conditions.disturbed for each in cell.figures.stability.aged)
    slope, ages = trend(aged), [age for _, points in aged for age in points[:, 0].tolist()]
    if slope is None or min(slope.chance_above(1.0), slope.chance_below(1.0)) > 0.005:  # noqa: PLR2004 - the one-sided level of the test
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
        loops = grouped((cell for cell in self.cells if cell.label == REFERENCE), lambda cell: cell.env)
        return {cells[0].env: found for cells in loops if (found := ageing(cells)) is not None}

    @cached_property
    def above_ceiling(self) -> frozenset[CellKey]:
        """The cells that seem significantly faster than the bare simulator."""
        return _slower({key: (bare.sample, self.by_key[key].sample) for key, bare in self.ceilings.items()})

    @cached_property
    def below_simulator(self) -> frozenset[CellKey]:
        """The cells whose steps take significantly less than ``LEAST_CPU_TIME`` of the bare simulator's CPU time."""
        tests = {
            key: (bare.by_cpu_time, self.by_key[key].by_cpu_time)
            for key, bare in self.ceilings.items()
            # The cell itself may be disturbed, because unknown processes that work for it count as a disturbance.
            if not bare.conditions.disturbed
        }
        found = _slower(tests, LEAST_CPU_TIME)
        # If even the plain loop takes less CPU time than the simulator, the ceiling was disturbed.
        slow = {key.env for key in found if key.backend == REFERENCE}
        return frozenset(key for key in found if key.env not in slow)

    @cached_property
    def below_loop(self) -> frozenset[CellKey]:
        """The cells that are significantly slower than a plain loop with one worker."""
        tests = {}
        for cell in self.cells:
            if cell.speedup is not None and not cell.reference_row and cell.label != REFERENCE:
                tests[cell.key] = cell.sample, self.by_key[base_of(cell.key)].sample
        return _slower(tests)

    @cached_property
    def ceilings(self) -> Mapping[CellKey, CellSummary]:
        """The bare simulator on the same CPUs, by the key of each cell that can be compared with it."""
        found = {}
        for cell in self.cells:
            bare = self.by_key.get(cell.key._replace(backend=CEILING))
            comparable = not cell.reference_row and cell.exclusion in (None, Exclusion.ABOVE_CEILING)
            if comparable and bare is not None and not bare.exclusion:
                found[cell.key] = bare
        return found


def _slower(tests: Mapping[CellKey, tuple[Sample, Sample]], low: float = 1.0) -> frozenset[CellKey]:
    """Return the keys whose first sample is significantly below ``low`` times the second. All are tested together."""
    ratios = {}
    for key, (one, against) in tests.items():
        if one.measurable and against.measurable:
            # A cell at least as fast in the same passes cannot be significantly slower. Skip the test, but count it in
            # the Holm correction.
            as_fast = one.passes == against.passes and one.level >= low * against.level
            ratios[key] = None if as_fast else contrast([(1.0, one), (-1.0, against)])
    return slower(ratios, low)


def of_cell(cell: CellSummary, sweep: Sweep) -> tuple[Finding, ...]:
    """Return the findings on ``cell``, which belongs to the sweep."""
    rules = (_outcome, _work, _precision, _speed, _versions, _contention, _placement, _loop_cost, _stability, _memory)
    return tuple(chain.from_iterable(rule(cell, sweep) for rule in rules))


def _outcome(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    reason = cell.reason or NO_REASON
    if cell.faulty_repeats:
        loop = sweep.by_key.get(base_of(cell.key))
        whose = ""
        if loop is not None and loop.faulty_repeats and loop.status == "failed":
            whose = "the plain loop fails: it is the environment, not a backend; "
        log = f"see {sweep.file}{LOG_SUFFIX} for its output, if any"
        remedy = f"{whose}{way_out(reason)}{log}; after fixing the problem, measure it again with: {sweep.resume}"
        yield Finding(Code.FAILED, f"{_of_passes(cell.faulty_repeats, cell)}{reason}", remedy)
    elif cell.failed_repeats:
        message = f"{_of_passes(cell.failed_repeats, cell)}{cell.reason}"
        yield Finding(Code.INCOMPLETE, message, f"measure it again with: {sweep.resume}")
    if cell.status == "skipped":
        yield Finding(Code.SKIPPED, reason, Code.SKIPPED.remedy)


def _of_passes(number: int, cell: CellSummary) -> str:
    return f"{number} of {cell.repeats} passes: " if cell.repeats > 1 else ""


def way_out(reason: str) -> str:
    """Return the known remedy for a failure with this reason, followed by ``; ``; empty if there is none."""
    return next((f"{way}; " for pattern, way in _WAYS_OUT.items() if re.search(pattern, reason)), "")


def _work(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    proof, head = cell.work.proof, sweep.head
    # A backend of the registry is compared together with all others.
    labels = () if cell.label in BY_NAME else (cell.label,)
    if cell.exclusion is Exclusion.OTHER_WORK:
        verify = head.verify_command(cell.env, labels)
        if cell.work.found_to_differ and proof is not None:  # the backend must be stepped again to show the fault
            steps = () if proof.mismatch is None else ("--steps", str(proof.mismatch.step + 100))
            verify = head.verify_command(cell.env, [cell.label], "--num-envs", str(cell.built.num_envs), *steps)
        message = f"not the same work as {REFERENCE}: {cell.work.reason or 'rows differ'}; excluded from comparisons"
        remedy = f"leave it out with -b, choose another task, or look for the fault with: {verify}"
        yield Finding(Code.DIFFERENT_WORK, message, remedy)
    if cell.status == "ok" and cell.verdict == "unverified":
        reason = cell.work.reason
        # Verdicts on a user's own code are not kept for later runs.
        again = "measure with --verify, or " if ":" in bracketed.name_and_values(cell.env)[0] else ""
        remedy = f"{again}compare it with: {head.verify_command(cell.env, labels)}"
        if reason and proof is not None and proof.verdict in SAME:
            remedy = f"measure with a longer --duration, or {remedy}"
        elif reason:
            remedy = f"{way_out(reason)}choose a task on which it can be compared, or compare its rows yourself"
        message = f"it is unknown whether it does the same work as {REFERENCE}: {reason or 'not compared'}"
        yield Finding(Code.UNVERIFIED, message, remedy)
    unproven = cell.work.unproven_repeats if cell.status == "ok" else 0
    # A proof that decides nothing may have a reason that the verdict does not give.
    if unproven and proof is not None and proof.verdict != "different" and proof.reason != cell.work.reason:
        repeats = _of_passes(unproven, cell)
        message = f"{repeats}the rows recorded while it was measured were not compared: {proof.reason or NO_REASON}"
        remedy = f"{way_out(proof.reason or '')}start a new run: --resume does not repeat cells that succeeded"
        yield Finding(Code.UNVERIFIED, message, remedy)
    if proof is not None and proof.invalid is not None:
        message = f"the environment returns invalid values, with every backend: {proof.invalid}"
        yield Finding(Code.INVALID_VALUES, message, Code.INVALID_VALUES.remedy)


def _precision(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    if cell.status != "ok":
        return
    found, sample, spec = cell.sample.alone, cell.sample, sweep.head.spec
    seen = len(sample.rates)
    least_freedom = 2
    few = found is not None and found.error.freedom < least_freedom
    if found is None or (sample.one_process and sample.pool is None):
        few = seen < _ENOUGH
    if few:
        what = "passes" if seen > 1 and cell.repeats - cell.failed_repeats > 1 else "windows"
        remedy = f"measure with --{what} {_ENOUGH} or more"
        if cell.repeats < spec.passes:
            remedy = f"continue with: {sweep.resume}"
        elif what == "windows" and spec.windows >= _ENOUGH:
            remedy = "measure again"
        yield Finding(Code.IMPRECISE, f"too few {what} for a good interval: {seen}", remedy)
    known = estimate(sample)
    half = None if known is None else known.half_width  # without the spread of runs, so further passes narrow it
    asked = spec.until
    slowed = cell.conditions.disturbed or cell.conditions.throttled_windows > 0
    if half is not None and half > WIDE and asked is None and not (slowed or few):
        message = f"the interval is wider than ±{WIDE:.0%}: the rate is only a rough estimate"
        yield Finding(Code.IMPRECISE, message, Code.IMPRECISE.remedy)
    if asked is not None and (half is None or half > asked):
        message = f"the interval was still wider than ±{100 * asked:.3g}% when the time was up (--until)"
        remedy = f"measure with a larger --budget, on an idle machine, or continue with: {sweep.resume}"
        yield Finding(Code.IMPRECISE, message, remedy)


def _speed(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    if cell.key in sweep.above_ceiling:
        message = "significantly faster than the bare simulator: it does less work, or the ceiling was disturbed"
        yield Finding(Code.ABOVE_CEILING, message, Code.ABOVE_CEILING.remedy)
    elif cell.key in sweep.below_simulator:
        message = f"a step takes significantly less than {LEAST_CPU_TIME:.0%} of the bare simulator's CPU time: "
        message += "it does less work, processes that are not its own do it, or the ceiling was disturbed"
        yield Finding(Code.BELOW_SIMULATOR, message, Code.BELOW_SIMULATOR.remedy)
    if cell.key in sweep.below_loop:
        # If each environment has a process, more environments do not give a process more work.
        more = "" if cell.entry.steppers == "process each" else ", or try a larger --envs-per-worker"
        yield Finding(Code.SLOWER, "slower than a plain Python loop with one worker", f"use {REFERENCE} here{more}")
    if cell.figures.recompiled:
        message = f"compiles while it is measured, in {cell.figures.recompiled} of {cell.conditions.windows} windows"
        yield Finding(Code.RECOMPILED, message, Code.RECOMPILED.remedy)
    if words := cheaper(cell.work.proof):
        yield Finding(Code.CHEAPER_STEPS, f"its batches hold cheaper steps: {words}", Code.CHEAPER_STEPS.remedy)


def _versions(cell: CellSummary, _: Sweep) -> Iterator[Finding]:
    if cell.status != "ok":
        return
    unlike = [one for one in cell.built.engines if one.unlike and (one.elsewhere or one.name in DRIFTING_ENGINES)]
    if unlike:
        drifts = any(one.name in DRIFTING_ENGINES for one in unlike)
        message = f"{'; '.join(one.words for one in unlike)}{': not the same simulation' if drifts else ''}"
        ways = [f"install {x.matching} in {x.within}" if x.elsewhere else f"pip install {x.matching}" for x in unlike]
        yield Finding(Code.OTHER_PACKAGES, message, " and ".join(ways))
    own = cell.built.own_classes
    if own is not None and own.refused:
        message = f"used Gymnasium's class instead of its own: {own.refused}"
        yield Finding(Code.FALLBACK, message, own.remedy or "leave it out with -b")


def _contention(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    conditions, owned = cell.conditions, cell.cpus_owned
    cpus = "its 1 CPU" if owned == 1 else f"its {owned} CPUs"
    loop = sweep.by_key.get(base_of(cell.key))
    timed = loop.built.timed if loop is not None else None
    if cell.env in sweep.head.spec.waiting or (timed is not None and timed.waits):
        few = cell.entry.at_work(cell.built.processes, cell.built.threads, cell.built.options) < cell.built.batch_size
        if few and cell.status == "ok" and cell.entry.steppers not in ("caller", "process each"):
            message = "steps wait, but only a part of a batch is stepped at the same time"
            yield Finding(Code.WAITING, message, Code.WAITING.remedy)
    elif conditions.oversubscribed and cell.status != "skipped":
        what = "workers" if cell.workers > owned else "processes or threads"
        remedy = f"measure with --workers up to {owned}, a smaller --envs-per-worker, or on more CPUs"
        yield Finding(Code.OVERSUBSCRIBED, f"more {what} than {cpus}", remedy)
    if conditions.throttled_windows:
        message = "throttled by the container's CPU quota; throttled windows are left out if others remain"
        yield Finding(Code.THROTTLED, message, Code.THROTTLED.remedy)
    if conditions.disturbed:
        takers = {"other processes": conditions.others_share, "the hypervisor": conditions.stolen_share}
        culprits = [name for name, share in takers.items() if share > TAKEN_SHARE / 2]
        hosts = dict.fromkeys(share.host for share in conditions.hosts if share.disturbed)
        whose = f"the time of the CPUs of {' and '.join(hosts)}" if hosts else "its CPUs' time"
        message = f"{' and '.join(culprits) or 'others'} took over {TAKEN_SHARE:.0%} of {whose}"
        yield Finding(Code.DISTURBED, message, Code.DISTURBED.remedy)
    if cell.exclusion is Exclusion.CONTESTED:
        message = "its processes busy-wait, and others used the same CPUs: its rate is excluded from comparisons"
        yield Finding(Code.POLLING, message, "measure on an idle machine, with no more --workers than CPUs")
    too_few_cpus = not conditions.strayed and cell.built.processes + 1 > owned  # the caller polls, too
    if cell.status == "ok" and not cell.exclusion and cell.entry.library.spins and too_few_cpus:
        message = "its processes or the caller busy-wait and outnumber their CPUs: this is the worst case"
        yield Finding(Code.POLLING, message, "measure with fewer --workers than CPUs and --pin none")


def _placement(cell: CellSummary, _: Sweep) -> Iterator[Finding]:
    conditions, entry = cell.conditions, cell.entry
    if conditions.strayed:
        message = f"ran on CPUs other than its own{'; excluded from comparisons' if cell.exclusion else ''}"
        yield Finding(Code.UNPINNED, message, "measure on a system that can set CPU affinity, or pass --pin none")
    if conditions.unbound is not None:
        message = f"its memory could not be bound to nodes: {conditions.unbound}; it was allocated by first touch"
        remedy = "allow the container set_mempolicy (Docker: --cap-add SYS_NICE), or leave out mem of --pin"
        yield Finding(Code.UNPINNED, message, remedy)
    if conditions.priorities:
        message = f"changed the priority of its threads to {', '.join(conditions.priorities)}"
        yield Finding(Code.PRIORITY, message, Code.PRIORITY.remedy)
    # W processes with W threads each are W x W threads on W CPUs (pytorch/rl #1325). Only processes that step
    # Gymnasium's environments are checked, because EnvPool needs threads that wait and distribute work.
    in_threads = entry.steppers == "threads" or cell.built.threads > 1
    batched = cell.built.batched or library_of(cell.env) is not None  # its library may have threads
    excused = in_threads or batched or cell.reference_row or "spares" in cell.built.options
    in_processes = entry.steps_gymnasium and not excused
    if in_processes and conditions.most_threads > 1 and cell.status == "ok":
        message = "its processes have extra threads: a library has started threads of its own"
        yield Finding(Code.EXTRA_THREADS, message, Code.EXTRA_THREADS.remedy)


def _loop_cost(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    remedy = Code.LOOP_COST.remedy
    loop, batch = cell.loop_ns_per_batch, cell.figures.ns_per_batch
    most_ns = 1_000
    if loop is not None and loop.median > most_ns:
        yield Finding(Code.LOOP_COST, "the measuring loop itself costs over 1 microsecond per batch", remedy)
    null = sweep.by_key.get(cell.key._replace(backend=NULL))
    of_null = None if null is None or null is cell else null.figures.ns_per_batch
    if of_null is None or batch is None:
        return
    # The share is rounded down to one of these, so that similar cells have the same finding.
    if share := max((each for each in (0.01, 0.1) if of_null.median > each * batch.median), default=0.0):
        yield Finding(Code.LOOP_COST, f"the measuring loop itself takes over {share:.0%} of the time", remedy)


def _stability(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    steady, conditions = cell.figures.stability, cell.conditions
    plain = sweep.ageing.get(cell.env)
    own = plain if cell.label == REFERENCE or plain is None else ageing([cell])
    if plain is not None and own is not None and plain.slope * own.slope > 0:
        yield Finding(Code.AGEING, f"{plain.words} of the plain loop", Code.AGEING.remedy)
    elif steady.drifts:
        verb, how = "falls", "on a cooler or idle machine"
        if steady.drift > 0:
            verb, how = "rises", "with a longer warm-up (--warmup 1s)"
        message = f"the rate {verb} significantly, by more than {DRIFT:.0%} from the first window to the last"
        yield Finding(Code.DRIFTING, message, f"measure {how}; the median of these windows is not a steady rate")
    elif steady.unsettled and not (conditions.disturbed or conditions.throttled_windows):
        share = f" in {steady.unsettled} of {cell.repeats} passes" if cell.repeats > 1 else ""
        message = f"the rate had not settled when warm-up reached its limit{share}"
        remedy = "measure with a longer warm-up (--warmup 1s); on a busy machine the rate may never settle"
        yield Finding(Code.DRIFTING, message, remedy)
    enough_batches = 30
    few = steady.fewest_batches is not None and steady.fewest_batches < enough_batches
    if few and not cell.reference_row:  # a batch of the ceiling is many steps
        message = f"windows have fewer than {enough_batches} batches"
        yield Finding(Code.SHORT_WINDOWS, message, Code.SHORT_WINDOWS.remedy)
    if steady.outliers:
        what = "1 window is an outlier" if steady.outliers == 1 else f"{steady.outliers} windows are outliers"
        yield Finding(Code.OUTLIERS, f"{what}; kept, and included in the interval", Code.OUTLIERS.remedy)
    # The lengths of episodes and resets belong to the task: the smallest plain loop shows them best.
    loops = [one for one in sweep.cells if (one.env, one.label) == (cell.env, REFERENCE) and one.sample.measurable]
    base = min(loops, key=lambda one: (one.workers, one.envs_per_worker), default=cell)
    loop = base.figures.stability
    steps = cell.figures.rows - cell.figures.resets
    steps_of_each = steps / max(1, cell.built.num_envs) / max(1, cell.sample.processes)  # environment, in one pass
    # If resets take much time, a pass should hold this many episodes of each environment. With fewer, or while
    # environments that began together still end together, intervals hold too rarely (docs/evidence/simulations.md).
    episodes, much = 5, 0.02
    if cell.status == "ok" and loop.reset_share > much and steps_of_each < episodes * loop.episode:
        longer = episodes / max(steps_of_each / loop.episode, 1 / episodes)
        takes = f"{'' if loop.ended else 'may '}take {loop.reset_share:.0%}"
        message = f"resets {takes} of the time, and windows hold too few of them"
        yield Finding(Code.FEW_RESETS, message, f"measure with --duration {ceil(sweep.head.spec.duration * longer)}")
    batched = any(SUITES[suite].make_vec for suite in cell.entry.scope.suites or ())
    if batched and base is not cell and not loop.ended and loop.episode > ENOUGH_STEPS:
        message = f"no episode ended in {loop.episode:,.0f} steps of {REFERENCE}: the rate has no resets"
        yield Finding(Code.NO_RESETS, message, Code.NO_RESETS.remedy)


def _memory(cell: CellSummary, sweep: Sweep) -> Iterator[Finding]:
    growth = cell.figures.growth
    # A gate fails for a leak, so false alarms must be rare: at most one in a thousand runs.
    if growth is not None and growth.chance <= 0.001 / len(sweep.cells) and not cell.reference_row:
        low, high = growth.bytes_per_step.low or 0.0, growth.bytes_per_step.high or 0.0
        message = f"memory grows by {growth.bytes_per_step.median:,.0f} bytes a step ({low:,.0f} to {high:,.0f})"
        yield Finding(Code.LEAK, message, Code.LEAK.remedy)


@dataclass(frozen=True)
class Surroundings:
    """The current state of the machine. None: unknown."""

    others_share: float | None = None  # the share of the allowed CPUs' time that other processes use
    shared_memory_bytes: int | None = None  # free memory in /dev/shm
    missing: tuple[Package, ...] | None = None  # packages that some backends need and that are not installed
    standings: tuple[Standing, ...] = ()  # the tasks that backends with their own environment classes step here


def of_host(host: HostRecord, now: Surroundings) -> Iterator[Finding]:
    """Yield the findings on a machine. The most costly finding comes first."""
    yield from quota(host)
    reported, enough_memory = 0.05, 128 * MEBIBYTE  # a container has 64 MiB of shared memory by default
    if now.others_share is not None and now.others_share > reported:
        message = f"other processes use {now.others_share:.0%} of the allowed CPUs' time"
        yield Finding(Code.DISTURBED, message, "end them, or wait until they finish")
    if now.shared_memory_bytes is not None and now.shared_memory_bytes < enough_memory:
        message = f"only {now.shared_memory_bytes // MEBIBYTE} MiB of /dev/shm are free for shared memory"
        yield Finding(Code.MEMORY, message, Code.MEMORY.remedy)
    if host.governor is not None and set(host.governor.split(", ")) != {"performance"}:
        message = f"the frequency governor is {host.governor}: clock speeds, and so the rates, follow the load"
        yield Finding(Code.CLOCKS, message, "as root: cpupower frequency-set -g performance")
    if host.boost:
        message = "boost is on: cores run faster when few are busy, so efficiency falls with workers"
        remedy = "leave it on to measure what users get; to compare machines, turn it off (firmware or sysfs)"
        yield Finding(Code.CLOCKS, message, remedy)
    if host.topology.threads_per_core > 1 and host.smt is not False:
        message = f"each core runs {host.topology.threads_per_core} threads: workers beyond the cores share them"
        remedy = "measure up to the number of cores, or with --pin 'compact[smt=off]'"
        yield Finding(Code.OVERSUBSCRIBED, message, remedy)
    if host.virtual:
        message = "this is a virtual machine: other machines may use its CPUs and change the rates"
        yield Finding(Code.VIRTUAL_MACHINE, message, Code.VIRTUAL_MACHINE.remedy)
    if now.missing:
        names = ", ".join(package.name for package in now.missing)
        yield Finding(Code.SKIPPED, f"not installed: {names}", how_to_install(now.missing))
    yield from own_classes(now.standings)


def quota(host: HostRecord) -> Iterator[Finding]:
    """Yield a finding if the quota is less than the allowed CPUs, because workers may then be throttled."""
    allowed = len(host.cpus_allowed)
    if host.quota_cpus is not None and host.quota_cpus < allowed:
        where = f" ({host.quota_source})" if host.quota_source else ""
        message = f"a CPU quota of {host.quota_cpus:g}{where} limits work on the {allowed} allowed CPUs"
        remedy = f"measure with --workers up to {host.usable_cpus}, or give the container its own CPUs (--cpuset-cpus)"
        yield Finding(Code.THROTTLED, message, remedy)


def own_classes(standings: Iterable[Standing]) -> Iterator[Finding]:
    """Yield each finding on backends' own environment classes that cannot be used here."""
    found: dict[Finding, None] = {}
    for backends, _, _, own in standings:
        if own.refused:
            message = f"{', '.join(backends)} will use Gymnasium's class: {own.refused}"
            found[Finding(Code.FALLBACK, message, own.remedy or "leave them out with -b")] = None
    yield from found


def of_run(run: Run, cells: Sequence[CellSummary], file: str = "FILE") -> tuple[Finding, ...]:
    """Return the findings on the run as a whole, given its cells, and on its file ``file``."""
    found = [unusable(cells), *quota(run.header.host)]
    pins = run.header.spec.pin.pins
    if not pins or not run.header.host.pinning:
        remedy = "measure on Linux, which can set CPU affinity" if pins else "measure without --pin none"
        found.append(Finding(Code.UNPINNED, "cells were not pinned: cells with few workers could use all CPUs", remedy))
    found.append(incomplete(run, file))
    remedy = f"measure the cell of this line again with: {run.header.resume_command(file)}"
    found += [Finding(Code.INCOMPLETE, note, remedy) for note in run.notes]
    return tuple(finding for finding in found if finding is not None)


def unusable(cells: Sequence[CellSummary]) -> Finding | None:
    """Return a finding if most cells of a run, including reference rows, were disturbed or throttled."""
    measured = [cell.conditions for cell in cells if cell.conditions.windows]
    disturbed = sum(one.disturbed for one in measured)
    throttled = sum(one.throttled for one in measured)
    bad = sum(one.disturbed or one.throttled for one in measured)
    if bad <= UNUSABLE_ABOVE * len(measured):
        return None
    count = f"{bad} of {len(measured)} cell{'' if len(measured) == 1 else 's'}"
    if not throttled:
        return Finding(Code.UNUSABLE, f"other processes disturbed {count}", "measure on an idle machine")
    culprits = "other processes or a CPU quota" if disturbed else "a CPU quota"
    return Finding(Code.UNUSABLE, f"{culprits} slowed {count}", "measure on more CPUs, or with fewer --workers")


def incomplete(run: Run, file: str) -> Finding | None:
    """Return a finding if planned cells are missing from the file, or were broken off."""
    there, planned = sum(not cell.broken_off for cell in run.cells), run.header.cells
    if planned is None or there >= planned:
        return None
    remedy = f"measure the rest with: {run.header.resume_command(file)}"
    return Finding(Code.INCOMPLETE, f"{there} of {planned} cells", remedy)
