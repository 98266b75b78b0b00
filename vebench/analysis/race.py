"""Which cells of a race go on. Pure functions.

A setting that is significantly slower than the leader is measured no more (successive elimination: E. Even-Dar,
S. Mannor, Y. Mansour, Action elimination and stopping conditions for the multi-armed bandit, JMLR 7, 2006). Where the
time that is left does not suffice for all others, those with the lowest rates are left out, so that the best get as
many passes as a comparison needs (sequential halving: Z. Karnin, T. Koren, O. Somekh, Almost optimal exploration in
multi-armed bandits, ICML 2013). Comparisons are made as in reports: paired by passes, all of them tested together,
and each look at the data has its share of the error that is allowed in total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Sample, contrast, verdicts
from vebench.analysis.summary import rated
from vebench.backends.registry import YARDSTICK
from vebench.plan.cells import Cell, CellKey
from vebench.plan.spec import PASSES_OF_ALL
from vebench.results.records import Run

_ERROR = 0.05  # the probability, over all looks, of giving up the best or of calling another as good
# One pass does not show how processes vary: settings below this share of the leader are dropped anyway.
_HOPELESS = 0.6
# The fewest passes of a useful comparison.
FEWEST_PASSES = 4


class Race(NamedTuple):
    """How a race stands: those ``alive`` may still be the fastest, the one with the highest rate first.

    ``decided``: none of the others is significantly faster than that by more than the tolerance.
    """

    alive: tuple[CellKey, ...]
    decided: bool


def level_of_look(look: int) -> float:
    """Return the error that the look number ``look``, from 1 on, may make: all of them together make ``_ERROR``."""
    return _ERROR / (look * (look + 1))


def standing(rates: Mapping[CellKey, Sample], look: int, tolerance: float) -> Race:
    """Return how a race stands, given the rates of all that were not given up before.

    ``tolerance`` is the share of the leader's rate by which another may be faster without being missed.
    """
    known = {key: rate for key, rate in rates.items() if rate.positive}
    if not known:
        return Race((), decided=False)
    leader, *others = sorted(known, key=lambda key: known[key].level, reverse=True)
    level = level_of_look(look)
    still = contenders(known, leader, 0.0, level)
    alive = (leader, *(key for key in others if key in still))
    return Race(alive, decided=not contenders(known, leader, tolerance, level))


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
    alive = may_be_fastest({cell.key: cell.sample for cell in known}, look)
    # A disturbed cell might be the fastest on an idle machine, so keep it.
    best = {cell.env: cell.rate for cell in sorted(known, key=lambda cell: cell.rate)}
    slowed = (
        cell for cell in known if cell.conditions.disturbed and cell.rate >= cell.conditions.share_left * best[cell.env]
    )
    alive |= {(cell.env, cell.label) for cell in slowed}
    tasks = {env for env, _ in alive}
    for planned in cells:
        if planned.key.without_repeat not in going:
            continue
        reference = planned.is_base or planned.backend.name == YARDSTICK
        if (planned.task.id, planned.backend.label) in alive or (reference and planned.task.id in tasks):
            yield planned


def may_be_fastest(rates: Mapping[CellKey, Sample], look: int) -> set[tuple[str, str]]:
    """Return the tasks and backends whose best rate is not significantly below the highest, at this ``look`` from 1."""
    best: dict[str, dict[str, CellKey]] = {}
    moving = [key for key, rate in rates.items() if rate.positive]
    for key in sorted(moving, key=lambda key: rates[key].level):
        best.setdefault(key.env, {})[key.backend] = key
    races = (standing({key: rates[key] for key in keys.values()}, look, tolerance=0.0) for keys in best.values())
    return {(key.env, key.backend) for race in races for key in race.alive}


def affordable(
    alive: Sequence[CellKey], passes: Mapping[CellKey, int], cost: Mapping[CellKey, float], left: float
) -> tuple[CellKey, ...]:
    """Return the best of ``alive`` that can all reach ``FEWEST_PASSES`` within ``left`` seconds; at least two.

    - ``passes``: the number of passes that each cell has
    - ``cost``: the seconds that another pass of each cell takes
    """
    spent = 0.0
    for number, key in enumerate(alive):
        spent += cost[key] * max(1, FEWEST_PASSES - passes.get(key, 0))
        if spent > left and number > 1:
            return tuple(alive[:number])
    return tuple(alive)
