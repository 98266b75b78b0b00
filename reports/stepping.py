"""What a backend steps, in words: the same in every report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.registry import find_recorded
from vebench.plan.tasks import short_name

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.backends.registry import Standing

ANY = "any Gymnasium environment"


def kind_of(standing: Standing) -> str:
    """Return a kind of task, with the names of those that are meant if it has others: ``MuJoCo (Ant, Hopper)``."""
    every = len(standing.tasks) == len(standing.suite.tasks)
    names = ", ".join(map(short_name, standing.tasks))
    return standing.suite.title if every else f"{standing.suite.title} ({names})"


def steps(cell: CellSummary) -> str | None:
    """Return what the backend of a cell steps; None for a reference row, and for a cell that was never built.

    ``any Gymnasium environment``; its own classes for the task, and how they step; environments of its library's own.
    """
    entry = find_recorded(cell.backend)
    if cell.reference_row:
        return None
    if entry.own_classes is not None:
        return None if cell.own_classes is None else cell.own_classes.words
    if entry.steps_gymnasium:
        return ANY
    return f"{entry.library}'s own environments" if entry.library else "what its adapter makes"
