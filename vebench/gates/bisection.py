"""Which candidate changed a rate: a probabilistic bisection under noise. Pure functions.

Candidate 0 is the good end, ``last`` is the bad one, and one from 1 to ``last`` made the change. Each comparison of a
candidate with the good end multiplies the posterior of every position by the likelihood of the measured ratio, if that
position were true. The next candidate to compare is at the posterior's median (M. Horstein, Sequential transmission
using noiseless feedback, IEEE Transactions on Information Theory 9, 1963; R. Waeber, P. Frazier, S. Henderson,
Bisection search with noisy responses, SIAM Journal on Control and Optimization 51, 2013).

A log ratio has Student's distribution with few degrees of freedom (K. Lange, R. Little, J. Taylor, Robust statistical
modeling using the t distribution, Journal of the American Statistical Association 84, 1989), mixed with an answer by
chance, so that no single ratio can decide. Each build has a bias, which all comparisons of it share: likelihoods are
integrated over the biases. There is one change: see ``Findings.one_change``.
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
_FREEDOM = 4.0
# The share of comparisons that are assumed to say one thing or the other by chance: no single one can decide.
_WILD = 0.05
# Standard deviations at which likelihoods are integrated over biases, and how much each counts.
_DEVIATIONS = np.linspace(-3, 3, 25)
_LOG_WEIGHTS = -(_DEVIATIONS**2) / 2
_ROUNDS = 10  # after which weights hardly change
_CLEAR = 2.0  # errors by which a ratio must be clear of the middle
_BIAS_IS_ALL = 1.2
# Half of a 95 % interval in standard errors. For few passes it is more, which makes their error larger.
_NORMAL = 1.96


class LogRatio(NamedTuple):
    """The logarithm of a rate relative to the good end's, and its standard error."""

    log: float
    error: float

    @property
    def estimate(self) -> Estimate:
        """The ratio with its 95 % interval."""
        return around(exp(self.log), _NORMAL * self.error)


class Suspects(NamedTuple):
    """The candidates ``first`` to ``last``: one of them made the change."""

    first: int
    last: int
    chance: float  # the posterior of that
    found: bool  # it is ``CERTAIN`` or more, and no candidate between them can be compared


class Findings(NamedTuple):
    """The result of all steps so far."""

    chances: list[float]  # the posterior of each candidate
    ratios: dict[int, LogRatio]  # of the candidates that were compared
    suspects: Suspects
    one_change: bool  # the ratios on both sides of the suspects are clear of the middle between the ends
    next: int | None  # the candidate to compare next; None if no comparison would help


def look(last: int, change: LogRatio, steps: Sequence[tuple[int, LogRatio]], skipped: Collection[int] = ()) -> Findings:
    """Return what these steps show, and which candidate to compare next, none of the ``skipped``."""
    by_candidate = _by_candidate(steps)
    chances = _posterior(last, change, by_candidate)
    ratios = {at: _mean(*both) for at, both in by_candidate.items()}
    askable = [at for at in range(1, last) if at not in skipped]
    found = _suspects(chances, askable)
    if not found.found:
        below = [*accumulate(chances)]
        nearest = min(askable, key=lambda at: (abs(below[at] - 0.5), at), default=None)  # to the median
        return Findings(chances, ratios, found, one_change=True, next=nearest)
    for at, level in ((found.first - 1, 0.0), (found.last, change.log)):
        if at in ratios and abs(ratios[at].log - level) + _CLEAR * ratios[at].error > abs(change.log) / 2:
            # All comparisons of a candidate have its bias, so that they do not make its ratio precise without end.
            helps = ratios[at].error > _BIAS_IS_ALL * BIAS
            return Findings(chances, ratios, found, one_change=False, next=at if helps else None)
    return Findings(chances, ratios, found, one_change=True, next=None)


def mean_of_cells(ratios: Sequence[Estimate]) -> LogRatio:
    """Return the geometric mean of independent ratios, each with an interval."""
    errors = [log(one.high / one.low) / 2 / _NORMAL for one in ratios if one.low and one.high]
    return LogRatio(fmean(log(one.median) for one in ratios), sqrt(sum(error**2 for error in errors)) / len(ratios))


def mean_of_steps(ratios: Sequence[LogRatio]) -> LogRatio:
    """Return the mean of several ratios of one candidate. Its error includes the bias of the build."""
    return _mean(*_by_candidate([(0, ratio) for ratio in ratios])[0])


def _by_candidate(steps: Sequence[tuple[int, LogRatio]]) -> dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the ratios of each candidate, and the errors that they count with."""
    # Few passes show their own error badly: it is the mean of their variance and the median one.
    common = median([ratio.error**2 for _, ratio in steps]) if steps else 0.0
    found: dict[int, list[LogRatio]] = {}
    for at, one in steps:
        found.setdefault(at, []).append(LogRatio(one.log, sqrt((one.error**2 + common) / 2 + _LEAST_ERROR**2)))
    return {at: (np.array([one.log for one in its]), np.array([one.error for one in its])) for at, its in found.items()}


def _mean(values: NDArray[np.float64], errors: NDArray[np.float64]) -> LogRatio:
    """Return the mean, weighted by precision. A ratio far from the others counts less, as in Student's distribution."""
    mean = np.median(values)
    for _ in range(_ROUNDS):
        weights = errors**-2 * np.minimum(1, (_FREEDOM + 1) / (_FREEDOM + ((values - mean) / errors) ** 2))
        mean = np.average(values, weights=weights)
    return LogRatio(float(mean), sqrt(1 / weights.sum() + BIAS**2))


def _posterior(
    last: int, change: LogRatio, steps: Mapping[int, tuple[NDArray[np.float64], NDArray[np.float64]]]
) -> list[float]:
    """Return the probability that a candidate made the change, for each from 0, which cannot have made it."""
    # Log likelihoods of each candidate before and after the change, for each level that the ends may truly have: all
    # ratios share the bias of the good end.
    before = np.zeros((len(_DEVIATIONS), last + 1))
    after = np.zeros_like(before)
    for at, (values, errors) in steps.items():
        by_chance = _WILD / 2 * (_density(values, errors) + _density(values - change.log, errors))
        for found, level in ((before, LogRatio(0.0, BIAS)), (after, change)):
            means = level.log + level.error * _DEVIATIONS[:, None, None] + BIAS * _DEVIATIONS[:, None]
            density = (1 - _WILD) * _density(values - means, errors) + by_chance
            found[:, at] = np.logaddexp.reduce(np.log(density).sum(axis=-1) + _LOG_WEIGHTS, axis=-1)
    # All candidates below the position of the change are before it, and all others after.
    first, second = (np.cumsum(each, axis=1)[:, :-1] + _LOG_WEIGHTS[:, None] for each in (before, -after))
    logs = first[:, None] + second + after.sum(axis=1)[:, None]
    chances = np.exp(logs - logs.max()).sum(axis=(0, 1))
    return [0.0, *map(float, chances / chances.sum())]


def _density(distances: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return densities of Student's distribution, without a common factor."""
    return np.exp(-(_FREEDOM + 1) / 2 * np.log1p((distances / errors) ** 2 / _FREEDOM)) / errors


def _suspects(chances: Sequence[float], askable: Sequence[int]) -> Suspects:
    """Return the candidates between two that can be compared if they are certain enough, else a credible range."""
    bounds = pairwise([0, *askable, len(chances) - 1])
    parts = [(one + 1, other, sum(chances[one + 1 : other + 1])) for one, other in bounds]
    best = max(parts, key=lambda part: part[2])
    if best[2] >= CERTAIN:
        return Suspects(*best, found=True)
    aside = (1 - CERTAIN) / 2  # at most half of the allowed error lies to either side
    inside = [part for part in parts if sum(chances[: part[1] + 1]) > aside and sum(chances[part[0] :]) > aside]
    first, end = inside[0][0], inside[-1][1]
    return Suspects(first, end, sum(chances[first : end + 1]), found=False)
