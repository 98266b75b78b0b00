"""Which tasks EnvPool has, and what it calls them. The registry reads this, too: standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.suites import ALWAYS_DRAWN, SUITES

if TYPE_CHECKING:
    from vebench.backends.interface import Task

STEPPED = frozenset({"atari", "mujoco", "classic"})  # suites

# The one game that EnvPool spells otherwise; it gives the same bytes.
SPELLINGS = {"ALE/TicTacToe3D-v5": "TicTacToe3d-v5"}


def name_of(task: Task) -> str | None:
    """Return EnvPool's name for a task, None if EnvPool does not have it."""
    if task.suite not in STEPPED or task.id not in SUITES[task.suite].tasks:
        return None
    return SPELLINGS.get(task.id, task.id.removeprefix("ALE/"))


def chance(task: Task) -> str | None:
    """Return why EnvPool's rows differ from the reference's on a task by chance alone, None if they must not."""
    if task.suite == "classic" or task.id in ALWAYS_DRAWN:
        return "EnvPool draws the start with a generator of its own, and has no setting for it"
    return None if task.exact else "EnvPool draws the start with a generator of its own"
