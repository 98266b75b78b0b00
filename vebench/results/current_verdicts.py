"""Verdicts on a run's backends that became known after it was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from vebench.plan.known_work import UNKNOWN, Known
from vebench.plan.tasks import recorded

if TYPE_CHECKING:
    from vebench.plan.known_work import Knowledge
    from vebench.results.records import CellRecord, Run


def informed(run: Run, knowledge: Knowledge) -> Run:
    """Return ``run`` with the verdicts that are known now for its tasks, backends and packages."""
    return msgspec.structs.replace(run, cells=tuple(_informed(cell, run, knowledge) for cell in run.cells))


def _informed(cell: CellRecord, run: Run, knowledge: Knowledge) -> CellRecord:
    if cell.entry.reference_row:
        return cell
    known = Known(cell.verdict or "unverified", cell.verdict_reason)
    # What is known of a user's own environment was found by the command that asks.
    task = recorded(cell.env, cell.frame_skip, run.header.spec.envs)
    now = knowledge.of(task, cell.choice, run.header.packages_of(cell.label), cell.own_classes)
    if now != UNKNOWN and now.outweighs(known) and known.verdict != "different":
        known = now
    return replace(cell, verdict=known.verdict, verdict_reason=known.reason)
