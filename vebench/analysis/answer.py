"""The answer for one task: which backend to use, with how many workers, or why none can be named. Pure functions.

A backend is called slower than the fastest only if the difference is significant. The test corrects for all pairs of
backends, because the fastest was chosen by its rate: among equal backends, one always has the highest rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import comb, log
from typing import TYPE_CHECKING

from vebench.analysis.cell import of_key
from vebench.analysis.rules import WIDE
from vebench.analysis.statistics import Contrast, contrast, ratio, verdicts, width_within_run
from vebench.analysis.sweep import ageing
from vebench.backends.registry import REFERENCE
from vebench.plan.cells import rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vebench.analysis.cell import CellSummary, Exclusion
    from vebench.analysis.statistics import Estimate
    from vebench.plan.spec import RunSpec

    Cells = Sequence[CellSummary]

_WORTH_A_WORD = 0.8  # share of the winner's rate from which a cell with fewer workers is mentioned
_APART = 2  # ages of environments differ if one is more than this many times the other


class Reason(Enum):
    """Why no backend can be named as the one to choose."""

    UNUSABLE = auto()  # others, or a quota, had the CPUs of most cells
    NO_BACKEND = auto()  # there are reference rows only
    NOT_MEASURED = auto()  # no cell has a rate yet
    FAILED = auto()  # no cell has a rate, and some have failed or could not run
    DOUBTED = auto()  # one backend at most has a rate without an objection
    ALONE = auto()  # there is nothing to compare it with
    WIDE = auto()  # the highest rate is uncertain, and another backend is not distinguishable from it
    AGED = auto()  # rates change with the steps of environments, and cells had made different numbers of steps


@dataclass(frozen=True)
class TaskAnswer:
    """The answer for one task: which backend to use, with how many workers."""

    reason: Reason | None  # why there is no winner, None if there is one
    contestants: tuple[str, ...] = ()  # the labels of the backends to choose from, without those with an objection
    best: CellSummary | None = None  # the winner, or the cell with the highest rate
    known: CellSummary | None = None  # the fastest cell with a useful interval
    perhaps: CellSummary | None = None  # another size of the best backend, whose higher rate is uncertain
    tied: tuple[CellSummary, ...] = ()  # other cells not distinguishable from the fastest
    smaller: tuple[CellSummary, Estimate] | None = None  # almost as fast with fewer workers, and its share of the rate
    rising: bool = False  # the best cell has the most workers that were measured, and CPUs are left
    in_gymnasium: CellSummary | None = None  # the fastest with Gymnasium's interface, None if ``best`` has it
    of_gymnasium: CellSummary | None = None  # the fastest on Gymnasium's classes, if the cell above steps our own
    doubted: tuple[tuple[CellSummary, Exclusion], ...] = ()  # cells that cannot win, the fastest first

    @property
    def winner(self) -> CellSummary | None:
        """The cell to recommend; None if there is a reason not to."""
        return self.best if self.reason is None else None


def fastest_first(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return the cells with a rate, without reference rows, the fastest first."""
    rated = (cell for cell in cells if cell.rate > 0 and not cell.reference_row)
    return sorted(rated, key=lambda cell: cell.rate, reverse=True)


def first_of_each(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return the first cell of each backend."""
    by_label: dict[str, CellSummary] = {}
    for cell in cells:
        by_label.setdefault(cell.label, cell)
    return list(by_label.values())


def answer(cells: Sequence[CellSummary], spec: RunSpec, usable_cpus: int, *, usable: bool = True) -> TaskAnswer:
    """Return the answer for one task.

    Of the cells not distinguishable from the fastest, with intervals within 20 %, the simplest to use wins. There is no
    winner if another backend has a higher but uncertain rate that is not distinguishable from it. A cell with a wide
    interval wins only if all other backends are significantly slower. Cells with an objection cannot win.

    Parameters
    ----------
    cells
        The cells of the task, with their findings.
    spec, usable_cpus
        The plan of the run, and the CPUs that it could use.
    usable
        Whether the run as a whole was undisturbed enough.
    """
    choices = [cell for cell in cells if not cell.reference_row]
    rated = fastest_first(choices)
    doubted = tuple((cell, cell.objection) for cell in rated if cell.objection is not None)
    valid = [cell for cell in rated if cell.objection is None]
    asked = {choice.name for choice in spec.backends}
    every = (cell.label for cell in valid if cell.label != REFERENCE or not asked or REFERENCE in asked)
    contestants = tuple(dict.fromkeys(every))
    reason = _uncontested(choices, contestants, doubted) if usable or not rated else Reason.UNUSABLE
    if reason is Reason.ALONE:  # the loop was measured for speedups only
        valid = [cell for cell in valid if cell.label in contestants] or valid
    if not valid:
        return TaskAnswer(reason, doubted=doubted)
    # An interval is useful if it is narrow with or without the effects of passes, which cancel in ratios.
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
    """Return a sort key, the simplest to use first.

    The plain loop comes before others, ``step`` before ``send`` and ``recv``, Gymnasium's own interface before others,
    fewer workers before more, fewer environments before more.
    """
    entry = cell.entry
    kind = cell.label != REFERENCE, entry.asynchronous, not entry.gymnasium_api
    return (*kind, cell.workers, cell.envs_per_worker, rank(cell.backend))


def _are_younger(candidates: Cells, valid: Cells, cells: Cells) -> bool:
    """Return whether a candidate may be fast only because its environments had made fewer steps than others.

    This is so if the plain loop slows down with steps, and environments of another cell had made more than twice the
    steps. If the plain loop speeds up, candidates must not have made more steps than others.
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

    The cell with the highest known rate leads if it is of the backend with the highest rate: whichever of the two is
    faster, the backend is the same. Otherwise, or if it does not win, the cell with the highest rate leads.
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

    The test allows for all pairs of ``best`` and the rivals that may be as fast. A rival that lost a share of its CPUs'
    time to others has to be slower by more than this share.
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
    """Return the cell with the fewest workers that is almost as fast as ``best``, and its share of the rate.

    It is not the nearest: that 4 of 32 workers reach 88 % is more useful to know than that 16 reach 92 %.
    """
    fewer = [cell for cell in known if of_key(cell.key) == of_key(best.key) and cell.workers < best.workers]
    for cell in sorted(fewer, key=lambda cell: cell.workers):
        share = ratio(cell.sample, best.sample)
        if share is None or share.median < _WORTH_A_WORD or (significantly and (share.high or 1.0) >= 1.0):
            continue
        return cell, share
    return None
