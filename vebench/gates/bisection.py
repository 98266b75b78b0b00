"""Which candidate changed a rate: a probabilistic bisection under noise. Pure functions.

Candidate 0 is the good end, ``last`` is the bad one, and one from 1 to ``last`` made the change. Each comparison of a
candidate with the good end multiplies the posterior of every position by the likelihood of the measured ratio, if that
position were true. The next candidate to compare is at the posterior's median (M. Horstein, Sequential transmission
using noiseless feedback, IEEE Transactions on Information Theory 9, 1963; R. Waeber, P. Frazier, S. Henderson,
Bisection search with noisy responses, SIAM Journal on Control and Optimization 51, 2013).

A log ratio has Student's distribution with few degrees of freedom (K. Lange, R. Little, J. Taylor, Robust statistical
modeling using the t distribution, Journal of the American Statistical Association 84, 1989), mixed with an answer by
chance, so that no single ratio can decide. Each build has a bias, which all comparisons of it share: likelihoods are
integrated over the biases. There is one change: see ``unclear``.
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
# The standard deviation of two builds of the same code, whose code and data lie elsewhere.
BIAS = 0.007
_LEAST_ERROR = 0.001
FREEDOM = 4.0
# The share of comparisons that are assumed to say one thing or the other by chance: no single one can decide.
WILD = 0.05
# Standard deviations at which likelihoods are integrated over biases, and how much each counts.
_DEVIATIONS = np.linspace(-3, 3, 25)
_LOG_WEIGHTS = -(_DEVIATIONS**2) / 2
_ROUNDS = 10  # after which weights hardly change
_CLEAR = 2.0  # errors by which a ratio must be clear of the middle
_BIAS_IS_ALL = 1.2
# Half of a 95 % interval in standard errors. For few passes it is more, which makes their error larger.
_NORMAL = 1.96


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
    """The candidates ``first`` to ``last``: one of them made the change."""

    first: int
    last: int
    chance: float  # the posterior of that
    found: bool  # it is ``CERTAIN`` or more, and no candidate between them can be compared


class Findings(NamedTuple):
    """The result of all steps so far."""

    chances: list[float]  # the posterior of each candidate
    ratios: dict[int, Ratio]  # of the candidates that were compared
    answer: Answer
    one_change: bool  # the ratios on both sides of the answer are clear of the middle between the ends
    next: int | None  # the candidate to compare next; None if no comparison would help


def judge(last: int, change: Ratio, steps: Sequence[Step], skipped: Collection[int] = ()) -> Findings:
    """Return what these steps show, and which candidate to compare next.

    ``change`` is the ratio of the bad end, ``steps`` are comparisons of candidates between the ends. The ``skipped``
    candidates cannot be compared.
    """
    chances, ratios = posterior(last, change, steps), pooled(steps)
    askable = [at for at in range(1, last) if at not in skipped]
    found = answer(chances, askable)
    if not found.found:
        return Findings(chances, ratios, found, one_change=True, next=to_ask(chances, askable))
    at = unclear(found, change, ratios)
    # All comparisons of a candidate have its bias, so that they do not make its ratio precise without end.
    helps = at is not None and ratios[at].error > _BIAS_IS_ALL * BIAS
    return Findings(chances, ratios, found, one_change=at is None, next=at if helps else None)


def mean_of(ratios: Sequence[Estimate]) -> Ratio:
    """Return the geometric mean of independent ratios, each with an interval."""
    errors = [log(one.high / one.low) / 2 / _NORMAL for one in ratios if one.low and one.high]
    return Ratio(fmean(log(one.median) for one in ratios), sqrt(sum(error**2 for error in errors)) / len(ratios))


def moderated(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with the errors that they count with: the mean of their variance and the median one.

    Few passes show their own error badly.
    """
    common = median([ratio.error**2 for _, ratio in steps]) if steps else 0.0
    return [(at, Ratio(one.log, sqrt((one.error**2 + common) / 2 + _LEAST_ERROR**2))) for at, one in steps]


def pooled(steps: Sequence[Step]) -> dict[int, Ratio]:
    """Return the mean of all ratios of each candidate, weighted by their precision. Its error includes the bias.

    A ratio that is far from the others counts less, as in Student's distribution.
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
    """Return the probability that a candidate made the change, for each from 0, which cannot have made it.

    Before the change, a ratio is 1; from the change on, it is ``change``, whose error includes a bias.
    """
    # Log likelihoods of each candidate before and after the change, for each level that the ends may truly have: all
    # ratios share the bias of the good end.
    before = np.zeros((len(_DEVIATIONS), last + 1))
    after = np.zeros_like(before)
    for at, ratios in _by_candidate(steps).items():
        values, errors = np.array(ratios).T
        by_chance = WILD / 2 * (_density(values, errors) + _density(values - change.log, errors))
        for found, level in ((before, Ratio(0.0, BIAS)), (after, change)):
            means = level.log + level.error * _DEVIATIONS[:, None, None] + BIAS * _DEVIATIONS[:, None]
            density = (1 - WILD) * _density(values - means, errors) + by_chance
            found[:, at] = np.logaddexp.reduce(np.log(density).sum(axis=-1) + _LOG_WEIGHTS, axis=-1)
    # All candidates below the position of the change are before it, and all others after.
    first, second = (np.cumsum(each, axis=1)[:, :-1] + _LOG_WEIGHTS[:, None] for each in (before, -after))
    logs = first[:, None] + second + after.sum(axis=1)[:, None]
    chances = np.exp(logs - logs.max()).sum(axis=(0, 1))
    return [0.0, *map(float, chances / chances.sum())]


def _by_candidate(steps: Sequence[Step]) -> dict[int, list[Ratio]]:
    found: dict[int, list[Ratio]] = {}
    for at, one in moderated(steps):
        found.setdefault(at, []).append(one)
    return found


def _density(distances: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return densities of Student's distribution, without a common factor."""
    return np.exp(-(FREEDOM + 1) / 2 * np.log1p((distances / errors) ** 2 / FREEDOM)) / errors


def to_ask(chances: Sequence[float], askable: Collection[int]) -> int | None:
    """Return the candidate that is nearest to the median of the posterior; None if none can be compared."""
    below = [*accumulate(chances)]
    return min(askable, key=lambda at: (abs(below[at] - 0.5), at), default=None)


def answer(chances: Sequence[float], askable: Collection[int]) -> Answer:
    """Return the candidates between two neighbours that can be compared, if they are certain enough.

    Else, return a credible range: at most half of the allowed error lies to either side.
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
    """Return the candidate next to the change whose ratio may lie in the middle of the ends; None if neither may.

    If it stays unclear, there may be several changes.
    """
    sides = {found.first - 1: 0.0, found.last: change.log}
    off = {at: abs(ratios[at].log - level) + _CLEAR * ratios[at].error for at, level in sides.items() if at in ratios}
    return next((at for at, most in off.items() if most > abs(change.log) / 2), None)
