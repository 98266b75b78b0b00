"""Findings on what a cell did: whether it ended well, did the same work, and was as fast as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.cell import OTHER_WORK, Finding
from vebench.analysis.finding_codes import Code
from vebench.backends.environments.suites import DRIFTING_ENGINES
from vebench.backends.registry import BY_NAME, REFERENCE
from vebench.results.logs import SUFFIX as LOG_SUFFIX

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings.sweep import Rule, Sweep
    from vebench.backends.environments.engine_copies import Engine

NO_REASON = "no reason was recorded"
VERIFIED_ENVS, VERIFIED_STEPS = 2, 400  # as far as vebench verify goes in any case


def failed(cell: CellSummary, sweep: Sweep) -> Finding | None:
    """Return a finding if some repeat did not end well, also if it was the user who ended it."""
    if not cell.failed_repeats:
        return None
    share = f"{cell.faulty_repeats or cell.failed_repeats} of {cell.repeats} repeats: " if cell.repeats > 1 else ""
    again = f"{sweep.head.resume_command(sweep.file)} measures it again"
    if not cell.faulty_repeats:
        return Finding(Code.INTERRUPTED, f"{share}ended by the user while measured", again)
    return Finding(
        Code.FAILED,
        share + (cell.reason or NO_REASON),
        f"see {sweep.file}{LOG_SUFFIX} for what it printed, if anything; once that is fixed, {again}",
    )


def skipped(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if the cell could not run here."""
    if cell.status != "skipped":
        return None
    return Finding(
        Code.SKIPPED, cell.reason or NO_REASON, "provide what it lacks, or leave it out with -b and --workers"
    )


def verify_command(cell: CellSummary, sweep: Sweep, *options: str) -> str:
    """Return the command that compares a cell's backend; of a task's usual backends one that compares all of these."""
    return sweep.head.verify_command(cell.env, () if cell.label in BY_NAME else [cell.label], *options)


def different_work(cell: CellSummary, sweep: Sweep) -> Finding | None:
    """Return a finding if the backend does other work than the reference."""
    if cell.why_struck != OTHER_WORK:
        return None
    return Finding(
        Code.DIFFERENT_WORK,
        f"not the same work as {REFERENCE}: {cell.verdict_reason or 'rows differ'}; compared with nothing",
        f"{_where_to_see(cell, sweep)}; leave it out with -b, or take another task",
    )


def _where_to_see(cell: CellSummary, sweep: Sweep) -> str:
    """Return what shows a difference, or tries it again: a backend that is stepped anew tells more than a recording."""
    if not cell.found_to_differ or cell.proof is None:
        return f"{verify_command(cell, sweep)} shows where"
    options = ["--num-envs", str(cell.num_envs)] if cell.num_envs > VERIFIED_ENVS else []
    if cell.proof.mismatch is not None and cell.proof.mismatch.step > VERIFIED_STEPS:
        options += ["--steps", str(cell.proof.mismatch.step + 100)]
    return f"{sweep.head.verify_command(cell.env, [cell.label], *options)} steps it again, and may name the fault"


def unverified(cell: CellSummary, sweep: Sweep) -> Finding | None:
    """Return a finding if it is unknown whether the backend does the same work."""
    if cell.verdict != "unverified" or cell.status != "ok":
        return None
    if cell.verdict_reason:
        message = f"could not be shown to do the same work as {REFERENCE}: {cell.verdict_reason}"
        remedy = "choose a task on which it can be, or compare what it returns yourself"
        return Finding(Code.UNVERIFIED, message, remedy)
    return Finding(
        Code.UNVERIFIED,
        f"not compared with {REFERENCE}: whether it does the same work is not known",
        f"{verify_command(cell, sweep)} compares it; or measure with --verify",
    )


def unproven(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if what the cell returned was to be compared, and was not."""
    if cell.status != "ok" or cell.proof is None or not cell.unproven_repeats or cell.proof.verdict == "different":
        return None
    share = f"{cell.unproven_repeats} of {cell.repeats} repeats: " if cell.repeats > 1 else ""
    return Finding(
        Code.UNPROVEN,
        f"{share}what it returned while it was measured was not compared: {cell.proof.reason or NO_REASON}",
        "if you need that proof, start a new run: --resume does not measure again what went well",
    )


def invalid_values(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if the environment itself returned values that its spaces do not allow."""
    if cell.proof is None or cell.proof.invalid is None:
        return None
    return Finding(
        Code.INVALID_VALUES,
        f"the environment returns invalid values, with every backend: {cell.proof.invalid}",
        "mend the environment, or what its spaces declare",
    )


def above_ceiling(cell: CellSummary, sweep: Sweep) -> Finding | None:
    """Return a finding if the backend seems faster than the bare simulator, beyond doubt."""
    if cell.key not in sweep.above_ceiling:
        return None
    return Finding(
        Code.ABOVE_CEILING,
        "faster than the bare simulator, which no backend can be: it does less work, or the ceiling was disturbed",
        "do not trust it: measure again with more --rounds, and check that it resets finished environments",
    )


def slower_than_for_loop(cell: CellSummary, sweep: Sweep) -> Finding | None:
    """Return a finding if the backend is slower than a plain loop with one worker, beyond doubt."""
    if cell.key not in sweep.below_loop:
        return None
    # More environments for each worker are then more processes, not more work for each of them.
    more_work = "" if cell.entry.process_per_environment else ", or try a larger --envs-per-worker"
    return Finding(
        Code.SLOWER_THAN_FOR_LOOP,
        "slower than a plain Python loop with one worker",
        f"use {REFERENCE} here{more_work}",
    )


def unlike_engines(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if the physics engine inside a backend is not the one that the others use."""
    unlike = [engine for engine in cell.engines if engine.unlike and _diverges(engine)]
    if cell.status != "ok" or not unlike:
        return None
    return Finding(
        Code.UNLIKE_ENGINES,
        f"{'; '.join(engine.words for engine in unlike)}: not the same simulation",
        " and ".join(
            f"install {engine.matching} in {engine.within}" if engine.elsewhere else f"pip install {engine.matching}"
            for engine in unlike
        ),
    )


def other_packages(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if the backend's own interpreter makes environments with other versions than the others'."""
    unlike = [engine for engine in cell.engines if engine.elsewhere and engine.unlike and not _diverges(engine)]
    if cell.status != "ok" or not unlike:
        return None
    return Finding(
        Code.OTHER_PACKAGES,
        "; ".join(engine.words for engine in unlike),
        f"install there {' '.join(engine.matching for engine in unlike)}, if its library allows it",
    )


def _diverges(engine: Engine) -> bool:
    """Return whether another version of the engine gives other results."""
    return engine.name in DRIFTING_ENGINES


def fallback(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if Gymnasium's class stepped, since the backend's own class must not stand in for it here."""
    if cell.status != "ok" or cell.own_classes is None or not cell.own_classes.refused:
        return None
    return Finding(
        Code.FALLBACK,
        f"stepped Gymnasium's class and no class of its own: {cell.own_classes.refused}",
        cell.own_classes.remedy or "leave it out with -b",
    )


def not_compiled(cell: CellSummary, _sweep: Sweep) -> Finding | None:
    """Return a finding if the backend's own class is slower than it could be, since a part of it is not compiled."""
    if cell.status != "ok" or cell.own_classes is None or not cell.own_classes.uncompiled:
        return None
    return Finding(Code.NOT_COMPILED, f"its own class could be faster: {cell.own_classes.how}", cell.own_classes.remedy)


def retrograde(cell: CellSummary, sweep: Sweep) -> Finding | None:
    """Return a finding if the cell is slower than with fewer workers, beyond doubt, though each worker has a CPU."""
    if cell.key not in sweep.retrograde:
        return None
    return Finding(
        Code.RETROGRADE,
        "slower than with fewer workers, though there is a CPU for each",
        "use fewer workers, or give each more to do with --envs-per-worker",
    )


OUTCOME: tuple[Rule, ...] = (failed, skipped, different_work, unverified, unproven, invalid_values)
SPEED: tuple[Rule, ...] = (above_ceiling, slower_than_for_loop, unlike_engines, other_packages, fallback, not_compiled)
WORKERS: tuple[Rule, ...] = (retrograde,)
