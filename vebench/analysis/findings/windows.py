"""Findings on how a cell behaved while it was measured, and beside others of its sweep. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.findings.rules import Finding
from vebench.analysis.statistics import ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.summary import CellSummary
    from vebench.plan.spec import RunSpec

DRIFT = 0.05
FEWEST_BATCHES = 50


def of_cell(cell: CellSummary, cells: Sequence[CellSummary], spec: RunSpec) -> tuple[Finding, ...]:
    """Return what is to be said of ``cell``, which is one of ``cells`` of a run with this ``spec``."""
    if cell.status != "ok":
        return ()
    found = (
        imprecise(cell, spec.until),
        drifting(cell),
        unsettled(cell),
        short_windows(cell),
        outliers(cell),
        bursts(cell),
        retrograde(cell, cells),
    )
    return tuple(finding for finding in found if finding is not None)


def imprecise(cell: CellSummary, until: float | None) -> Finding | None:
    """Tell of an interval that is wider than the run was to make it."""
    half = cell.frames_per_second.half_width if cell.frames_per_second else None
    if until is None or (half is not None and half <= until):
        return None
    return Finding(
        "imprecise",
        f"not within ±{100 * until:.3g}% of its median when the time was up (--until)",
        "vebench run --resume goes on; or a larger --budget, or an idle machine",
    )


def drifting(cell: CellSummary) -> Finding | None:
    """Tell of a rate that rises or falls from window to window, beyond chance."""
    change = cell.stability.drift
    if abs(change) <= DRIFT:
        return None
    verb, cause = ("rises", "a longer --warmup") if change > 0 else ("falls", "a cooler or idle machine")
    return Finding(
        "drifting",
        f"{verb} by more than {DRIFT:.0%} from the first window to the last, beyond chance",
        f"measure with {cause}, and look at the windows in the run file: a median of them is that of a moment",
    )


def unsettled(cell: CellSummary) -> Finding | None:
    """Tell of a warm-up that ended at its bound, while the rate still changed."""
    if not cell.stability.unsettled:
        return None
    share = f" in {cell.stability.unsettled} of {cell.repeats} repeats" if cell.repeats > 1 else ""
    return Finding(
        "unsettled",
        f"the rate had not settled when warm-up ended at its bound{share}",
        "measure with a longer --warmup; on a busy machine the rate may never settle",
    )


def short_windows(cell: CellSummary) -> Finding | None:
    """Tell of windows that hold so few batches that their ends show in the rate."""
    fewest = cell.stability.fewest_batches
    if fewest is None or fewest >= FEWEST_BATCHES:
        return None
    return Finding(
        "short-windows",
        f"windows of fewer than {FEWEST_BATCHES} batches",
        "measure with a longer --duration, or with fewer --workers or --envs-per-worker",
    )


def outliers(cell: CellSummary) -> Finding | None:
    """Tell of windows that lie apart from the others. They are kept: the median hardly minds them."""
    count = cell.stability.outliers
    if not count:
        return None
    what = "1 window lies" if count == 1 else f"{count} windows lie"
    return Finding(
        "outliers",
        f"{what} apart from the others; kept, and in the interval",
        "nothing, if they are few; else look for what runs beside (other programs, timers, another machine)",
    )


def bursts(cell: CellSummary) -> Finding | None:
    """Tell of resets that come at the same time in many environments, so that windows differ in how many they hold."""
    if not cell.stability.bursts:
        return None
    return Finding(
        "reset-bursts",
        "resets come in bursts: some windows hold many, others few or none",
        "measure with a --duration that holds several episodes, so that each window has its share",
    )


def retrograde(cell: CellSummary, cells: Sequence[CellSummary]) -> Finding | None:
    """Tell of a backend that is slower than itself with fewer workers, beyond doubt, though each has a CPU."""
    alone = cell.processes * cell.threads <= 1
    if cell.reference or alone or cell.oversubscribed or cell.crowded:
        return None
    for other in cells:
        same = (other.env, other.label, other.envs_per_worker) == (cell.env, cell.label, cell.envs_per_worker)
        if not same or other.workers >= cell.workers:
            continue
        over = ratio(cell.sample, other.sample)
        if over is not None and over.high is not None and over.high < 1:
            return Finding(
                "retrograde",
                "slower than with fewer workers, though there is a CPU for each",
                "use fewer workers, or give each more to do with --envs-per-worker",
            )
    return None
