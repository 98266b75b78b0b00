"""The answer for one task: which backend to use, with how many workers, or why none can be named. Pure functions.

A backend is called slower than the fastest only if the difference is significant. The test corrects for all pairs of
backends, because the fastest was chosen by its rate: among equal backends, one always has the highest rate.

In a race, a setting that is significantly slower than the leader is measured no more (successive elimination:
E. Even-Dar, S. Mannor, Y. Mansour, Action elimination and stopping conditions for the multi-armed bandit, JMLR 2006).
Where the time that is left does not suffice for all others, those with the lowest rates are left out, so that the best
get as many passes as a comparison needs (sequential halving: Z. Karnin, T. Koren, O. Somekh, Almost optimal exploration
in multi-armed bandits, ICML 2013). Each look at the data has its share of the error that is allowed in total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import comb, log
from typing import NamedTuple

from vebench.analysis.cell import CellSummary, Exclusion, ageing, of_key
from vebench.analysis.rules import WIDE
from vebench.analysis.statistics import (
    FEWEST_FOR_INTERVAL,
    Contrast,
    Estimate,
    Sample,
    contrast,
    ratio,
    verdicts,
    width_within_run,
)
from vebench.analysis.summary import rated
from vebench.backends.registry import REFERENCE, YARDSTICK
from vebench.plan.cells import Cell, CellKey, rank
from vebench.plan.spec import PASSES_OF_ALL, RunSpec
from vebench.results.records import Run

_Cells = Sequence[CellSummary]

PASSES_TO_COMPARE = 4  # the fewest of a useful comparison
_APART = 2  # ages of environments differ if one is more than this many times the other
_WORTH_A_WORD = 0.8  # share of the winner's rate from which a cell with fewer workers is mentioned
_ERROR = 0.05  # the probability, over all looks of a race, of giving up the best or of calling another as good
# One pass does not show how processes vary: settings below this share of the leader are dropped anyway.
_HOPELESS = 0.6


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


def answer_for(cells: Sequence[CellSummary], spec: RunSpec, usable_cpus: int, *, usable: bool = True) -> TaskAnswer:
    """Return the answer for one task, given its cells. ``usable``: the run as a whole was undisturbed enough.

    Of the cells not distinguishable from the fastest, with intervals within 20 %, the simplest to use wins. There is no
    winner if another backend has a higher but uncertain rate that is not distinguishable from it. A cell with a wide
    interval wins only if all other backends are significantly slower. Cells with an objection cannot win.
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
    """Return a sort key: the plain loop first, ``step`` before ``send``, Gymnasium's interface, few workers."""
    entry = cell.entry
    kind = cell.label != REFERENCE, entry.asynchronous, not entry.gymnasium_api
    return (*kind, cell.workers, cell.envs_per_worker, rank(cell.backend))


def _are_younger(candidates: _Cells, valid: _Cells, cells: _Cells) -> bool:
    """Return whether a candidate may be fast only because its environments had made fewer steps than others.

    If the plain loop slows down with steps, environments of no other cell may have made more than twice the steps.
    If the plain loop speeds up, candidates must not have made more steps than others.
    """
    found = ageing(cell for cell in cells if cell.label == REFERENCE)
    ages = {cell.key: cell.figures.stability.age for cell in valid if cell.figures.stability.age is not None}
    mine = [ages[cell.key] for cell in candidates if cell.key in ages]
    if found is None or not mine:
        return False
    slows_down = found.slope < 0
    return (max(ages.values()) - min(mine) if slows_down else max(mine) - min(ages.values())) > log(_APART)


def _uncontested(
    choices: _Cells, rivals: Sequence[str], doubted: Iterable[tuple[CellSummary, Exclusion]]
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


def _contest(valid: _Cells, known: _Cells) -> tuple[CellSummary, tuple[CellSummary, ...], bool]:
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


def _smaller(best: CellSummary, known: _Cells, *, significantly: bool) -> tuple[CellSummary, Estimate] | None:
    """Return the cell with the fewest workers that is almost as fast as ``best``, and its share of the rate.

    It is not the nearest: that 4 of 32 workers reach 88 % is more useful to know than that 16 reach 92 %.
    """
    fewer = [cell for cell in known if of_key(cell.key) == of_key(best.key) and cell.workers < best.workers]
    for cell in sorted(fewer, key=lambda cell: cell.workers):
        share = ratio(cell.sample, best.sample)
        below = share is not None and share.high is not None and share.high < 1.0
        if share is not None and share.median >= _WORTH_A_WORD and (below or not significantly):
            return cell, share
    return None


class RaceState(NamedTuple):
    """How a race stands."""

    alive: tuple[CellKey, ...]  # may still be the fastest, the one with the highest rate first
    decided: bool  # none of the others is significantly faster than the first by more than the tolerance


def level_of_look(look: int) -> float:
    """Return the error that the look number ``look``, from 1 on, may make: all of them together make ``_ERROR``."""
    return _ERROR / (look * (look + 1))


def standing(rates: Mapping[CellKey, Sample], look: int, tolerance: float) -> RaceState:
    """Return how a race stands, given the rates of all that were not given up before."""
    known = {key: rate for key, rate in rates.items() if rate.positive}
    if not known:
        return RaceState((), decided=False)
    leader, *others = sorted(known, key=lambda key: known[key].level, reverse=True)
    level = level_of_look(look)
    still = contenders(known, leader, 0.0, level)
    alive = (leader, *(key for key in others if key in still))
    return RaceState(alive, decided=not contenders(known, leader, tolerance, level))


def contenders(rates: Mapping[CellKey, Sample], key: CellKey, tolerance: float, level: float) -> set[CellKey]:
    """Return the cells whose positive rate may exceed the rate of ``key`` by more than the tolerance."""
    against = {}
    for other in rates.keys() - {key}:
        # A single pass does not show how processes vary.
        alone = min(rates[other].processes, rates[key].processes) < FEWEST_FOR_INTERVAL
        against[other] = None if alone else contrast([(1.0, rates[other]), (-1.0, rates[key])])
    verdict = verdicts(against, low=1 / (1 - tolerance), level=level)
    return {
        other
        for other, found in against.items()
        if verdict[other] != "slower" and (found or rates[other].level / rates[key].level >= _HOPELESS)
    }


def racing(cells: Iterable[Cell], run: Run) -> Iterator[Cell]:
    """Yield the planned cells of the backends that may still be the fastest on their task.

    The first decision follows the passes that all cells have, and each later pass is followed by another. A backend
    that was dropped stays out. The reference rows of a task stay in as long as one of its backends.
    """
    passes: dict[str, int] = {}
    for record in run.cells:
        passes[record.env] = max(record.repeat, passes.get(record.env, 0))
    going = {record.key.without_repeat for record in run.cells if record.repeat == passes[record.env]}
    known = [
        cell
        for cell in rated(run)
        if cell.key in going and not (cell.reference_row or cell.excluded)
        if not (cell.verdict == "unverified" and cell.work.reason)  # it can never win
    ]
    look = max(passes.values(), default=0) - PASSES_OF_ALL + 2
    alive: set[tuple[str, str]] = set()
    for env in passes:
        ranked = sorted((cell for cell in known if cell.env == env), key=lambda cell: cell.rate)
        best_of_each = {cell.label: cell for cell in ranked}
        race = standing({cell.key: cell.sample for cell in best_of_each.values()}, look, tolerance=0.0)
        alive |= {(env, key.backend) for key in race.alive}
        # A disturbed cell might be the fastest on an idle machine, so keep it.
        slowed = [cell for cell in ranked if cell.conditions.disturbed]
        alive |= {(env, cell.label) for cell in slowed if cell.rate >= cell.conditions.share_left * ranked[-1].rate}
    tasks = {env for env, _ in alive}
    for planned in cells:
        if planned.key.without_repeat not in going:
            continue
        reference = planned.is_base or planned.backend.name == YARDSTICK
        if (planned.task.id, planned.backend.label) in alive or (reference and planned.task.id in tasks):
            yield planned


def affordable(
    alive: Sequence[CellKey], passes: Mapping[CellKey, int], cost: Mapping[CellKey, float], left: float
) -> tuple[CellKey, ...]:
    """Return the best of ``alive`` that can all reach ``PASSES_TO_COMPARE`` within ``left`` seconds; at least two.

    ``passes`` has the number of passes of each cell, ``cost`` the seconds that another one takes.
    """
    spent = 0.0
    for number, key in enumerate(alive):
        spent += cost[key] * max(1, PASSES_TO_COMPARE - passes.get(key, 0))
        if spent > left and number > 1:
            return tuple(alive[:number])
    return tuple(alive)
