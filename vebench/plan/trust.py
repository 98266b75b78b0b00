"""What a run file may name without its user's consent: vebench's own parts, and environments of packages it knows.

This is the only place that decides it. A command that measures what a file names asks here first: before anything is
looked up, imported, started or connected to.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vebench.backends import bracketed
from vebench.backends.environments.suites import SUITES, TIMED, known_as
from vebench.errors import UsageError, shown
from vebench.plan.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from vebench.plan.spec import RunSpec

ALLOW = "--allow-code"

# What Gymnasium and the suites' plugins register besides the suites' tasks. Gymnasium's GymV21Environment and
# GymV26Environment are left out: they make any environment of another library.
_OTHERS = (
    *("BipedalWalker", "BipedalWalkerHardcore", "Blackjack", "CarRacing", "CliffWalking", "CliffWalkingSlippery"),
    *("FrozenLake", "FrozenLake8x8", "LunarLander", "LunarLanderContinuous", "Taxi"),
)
_BEGIN = ("BabyAI-", "phys2d/", "tabular/", *(suite.namespace for suite in SUITES.values() if suite.namespace))


def not_ours(spec: RunSpec) -> Iterator[str]:
    """Yield each value that names code, a program or a machine beyond what a file may name, as the user writes it."""
    yield from (f"--env {env}" for env in spec.envs if not _is_known(env))
    yield from (f"--backend {one.label}" for one in spec.backends if ":" in one.name or one.python)
    if spec.policy.target:
        yield f"--policy {spec.policy.label}"
    if spec.hosts is not None:
        yield f"--hosts {spec.hosts.label}"


def refuse_not_ours(spec: RunSpec, named: Container[str]) -> None:
    """Raise UsageError, which says how to allow it, for the first of these values that is not ``named`` by the user."""
    for value in not_ours(spec):
        if value not in named:
            raise UsageError(f"{shown(value)}: the file names it, not you: add {ALLOW} if you trust the file")


def _is_known(env: str) -> bool:
    """Return whether vebench knows who registers an environment, and no text of the file goes into making it.

    A text among the arguments may be a path, or the name of what is to be loaded; a number is neither.
    """
    name, arguments = bracketed.name_and_values(env)
    module = name.rpartition(":")[0]
    if module:
        known = name.startswith(TIMED)
    else:
        known = name in TASKS or known_as(name) is not None or name.startswith(_BEGIN)
        known = known or re.sub(r"-v\d+\Z", "", name) in _OTHERS
    return env.isascii() and known and not any(isinstance(value, str) for value in arguments.values())
