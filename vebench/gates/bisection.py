"""Which candidate changed a rate: a probabilistic bisection under noise. Pure functions.

Candidate 0 is the good end and ``last`` the bad one. One candidate from 1 to ``last`` made the change. A comparison of
a candidate with the good end multiplies the posterior of each position by a likelihood: how likely the measured ratio
is if that position is true. The next candidate is at the posterior's median (docs/reference/statistics.md).

A log ratio has Student's distribution with few degrees of freedom, mixed with an answer by chance, so that no single
ratio can decide. All comparisons of a build share its bias, so likelihoods are integrated over biases. The model has
one change: see ``Posterior.one_change``.
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
# The standard deviation of log rates between builds of the same code. They differ in the addresses of code and data.
BIAS = 0.007
_FREEDOM = 4.0  # the degrees of freedom of a log ratio
# Half of a 95 % interval in standard errors. With few passes, the true number is larger, so this makes errors larger.
_NORMAL = 1.96


class LogRatio(NamedTuple):
    """The logarithm of a rate relative to the good end's, and its standard error."""

    log: float
    error: float

    @property
    def estimate(self) -> Estimate:
        """The ratio with its 95 % interval."""
        return around(exp(self.log), _NORMAL * self.error)


class Posterior(NamedTuple):
    """The result of all steps so far: one of the candidates ``first`` to ``last`` made the change."""

    chances: list[float]  # the posterior probability of each candidate
    ratios: dict[int, LogRatio]  # the ratios of the compared candidates
    first: int
    last: int
    chance: float  # the posterior probability that one of these candidates made the change
    certain: bool  # ``chance`` is at least ``CERTAIN``, and no further comparison can tell these candidates apart
    one_change: bool  # the ratios on both sides of these candidates are clear of the middle between the ends
    next: int | None  # the candidate to compare next; None if no comparison would help

    @property
    def found(self) -> bool:
        """Whether a single candidate is certain enough to have made the change."""
        return self.certain and self.one_change and self.first == self.last


def look(
    last: int, change: LogRatio, steps: Sequence[tuple[int, LogRatio]], skipped: Collection[int] = ()
) -> Posterior:
    """Return the result of these steps, and the next candidate to compare, which is not one of ``skipped``."""
    by_candidate = _by_candidate(steps)
    chances = _posterior(last, change, by_candidate)
    ratios = {at: _mean(*both) for at, both in by_candidate.items()}
    askable = [at for at in range(1, last) if at not in skipped]
    suspects = first, end, _, certain = _suspects(chances, askable)
    if not certain:
        below = [*accumulate(chances)]
        nearest = min(askable, key=lambda at: (abs(below[at] - 0.5), at), default=None)
        return Posterior(chances, ratios, *suspects, one_change=True, next=nearest)
    for at, level in ((first - 1, 0.0), (end, change.log)):
        # A ratio must be two errors away from the middle.
        if at in ratios and abs(ratios[at].log - level) + 2 * ratios[at].error > abs(change.log) / 2:
            # All comparisons of a candidate share its bias, so near it, further comparisons hardly reduce the error.
            helps = ratios[at].error > 1.2 * BIAS
            return Posterior(chances, ratios, *suspects, one_change=False, next=at if helps else None)
    return Posterior(chances, ratios, *suspects, one_change=True, next=None)


def mean_of_cells(ratios: Sequence[Estimate]) -> LogRatio:
    """Return the geometric mean of independent ratios, each with an interval."""
    errors = [log(one.high / one.low) / 2 / _NORMAL for one in ratios if one.low and one.high]
    return LogRatio(fmean(log(one.median) for one in ratios), sqrt(sum(error**2 for error in errors)) / len(ratios))


def mean_of_steps(ratios: Sequence[LogRatio]) -> LogRatio:
    """Return the mean of several ratios of one candidate. Its error includes the bias of the build."""
    return _mean(*_by_candidate([(0, ratio) for ratio in ratios])[0])


def _by_candidate(steps: Sequence[tuple[int, LogRatio]]) -> dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the ratios of each candidate, and the errors to use for them."""
    # Few passes show their error badly, so take the mean of their variance and the median variance.
    common = median([ratio.error**2 for _, ratio in steps]) if steps else 0.0
    found: dict[int, list[LogRatio]] = {}
    for at, one in steps:
        found.setdefault(at, []).append(LogRatio(one.log, sqrt((one.error**2 + common) / 2 + 0.001**2)))
    return {at: (np.array([one.log for one in its]), np.array([one.error for one in its])) for at, its in found.items()}


def _mean(values: NDArray[np.float64], errors: NDArray[np.float64]) -> LogRatio:
    """Return the mean, weighted by precision. A ratio far from the others counts less, as in Student's distribution."""
    mean = np.median(values)
    for _ in range(10):  # then weights hardly change
        weights = errors**-2 * np.minimum(1, (_FREEDOM + 1) / (_FREEDOM + ((values - mean) / errors) ** 2))
        mean = np.average(values, weights=weights)
    return LogRatio(float(mean), sqrt(1 / weights.sum() + BIAS**2))


def _posterior(
    last: int, change: LogRatio, steps: Mapping[int, tuple[NDArray[np.float64], NDArray[np.float64]]]
) -> list[float]:
    """Return, for each candidate, the probability that it made the change. For candidate 0, it is 0."""
    wild = 0.05  # the share of ratios that are assumed to be chance, so that no single comparison can decide
    # Log likelihoods of each candidate if it is before or after the change. All ratios share the bias of the good end,
    # so each row assumes another bias.
    deviations = np.linspace(-3, 3, 25)
    log_weights = -(deviations**2) / 2
    before = np.zeros((len(deviations), last + 1))
    after = np.zeros_like(before)
    for at, (values, errors) in steps.items():
        by_chance = wild / 2 * (_density(values, errors) + _density(values - change.log, errors))
        for found, level in ((before, LogRatio(0.0, BIAS)), (after, change)):
            means = level.log + level.error * deviations[:, None, None] + BIAS * deviations[:, None]
            density = (1 - wild) * _density(values - means, errors) + by_chance
            found[:, at] = np.logaddexp.reduce(np.log(density).sum(axis=-1) + log_weights, axis=-1)
    # Candidates below the position of the change are before the change, and all others after it.
    first, second = (np.cumsum(each, axis=1)[:, :-1] + log_weights[:, None] for each in (before, -after))
    logs = first[:, None] + second + after.sum(axis=1)[:, None]
    chances = np.exp(logs - logs.max()).sum(axis=(0, 1))
    return [0.0, *map(float, chances / chances.sum())]


def _density(distances: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return densities of Student's distribution, without a common factor."""
    return np.exp(-(_FREEDOM + 1) / 2 * np.log1p((distances / errors) ** 2 / _FREEDOM)) / errors


def _suspects(chances: Sequence[float], askable: Sequence[int]) -> tuple[int, int, float, bool]:
    """Return the candidates between two neighbours in ``askable`` if they are certain enough, else a credible range.

    The result has the first and last candidate, their probability, and whether they are certain enough.
    """
    bounds = pairwise([0, *askable, len(chances) - 1])
    parts = [(one + 1, other, sum(chances[one + 1 : other + 1])) for one, other in bounds]
    best = max(parts, key=lambda part: part[2])
    if best[2] >= CERTAIN:
        return (*best, True)
    aside = (1 - CERTAIN) / 2  # the probability beyond either end of the range is at most this
    inside = [part for part in parts if sum(chances[: part[1] + 1]) > aside and sum(chances[part[0] :]) > aside]
    first, end = inside[0][0], inside[-1][1]
    return first, end, sum(chances[first : end + 1]), False
