"""What a backend steps, in words: the same in every report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.suites import short_name

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.backends.registry import Standing

_ANY = "any Gymnasium environment"
OWN = "own classes for this task"
INSTEAD = "Gymnasium's class in place of its own"


def kind_of(standing: Standing) -> str:
    """Return a kind of task, with the names of those that are meant if it has others: ``MuJoCo (Ant, Hopper)``."""
    every = len(standing.tasks) == len(standing.suite.tasks)
    names = ", ".join(map(short_name, standing.tasks))
    return standing.suite.title if every else f"{standing.suite.title} ({names})"


def kind(cell: CellSummary) -> str:
    """Return what kind of environments the backend of a cell steps.

    ``any Gymnasium environment``, ``own classes for this task``, ``EnvPool's own environments``.
    """
    entry = cell.entry
    if cell.own_classes is not None:
        return INSTEAD if cell.own_classes.refused else OWN
    if entry.steps_gymnasium:
        return _ANY
    return f"{entry.library}'s own environments" if entry.library else "what its adapter makes"


def steps(cell: CellSummary) -> str | None:
    """Return the same for data, with how own classes step, or why they do not; None for a reference row."""
    if cell.reference_row:
        return None
    return kind(cell) if cell.own_classes is None else cell.own_classes.words
