"""Which of a row of candidates changed a rate: a probabilistic bisection under noise. Pure functions.

Candidate 0 is the good end, ``last`` is the bad one, and one from 1 to ``last`` made the change. Each comparison of a
candidate with the good end multiplies the posterior of every position by the likelihood of what was measured, if that
position were true; the next candidate to compare is at the posterior's median (M. Horstein, Sequential transmission
using noiseless feedback, IEEE Transactions on Information Theory 9, 1963; R. Waeber, P. Frazier, S. Henderson,
Bisection search with noisy responses, SIAM Journal on Control and Optimization 51, 2013).

The likelihood of a log ratio is that of Student's distribution with few degrees of freedom (K. Lange, R. Little,
J. Taylor, Robust statistical modeling using the t distribution, Journal of the American Statistical Association 84,
1989), mixed with an answer by chance, so that no single ratio can decide. Each build has a bias, which all comparisons
of it share: likelihoods are integrated over the biases. There is one change: see ``unclear``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from math import exp, log, sqrt
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vebench.analysis.statistics import Estimate, around

CERTAIN = 0.99  # the posterior at which a candidate is found
# Two builds of the same code differ by about so much, since code and data lie elsewhere: a standard deviation.
BIAS = 0.007
_LEAST_ERROR = 0.001
FREEDOM = 4.0
# The share of comparisons that are taken to say one thing or the other by chance: no single one can decide.
WILD = 0.05
# Standard deviations at which likelihoods are integrated over biases, and how much each counts.
_DEVIATIONS = np.linspace(-3, 3, 25)
_LOG_WEIGHTS = -(_DEVIATIONS**2) / 2
_ROUNDS = 10  # after which weights hardly change
_CLEAR = 2.0  # errors by which a ratio is to be clear of the middle
_BIAS_IS_ALL = 1.2
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

    Each variance counts half, and the median one of all steps the other half.
    """
    common = median([ratio.error**2 for _, ratio in steps]) if steps else 0.0
    return [(at, Ratio(one.log, sqrt((one.error**2 + common) / 2 + _LEAST_ERROR**2))) for at, one in steps]


def pooled(steps: Sequence[Step]) -> dict[int, Ratio]:
    """Return the mean of all ratios of each candidate, weighted by their precision; its error has the build's bias.

    A ratio that is far from the others counts less, as it does in Student's distribution.
    """
    found: dict[int, Ratio] = {}
    for at, ratios in _by_candidate(steps).items():
        values, errors = np.array(ratios).T
        mean = np.median(values)
        for _ in range(_ROUNDS):
            weights = errors**-2 * np.minimum(1, (FREEDOM + 1) / (FREEDOM + ((values - mean) / errors) ** 2))
            mean = np.average(values, weights=weights)
        found[at] = Ratio(float(mean), sqrt(1 / weights.sum() + BIAS**2))
    return found


def posterior(last: int, change: Ratio, steps: Sequence[Step]) -> list[float]:
    """Return the probability of each position of the change: of candidate 0, which is 0, to ``last``.

    ``change`` is the ratio of the bad end, whose error has its build's bias, as that of ``pooled``. ``steps`` are those
    of candidates between the ends. Before the change, a ratio is 1, and from the change on it is that of the bad end.
    """
    # Log likelihoods of each candidate before and after the change, for each level that the ends may truly have: all
    # ratios have the bias of the good end.
    before = np.zeros((len(_DEVIATIONS), last + 1))
    after = np.zeros_like(before)
    for at, ratios in _by_candidate(steps).items():
        values, errors = np.array(ratios).T
        by_chance = WILD / 2 * (_density(values, errors) + _density(values - change.log, errors))
        for found, level in ((before, Ratio(0.0, BIAS)), (after, change)):
            means = level.log + level.error * _DEVIATIONS[:, None, None] + BIAS * _DEVIATIONS[:, None]
            density = (1 - WILD) * _density(values - means, errors) + by_chance
            found[:, at] = np.logaddexp.reduce(np.log(density).sum(axis=-1) + _LOG_WEIGHTS, axis=-1)
    # A change at a position has all candidates below it before, and all others after.
    below = (np.cumsum(each, axis=1)[:, :-1] + _LOG_WEIGHTS[:, None] for each in (before, -after))
    first, second = below
    logs = first[:, None] + second + after.sum(axis=1)[:, None]
    chances = np.exp(logs - logs.max()).sum(axis=(0, 1))
    return [0.0, *map(float, chances / chances.sum())]


def _by_candidate(steps: Sequence[Step]) -> dict[int, list[Ratio]]:
    found: dict[int, list[Ratio]] = {}
    for at, one in moderated(steps):
        found.setdefault(at, []).append(one)
    return found


def _density(distances: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the densities of Student's distribution, but for a factor that all have."""
    return np.exp(-(FREEDOM + 1) / 2 * np.log1p((distances / errors) ** 2 / FREEDOM)) / errors


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


def unclear(found: Answer, change: Ratio, ratios: Mapping[int, Ratio]) -> int | None:
    """Return the candidate on a side of the answer whose ratio may lie in the middle of the ends', None if neither may.

    It is compared again as long as that helps. Where it stays unclear, there may be several changes. ``ratios`` are
    those of candidates between the ends that were compared, by their index.
    """
    sides = {found.first - 1: 0.0, found.last: change.log}
    off = {at: abs(ratios[at].log - level) + _CLEAR * ratios[at].error for at, level in sides.items() if at in ratios}
    return next((at for at, most in off.items() if most > abs(change.log) / 2), None)


def helps(ratio: Ratio) -> bool:
    """Return whether further comparisons of a candidate make its ratio more precise: they all have its bias."""
    return ratio.error > _BIAS_IS_ALL * BIAS
