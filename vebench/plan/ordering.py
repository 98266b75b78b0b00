"""The order in which reports list cells. Measuring has an order of its own: a shuffled one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.registry import ENTRIES
from vebench.plan.tasks import short_name

if TYPE_CHECKING:
    from vebench.plan.spec import BackendChoice, RunSpec

# Reference rows come last whatever their place in the table, and third parties before them.
RANKS = {entry.name: (entry.reference_row, rank) for rank, entry in enumerate(ENTRIES)}
THIRD_PARTY = (False, len(RANKS))


def report_order(env: str, backend: BackendChoice, spec: RunSpec) -> tuple[object, ...]:
    """Return a sort key: tasks as ``spec`` names them, then backends as in the registry.

    Third parties' backends follow those of the registry, and reference rows come last. One backend with several options
    is listed as ``spec`` names it.
    """
    asked = [short_name(name) for name in spec.envs]
    task = asked.index(short_name(env)) if short_name(env) in asked else len(asked)
    chosen = spec.backends.index(backend) if backend in spec.backends else len(spec.backends)
    return task, env, RANKS.get(backend.name, THIRD_PARTY), chosen, backend.label
