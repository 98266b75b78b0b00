"""Which of many settings may still be the fastest, while they are measured pass by pass. Pure functions.

A setting that is slower than the leader beyond doubt is measured no more (successive elimination: E. Even-Dar,
S. Mannor, Y. Mansour, Action elimination and stopping conditions for the multi-armed bandit, JMLR 7, 2006). Where the
time that is left does not suffice for all others, those with the lowest rates are left out, so that the best get as
many passes as a comparison needs (sequential halving: Z. Karnin, T. Koren, O. Somekh, Almost optimal exploration in
multi-armed bandits, ICML 2013). The comparisons are those of reports: paired by passes, all of them tested together,
and each look at the data has its share of the error that is allowed in total.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from vebench.analysis.contrasts import contrast, rejected
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vebench.analysis.contrasts import Contrast
    from vebench.analysis.statistics import Sample

Key = TypeVar("Key")

_ERROR = 0.05  # the probability, over all looks, of giving up the best or of calling another as good
# After one pass nothing is known of how processes vary: what is below this share of the leader is given up anyway.
_HOPELESS = 0.6
# As many passes a comparison needs to be worth something.
FEWEST_PASSES = 4


@dataclass(frozen=True)
class Race(Generic[Key]):
    """How a race stands: those ``alive`` may still be the fastest, the leader first.

    ``decided``: none of the others is faster than the leader by more than the tolerance, beyond doubt.
    """

    alive: tuple[Key, ...]
    decided: bool

    @property
    def leader(self) -> Key | None:
        """The setting with the highest rate, None if none has one."""
        return self.alive[0] if self.alive else None


def level_of_look(look: int) -> float:
    """Return the error that the look number ``look``, from 1 on, may make: all of them together make ``_ERROR``."""
    return _ERROR / (look * (look + 1))


def standing(rates: Mapping[Key, Sample], look: int, tolerance: float) -> Race[Key]:
    """Return how a race stands, given the rates of all that were not given up before.

    ``tolerance`` is the share of the leader's rate by which another may be faster without being missed.
    """
    rated = [key for key, rate in rates.items() if rate.rates and min(rate.rates) > 0]
    if not rated:
        return Race((), decided=False)
    leader, *others = sorted(rated, key=lambda key: rates[key].level, reverse=True)
    level, known = level_of_look(look), {key: rates[key] for key in rated}
    still = contenders(known, leader, 0.0, level)
    alive = (leader, *(key for key in others if key in still))
    return Race(alive, decided=not contenders(known, leader, tolerance, level))


def contenders(rates: Mapping[Key, Sample], key: Key, tolerance: float, level: float) -> set[Key]:
    """Return which of these positive rates may be above that of ``key`` by more than the tolerance.

    The others are not, with an error of ``level`` for all of them together.
    """
    against = {other: _beside(rates[other], rates[key]) for other in rates if other != key}
    hopeless = {other for other, found in against.items() if found is None and _share(rates, other, key) < _HOPELESS}
    return against.keys() - _beyond_doubt(against, 1 / (1 - tolerance), level) - hopeless


def _beside(one: Sample, leader: Sample) -> Contrast | None:
    """Return the ratio to the leader; None after a single pass, which does not show how processes vary."""
    alone = one.processes < FEWEST_FOR_INTERVAL or leader.processes < FEWEST_FOR_INTERVAL
    return None if alone else contrast([(1.0, one), (-1.0, leader)])


def _beyond_doubt(against: Mapping[Key, Contrast | None], bound: float, level: float) -> set[Key]:
    """Return those whose ratio to the leader is below ``bound``, all tested together."""
    chances = [1.0 if one is None else one.chance_above(bound) for one in against.values()]
    return {key for key, found in zip(against, rejected(chances, level), strict=True) if found}


def _share(rates: Mapping[Key, Sample], key: Key, leader: Key) -> float:
    return rates[key].level / rates[leader].level


def affordable(race: Race[Key], passes: Mapping[Key, int], cost: Mapping[Key, float], left: float) -> tuple[Key, ...]:
    """Return those of the living that are worth a further pass, given ``left`` seconds and what a pass of each costs.

    ``passes`` is how many passes each has. As many stay as can get ``FEWEST_PASSES`` in the time that is left, the best
    first, two at least.
    """
    kept: list[Key] = []
    spent = 0.0
    for key in race.alive:
        wanted = max(1, FEWEST_PASSES - passes.get(key, 0))
        spent += cost[key] * wanted
        if spent > left and len(kept) > 1:
            break
        kept.append(key)
    return tuple(kept)
