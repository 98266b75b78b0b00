"""The order in which reports list cells. Cells are measured in another order: a shuffled one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.suites import short_name
from vebench.backends.registry import ENTRIES

if TYPE_CHECKING:
    from vebench.plan.spec import BackendChoice, RunSpec

# Reference rows come last, wherever they are in the registry, and third parties' backends before them.
_RANKS = {entry.name: (entry.reference_row, rank) for rank, entry in enumerate(ENTRIES)}
_THIRD_PARTY = (False, len(_RANKS))


def report_order(env: str, backend: BackendChoice, spec: RunSpec) -> tuple[object, ...]:
    """Return a sort key: tasks as ``spec`` names them, then backends as in the registry.

    Third parties' backends follow the registry's, and reference rows come last. If a backend appears with several
    choices of options, these follow the order in ``spec``.
    """
    asked = [short_name(name) for name in spec.envs]
    task = asked.index(short_name(env)) if short_name(env) in asked else len(asked)
    chosen = spec.backends.index(backend) if backend in spec.backends else len(spec.backends)
    return task, env, _RANKS.get(backend.name, _THIRD_PARTY), chosen, backend.label
