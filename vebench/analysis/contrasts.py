"""Ratios and products of rates, with the tests by which a gate decides. Pure functions.

On the log scale a ratio of rates, a ratio of two speedups, and a geometric mean of ratios are all weighted sums of the
samples' means. Such a sum has a variance and degrees of freedom, and so intervals and tests of any level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import exp, inf, log, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from vebench.analysis.statistics import (
    CONFIDENCE,
    FEWEST_FOR_INTERVAL,
    Error,
    Estimate,
    Sample,
    around,
    error_of,
    middle_of,
    summed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Contrast:
    """A product of powers of rates: its logarithm, and the error of the logarithm."""

    log: float
    error: Error

    @property
    def estimate(self) -> Estimate:
        """The product, with its 95 % interval."""
        return around(exp(self.log), self.error.half_width(CONFIDENCE))

    def chance_above(self, bound: float) -> float:
        """Return the probability of this product, or a smaller one, if the true product is ``bound`` or more."""
        return self._chance(self.log - log(bound))

    def chance_below(self, bound: float) -> float:
        """Return the probability of this product, or a larger one, if the true product is ``bound`` or less."""
        return self._chance(log(bound) - self.log)

    def _chance(self, distance: float) -> float:
        if self.error.variance == 0:
            return 0.5 if distance == 0 else float(distance > 0)
        return _student(distance / sqrt(self.error.variance), self.error.freedom)


def contrast(terms: Iterable[tuple[float, Sample]]) -> Contrast | None:
    """Return the product of each sample's level to the power of its weight; None if a sample has no positive interval.

    A sample may occur more than once, as the for-loop does in a mean of speedups. Its weights are added up first, so
    that a sample divided by itself cancels. Two samples are the same if they are the same object.
    """
    weights: dict[int, tuple[float, Sample]] = {}
    for weight, sample in terms:
        before, _ = weights.get(id(sample), (0.0, sample))
        weights[id(sample)] = (before + weight, sample)
    parts = [(weight, sample) for weight, sample in weights.values() if weight]
    if any(not measurable(sample) for _, sample in weights.values()):
        return None
    levels = [(weight, *_level(sample)) for weight, sample in parts]
    errors = [Error(weight**2 * error.variance, error.freedom) for weight, _, error in levels]
    return Contrast(sum(weight * level for weight, level, _ in levels), summed(errors) if errors else Error(0.0, inf))


def measurable(sample: Sample) -> bool:
    """Return whether a sample has an interval on the log scale."""
    return len(sample.rates) >= FEWEST_FOR_INTERVAL and min(sample.rates) > 0


def _level(sample: Sample) -> tuple[float, Error]:
    """Return the log of a sample's level, and its error.

    The level of several processes is their mean, for which Student's distribution is exact. The level of windows of one
    process is their median, because a short disturbance makes an outlier among them.
    """
    if sample.one_process:
        return log(middle_of(sample.rates)), error_of(sample)
    logs = [log(rate) for rate in sample.rates]
    return fmean(logs), Error(stdev(logs) ** 2 / len(logs), len(logs) - 1)


def rejected(chances: Sequence[float], level: float) -> list[bool]:
    """Return which hypotheses are rejected; the probability that a true one is among them is ``level`` at most.

    This is the step-down procedure of S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian
    Journal of Statistics 6, 1979. It assumes nothing about how the tests depend on each other.
    """
    verdicts = [False] * len(chances)
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        if chances[index] > level / (len(chances) - rank):
            break
        verdicts[index] = True
    return verdicts


@cache
def _student(value: float, freedom: float) -> float:
    from scipy.special import ndtr, stdtr  # noqa: PLC0415 - imported on use: it takes longer than most commands

    return float(ndtr(value) if freedom == inf else stdtr(freedom, value))
