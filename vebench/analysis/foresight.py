"""What a plan will be able to tell, before anything is measured. Pure functions of the plan's numbers.

Nothing is known of the machine yet, so documented constants stand for it: by how much processes differ, and windows
within them. A noisy machine resolves less.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import TYPE_CHECKING

from vebench.analysis.cell import base_of
from vebench.analysis.comparison import FAMILY_LEVEL, POWER
from vebench.analysis.statistics import CONFIDENCE, PROCESS_SPREAD, correlation_factor, student_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.plan.cells import Cell, Plan

# By how much the windows of a process differ on a virtual machine, as a standard deviation of log rates.
_WINDOW_SPREAD = 0.03


@dataclass(frozen=True)
class Foresight:
    """``half`` is that of the interval of a speedup, as a share.

    ``resolves`` is by how much a backend must be slower for ``vebench check --metric speedup`` of two such runs to find
    it with ``POWER`` at a tolerance.
    """

    half: float
    resolves: float


def foresee(plan: Plan, tolerance: float) -> Foresight | None:
    """Return what a plan can tell of speedups, None if it has none with an interval."""
    cells = [cell for cell in plan.cells if cell.skip is None and not cell.entry.reference_row]
    once = {cell.key.without_repeat: cell for cell in cells}
    others = [cell for key, cell in once.items() if key != base_of(key)]
    groups = _sizes(others)
    repeats, rounds = plan.spec.repeats, plan.spec.rounds
    if not others or any(base_of(cell.key.without_repeat) not in once for cell in others) or repeats * rounds == 1:
        return None
    process = PROCESS_SPREAD**2 + _WINDOW_SPREAD**2 * (correlation_factor(rounds) / rounds if rounds > 1 else 1.0)
    # One repeat does not show by how much processes differ: it is never worth more than two are.
    freedom = float(max(repeats - 1, 1) * (len(once) - len({cell.task.id for cell in others})))
    level = FAMILY_LEVEL / 2 / len(groups)
    reach = student_quantile(1 - level, freedom) + student_quantile(POWER, freedom)
    one = process / repeats
    error = sqrt(2 * one * (1 + 1 / min(groups)))
    return Foresight(
        exp(student_quantile((1 + CONFIDENCE) / 2, freedom) * sqrt(2 * one)) - 1,
        1 - exp(log(1 - tolerance) - reach * error),
    )


def _sizes(cells: Sequence[Cell]) -> list[int]:
    """Return how many cells each backend has on each task."""
    groups: dict[tuple[str, str], int] = {}
    for cell in cells:
        group = cell.task.id, cell.backend.label
        groups[group] = groups.get(group, 0) + 1
    return list(groups.values())
