"""Which setting to recommend. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from vebench.analysis.answer import PASSES_TO_COMPARE, contenders, fastest_first, first_of_each
from vebench.analysis.cell import CellSummary, Exclusion
from vebench.analysis.rules import WIDE
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Estimate, ratio
from vebench.plan.cells import CellKey, rank


@dataclass(frozen=True)
class Constraints:
    """The limits of the recommended setting."""

    batch: int | None = None  # rows of a batch; None: any number
    asynchronous: bool = True  # batches may have the rows that are ready first
    tolerance: float = 0.05  # the share of the rate that may be given up for a simpler setup


class NoChoiceReason(Enum):
    """Why no setting can be recommended."""

    UNUSABLE = auto()  # other processes, or a quota, took the CPUs of most cells
    NOTHING_OFFERED = auto()  # no setting has a rate, or none that has one may be recommended
    FASTER = auto()  # a faster one may turn out to do the same work, or is hardly known
    DISTURBED = auto()  # one whose CPUs other processes used may be faster
    WIDE = auto()  # the rate of the best one is hardly known


@dataclass(frozen=True)
class Choice:
    """A recommendation, and its certainty."""

    best: CellSummary | None = None  # is recommended, or would be
    fastest: CellSummary | None = None  # the highest rate that may be recommended
    reason: NoChoiceReason | None = NoChoiceReason.NOTHING_OFFERED  # why nothing is recommended
    others: tuple[CellSummary, ...] = ()  # the best cell of each other backend, the fastest first
    faster: tuple[tuple[CellSummary, Estimate], ...] = ()  # may not be recommended; with the ratio to ``best``
    tied: tuple[CellSummary, ...] = ()  # do as well as ``fastest``, as far as is known; without ``best``
    contenders: frozenset[CellKey] = frozenset()  # may be faster than ``best`` by more than the tolerance
    untried: bool = False  # there was no time to try any setting of some backend

    @property
    def decided(self) -> bool:
        """Whether nothing that counts is faster than what is chosen by more than the tolerance."""
        return self.reason is None and not (self.contenders or self.untried)

    @property
    def chosen(self) -> CellSummary | None:
        """The setting to recommend."""
        return self.best if self.reason is None else None


def choose(
    cells: Iterable[CellSummary],
    tolerance: float,
    level: float,
    *,
    usable: bool = True,
    memory: int | None = None,
    open_work: Collection[str] = (),
    last: bool = False,
) -> Choice:
    """Return which cell of one task to use: the simplest that does as well as the fastest.

    ``level`` is the error that ``decided`` may make at this look. ``usable``: the run was not too disturbed. Cells that
    used more than ``memory`` bytes are never recommended. ``open_work``: backends whose work a longer comparison could
    show to be the same. ``last``: prefer a cell without contenders.
    """
    rated = fastest_first(cells)
    firsts = first_of_each(rated)
    small = [cell for cell in rated if not too_large(cell, memory)]
    offered = [cell for cell in small if cell.objection is None]
    fastest, known = _known(offered, tolerance)
    if fastest is None:
        return Choice(others=tuple(firsts))
    # More passes or comparisons may show that these can be recommended.
    unknown = [
        cell
        for cell in small
        if cell.objection is Exclusion.NO_INTERVAL
        or (cell.objection is Exclusion.UNVERIFIED and cell.label in open_work)
    ]
    rates = {cell.key: cell.sample for cell in (*offered, *unknown) if cell.sample.positive}
    above = {cell.key: contenders(rates, cell.key, tolerance, level) for cell in known}

    def simplest_first(cell: CellSummary) -> tuple[bool, tuple[bool, int], bool, float]:
        return last and bool(above[cell.key]), rank(cell.backend), bool(cell.built.choice.options), -cell.rate

    best, *tied = sorted(known, key=simplest_first)
    ratios = [(cell, ratio(cell.sample, best.sample)) for cell in rated if cell not in offered]
    faster = [(cell, over) for cell, over in ratios if over and (over.median if over.low is None else over.low) > 1]
    reason = None
    if not usable:
        reason = NoChoiceReason.UNUSABLE
    elif any(cell in unknown for cell, _ in faster):
        reason = NoChoiceReason.FASTER
    elif any(_is_disturbed(cell, best, tolerance) for cell in (*offered, *unknown)):
        reason = NoChoiceReason.DISTURBED
    elif best.half_width is None or best.half_width > WIDE:
        reason = NoChoiceReason.WIDE
    others = tuple(cell for cell in firsts if cell.label != best.label)
    return Choice(best, fastest, reason, others, tuple(faster), tuple(tied), frozenset(above[best.key]))


def _is_disturbed(cell: CellSummary, best: CellSummary, tolerance: float) -> bool:
    """Return whether a cell may be faster than was measured, and so than ``best``, because others used its CPUs."""
    margin = WIDE if cell is best else tolerance
    return cell.conditions.disturbed and cell.rate > best.rate * (1 + margin) * cell.conditions.share_left


def too_large(cell: CellSummary, memory: int | None) -> bool:
    """Return whether a cell used more than ``memory`` bytes."""
    used = cell.figures.peak_rss_bytes
    return memory is not None and used is not None and used > memory


def _known(offered: Sequence[CellSummary], tolerance: float) -> tuple[CellSummary | None, list[CellSummary]]:
    """Return the fastest of the cells that have enough passes, and those that may be within the tolerance of it."""
    good = []
    for cell in offered:
        ratios = [ratio(cell.sample, other.sample) for other in offered]
        if not any(found and (found.high or 1.0) < 1 for found in ratios):
            good.append(cell)
    if not good:
        return None, []
    enough = min(PASSES_TO_COMPARE, max(cell.repeats for cell in good))  # a race may be decided before
    fastest = next(cell for cell in good if cell.repeats >= enough)
    known = [fastest]
    for cell in good:
        share = ratio(cell.sample, fastest.sample)
        seen = cell.repeats >= max(enough, FEWEST_FOR_INTERVAL)
        if cell is not fastest and seen and share and share.median >= 1 - tolerance:
            known.append(cell)
    return fastest, known
