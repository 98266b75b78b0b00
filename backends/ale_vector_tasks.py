"""Which tasks ale-py's own vector environment has. The registry reads this, too: standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.suites import SUITES

if TYPE_CHECKING:
    from vebench.backends.interface import Task

STEPPED = frozenset({"atari"})  # suites
# It draws from 0 to noop_max - 1 where Gymnasium's wrapper draws from 1 to noop_max: of none alone both can be asked.
NO_OPS = 0


def name_of(task: Task) -> str | None:
    """Return the task's id, None if it is no game that vebench knows by name."""
    return task.id if task.suite in STEPPED and task.id in SUITES[task.suite].tasks else None


def chance(task: Task) -> str | None:
    """Return why its rows differ from the reference's on a task by chance alone, None if they must not."""
    return None if task.exact else "ale-py draws the no-ops of a reset with a generator of its own"
