"""A gate that looks at its data as passes are added, and stops when it knows, or when it cannot. Pure functions.

Testing repeatedly at 5 % finds differences that do not exist in far more than 5 % of cases. Therefore the
5 % are spent: each look gets what the spending function has grown by since the look before (K. Lan, D. DeMets, Discrete
sequential boundaries for clinical trials, Biometrika 70, 1983). All looks together then keep the level, however they
depend on each other. The function is theirs that resembles Pocock's test: nearly in proportion to the share of the time
that is used, so that what is clear at once is decided at once, also within a long budget.

Before anything is measured, documented constants stand for the machine: by how much processes differ, and windows
within them. A noisy machine resolves less.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import ceil, e, exp, inf, log, log1p, sqrt
from typing import TYPE_CHECKING

from vebench.analysis.cell import base_of
from vebench.analysis.comparison import CELL_SPREAD, FAMILY_LEVEL, POWER, compare_runs, group_of
from vebench.analysis.statistics import (
    CONFIDENCE,
    PROCESS_SPREAD,
    Block,
    Pool,
    Spread,
    correlation_factor,
    new_id,
    student_quantile,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, GroupComparison, GroupKey, RunSpread
    from vebench.analysis.pairing import CellComparison, Metric
    from vebench.plan.cells import CellKey, Plan

# The passes before the next look, as a share of those before: few looks, each with a useful level.
_GROWTH = 0.4
# Passes of a new run are worth their time as long as its own error is more than this share of what cannot be reduced.
_WORTH = 0.03
# By how much the windows of a process differ on a virtual machine, as a standard deviation of log rates.
_WINDOW_SPREAD = 0.03


def passes_until_next_look(passes: int) -> int:
    """Return how many passes to add before looking again, given how many there are."""
    return max(1, ceil(_GROWTH * passes))


def enough_passes(once: Sequence[GroupComparison], forever: Sequence[GroupComparison], passes: int) -> int:
    """Return after how many passes more would hardly matter, given what ``passes`` of them resolve and ``forever``."""
    pairs = [(one.error, other.error) for one, other in zip(once, forever, strict=True) if one.error and other.error]
    more = max((one / other - 1 for one, other in pairs), default=0.0)
    return max(passes, ceil(passes * more / _WORTH))


def resolution(
    baseline: Sequence[CellSummary],
    *,
    metric: Metric,
    tolerance: float,
    run_spread: RunSpread | None = None,
    forever: bool = False,
) -> tuple[GroupComparison, ...]:
    """Return what a run like ``baseline``, compared with it, can resolve; if measured ``forever``, without an error."""
    blocks: dict[Block, Block] = {}
    twins = []  # cells with the same figures as if from another run, whose passes were others
    for cell in baseline:
        spread = cell.sample.spread
        if forever:
            spread = Spread(Pool(0.0, inf))
        elif spread is not None and spread.block is not None:
            spread = replace(spread, block=blocks.setdefault(spread.block, replace(spread.block, id=new_id())))
        twins.append(replace(cell, sample=replace(cell.sample, spread=spread, id=new_id())))
    return compare_runs(baseline, twins, metric=metric, tolerance=tolerance, run_spread=run_spread).groups


class Decisions:
    """What is decided so far, and how much of the levels is spent. A group that is decided stays so."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._groups: dict[GroupKey, GroupComparison] = {}
        self._cells: dict[CellKey, CellComparison] = {}

    def part(self, used: float) -> float:
        """Return the part of the levels for a look at which this share of the time is used, 1 for the last one."""
        grown = log1p((e - 1) * min(1.0, max(0.0, used)))
        part, self._spent = max(0.0, grown - self._spent), max(self._spent, grown)
        return part

    def after(self, found: Comparison) -> Comparison:
        """Return a look's verdicts, but those of groups that were decided before as they were then."""
        for group in found.groups:
            if group.key not in self._groups and group.judged and group.verdict != "inconclusive":
                self._groups[group.key] = group
                self._cells |= {cell.key: cell for cell in found.cells if group_of(cell.key) == group.key}
        return replace(
            found,
            groups=tuple(self._groups.get(group.key, group) for group in found.groups),
            # A cell may fail after its group was decided, while others are measured on.
            cells=tuple(replace(self._cells.get(cell.key, cell), failed=cell.failed) for cell in found.cells),
        )


def undecided(found: Comparison) -> frozenset[CellKey]:
    """Return the cells of those groups that more passes could decide."""
    open_groups = {group.key for group in found.groups if group.judged and group.verdict == "inconclusive"}
    return frozenset(cell.key for cell in found.cells if group_of(cell.key) in open_groups)


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
