"""What environments whose step takes a stated time are called: standard library only."""

from __future__ import annotations

import re
from typing import Literal

# busy: in Python, whose lock (the GIL) it holds. native: outside of it, as a simulator may that lets go of the lock.
# sleep: on no CPU at all, as what waits for another process or machine does.
Kind = Literal["Busy", "Native", "Sleep"]

MODULE = "vebench.backends.environments.timed"
KINDS: tuple[Kind, ...] = ("Busy", "Native", "Sleep")
MICROSECONDS = tuple(figure * 10**power for power in range(6) for figure in (1, 2, 5))
_ID = re.compile(r"vebench/(Busy|Native|Sleep)-(\d{1,6})us-v0", re.ASCII)


def env_id(kind: Kind, microseconds: int) -> str:
    """Return the id under which Gymnasium has the environment once ``MODULE`` is imported."""
    return f"vebench/{kind}-{microseconds}us-v0"


def kind_of(env: str) -> Kind | None:
    """Return how the environment with this id takes its time; None if no time is stated for it."""
    match = _ID.fullmatch(env)
    return None if match is None else next(kind for kind in KINDS if kind == match[1])
