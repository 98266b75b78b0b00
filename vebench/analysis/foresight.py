"""The differences that a plan can resolve on an ordinary machine. Pure functions.

Before anything is measured, documented constants stand for the machine: by how much processes differ, and windows
within them. A noisy machine resolves less.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import exp, log, sqrt

from vebench.analysis.cell import base_of
from vebench.analysis.comparison import CELL_SPREAD, FAMILY_LEVEL, POWER
from vebench.analysis.statistics import CONFIDENCE, PROCESS_SPREAD, correlation_factor, student_quantile
from vebench.plan.cells import Plan

# By how much the windows of a process differ on a virtual machine, as a standard deviation of log rates.
_WINDOW_SPREAD = 0.03


@dataclass(frozen=True)
class Foresight:
    """``half`` is that of the interval of a speedup, as a share; ``resolves`` by how much a backend must be slower.

    ``vebench check`` of two such runs then finds it with ``POWER`` at a tolerance.
    """

    half: float
    resolves: float


def foresee(plan: Plan, tolerance: float) -> Foresight | None:
    """Return what a plan can resolve, None if it has no speedups with an interval."""
    cells = [cell for cell in plan.cells if cell.skip is None and not cell.entry.reference_row]
    once = {cell.key.without_repeat: cell for cell in cells}
    others = [cell for key, cell in once.items() if key != base_of(key)]
    groups = Counter((cell.task.id, cell.backend.label) for cell in once.values())
    passes, windows = plan.spec.passes, plan.spec.windows
    if not others or any(base_of(cell.key.without_repeat) not in once for cell in others) or passes * windows == 1:
        return None
    process = PROCESS_SPREAD**2 + _WINDOW_SPREAD**2 * (correlation_factor(windows) / windows if windows > 1 else 1.0)
    # One repeat does not show by how much processes differ: it is never worth more than two are.
    freedom = float(max(passes - 1, 1) * (len(once) - len({cell.task.id for cell in others})))
    level = FAMILY_LEVEL / 2 / len(groups)
    reach = student_quantile(1 - level, freedom) + student_quantile(POWER, freedom)
    one = process / passes
    error = sqrt(2 * (one + CELL_SPREAD**2) * (1 + 1 / min(groups.values())))
    width = student_quantile((1 + CONFIDENCE) / 2, freedom) * sqrt(2 * one)
    return Foresight(exp(width) - 1, 1 - exp(log(1 - tolerance) - reach * error))
