"""Findings on how a cell was measured: on how many windows, how steady they were, and at what cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.cell import Finding
from vebench.analysis.contrasts import contrast
from vebench.analysis.finding_codes import Code
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings.sweep import Rule, Sweep

# With fewer, Student's quantile alone makes an interval about as wide as what it is to resolve: 3.18 at four windows,
# 4.30 at three, 12.7 at two. Of repeats there may be fewer, where many cells show together how processes vary.
ENOUGH = 4
LEAST_FREEDOM = 2
WIDE = 0.2
DRIFT = 0.05
FEWEST_BATCHES = 50
LOOP_LIMIT_NS = 1_000
# Reported in steps, so that cells with about the same share have the same finding.
LOOP_SHARES = (0.01, 0.1)


def too_few(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if there are too few windows, or repeats, for an interval, or for one narrow enough to use."""
    if cell.status != "ok" or not _few(cell):
        return None
    effect = "no interval" if cell.observations < FEWEST_FOR_INTERVAL else "a poor interval"
    if cell.repeats - cell.failed_repeats > 1 and cell.observations > 1:
        message = f"{cell.observations} repeats give {effect}: each counts as one observation"
        return Finding(Code.TOO_FEW_REPEATS, message, f"measure with --repeats {ENOUGH} or more")
    counted = "1 window gives" if cell.observations == 1 else f"{cell.observations or 'no'} windows give"
    return Finding(Code.TOO_FEW_WINDOWS, f"{counted} {effect}", f"measure with --rounds {ENOUGH} or more")


def unstable(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if the rate is little more than a guess, though there were observations enough."""
    half = cell.half_width
    if half is None or half <= WIDE or _few(cell):
        return None
    return Finding(
        Code.UNSTABLE,
        f"its ± is wider than {WIDE:.0%}: the rate is little more than a guess",
        "measure on an idle machine, with a longer --duration, more --rounds or more --repeats",
    )


def _few(cell: CellSummary) -> bool:
    """Return whether too few observations show how the rate varies."""
    found = contrast([(1.0, cell.sample)])
    if found is None:
        return cell.observations < ENOUGH
    if cell.sample.one_process and cell.sample.spread is None:
        return cell.observations < ENOUGH
    return found.error.freedom < LEAST_FREEDOM


def loop_cost(cell: CellSummary, sweep: Sweep) -> Finding | None:
    """Return a finding if the measuring loop takes too much of the time that it measures."""
    null = sweep.null_beside(cell)
    loop = null.ns_per_batch if null is not None else None
    if loop is None or cell.ns_per_batch is None:
        return None
    remedy = "measure on an idle machine, or give each batch more to do with --envs-per-worker"
    if cell is null:
        message = f"the measuring loop itself costs over {LOOP_LIMIT_NS / 1_000:g} microsecond per batch"
        return Finding(Code.LOOP_COST, message, remedy) if loop.median > LOOP_LIMIT_NS else None
    shares = [share for share in LOOP_SHARES if loop.median > share * cell.ns_per_batch.median]
    if not shares:
        return None
    return Finding(Code.LOOP_COST, f"over {shares[-1]:.0%} of the time is the measuring loop's own", remedy)


def imprecise(cell: CellSummary, sweep: Sweep) -> Finding | None:
    """Return a finding if the interval is wider than the run was asked to make it."""
    half, until = cell.half_width, sweep.spec.until
    if cell.status != "ok" or until is None or (half is not None and half <= until):
        return None
    return Finding(
        Code.IMPRECISE,
        f"not within ±{100 * until:.3g}% of its level when the time was up (--until)",
        f"{sweep.head.resume_command(sweep.file)} goes on; or measure with a larger --budget, or on an idle machine",
    )


def drifting(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if the rate rises or falls from window to window, beyond chance."""
    change = cell.stability.drift
    if abs(change) <= DRIFT:
        return None
    verb, cause = ("rises", "with a longer --warmup") if change > 0 else ("falls", "on a cooler or idle machine")
    return Finding(
        Code.DRIFTING,
        f"{verb} by more than {DRIFT:.0%} from the first window to the last, beyond chance",
        f"measure {cause}, and look at the windows in the run file: their median holds for a moment only",
    )


def unsettled(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if warm-up ended at its bound, while the rate still changed."""
    if not cell.stability.unsettled:
        return None
    share = f" in {cell.stability.unsettled} of {cell.repeats} repeats" if cell.repeats > 1 else ""
    return Finding(
        Code.UNSETTLED,
        f"the rate had not settled when warm-up ended at its bound{share}",
        "measure with a longer --warmup; on a busy machine the rate may never settle",
    )


def short_windows(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if windows hold so few batches that their ends show in the rate."""
    fewest = cell.stability.fewest_batches
    if fewest is None or fewest >= FEWEST_BATCHES:
        return None
    return Finding(
        Code.SHORT_WINDOWS,
        f"windows of fewer than {FEWEST_BATCHES} batches",
        "measure with a longer --duration, or with fewer --workers or --envs-per-worker",
    )


def outliers(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if windows lie apart from the others. They are kept: the median hardly changes with them."""
    count = cell.stability.outliers
    if not count:
        return None
    what = "1 window lies" if count == 1 else f"{count} windows lie"
    return Finding(
        Code.OUTLIERS,
        f"{what} apart from the others; kept, and in the interval",
        "nothing, if they are few; otherwise look for what else runs (other programs, timers, another machine)",
    )


def bursts(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if many environments reset at the same time, so that some windows hold many more resets."""
    if not cell.stability.bursts:
        return None
    return Finding(
        Code.RESET_BURSTS,
        "resets come in bursts: some windows hold many, others few or none",
        "measure with a --duration that holds several episodes, so that each window has its share",
    )


OBSERVATIONS: tuple[Rule, ...] = (too_few, unstable)
COURSE: tuple[Rule, ...] = (loop_cost, imprecise, drifting, unsettled, short_windows, outliers, bursts)
