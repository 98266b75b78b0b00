"""What a reader should know before he trusts a figure: typed warnings, none without a remedy. Pure functions.

A message says nothing that differs from cell to cell without need, so that the same finding of many cells can be
told once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.statistics import FEWEST_FOR_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.scaling import CellSummary
    from vebench.results.records import Run

# With fewer, Student's quantile alone makes an interval about as wide as what it is to resolve (3.18 at four windows,
# 4.30 at three, 12.7 at two).
ENOUGH_WINDOWS = 4
LOOP_LIMIT_NS = 1_000
LOOP_SHARE = 0.01
RANGE_LENGTH = 3
GRAVEST_FIRST = (
    "failed",
    "above-ceiling",
    "throttled",
    "unpinned",
    "loop-cost",
    "too-few-windows",
    "slower-than-for-loop",
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
    """The same finding of several cells; ``where`` names them: ``Ant-v5: gym-sync, gym-async at 4..256 workers``."""

    finding: Finding
    where: str


def of_cell(cell: CellSummary, null: CellSummary | None) -> tuple[Finding, ...]:
    """Return what is to be said of ``cell``; ``null`` is the measuring loop's own cell of the same batch size."""
    found = (
        failed(cell),
        skipped(cell),
        too_few_windows(cell),
        above_ceiling(cell),
        slower_than_for_loop(cell),
        oversubscribed(cell),
        throttled(cell),
        strayed(cell),
        loop_cost(cell, null),
    )
    return tuple(finding for finding in found if finding is not None)


def of_run(run: Run) -> tuple[Finding, ...]:
    """Return what is to be said of the run as a whole and of its file."""
    notes = tuple(
        Finding("file", note, "vebench run --resume FILE measures the cell again that this line held")
        for note in run.notes
    )
    finding = unpinned(run)
    return notes if finding is None else (finding, *notes)


def failed(cell: CellSummary) -> Finding | None:
    """Tell of a cell of which some repeat did not end well."""
    if not cell.failed_repeats:
        return None
    share = f"{cell.failed_repeats} of {cell.repeats} repeats: " if cell.repeats > 1 else ""
    reason = cell.reason or "no reason was recorded"
    return Finding("failed", share + reason, "mend the cause, then vebench run --resume FILE measures it again")


def skipped(cell: CellSummary) -> Finding | None:
    """Tell of a cell that could not run here."""
    if cell.status != "skipped":
        return None
    return Finding(
        "skipped",
        cell.reason or "no reason was recorded",
        "provide what it lacks, or leave it out with -b and --workers",
    )


def too_few_windows(cell: CellSummary) -> Finding | None:
    """Tell of an interval that is missing, or too wide to be of use, for want of windows."""
    if cell.status != "ok" or cell.windows >= ENOUGH_WINDOWS:
        return None
    effect = "no interval" if cell.windows < FEWEST_FOR_INTERVAL else "a poor interval"
    counted = "1 window" if cell.windows == 1 else f"{cell.windows} windows"
    return Finding(
        "too-few-windows", f"{counted} give{'s' * (cell.windows == 1)} {effect}", "measure with --rounds 6 or more"
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
    if cell.reference or cell.backend == "for-loop" or cell.speedup is None:
        return None
    if cell.speedup.high is None or cell.speedup.high >= 1:
        return None
    return Finding(
        "slower-than-for-loop",
        "slower than a plain Python loop with one worker",
        "use for-loop here, or give each worker more to do with --envs-per-worker",
    )


def oversubscribed(cell: CellSummary) -> Finding | None:
    """Tell of more workers than CPUs that do work at the same time."""
    if not cell.oversubscribed or cell.status == "skipped":
        return None
    one = cell.cpus_owned == 1
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
        "held back by the container's CPU quota while measured",
        "give the container more CPUs (--cpus), or measure with fewer --workers",
    )


def strayed(cell: CellSummary) -> Finding | None:
    """Tell of a process that was seen on other CPUs than those it owns."""
    if not cell.strayed:
        return None
    return Finding(
        "unpinned",
        "ran on other CPUs than those it owns",
        "measure where the CPU affinity of a process can be set, or say so with --pin none",
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
    if loop.median <= LOOP_SHARE * cell.ns_per_batch.median:
        return None
    return Finding("loop-cost", f"over {LOOP_SHARE:.0%} of the time is the measuring loop's own", remedy)


def unpinned(run: Run) -> Finding | None:
    """Tell of cells that were not held to the CPUs that they own."""
    if run.header.host.pinning and run.header.spec.pin != "none":
        return None
    message = "no cell was held to CPUs of its own: cells of few workers had the use of them all"
    if run.header.spec.pin == "none":
        return Finding("unpinned", message, "measure without --pin none")
    return Finding("unpinned", message, "measure on Linux, where the CPU affinity of a process can be set")


def grouped(cells: Sequence[CellSummary]) -> tuple[Group, ...]:
    """Return the findings of all cells, each told once, with the cells that it holds for."""
    groups: dict[Finding, list[CellSummary]] = {}
    for cell in cells:
        for finding in cell.findings:
            groups.setdefault(finding, []).append(cell)
    return tuple(
        Group(finding, where(members, cells))
        for finding, members in sorted(groups.items(), key=lambda group: GRAVEST_FIRST.index(group[0].code))
    )


def where(members: Sequence[CellSummary], cells: Sequence[CellSummary]) -> str:
    """Return words for ``members`` of ``cells``: tasks, backends and workers, each list as short as can be."""
    envs_by_text: dict[str, list[str]] = {}
    for env in dict.fromkeys(cell.env for cell in members):
        here = [cell for cell in cells if cell.env == env]
        text = _backends([cell for cell in members if cell.env == env], here)
        envs_by_text.setdefault(text, []).append(env)
    return "; ".join(f"{', '.join(envs)}: {text}" for text, envs in envs_by_text.items())


def _backends(members: Sequence[CellSummary], cells: Sequence[CellSummary]) -> str:
    swept = sorted({cell.workers for cell in cells})
    labels_by_workers: dict[tuple[int, ...], list[str]] = {}
    for label in dict.fromkeys(cell.label for cell in members):
        workers = tuple(sorted({cell.workers for cell in members if cell.label == label}))
        labels_by_workers.setdefault(workers, []).append(label)
    every = len({cell.label for cell in cells})
    return ", ".join(
        f"{'every backend' if len(labels) == every > 1 else ', '.join(labels)} at {_workers(workers, swept)}"
        for workers, labels in labels_by_workers.items()
    )


def _workers(workers: tuple[int, ...], swept: Sequence[int]) -> str:
    """Return ``4..256 workers`` for a stretch of those swept, ``1, 4 workers`` for others."""
    first = swept.index(workers[0])
    if len(workers) >= RANGE_LENGTH and tuple(swept[first : first + len(workers)]) == workers:
        return f"{workers[0]}..{workers[-1]} workers"
    return f"{', '.join(map(str, workers))} worker{'s' * (workers != (1,))}"
