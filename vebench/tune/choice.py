"""Which setting to recommend. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from vebench.analysis.answer import PASSES_TO_COMPARE, contenders, fastest_first, first_of_each
from vebench.analysis.cell import CellSummary, Exclusion
from vebench.analysis.rules import WIDE
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Estimate, ratio
from vebench.plan.cells import CellKey, rank

Pairs = frozenset[tuple[CellKey, CellKey]]


class NoChoiceReason(Enum):
    """Why no setting can be recommended."""

    UNUSABLE = auto()  # other processes, or a quota, took the CPUs of most cells
    NOTHING_OFFERED = auto()  # no setting has a rate, or none that has one may be recommended
    FASTER = auto()  # a faster one may turn out to do the same work, or is hardly known
    DISTURBED = auto()  # one whose CPUs other processes used may be faster
    WIDE = auto()  # the rate of the best one is hardly known


@dataclass(frozen=True)
class Rival:
    """Another cell than the best."""

    cell: CellSummary
    ratio: Estimate | None  # its rate over the best one's
    objection: Exclusion | None  # why it may not be recommended
    too_large: bool = False

    @property
    def offered(self) -> bool:
        """Whether it may be recommended."""
        return self.objection is None and not self.too_large

    @property
    def is_faster(self) -> bool:
        """Whether its rate is higher, beyond the interval of the ratio if there is one."""
        if self.ratio is None:
            return False
        return (self.ratio.median if self.ratio.low is None else self.ratio.low) > 1


@dataclass(frozen=True)
class Choice:
    """A recommendation, and its certainty."""

    best: CellSummary | None = None  # is recommended, or would be
    fastest: CellSummary | None = None  # the highest rate that may be recommended
    reason: NoChoiceReason | None = NoChoiceReason.NOTHING_OFFERED  # why nothing is recommended
    rivals: tuple[Rival, ...] = ()  # the best cell of each other backend, the fastest first
    faster: tuple[Rival, ...] = ()  # are faster than ``best``, but may not be recommended
    tied: tuple[CellSummary, ...] = ()  # do as well as ``fastest``, as far as is known; without ``best``
    contenders: frozenset[CellKey] = frozenset()  # may be faster than ``best`` by more than the tolerance
    ruled_out: Pairs = frozenset()  # (cell, other): ``other`` was found not to be a contender, now or at a look before
    disturbed: CellSummary | None = None  # may be faster than was measured, since others used its CPUs
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
    ruled_out: Pairs = frozenset(),
    last: bool = False,
) -> Choice:
    """Return which cell of one task to use: the simplest that does as well as the fastest.

    ``level`` is the error that ``decided`` may make at this look. ``usable``: the run was not too disturbed. Cells that
    used more than ``memory`` bytes are never recommended. ``open_work``: backends whose work a longer comparison could
    show to be the same. ``ruled_out`` are the pairs of the look before. ``last``: prefer a cell without contenders.
    """
    rated = fastest_first(cells)
    small = [cell for cell in rated if not too_large(cell, memory)]
    fastest, known = _known([cell for cell in small if cell.objection is None], tolerance)
    firsts = first_of_each(rated)
    if fastest is None:
        return Choice(rivals=tuple(_rival(cell, None, memory) for cell in firsts))
    # More passes or comparisons may show that these can be recommended.
    unknown = {cell.key for cell in small if _is_open(cell, open_work)}
    counted = [cell for cell in small if cell.objection is None or cell.key in unknown]
    rates = {cell.key: cell.sample for cell in counted if cell.sample.positive}
    for cell in known:
        out = rates.keys() - contenders(rates, cell.key, tolerance, level)
        ruled_out |= {(cell.key, other) for other in out}
    above = {cell.key: {other for other in rates if (cell.key, other) not in ruled_out} for cell in known}

    def simplest_first(cell: CellSummary) -> tuple[bool, tuple[bool, int], bool, float]:
        return last and bool(above[cell.key]), rank(cell.backend), bool(cell.built.choice.options), -cell.rate

    best, *tied = sorted(known, key=simplest_first)
    rivals = [_rival(cell, best, memory) for cell in rated]
    faster = [rival for rival in rivals if rival.is_faster and not rival.offered]
    disturbed = _disturbed(counted, best, tolerance)
    reason = None
    if not usable:
        reason = NoChoiceReason.UNUSABLE
    elif any(rival.cell.key in unknown for rival in faster):
        reason = NoChoiceReason.FASTER
    elif disturbed is not None:
        reason = NoChoiceReason.DISTURBED
    elif best.half_width is None or best.half_width > WIDE:
        reason = NoChoiceReason.WIDE
    return Choice(
        best,
        fastest,
        reason,
        tuple(_rival(cell, best, memory) for cell in firsts if cell.label != best.label),
        tuple(faster),
        tuple(tied),
        frozenset(above[best.key]),
        ruled_out,
        disturbed,
    )


def _rival(cell: CellSummary, best: CellSummary | None, memory: int | None) -> Rival:
    relative = None if best is None else ratio(cell.sample, best.sample)
    return Rival(cell, relative, cell.objection, too_large(cell, memory))


def _is_open(cell: CellSummary, open_work: Collection[str]) -> bool:
    unverified = cell.objection is Exclusion.UNVERIFIED and cell.label in open_work
    return unverified or cell.objection is Exclusion.NO_INTERVAL


def too_large(cell: CellSummary, memory: int | None) -> bool:
    """Return whether a cell used more than ``memory`` bytes."""
    used = cell.figures.peak_rss_bytes
    return memory is not None and used is not None and used > memory


def _known(offered: Sequence[CellSummary], tolerance: float) -> tuple[CellSummary | None, list[CellSummary]]:
    """Return the fastest of the cells that have enough passes, and those within the tolerance of it.

    Cells that are slower than another beyond the interval of their ratio are left out.
    """
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


def _disturbed(counted: Sequence[CellSummary], best: CellSummary, tolerance: float) -> CellSummary | None:
    """Return a cell that may be faster than was measured, and so than ``best``, because others used its CPUs."""
    for cell in counted:
        margin = WIDE if cell is best else tolerance
        if cell.conditions.disturbed and cell.rate > best.rate * (1 + margin) * cell.conditions.share_left:
            return cell
    return None


class Alternative(NamedTuple):
    """A cell that differs from the chosen one in one number: ``share`` is its rate over that one's."""

    cell: CellSummary
    share: float


def alternatives(cells: Iterable[CellSummary], chosen: CellSummary) -> tuple[list[Alternative], list[Alternative]]:
    """Return cells with other numbers of workers, and with other numbers of environments per worker, largest first."""
    rest = [
        Alternative(cell, cell.rate / chosen.rate)
        for cell in sorted(cells, key=lambda cell: (-cell.workers, -cell.envs_per_worker))
        if cell.label == chosen.label and cell.key != chosen.key and cell.rate
    ]
    workers = [one for one in rest if one.cell.envs_per_worker == chosen.envs_per_worker]
    return workers, [one for one in rest if one.cell.workers == chosen.workers]
