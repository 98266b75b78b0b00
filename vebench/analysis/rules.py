"""The table of findings: when each applies to a cell, a machine or a run, its message, and its remedy. Pure functions.

A rule returns the facts that its texts are formatted with, or None if it does not apply. Unknown facts cause no
finding. JSON and CSV list the findings of a cell in the order of the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.cell import LEAST_CPU_TIME, Exclusion, ageing, base_of
from vebench.analysis.findings import NO_REASON, Code, Finding
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, estimate
from vebench.analysis.windows import DRIFT
from vebench.backends.bracketed import written
from vebench.backends.environments.suites import DRIFTING_ENGINES
from vebench.backends.packages import how_to_install
from vebench.backends.registry import BY_NAME, NULL, REFERENCE
from vebench.child.answers import TAKEN_SHARE
from vebench.machine.host import MEBIBYTE
from vebench.machine.kernel import parse_list
from vebench.plan.spec import UNTIL_BUDGET
from vebench.plan.tasks import recorded_task
from vebench.results.store import LOG_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary, Sweep
    from vebench.backends.packages import Package
    from vebench.backends.registry import Standing
    from vebench.results.records import HostRecord, Run, RunRecord

    Facts = Mapping[str, object]
    Applies = Callable[[CellSummary, Sweep], Facts | None]

_VERIFIED_ENVS, _VERIFIED_STEPS = 2, 400  # vebench verify covers these in any case
# With fewer windows, Student's quantile alone makes intervals too wide: it is 3.18 for four windows, 4.30 for three and
# 12.7 for two. Fewer passes are enough where many cells together show how processes vary.
ENOUGH = 4
_LEAST_FREEDOM = 2
WIDE = 0.2
_FEWEST_BATCHES = 30
_LOOP_LIMIT_NS = 1_000
_LOOP_SHARES = (0.01, 0.1)  # shares are rounded to these, so that similar cells have the same finding
# The episodes of each environment that a pass should hold where resets take more than this share of the time. With
# fewer, or while environments that began together still end together, intervals hold too rarely (docs/method.md).
_ENOUGH_EPISODES, _RESETS_MATTER = 5, 0.02
UNUSABLE_ABOVE = 0.5  # a run is unusable if a larger share of its cells was disturbed or throttled
_LITTLE_SHARED_MEMORY = 128 * MEBIBYTE  # a container has 64 MiB unless it was given more
_OTHERS_SHARE = 0.05  # of the allowed CPUs' time
# Patterns in the reason of a failure, each with its remedy; the first match counts. {spawned} is the backend with
# processes that are spawned, not forked, if it has that option.
_WAYS_OUT = (
    (r"Too many open files", "allow more open files (ulimit -n 65536), or measure fewer environments"),
    (r"daemonic processes", "choose a backend without workers, or let the environment start its process by subprocess"),
    (r"in one process|per process", "choose a backend with a process for each environment"),
    (r"timed out .*(while it was built|in reset)", "if a thread or lock was lost in a fork, use -b '{spawned}'"),
    (r"(Assertion|Index|Key|Value)Error.*, in step", "if only some actions are legal, give --policy MODULE:FUNCTION"),
)


class Rule(NamedTuple):
    """A finding on cells."""

    code: Code
    applies: Applies
    message: str
    remedy: str


CELLS: list[Rule] = []  # filled below, in order


def _finding(code: Code, message: str, remedy: str) -> Callable[[Applies], Applies]:
    """Add a rule to the table: when the function below applies, and its texts, formatted with the facts it returns."""

    def add(applies: Applies) -> Applies:
        CELLS.append(Rule(code, applies, message, remedy))
        return applies

    return add


def _if(applies: bool) -> Facts | None:
    return {} if applies else None


def _of_passes(number: int, cell: CellSummary) -> str:
    return f"{number} of {cell.repeats} passes: " if cell.repeats > 1 else ""


def way_out(reason: str, spawned: str = "") -> str:
    """Return the remedy for this reason of a failure, followed by ``; ``. Empty if none is known."""
    for pattern, way in _WAYS_OUT:
        if re.search(pattern, reason) and (spawned or "{spawned}" not in way):
            return f"{way.format(spawned=spawned)}; "
    return ""


def _all_fail(env: str, sweep: Sweep) -> bool:
    """Return whether several backends were to step a task, the reference among them, and all have failed."""
    cells = [cell for cell in sweep.cells if cell.env == env and not cell.reference_row and cell.status != "skipped"]
    labels = {cell.label for cell in cells if cell.faulty_repeats and cell.status == "failed"}
    return len(labels) > 1 and REFERENCE in labels and labels == {cell.label for cell in cells}


@_finding(
    Code.FAILED,
    "{share}{reason}",
    "{whose}{way_out}see {log} for its output, if any; after fixing the problem, measure it again with: {resume}",
)
def _failed(cell: CellSummary, sweep: Sweep) -> Facts | None:
    if not cell.faulty_repeats:
        return None
    reason, options = cell.reason or NO_REASON, cell.built.choice.options
    forks = "context" in cell.entry.options and "context" not in options
    return {
        "share": _of_passes(cell.faulty_repeats, cell),
        "reason": reason,
        "whose": "all backends fail: it is the environment, not a backend; " if _all_fail(cell.env, sweep) else "",
        "way_out": way_out(reason, written(cell.backend, {**options, "context": "spawn"}) if forks else ""),
        "log": f"{sweep.file}{LOG_SUFFIX}",
        "resume": sweep.resume,
    }


@_finding(Code.INCOMPLETE, "{share}interrupted by the user", "measure it again with: {resume}")
def _interrupted(cell: CellSummary, sweep: Sweep) -> Facts | None:
    if not cell.failed_repeats or cell.faulty_repeats:
        return None
    return {"share": _of_passes(cell.failed_repeats, cell), "resume": sweep.resume}


@_finding(Code.SKIPPED, "{reason}", "provide what is missing, or leave it out with -b and --workers")
def _skipped(cell: CellSummary, _: Sweep) -> Facts | None:
    return {"reason": cell.reason or NO_REASON} if cell.status == "skipped" else None


def _verify(cell: CellSummary, sweep: Sweep) -> str:
    # A backend of the registry is compared together with all others.
    return sweep.head.verify_command(cell.env, () if cell.label in BY_NAME else [cell.label])


@_finding(
    Code.DIFFERENT_WORK,
    f"not the same work as {REFERENCE}: {{reason}}; excluded from comparisons",
    "leave it out with -b, choose another task, or {look}",
)
def _other_work(cell: CellSummary, sweep: Sweep) -> Facts | None:
    if cell.exclusion is not Exclusion.OTHER_WORK:
        return None
    look = f"see where with: {_verify(cell, sweep)}"
    proof, num_envs = cell.work.proof, cell.built.num_envs
    if cell.work.found_to_differ and proof is not None:  # stepping the backend shows more than the recorded rows
        options = ["--num-envs", str(num_envs)] if num_envs > _VERIFIED_ENVS else []
        if proof.mismatch is not None and proof.mismatch.step > _VERIFIED_STEPS:
            options += ["--steps", str(proof.mismatch.step + 100)]
        look = f"look for the fault with: {sweep.head.verify_command(cell.env, [cell.label], *options)}"
    return {"reason": cell.work.reason or "rows differ", "look": look}


def why_never(cell: CellSummary, head: RunRecord) -> str | None:
    """Return why rows of a cell's backend cannot be compared with the reference's, None if they can."""
    task = recorded_task(cell.env, cell.built.frame_skip, head.spec.envs)
    return cell.entry.scope.chance(replace(task, exact=True))


def _why_unverified(cell: CellSummary, sweep: Sweep) -> tuple[str | None, bool] | None:
    """Return the reason, and whether the work could be compared; None if it is verified."""
    if cell.verdict != "unverified" or cell.status != "ok":
        return None
    reason = cell.work.reason or why_never(cell, sweep.head)
    return reason, not reason or (cell.work.proof is not None and cell.work.proof.rows > 0)


@_finding(
    Code.UNVERIFIED,
    f"its work could not be compared with that of {REFERENCE}: {{reason}}",
    "choose a task on which it can be compared, or compare its rows yourself",
)
def _never_compared(cell: CellSummary, sweep: Sweep) -> Facts | None:
    found = _why_unverified(cell, sweep)
    return None if found is None or found[1] else {"reason": found[0]}


@_finding(
    Code.UNVERIFIED,
    f"it is unknown whether it does the same work as {REFERENCE}: {{reason}}",
    "{again}compare it with: {verify}",
)
def _not_compared(cell: CellSummary, sweep: Sweep) -> Facts | None:
    found = _why_unverified(cell, sweep)
    if found is None or not found[1]:
        return None
    again = "" if sweep.head.interpreter else "measure with --verify, or "
    return {"reason": found[0] or "not compared", "again": again, "verify": _verify(cell, sweep)}


@_finding(
    Code.UNVERIFIED,
    "{share}the rows recorded while it was measured were not compared: {reason}",
    "if you need this proof, start a new run: --resume does not repeat cells that succeeded",
)
def _unproven(cell: CellSummary, _: Sweep) -> Facts | None:
    proof = cell.work.proof
    if proof is None or cell.status != "ok" or not cell.work.unproven_repeats or proof.verdict == "different":
        return None
    return {"share": _of_passes(cell.work.unproven_repeats, cell), "reason": proof.reason or NO_REASON}


@_finding(
    Code.INVALID_VALUES,
    "the environment returns invalid values, with every backend: {invalid}",
    "fix the environment, or the spaces that it declares",
)
def _invalid(cell: CellSummary, _: Sweep) -> Facts | None:
    proof = cell.work.proof
    return None if proof is None or proof.invalid is None else {"invalid": proof.invalid}


def _has_too_few(cell: CellSummary) -> bool:
    found = cell.sample.alone
    if found is None or (cell.sample.one_process and cell.sample.pool is None):
        return cell.status == "ok" and len(cell.sample.rates) < ENOUGH
    return cell.status == "ok" and found.error.freedom < _LEAST_FREEDOM


@_finding(Code.IMPRECISE, "{what}", "{remedy}")
def _too_few(cell: CellSummary, sweep: Sweep) -> Facts | None:
    if not _has_too_few(cell):
        return None
    seen, spec = len(cell.sample.rates), sweep.head.spec
    effect = "no interval" if seen < FEWEST_FOR_INTERVAL else "a poor interval"
    if cell.repeats - cell.failed_repeats > 1 and seen > 1:
        what = f"{seen} passes give {effect}: each pass is one observation"
        return {"what": what, "remedy": f"measure with --passes {ENOUGH} or more"}
    counted = "1 window gives" if seen == 1 else f"{seen or 'no'} windows give"
    remedy = "measure again" if spec.windows >= ENOUGH else f"measure with --windows {ENOUGH} or more"
    if cell.repeats < spec.passes:
        remedy = f"continue with: {sweep.resume}"
    return {"what": f"{counted} {effect}", "remedy": remedy}


def _half_width_of_run(cell: CellSummary) -> float | None:
    """Return the half width of the interval of this run alone, which further passes narrow."""
    found = estimate(cell.sample)
    return None if found is None else found.half_width


@_finding(
    Code.IMPRECISE,
    f"the interval is wider than ±{WIDE:.0%}: the rate is only a rough estimate",
    "measure on an idle machine, with a longer --duration, more --windows or more --passes",
)
def _wide(cell: CellSummary, sweep: Sweep) -> Facts | None:
    conditions, half = cell.conditions, _half_width_of_run(cell)
    slowed = conditions.disturbed or conditions.throttled_windows > 0
    asked = sweep.head.spec.until not in (None, UNTIL_BUDGET)
    return _if(half is not None and half > WIDE and not (asked or slowed or _has_too_few(cell)))


@_finding(
    Code.IMPRECISE,
    "the interval was still wider than ±{until}% when the time was up (--until)",
    "measure with a larger --budget, on an idle machine, or continue with: {resume}",
)
def _wider_than_asked(cell: CellSummary, sweep: Sweep) -> Facts | None:
    until, half = sweep.head.spec.until, _half_width_of_run(cell)
    if cell.status != "ok" or until is None or until == UNTIL_BUDGET or (half is not None and half <= until):
        return None
    return {"until": f"{100 * until:.3g}", "resume": sweep.resume}


@_finding(
    Code.BELOW_SIMULATOR,
    f"a step takes significantly less than {LEAST_CPU_TIME:.0%} of the bare simulator's CPU time: it does less "
    "work, processes that are not its own do it, or the ceiling was disturbed",
    "do not trust it: measure again with more --windows, and look for processes that it does not start itself",
)
def _below_simulator(cell: CellSummary, sweep: Sweep) -> Facts | None:
    return _if(cell.key in sweep.below_simulator and cell.key not in sweep.above_ceiling)


@_finding(
    Code.ABOVE_CEILING,
    "significantly faster than the bare simulator: it does less work, or the ceiling was disturbed",
    "do not trust it: measure again with more --windows, and check that it resets finished environments",
)
def _above_ceiling(cell: CellSummary, sweep: Sweep) -> Facts | None:
    return _if(cell.key in sweep.above_ceiling)


@_finding(Code.SLOWER, "slower than a plain Python loop with one worker", f"use {REFERENCE} here{{more}}")
def _below_loop(cell: CellSummary, sweep: Sweep) -> Facts | None:
    if cell.key not in sweep.below_loop:
        return None
    # Where each environment has a process, more of them are more processes, not more work for each.
    return {"more": "" if cell.entry.process_per_environment else ", or try a larger --envs-per-worker"}


@_finding(
    Code.SLOWER,
    "slower than with fewer workers, although each worker has a CPU",
    "use fewer workers, or a larger --envs-per-worker",
)
def _retrograde(cell: CellSummary, sweep: Sweep) -> Facts | None:
    return _if(cell.key in sweep.retrograde)


@_finding(Code.OTHER_PACKAGES, "{engines}: not the same simulation", "{remedies}")
def _another_simulation(cell: CellSummary, _: Sweep) -> Facts | None:
    found = [one for one in cell.built.engines if one.unlike and one.name in DRIFTING_ENGINES]
    if cell.status != "ok" or not found:
        return None
    remedies = [
        f"install {one.matching} in {one.within}" if one.elsewhere else f"pip install {one.matching}" for one in found
    ]
    return {"engines": "; ".join(one.words for one in found), "remedies": " and ".join(remedies)}


@_finding(Code.OTHER_PACKAGES, "{engines}", "install {matching} there, if its library allows it")
def _other_packages(cell: CellSummary, _: Sweep) -> Facts | None:
    engines = (one for one in cell.built.engines if one.unlike and one.name not in DRIFTING_ENGINES)
    found = [one for one in engines if one.elsewhere]
    if cell.status != "ok" or not found:
        return None
    return {"engines": "; ".join(one.words for one in found), "matching": " ".join(one.matching for one in found)}


@_finding(Code.FALLBACK, "used Gymnasium's class instead of its own: {why}", "{remedy}")
def _fallback(cell: CellSummary, _: Sweep) -> Facts | None:
    own = cell.built.own_classes
    if cell.status != "ok" or own is None or not own.refused:
        return None
    return {"why": own.refused, "remedy": own.remedy or "leave it out with -b"}


@_finding(Code.OVERSUBSCRIBED, "more processes or threads than {cpus}", "measure {smaller}on more CPUs")
def _more_threads(cell: CellSummary, _: Sweep) -> Facts | None:
    if cell.conditions.oversubscribed_by != "threads" or cell.status == "skipped":
        return None
    smaller = "with a smaller --envs-per-worker, or " if cell.envs_per_worker > 1 else ""
    return {"cpus": _cpus_of(cell), "smaller": smaller}


@_finding(Code.OVERSUBSCRIBED, "more workers than {cpus}", "measure with --workers {workers}, or on more CPUs")
def _more_workers(cell: CellSummary, _: Sweep) -> Facts | None:
    if cell.conditions.oversubscribed_by != "workers" or cell.status == "skipped":
        return None
    owned = cell.built.cpus_owned
    return {"cpus": _cpus_of(cell), "workers": "1" if owned == 1 else f"1..{owned}"}


def _cpus_of(cell: CellSummary) -> str:
    return "its 1 CPU" if cell.built.cpus_owned == 1 else f"its {cell.built.cpus_owned} CPUs"


@_finding(
    Code.THROTTLED,
    "throttled by the container's CPU quota; throttled windows are left out if others remain",
    "give the container more CPUs (--cpus), or measure with fewer --workers",
)
def _throttled(cell: CellSummary, _: Sweep) -> Facts | None:
    return _if(cell.conditions.throttled_windows > 0)


@_finding(
    Code.DISTURBED,
    f"{{culprits}} took over {TAKEN_SHARE:.0%} of {{whose}}",
    "measure on an idle machine; vebench doctor shows the load of others",
)
def _disturbed(cell: CellSummary, _: Sweep) -> Facts | None:
    conditions = cell.conditions
    if not conditions.disturbed:
        return None
    takers = {"other processes": conditions.others_share, "the hypervisor": conditions.stolen_share}
    culprits = [name for name, share in takers.items() if share > TAKEN_SHARE / 2]  # one of the two took that much
    hosts = dict.fromkeys(share.host for share in conditions.hosts if share.disturbed)
    whose = f"the time of the CPUs of {' and '.join(hosts)}" if hosts else "its CPUs' time"
    return {"culprits": " and ".join(culprits) or "others", "whose": whose}


@_finding(
    Code.POLLING,
    "its processes busy-wait, and other processes used the same CPUs: its rate is invalid and excluded from "
    "comparisons",
    "measure on an idle machine, with no more --workers than CPUs",
)
def _contested(cell: CellSummary, _: Sweep) -> Facts | None:
    return _if(cell.exclusion is Exclusion.CONTESTED)


@_finding(
    Code.POLLING,
    "its processes or the caller busy-wait and outnumber their CPUs: this is the worst case, not the rate with a "
    "CPU for each",
    "measure with fewer --workers than CPUs and --pin none",
)
def _polls_too_many(cell: CellSummary, _: Sweep) -> Facts | None:
    too_few_cpus = not cell.conditions.strayed and cell.built.processes + 1 > cell.built.cpus_owned  # the caller polls
    return _if(cell.status == "ok" and not cell.excluded and cell.entry.library.spins and too_few_cpus)


@_finding(
    Code.UNPINNED,
    "ran on CPUs other than its own{so}",
    "measure on a system that can set CPU affinity, or pass --pin none",
)
def _strayed(cell: CellSummary, _: Sweep) -> Facts | None:
    return {"so": "; excluded from comparisons" if cell.excluded else ""} if cell.conditions.strayed else None


@_finding(
    Code.UNPINNED,
    "its memory could not be bound to nodes: {why}; it was allocated by first touch",
    "allow the container set_mempolicy (Docker: --cap-add SYS_NICE), or leave out mem of --pin",
)
def _unbound(cell: CellSummary, _: Sweep) -> Facts | None:
    return None if cell.conditions.unbound is None else {"why": cell.conditions.unbound}


@_finding(
    Code.PRIORITY,
    "changed the priority of its threads to {priorities}",
    "let it leave priorities as they are, or give all backends the same: nice -n N vebench ...",
)
def _priority(cell: CellSummary, _: Sweep) -> Facts | None:
    return {"priorities": ", ".join(cell.conditions.priorities)} if cell.conditions.priorities else None


@_finding(
    Code.EXTRA_THREADS,
    "its processes have extra threads: a library has started threads of its own",
    "limit that library to one thread; OMP_NUM_THREADS and similar variables are already 1",
)
def _extra_threads(cell: CellSummary, _: Sweep) -> Facts | None:
    # W processes with W threads each are W x W threads on W CPUs (pytorch/rl #1325). Checked only for processes that
    # step Gymnasium's environments: EnvPool has threads that wait and distribute work.
    entry = cell.entry
    in_threads = entry.steppers == "threads" or cell.built.threads > 1
    in_processes = entry.steps_gymnasium and not in_threads and not cell.reference_row
    return _if(in_processes and cell.conditions.most_threads > 1 and cell.status == "ok")


@_finding(
    Code.LOOP_COST,
    f"the measuring loop itself costs over {_LOOP_LIMIT_NS / 1_000:g} microsecond per batch",
    "measure on an idle machine, or with a larger --envs-per-worker",
)
def _slow_loop(cell: CellSummary, _: Sweep) -> Facts | None:
    loop = cell.loop_ns_per_batch
    return _if(loop is not None and loop.median > _LOOP_LIMIT_NS)


@_finding(
    Code.LOOP_COST,
    "the measuring loop itself takes over {share} of the time",
    "measure on an idle machine, or with a larger --envs-per-worker",
)
def _loop_share(cell: CellSummary, sweep: Sweep) -> Facts | None:
    null, batch = sweep.by_key.get(cell.key.beside(NULL, cell.workers)), cell.figures.ns_per_batch
    loop = None if null is None or null is cell else null.figures.ns_per_batch
    if loop is None or batch is None:
        return None
    shares = [share for share in _LOOP_SHARES if loop.median > share * batch.median]
    return {"share": f"{shares[-1]:.0%}"} if shares else None


@_finding(
    Code.AGEING,
    "{how} of the plain loop",
    "end what grows in the environment, or let it settle with a longer warm-up (--warmup 30s)",
)
def _ages(cell: CellSummary, sweep: Sweep) -> Facts | None:
    loop = sweep.ageing.get(cell.env)
    own = loop if cell.label == REFERENCE or loop is None else ageing([cell])
    if loop is None or own is None or loop.slope.log * own.slope.log <= 0:
        return None
    return {"how": loop.words}


@_finding(
    Code.DRIFTING,
    f"the rate {{verb}} significantly, by more than {DRIFT:.0%} from the first window to the last",
    "measure {how}; the median of these windows is not a steady rate",
)
def _drifts(cell: CellSummary, sweep: Sweep) -> Facts | None:
    steady = cell.figures.stability
    if not steady.drifts or _ages(cell, sweep):
        return None
    if steady.drift > 0:
        return {"verb": "rises", "how": "with a longer warm-up (--warmup 1s)"}
    return {"verb": "falls", "how": "on a cooler or idle machine"}


@_finding(
    Code.DRIFTING,
    "the rate had not settled when warm-up reached its limit{share}",
    "measure with a longer warm-up (--warmup 1s); on a busy machine the rate may never settle",
)
def _unsettled(cell: CellSummary, sweep: Sweep) -> Facts | None:
    steady, conditions = cell.figures.stability, cell.conditions
    if not steady.unsettled or steady.drifts or _ages(cell, sweep):
        return None
    if conditions.disturbed or conditions.throttled_windows:
        return None
    return {"share": f" in {steady.unsettled} of {cell.repeats} passes" if cell.repeats > 1 else ""}


@_finding(
    Code.SHORT_WINDOWS,
    f"windows have fewer than {_FEWEST_BATCHES} batches",
    "measure with a longer --duration, or with fewer --workers or --envs-per-worker",
)
def _short_windows(cell: CellSummary, _: Sweep) -> Facts | None:
    fewest = cell.figures.stability.fewest_batches
    return _if(fewest is not None and fewest < _FEWEST_BATCHES)


@_finding(
    Code.OUTLIERS,
    "{what}; kept, and included in the interval",
    "ignore a few; if there are many, look for other programs, timers or virtual machines",
)
def _outliers(cell: CellSummary, _: Sweep) -> Facts | None:
    number = cell.figures.stability.outliers
    return {"what": "1 window is an outlier" if number == 1 else f"{number} windows are outliers"} if number else None


@_finding(
    Code.FEW_RESETS,
    "resets {may}take {share} of the time, and windows hold too few of them",
    "measure with --duration {duration}",
)
def _few_resets(cell: CellSummary, sweep: Sweep) -> Facts | None:
    # The lengths of episodes and resets belong to the task: a plain loop of one environment shows them best.
    loop = (sweep.by_key.get(base_of(cell.key)._replace(envs_per_worker=1)) or cell).figures.stability
    steps = cell.figures.rows - cell.figures.resets
    of_each = steps / max(1, cell.built.num_envs) / max(1, cell.sample.processes)  # environment in a pass
    if loop.reset_share <= _RESETS_MATTER or of_each >= _ENOUGH_EPISODES * loop.episode:
        return None
    longer = _ENOUGH_EPISODES / max(of_each / loop.episode, 1 / _ENOUGH_EPISODES)
    return {
        "may": "" if loop.ended else "may ",
        "share": f"{loop.reset_share:.0%}",
        "duration": ceil(sweep.head.spec.duration * longer),
    }


def of_cell(cell: CellSummary, sweep: Sweep) -> tuple[Finding, ...]:
    """Return the findings on ``cell``, one of the sweep's, in the order of the table."""
    found = []
    for rule in CELLS:
        facts = rule.applies(cell, sweep)
        if facts is not None:
            found.append(Finding(rule.code, rule.message.format_map(facts), rule.remedy.format_map(facts)))
    return tuple(found)


@dataclass(frozen=True)
class Surroundings:
    """The current state of the machine; None: unknown."""

    others_share: float | None = None  # of the allowed CPUs' time, used by other processes
    shared_memory_bytes: int | None = None  # free in /dev/shm
    missing: tuple[Package, ...] | None = None  # packages that some backends need
    standings: tuple[Standing, ...] = ()  # of backends with environment classes of their own


def of_host(host: HostRecord, now: Surroundings) -> Iterator[Finding]:
    """Yield the findings on a machine, the most costly first."""
    yield from quota(host)
    if now.others_share is not None and now.others_share > _OTHERS_SHARE:
        message = f"other processes use {now.others_share:.0%} of the allowed CPUs' time"
        yield Finding(Code.DISTURBED, message, "end them, or wait until they finish")
    if now.shared_memory_bytes is not None and now.shared_memory_bytes < _LITTLE_SHARED_MEMORY:
        message = f"only {now.shared_memory_bytes // MEBIBYTE} MiB of /dev/shm are free for shared memory"
        yield Finding(Code.MEMORY, message, "give the container more (--shm-size 1g), or free some")
    if host.governor is not None and set(host.governor.split(", ")) != {"performance"}:
        message = f"the frequency governor is {host.governor}: clock speeds, and so the rates, follow the load"
        yield Finding(Code.CLOCKS, message, "as root: cpupower frequency-set -g performance")
    if host.boost:
        yield Finding(
            Code.CLOCKS,
            "boost is on: cores run faster when few are busy, so efficiency falls with workers even without contention",
            "leave it on to measure what users get; to compare machines or versions, turn it off (firmware or sysfs)",
        )
    if host.topology.threads_per_core > 1 and host.smt is not False:
        message = f"each core runs {host.topology.threads_per_core} threads: workers beyond the cores share them"
        remedy = "measure up to the number of cores, or with --pin 'compact[smt=off]'"
        yield Finding(Code.OVERSUBSCRIBED, message, remedy)
    # In a poorly configured container, this process may use the CPUs of a node but not its memory.
    usable = host.nodes_allowed
    near = [
        node
        for node, cpus in host.topology.nodes.items()
        if usable is not None and int(node) not in usable and set(host.cpus_allowed).intersection(parse_list(cpus))
    ]
    if near:
        message = f"this process may use the CPUs of node {', '.join(near)}, but not its memory"
        yield Finding(Code.MEMORY, message, "allow the memory nodes of the allowed CPUs (--cpuset-mems)")
    if host.virtual:
        message = "this is a virtual machine: other machines may use its CPUs and change the rates"
        remedy = "use more --passes, compare only within one run, and check the stolen time"
        yield Finding(Code.VIRTUAL_MACHINE, message, remedy)
    if now.missing:
        names = ", ".join(package.name for package in now.missing)
        yield Finding(Code.SKIPPED, f"not installed: {names}", how_to_install(now.missing))
    yield from own_classes(now.standings)


def quota(host: HostRecord) -> Iterator[Finding]:
    """Yield a finding if the quota is less than the allowed CPUs: workers are then throttled at times."""
    if host.quota_cpus is None or host.quota_cpus >= len(host.cpus_allowed):
        return
    where = f" ({host.quota_source})" if host.quota_source else ""
    limit = f"a quota of {host.quota_cpus:g} CPU{'' if host.quota_cpus == 1 else 's'}{where}"
    if host.quota_cpus < 1:
        message = f"{limit} is less than one CPU: every cell will be throttled"
        yield Finding(Code.THROTTLED, message, "give the container a whole CPU or more (--cpus)")
        return
    workers = "1 worker" if host.usable_cpus == 1 else f"{host.usable_cpus} workers"
    yield Finding(
        Code.THROTTLED,
        f"{limit} allows {workers} at a time, although {len(host.cpus_allowed)} CPUs are allowed",
        f"measure with --workers up to {host.usable_cpus}, or give the container CPUs of its own (--cpuset-cpus)",
    )


def own_classes(standings: Iterable[Standing]) -> Iterator[Finding]:
    """Yield findings on own classes that cannot be used here, each once."""
    found: dict[Finding, None] = {}
    for backends, _, _, own in standings:
        if own.refused:
            message = f"{', '.join(backends)} will use Gymnasium's class: {own.refused}"
            found[Finding(Code.FALLBACK, message, own.remedy or "leave them out with -b")] = None
    yield from found


def of_run(run: Run, cells: Sequence[CellSummary], file: str = "FILE") -> tuple[Finding, ...]:
    """Return the findings on the run as a whole, which has these cells, and on its file, named ``file``."""
    found = [unusable(cells), *quota(run.header.host)]
    pins = run.header.spec.pin.pins
    if not pins or not run.header.host.pinning:
        remedy = "measure on Linux, which can set CPU affinity" if pins else "measure without --pin none"
        found.append(Finding(Code.UNPINNED, "cells were not pinned: those with few workers could use all CPUs", remedy))
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
    """Return a finding if planned cells are missing from the file, or were interrupted by the user."""
    there, planned = sum(not cell.interrupted for cell in run.cells), run.header.cells
    if planned is None or there >= planned:
        return None
    remedy = f"measure the rest with: {run.header.resume_command(file)}"
    return Finding(Code.INCOMPLETE, f"{there} of {planned} cells", remedy)
