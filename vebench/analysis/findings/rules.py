"""What a reader should know before he trusts a figure: typed warnings, none without a remedy. Pure functions.

A message says nothing that differs from cell to cell without need, so that the same finding of many cells can be
told once.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.statistics import FEWEST_FOR_INTERVAL
from vebench.backends.environments.suites import DRIFTING_ENGINES
from vebench.backends.registry import REFERENCE, find_recorded
from vebench.results.logs import SUFFIX as LOG_SUFFIX
from vebench.results.records import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.summary import CellSummary
    from vebench.results.records import Run

# With fewer, Student's quantile alone makes an interval about as wide as what it is to resolve (3.18 at four windows,
# 4.30 at three, 12.7 at two).
ENOUGH = 4
WIDE = 0.2
LOOP_LIMIT_NS = 1_000
# What others may take of a cell's CPUs before its rate says more of them.
TAKEN_SHARE = 0.05
# Told in steps, so that cells with about the same share are told of together.
LOOP_SHARES = (0.01, 0.1)
RANGE_LENGTH = 3
GRAVEST_FIRST = (
    "failed",
    "interrupted",
    "different-work",
    "above-ceiling",
    "unlike-engines",
    "throttled",
    "unpinned",
    "memory-unbound",
    "extra-threads",
    "disturbed",
    "unstable",
    "imprecise",
    "drifting",
    "unsettled",
    "loop-cost",
    "short-windows",
    "too-few-windows",
    "too-few-repeats",
    "unverified",
    "outliers",
    "reset-bursts",
    "slower-than-for-loop",
    "retrograde",
    "oversubscribed",
    "skipped",
)


@dataclass(frozen=True)
class Finding:
    """A warning: a short fixed ``code``, a ``message`` that says what is so, and a ``remedy`` that says what to do."""

    code: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Group:
    """The same finding of several cells, named in ``places``: ``Ant-v5: gym-sync, gym-async at 4..256 workers``."""

    finding: Finding
    places: tuple[str, ...]


def of_cell(cell: CellSummary, null: CellSummary | None, file: str) -> tuple[Finding, ...]:
    """Return what is to be said of ``cell``.

    ``null`` is the measuring loop's own cell of the same batch size, ``file`` the name of the run file.
    """
    found = (
        failed(cell, file),
        skipped(cell),
        different_work(cell),
        unverified(cell),
        too_few(cell),
        unstable(cell),
        above_ceiling(cell),
        slower_than_for_loop(cell),
        unlike_engines(cell),
        oversubscribed(cell),
        throttled(cell),
        disturbed(cell),
        strayed(cell),
        unbound(cell),
        extra_threads(cell),
        loop_cost(cell, null),
    )
    return tuple(finding for finding in found if finding is not None)


def of_run(run: Run, file: str = "FILE") -> tuple[Finding, ...]:
    """Return what is to be said of the run as a whole and of its file, which is named ``file``."""
    notes = (Finding("file", note, f"{resume(file)} measures again what this line held") for note in run.notes)
    found = (unpinned(run), incomplete(run, file), *notes)
    return tuple(finding for finding in found if finding is not None)


def resume(file: str) -> str:
    """Return the command that finishes the run in ``file``."""
    return f"vebench run --resume {shlex.quote(file)}"


def failed(cell: CellSummary, file: str) -> Finding | None:
    """Tell of a cell of which some repeat did not end well, be it by the user's hand."""
    if not cell.failed_repeats:
        return None
    share = f"{cell.failed_repeats} of {cell.repeats} repeats: " if cell.repeats > 1 else ""
    if cell.reason == INTERRUPTED:
        return Finding("interrupted", f"{share}ended by the user while measured", f"{resume(file)} measures it again")
    return Finding(
        "failed",
        share + (cell.reason or "no reason was recorded"),
        f"see {file}{LOG_SUFFIX} for what it printed, if anything; once mended, {resume(file)} measures it again",
    )


def skipped(cell: CellSummary) -> Finding | None:
    """Tell of a cell that could not run here."""
    if cell.status != "skipped":
        return None
    return Finding(
        "skipped",
        cell.reason or "no reason was recorded",
        "provide what it lacks, or leave it out with -b and --workers",
    )


def different_work(cell: CellSummary) -> Finding | None:
    """Tell of a backend that was found to do other work than the reference."""
    if not cell.struck:
        return None
    return Finding(
        "different-work",
        f"not the same work as for-loop: {cell.verdict_reason or 'rows differ'}; compared with nothing",
        "see vebench verify for where it differs; leave it out with -b, or take another task",
    )


def unverified(cell: CellSummary) -> Finding | None:
    """Tell of a backend of which nobody knows whether it does the same work."""
    if cell.verdict != "unverified" or cell.status != "ok":
        return None
    if cell.verdict_reason:
        message = f"could not be shown to do the same work as for-loop: {cell.verdict_reason}"
        return Finding("unverified", message, "choose a task on which it can be, or compare what it returns yourself")
    return Finding(
        "unverified",
        "not compared with for-loop: whether it does the same work is not known",
        "measure with vebench run --verify, or see vebench verify",
    )


def too_few(cell: CellSummary) -> Finding | None:
    """Tell of an interval that is missing, or too wide to be of use, for want of windows, or of repeats."""
    if cell.status != "ok" or cell.observations >= ENOUGH:
        return None
    effect = "no interval" if cell.observations < FEWEST_FOR_INTERVAL else "a poor interval"
    if cell.repeats - cell.failed_repeats > 1 and cell.observations > 1:
        message = f"{cell.observations} repeats give {effect}: each counts as one observation"
        return Finding("too-few-repeats", message, f"measure with --repeats {ENOUGH} or more, or with one")
    counted = "1 window gives" if cell.observations == 1 else f"{cell.observations or 'no'} windows give"
    return Finding("too-few-windows", f"{counted} {effect}", f"measure with --rounds {ENOUGH} or more")


def unstable(cell: CellSummary) -> Finding | None:
    """Tell of a rate that is little more than a guess, though there were observations enough."""
    half = cell.frames_per_second.half_width if cell.frames_per_second else None
    if half is None or half <= WIDE or cell.observations < ENOUGH:
        return None
    effect = ", and all speedups with it" if cell.backend == REFERENCE and cell.workers == 1 else ""
    return Finding(
        "unstable",
        f"uncertain by more than {WIDE:.0%}{effect}",
        "measure on an idle machine, with a longer --duration, more --rounds or more --repeats",
    )


def above_ceiling(cell: CellSummary) -> Finding | None:
    """Tell of a backend that seems faster than the bare simulator, beyond doubt."""
    if cell.of_ceiling is None or cell.of_ceiling.low is None or cell.of_ceiling.low <= 1:
        return None
    return Finding(
        "above-ceiling",
        "faster than the bare simulator, which no backend can be: it does less work, or the ceiling was disturbed",
        "do not trust it: measure again with more --rounds, and see that it resets finished environments",
    )


def slower_than_for_loop(cell: CellSummary) -> Finding | None:
    """Tell of a backend that a plain loop with one worker beats, beyond doubt."""
    if cell.reference or cell.backend == REFERENCE or cell.speedup is None:
        return None
    if cell.speedup.high is None or cell.speedup.high >= 1:
        return None
    # More environments for each worker are then more processes, not more work for each of them.
    more_work = "" if find_recorded(cell.backend).process_per_environment else ", or try a larger --envs-per-worker"
    return Finding(
        "slower-than-for-loop", "slower than a plain Python loop with one worker", f"use for-loop here{more_work}"
    )


def unlike_engines(cell: CellSummary) -> Finding | None:
    """Tell of a physics engine inside a backend that is not the one which the others use."""
    unlike = [engine for engine in cell.engines if engine.unlike and engine.name in DRIFTING_ENGINES]
    if cell.status != "ok" or not unlike:
        return None
    return Finding(
        "unlike-engines",
        f"{'; '.join(engine.words for engine in unlike)}: not the same simulation",
        f"pip install {' '.join(engine.matching for engine in unlike)}",
    )


def oversubscribed(cell: CellSummary) -> Finding | None:
    """Tell of more workers, processes or threads than CPUs that do work at the same time."""
    if not (cell.oversubscribed or cell.crowded) or cell.status == "skipped":
        return None
    one = cell.cpus_owned == 1
    if cell.crowded:
        message = f"more processes or threads than the {cell.cpus_owned} CPU{'' if one else 's'} owned"
        remedy = "with a smaller --envs-per-worker, or " if cell.envs_per_worker > 1 else ""
        return Finding("oversubscribed", message, f"measure {remedy}on more CPUs")
    return Finding(
        "oversubscribed",
        f"more workers than the {cell.cpus_owned} CPU{'' if one else 's'} owned",
        f"measure with --workers {'1' if one else f'1..{cell.cpus_owned}'}, or on more CPUs",
    )


def throttled(cell: CellSummary) -> Finding | None:
    """Tell of a CPU quota that held the cell back while it was measured."""
    if not cell.throttled_windows:
        return None
    return Finding(
        "throttled",
        "held back by the container's CPU quota; windows that were are left out where there are others",
        "give the container more CPUs (--cpus), or measure with fewer --workers",
    )


def disturbed(cell: CellSummary) -> Finding | None:
    """Tell of CPUs that worked for others while the cell was measured, on this machine or on its host."""
    culprits = [
        name
        for name, share in (("other processes", cell.others_share), ("the hypervisor", cell.stolen_share))
        if share > TAKEN_SHARE
    ]
    if not culprits:
        return None
    return Finding(
        "disturbed",
        f"{' and '.join(culprits)} took over {TAKEN_SHARE:.0%} of its CPUs' time",
        "measure on an idle machine; vebench doctor shows others' load",
    )


def strayed(cell: CellSummary) -> Finding | None:
    """Tell of a process or thread that was seen free to run on other CPUs than those owned."""
    if not cell.strayed:
        return None
    return Finding(
        "unpinned",
        "ran on other CPUs than those it owns",
        "measure where the CPU affinity of a process can be set, or say so with --pin none",
    )


def unbound(cell: CellSummary) -> Finding | None:
    """Tell of memory that could not be bound to nodes as it was asked for."""
    if cell.unbound is None:
        return None
    return Finding(
        "memory-unbound",
        f"its memory could not be bound to nodes: {cell.unbound}; it came from the node that touched it first",
        "allow the container set_mempolicy (Docker: --cap-add SYS_NICE), or measure with --membind local",
    )


def extra_threads(cell: CellSummary) -> Finding | None:
    """Tell of processes with more threads than step, such as a pool that some library has started in each.

    Pools of W workers on W CPUs run W x W threads (pytorch/rl #1325). Of others than Gymnasium's environments in
    processes nothing can be said: EnvPool has threads that wait and hand out work.
    """
    in_processes = find_recorded(cell.backend).steps_gymnasium and cell.threads == 1
    if not in_processes or cell.most_threads <= 1 or cell.reference or cell.status != "ok":
        return None
    return Finding(
        "extra-threads",
        "processes with more threads than the one that steps: some library has started a pool of its own",
        "hold that library to one thread; OMP_NUM_THREADS and its like are set to 1 already",
    )


def loop_cost(cell: CellSummary, null: CellSummary | None) -> Finding | None:
    """Tell of a measuring loop that takes too much of the time that it measures; ``null`` is what it costs."""
    loop = null.ns_per_batch if null is not None else None
    if loop is None or cell.ns_per_batch is None:
        return None
    remedy = "measure on an idle machine, or give each batch more to do with --envs-per-worker"
    if cell is null:
        message = f"the measuring loop itself costs over {LOOP_LIMIT_NS / 1_000:g} microsecond per batch"
        return Finding("loop-cost", message, remedy) if loop.median > LOOP_LIMIT_NS else None
    shares = [share for share in LOOP_SHARES if loop.median > share * cell.ns_per_batch.median]
    if not shares:
        return None
    return Finding("loop-cost", f"over {shares[-1]:.0%} of the time is the measuring loop's own", remedy)


def unpinned(run: Run) -> Finding | None:
    """Tell of cells that were not held to the CPUs that they own."""
    if run.header.host.pinning and run.header.spec.pin != "none":
        return None
    message = "no cell was held to CPUs of its own: cells of few workers had the use of them all"
    if run.header.spec.pin == "none":
        return Finding("unpinned", message, "measure without --pin none")
    return Finding("unpinned", message, "measure on Linux, where the CPU affinity of a process can be set")


def incomplete(run: Run, file: str) -> Finding | None:
    """Tell of a run that has not got to its end."""
    there, planned = sum(not cell.interrupted for cell in run.cells), run.header.cells
    if planned is None or there >= planned:
        return None
    return Finding("incomplete", f"{there} of {planned} cells", f"{resume(file)} measures the others")


def grouped(cells: Sequence[CellSummary]) -> tuple[Group, ...]:
    """Return the findings of all cells, each told once, with the cells that it holds for."""
    groups: dict[Finding, list[CellSummary]] = {}
    for cell in cells:
        for finding in cell.findings:
            groups.setdefault(finding, []).append(cell)
    return tuple(
        Group(finding, places(members, cells))
        for finding, members in sorted(groups.items(), key=lambda group: GRAVEST_FIRST.index(group[0].code))
    )


def places(members: Sequence[CellSummary], cells: Sequence[CellSummary]) -> tuple[str, ...]:
    """Return words for ``members`` of ``cells``, a line for each task, or for several in which they are the same.

    Each lists backends and workers, as short as can be.
    """
    envs_by_text: dict[str, list[str]] = {}
    for env in dict.fromkeys(cell.env for cell in members):
        here = [cell for cell in cells if cell.env == env]
        text = _backends([cell for cell in members if cell.env == env], here)
        envs_by_text.setdefault(text, []).append(env)
    return tuple(f"{', '.join(envs)}: {text}" for text, envs in envs_by_text.items())


def _backends(members: Sequence[CellSummary], cells: Sequence[CellSummary]) -> str:
    swept = sorted({cell.workers for cell in cells})
    labels_by_workers: dict[tuple[int, ...], list[str]] = {}
    for label in dict.fromkeys(cell.label for cell in members):
        workers = tuple(sorted({cell.workers for cell in members if cell.label == label}))
        labels_by_workers.setdefault(workers, []).append(label)
    every = len({cell.label for cell in cells})
    return "; ".join(
        f"{'every backend' if len(labels) == every > 1 else ', '.join(labels)} at {_workers(workers, swept)}"
        for workers, labels in labels_by_workers.items()
    )


def _workers(workers: tuple[int, ...], swept: Sequence[int]) -> str:
    """Return ``4..256 workers`` for a stretch of those swept, ``1, 4 workers`` for others."""
    first = swept.index(workers[0])
    if len(workers) >= RANGE_LENGTH and tuple(swept[first : first + len(workers)]) == workers:
        return f"{workers[0]}..{workers[-1]} workers"
    return f"{', '.join(map(str, workers))} worker{'s' * (workers != (1,))}"
