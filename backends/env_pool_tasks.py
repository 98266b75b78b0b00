"""Which tasks EnvPool has, and what it calls them. The registry reads this, too: standard library only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vebench.backends.environments.suites import ALWAYS_DRAWN, SUITES

if TYPE_CHECKING:
    from vebench.backends.interface import Task

STEPPED = frozenset({"atari", "mujoco", "classic", "dm_control"})  # suites

# The one game that EnvPool spells otherwise; it gives the same bytes.
SPELLINGS = {"ALE/TicTacToe3D-v5": "TicTacToe3d-v5"}


# What EnvPool observes besides what dm_control does, since all tasks of one body have one space there.
_BALL, _TARGET, _RANGES = ("ball_state",), ("target_position",), ("origin", "rangefinder")
_BESIDES = {
    **dict.fromkeys(("dog-stand", "dog-walk", "dog-trot", "dog-run"), (*_BALL, *_TARGET)),
    "finger-spin": ("dist_to_target", *_TARGET),
    "fish-upright": ("target",),
    **dict.fromkeys(("humanoid-stand", "humanoid-walk", "humanoid-run"), ("position",)),
    "humanoid-run_pure_state": ("com_velocity", "extremities", "head_height", "joint_angles", "torso_vertical"),
    **dict.fromkeys(("quadruped-walk", "quadruped-run"), (*_BALL, *_RANGES, *_TARGET)),
    "quadruped-escape": (*_BALL, *_TARGET),
    "quadruped-fetch": _RANGES,
}


def name_of(task: Task) -> str | None:
    """Return EnvPool's name for a task, None if EnvPool does not have it."""
    if task.suite not in STEPPED or task.id not in SUITES[task.suite].tasks:
        return None
    if task.suite == "dm_control":  # CheetahRun-v1 for dm_control/cheetah-run-v0
        return "".join(word[:1].upper() + word[1:] for word in re.split("[-_]", _short(task))) + "-v1"
    return SPELLINGS.get(task.id, task.id.removeprefix("ALE/"))


def _short(task: Task) -> str:
    return task.id.removeprefix("dm_control/").removesuffix("-v0")


def besides(task: Task) -> tuple[str, ...]:
    """Return the arrays that EnvPool observes on a task besides those that are observed elsewhere."""
    return _BESIDES.get(_short(task), ()) if task.suite == "dm_control" else ()


def chance(task: Task) -> str | None:
    """Return why EnvPool's rows differ from the reference's on a task by chance alone, None if they must not."""
    if task.suite in ("classic", "dm_control") or task.id in ALWAYS_DRAWN:
        more = f"; it observes {', '.join(found)} besides" if (found := besides(task)) else ""
        return f"EnvPool draws the start with a generator of its own, and has no setting for it{more}"
    return None if task.exact else "EnvPool draws the start with a generator of its own"
