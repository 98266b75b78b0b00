"""The answer for one task: which backend to use, with how many workers, or why none can be named. Pure functions.

A backend is called slower than the fastest only if the difference is significant. The test corrects for all pairs of
backends, because the fastest was chosen by its rate: among equal backends, one always has the highest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import comb, log
from typing import TYPE_CHECKING

from vebench.analysis.cell import of_key
from vebench.analysis.rules import WIDE, ageing
from vebench.analysis.statistics import Contrast, contrast, ratio, verdicts, width_within_run
from vebench.backends.registry import REFERENCE
from vebench.plan.cells import rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vebench.analysis.cell import CellSummary, Exclusion
    from vebench.analysis.statistics import Estimate
    from vebench.plan.spec import RunSpec

    Cells = Sequence[CellSummary]

# Fewer workers that are slower than the winner are mentioned if they lose at most a fifth of its rate.
_WORTH_A_WORD = 0.8
_APART = 2  # ages of environments that are compared: the larger over the smaller


class Reason(Enum):
    """Why no backend can be named as the one to choose."""

    UNUSABLE = auto()  # others, or a quota, had the CPUs of most cells
    NO_BACKEND = auto()  # there are reference rows only
    NOT_MEASURED = auto()  # no cell has a rate yet
    FAILED = auto()  # no cell has a rate, and some have failed or could not run
    DOUBTED = auto()  # one backend at most is left without those that are in doubt
    ALONE = auto()  # there is nothing to compare it with
    WIDE = auto()  # the highest rate is uncertain, and another backend is not distinguishable from it
    AGED = auto()  # rates change with the steps of environments, and cells had made different numbers of steps


@dataclass(frozen=True)
class TaskAnswer:
    """The answer for one task to the question which backend and how many workers to use.

    ``reason`` is why there is no winner, None if there is one. ``contestants`` are the labels of the backends to choose
    from: those asked for with a rate that is not in doubt. ``best`` is the cell with the highest rate that is not in
    doubt; if there is a winner, the simplest to use of those not distinguishable from the fastest. ``known`` is the
    fastest of those that are known well enough. ``perhaps``: a size of the same backend with a higher, uncertain rate.
    ``tied`` are the others not distinguishable from the fastest, itself among them; without a winner, the best cells of
    other backends. ``rising``: the most workers that were measured were the best, and there are CPUs left.
    ``in_gymnasium`` is the fastest cell of those that need no interface but Gymnasium's, None if ``best`` is one of
    them; ``of_gymnasium`` of those whose environments are Gymnasium's, too, None unless the other one steps
    environments of our own. ``doubted``: the fastest first.
    """

    reason: Reason | None
    contestants: tuple[str, ...] = ()
    best: CellSummary | None = None
    known: CellSummary | None = None
    perhaps: CellSummary | None = None
    tied: tuple[CellSummary, ...] = ()
    smaller: tuple[CellSummary, Estimate] | None = None
    rising: bool = False
    in_gymnasium: CellSummary | None = None
    of_gymnasium: CellSummary | None = None
    doubted: tuple[tuple[CellSummary, Exclusion], ...] = ()

    @property
    def winner(self) -> CellSummary | None:
        """The cell to recommend; None if there is a reason not to."""
        return self.best if self.reason is None else None


def fastest_first(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return the cells that have a rate and are no reference rows, the one with the highest rate first."""
    rated = (cell for cell in cells if cell.rate > 0 and not cell.reference_row)
    return sorted(rated, key=lambda cell: cell.rate, reverse=True)


def first_of_each(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return the first cell of each backend."""
    by_label: dict[str, CellSummary] = {}
    for cell in cells:
        by_label.setdefault(cell.label, cell)
    return list(by_label.values())


def answer(cells: Sequence[CellSummary], spec: RunSpec, usable_cpus: int, *, usable: bool = True) -> TaskAnswer:
    """Return what the cells of one task answer: those of a run that asked for ``spec``, findings included.

    ``usable``: the run as a whole is not too disturbed. The simplest setting wins that is not distinguishable from the
    fastest and known to 20 %, unless a higher rate that is uncertain, of another backend, is not distinguishable from
    it. A rate that is hardly known wins only if all other backends are significantly slower even so. A rate that is in
    doubt is passed over.
    """
    choices = [cell for cell in cells if not cell.reference_row]
    rated = fastest_first(choices)
    doubted = tuple((cell, cell.objection) for cell in rated if cell.objection is not None)
    valid = [cell for cell in rated if cell.objection is None]
    asked = {choice.name for choice in spec.backends}
    every = (cell.label for cell in valid if cell.label != REFERENCE or not asked or REFERENCE in asked)
    contestants = tuple(dict.fromkeys(every))
    reason = _uncontested(choices, contestants, doubted) if usable or not rated else Reason.UNUSABLE
    if reason is Reason.ALONE:  # and not the loop beside it
        valid = [cell for cell in valid if cell.label in contestants] or valid
    if not valid:
        return TaskAnswer(reason, doubted=doubted)
    # Known well enough, with or without what passes did to all cells alike.
    widths = {cell.key: (cell.half_width, width_within_run(cell.sample)) for cell in valid}
    known = [cell for cell in valid if any(width is not None and width <= WIDE for width in widths[cell.key])]
    lead, tied, wide = _contest(valid, known)
    fastest = best = valid[0] if reason else lead
    reason = reason or (Reason.WIDE if wide else None)
    if reason is None:
        labels = {cell.label for cell in (fastest, *tied)}
        sizes = [cell for cell in known if cell.label in labels and cell not in (fastest, *tied)]
        candidates = (fastest, *tied, *_tied(fastest, sizes))
        if _are_younger(candidates, valid, cells):
            reason = Reason.AGED
    if reason is None:
        fit = (cell for cell in candidates if cell is fastest or (cell in known and not cell.conditions.disturbed))
        best = min(fit, key=_simplest_first)
        tied = tuple(cell for cell in candidates if cell is not best)
    smaller = _smaller(best, known, significantly=reason is None)
    measured = {cell.workers for cell in choices if of_key(cell.key) == of_key(best.key)}
    plain = [cell for cell in valid if cell.entry.gymnasium_api]
    in_gymnasium = None if best.entry.gymnasium_api else next(iter(plain), None)
    own = (in_gymnasium or best).built.steps_own_classes
    of_gymnasium = next((cell for cell in plain if not cell.built.steps_own_classes), None)
    return TaskAnswer(
        reason,
        contestants,
        best,
        known=known[0] if known else None,
        perhaps=None if fastest is valid[0] else valid[0],
        tied=tied,
        smaller=smaller,
        rising=smaller is None and len(measured) > 1 and best.workers == max(measured) and best.workers < usable_cpus,
        in_gymnasium=in_gymnasium,
        of_gymnasium=of_gymnasium if own else None,
        doubted=doubted,
    )


def _simplest_first(cell: CellSummary) -> tuple[bool, bool, bool, int, int, tuple[bool, int]]:
    """Return the key that sorts settings by how simple they are to use.

    The plain loop before others, ``step`` before ``send`` and ``recv``, Gymnasium's own interface before others, fewer
    workers before more, fewer environments before more.
    """
    entry = cell.entry
    kind = cell.label != REFERENCE, entry.asynchronous, not entry.gymnasium_api
    return (*kind, cell.workers, cell.envs_per_worker, rank(cell.backend))


def _are_younger(candidates: Cells, valid: Cells, cells: Cells) -> bool:
    """Return whether a candidate may be fast only because its environments had made fewer steps than others.

    Only if the plain loop slows down with steps, and environments of another cell had made more than twice the steps.
    If the plain loop speeds up, the other way round.
    """
    found = ageing(cell for cell in cells if cell.label == REFERENCE)
    # Logarithms of steps.
    ages = {cell.key: cell.figures.stability.age for cell in valid if cell.figures.stability.age is not None}
    mine = [ages[cell.key] for cell in candidates if cell.key in ages]
    if found is None or not mine:
        return False
    slows_down = found.slope.log < 0
    return (max(ages.values()) - min(mine) if slows_down else max(mine) - min(ages.values())) > log(_APART)


def _uncontested(
    choices: Cells, rivals: Sequence[str], doubted: Iterable[tuple[CellSummary, Exclusion]]
) -> Reason | None:
    if not choices:
        return Reason.NO_BACKEND
    if len(rivals) > 1:
        return None
    if any(cell.label not in rivals for cell, _ in doubted):
        return Reason.DOUBTED
    if any(cell.rate > 0 for cell in choices):
        return Reason.ALONE
    ended = any(cell.faulty_repeats for cell in choices) or all(cell.status == "skipped" for cell in choices)
    return Reason.FAILED if ended else Reason.NOT_MEASURED


def _contest(valid: Cells, known: Cells) -> tuple[CellSummary, tuple[CellSummary, ...], bool]:
    """Return the leading cell, other backends' best cells not distinguishable from it, and whether it is too wide.

    It is the cell with the highest known rate, if that is a size of the backend with the highest rate: whichever of the
    two is faster, the backend is the same. Otherwise, or if it does not win, it is the cell with the highest rate.
    """
    best = valid[0]
    rivals = [cell for cell in first_of_each(valid) if cell.label != best.label]
    own = [cell for cell in known[:1] if cell is not best and cell.label == best.label]
    for lead in (*own, best):
        tied = _tied(lead, rivals)
        wide = bool(tied) and (lead not in known or any(cell.rate > lead.rate for cell in tied))
        if not wide:
            break
    return lead, tied, wide


def _tied(best: CellSummary, rivals: Sequence[CellSummary]) -> tuple[CellSummary, ...]:
    """Return the rivals that are not significantly slower.

    While some rivals may be as fast as ``best``, any pair of these and ``best`` might have been compared. A rival that
    lost a share of its CPUs' time to others has to be slower by more than that share.
    """
    ratios = {}
    for cell in rivals:
        left = cell.conditions.share_left
        found = contrast([(1.0, cell.sample), (-1.0, best.sample)])
        ratios[cell.key] = Contrast(found.log - log(left), found.error) if found is not None and left > 0 else None
    judged = verdicts(ratios, tests=lambda left: comb(1 + left, 2))
    return tuple(cell for cell in rivals if judged[cell.key] != "slower")


def _smaller(
    best: CellSummary, known: Sequence[CellSummary], *, significantly: bool
) -> tuple[CellSummary, Estimate] | None:
    """Return the cell with the fewest workers that is slower than ``best`` by little, with the share that it reaches.

    The fewest are named, not the nearest: 4 of 32 workers that reach 88 % are of more use to know than 16 that reach
    92 %.
    """
    fewer = [cell for cell in known if of_key(cell.key) == of_key(best.key) and cell.workers < best.workers]
    for cell in sorted(fewer, key=lambda cell: cell.workers):
        share = ratio(cell.sample, best.sample)
        if share is None or share.median < _WORTH_A_WORD or (significantly and (share.high or 1.0) >= 1.0):
            continue
        return cell, share
    return None
