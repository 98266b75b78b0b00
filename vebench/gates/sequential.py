"""A gate that looks at its data as passes are added, and stops when it knows, or when it cannot. Pure functions.

Testing repeatedly at 5 % finds differences that do not exist in far more than 5 % of cases. Therefore the
5 % are spent: each look gets what the spending function has grown by since the look before (K. Lan, D. DeMets, Discrete
sequential boundaries for clinical trials, Biometrika 70, 1983). All looks together then keep the level, however they
depend on each other. The function is theirs that resembles Pocock's test: nearly in proportion to the share of the time
that is used, so that what is clear at once is decided at once, also within a long budget.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, e, inf, log1p
from typing import TYPE_CHECKING

from vebench.analysis.comparison import compare_runs, group_of
from vebench.analysis.statistics import (
    Block,
    Pool,
    Spread,
    new_id,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, GroupComparison, GroupKey, RunSpread
    from vebench.analysis.pairing import CellComparison, Metric
    from vebench.plan.cells import CellKey

# The passes before the next look, as a share of those before: few looks, each with a useful level.
_GROWTH = 0.4
# Passes of a new run are worth their time as long as its own error is more than this share of what cannot be reduced.
_WORTH = 0.03


def passes_until_next_look(passes: int) -> int:
    """Return how many passes to add before looking again, given how many there are."""
    return max(1, ceil(_GROWTH * passes))


def enough_passes(once: Sequence[GroupComparison], forever: Sequence[GroupComparison], repeats: int) -> int:
    """Return after how many passes more would hardly matter, given what ``repeats`` of them resolve and ``forever``."""
    pairs = [(one.error, other.error) for one, other in zip(once, forever, strict=True) if one.error and other.error]
    more = max((one / other - 1 for one, other in pairs), default=0.0)
    return max(repeats, ceil(repeats * more / _WORTH))


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
