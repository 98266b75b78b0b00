"""Which of a row of candidates changed a rate: a probabilistic bisection under noise. Pure functions.

Candidate 0 is the good end, ``last`` is the bad one, and one from 1 to ``last`` made the change. Each comparison of a
candidate with the good end multiplies the posterior of every position by the likelihood of what was measured, if that
position were true; the next candidate to compare is at the posterior's median (M. Horstein, Sequential transmission
using noiseless feedback, IEEE Transactions on Information Theory 9, 1963; R. Waeber, P. Frazier, S. Henderson,
Bisection search with noisy responses, SIAM Journal on Control and Optimization 51, 2013).

The likelihood of a log ratio is that of Student's distribution with few degrees of freedom (K. Lange, R. Little,
J. Taylor, Robust statistical modeling using the t distribution, Journal of the American Statistical Association 84,
1989), mixed with an answer by chance, so that no single ratio can decide.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import exp, log, log1p, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.statistics import Estimate, around

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

CERTAIN = 0.99  # the posterior at which a candidate is found
# The least error of a ratio: two builds of the same code differ by about so much, since code and data lie elsewhere.
FLOOR = 0.005
FREEDOM = 4.0
# The share of comparisons that are taken to say one thing or the other by chance: no single one can decide.
WILD = 0.05
_NORMAL = 1.96  # half of a 95 % interval in standard errors; for few passes it is more, and the error so much larger


class Ratio(NamedTuple):
    """The logarithm of a rate relative to the good end's, and its standard error."""

    log: float
    error: float

    @property
    def estimate(self) -> Estimate:
        """The ratio with its 95 % interval."""
        return around(exp(self.log), _NORMAL * self.error)


Step = tuple[int, Ratio]  # a candidate, and what one comparison with the good end has shown


class Answer(NamedTuple):
    """The candidates ``first`` to ``last``, one of which made the change with the posterior ``chance``.

    ``found``: that is ``CERTAIN`` or more, and no candidate between them can be compared.
    """

    first: int
    last: int
    chance: float
    found: bool


def mean_of(ratios: Sequence[Estimate]) -> Ratio:
    """Return the geometric mean of independent ratios, each with an interval."""
    errors = [log(one.high / one.low) / 2 / _NORMAL for one in ratios if one.low and one.high]
    return Ratio(fmean(log(one.median) for one in ratios), sqrt(sum(error**2 for error in errors)) / len(ratios))


def moderated(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with the errors that they count with: few passes show their own error badly.

    Each variance counts half, and the median one of all steps the other half; ``FLOOR`` is added.
    """
    common = median([ratio.error**2 for _, ratio in steps]) if steps else 0.0
    return [(at, Ratio(one.log, sqrt((one.error**2 + common) / 2 + FLOOR**2))) for at, one in steps]


def pooled(steps: Sequence[Step]) -> dict[int, Ratio]:
    """Return the mean of all ratios of each candidate, weighted by their precision."""
    found: dict[int, Ratio] = {}
    for at in dict.fromkeys(at for at, _ in steps):
        weights = [(one.error**-2, one.log) for place, one in moderated(steps) if place == at]
        total = sum(weight for weight, _ in weights)
        found[at] = Ratio(sum(weight * value for weight, value in weights) / total, sqrt(1 / total))
    return found


def posterior(last: int, change: Ratio, steps: Sequence[Step]) -> list[float]:
    """Return the probability of each position of the change: of candidate 0, which is 0, to ``last``.

    ``change`` is the ratio of the bad end, ``steps`` are those of candidates between the ends. Before the change, a
    ratio is 1, and from the change on it is that of the bad end.
    """
    gains = [0.0] * (last + 1)  # by how much log likelihood grows if a candidate is before the change, not after it
    for at, ratio in moderated(steps):
        before = _density(ratio.log, ratio.error)
        after = _density(ratio.log - change.log, sqrt(ratio.error**2 + change.error**2))
        by_chance = WILD / 2 * (before + after)
        gains[at] += log((1 - WILD) * before + by_chance) - log((1 - WILD) * after + by_chance)
    logs = [*accumulate(gains[:-1])]
    highest = max(logs)
    shares = [exp(value - highest) for value in logs]
    whole = sum(shares)
    return [0.0, *(share / whole for share in shares)]


def _density(distance: float, error: float) -> float:
    """Return the density of Student's distribution, but for a factor that all have."""
    return exp(-(FREEDOM + 1) / 2 * log1p((distance / error) ** 2 / FREEDOM)) / error


def to_ask(chances: Sequence[float], askable: Collection[int]) -> int | None:
    """Return which candidate to compare next, the one nearest to the median of the posterior; None if there is none."""
    below = [*accumulate(chances)]
    return min(askable, key=lambda at: (abs(below[at] - 0.5), at), default=None)


def answer(chances: Sequence[float], askable: Collection[int]) -> Answer:
    """Return the candidates between two that can be compared if they are certain enough, else a credible range.

    Of that range, at most half of the error that is allowed lies to either side.
    """
    last = len(chances) - 1
    bounds = pairwise([0, *sorted(askable), last])
    parts = [(one + 1, other, sum(chances[one + 1 : other + 1])) for one, other in bounds]
    best = max(parts, key=lambda part: part[2])
    if best[2] >= CERTAIN:
        return Answer(*best, found=True)
    aside = (1 - CERTAIN) / 2
    inside = [part for part in parts if sum(chances[: part[1] + 1]) > aside and sum(chances[part[0] :]) > aside]
    first, end = inside[0][0], inside[-1][1]
    return Answer(first, end, sum(chances[first : end + 1]), found=False)
