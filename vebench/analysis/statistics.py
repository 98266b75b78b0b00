"""Estimates with their intervals, and ratios of them. Pure functions of the rates of windows.

Rates are positive and their noise is multiplicative, so intervals are formed on the log scale, where they are
symmetric and turned back never reach below zero. The rates are taken to be independent; what is made of windows and
repeats before they come here, so that they are, stands in ``vebench.analysis.scaling``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import exp, log, pi, sqrt
from statistics import median, median_high, median_low, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95

# Standard error of a median over that of a mean, for many normal values. The variance of a median of n values with
# density f around their true median m tends to 1 / (4 n f(m)^2), which is pi sigma^2 / (2 n) where they are normal
# (H. Cramer, Mathematical Methods of Statistics, 1946, section 28.5).
MEDIAN_OVER_MEAN = sqrt(pi / 2)

# An interval needs a spread, and a spread needs two values.
FEWEST_FOR_INTERVAL = 2

# exp() of more overflows; an interval as wide says nothing anyway.
WIDEST_LOG = 100.0


@dataclass(frozen=True)
class Estimate:
    """A median and its 95 % interval, in one unit. Without an interval (one rate) ``low`` and ``high`` are None."""

    median: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """The larger half of the interval, over the median; None without an interval, or for a median of zero."""
        if self.low is None or self.high is None or self.median <= 0:
            return None
        return max(self.high / self.median - 1, 1 - self.low / self.median)

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate times an exact, positive number."""
        if self.low is None or self.high is None:
            return Estimate(self.median * factor)
        return Estimate(self.median * factor, self.low * factor, self.high * factor)


def estimate(rates: Sequence[float]) -> Estimate | None:
    """Return the median of ``rates`` with its interval; without one for a single rate, None for no rate at all.

    The interval is ``median * exp(+-t * se)`` with ``se = sqrt(pi / 2) * s / sqrt(n)``, where ``s`` is the standard
    deviation of the n log rates and ``t`` Student's quantile with n - 1 degrees of freedom. A rate of zero has no
    logarithm: then the same is done to the rates themselves, and cut off at zero.
    """
    if not rates:
        return None
    middle = median(rates)
    if len(rates) < FEWEST_FOR_INTERVAL:
        return Estimate(middle)
    quantile = _student(len(rates) - 1)
    if min(rates) > 0:
        return _around(middle, quantile * _standard_error([log(rate) for rate in rates]))
    half = quantile * _standard_error(rates)
    return Estimate(middle, max(0.0, middle - half), middle + half)


def middle_of(rates: Sequence[float]) -> float:
    """Return the median on the log scale: of an even number of rates, the geometric mean of the middle two."""
    return sqrt(median_low(rates) * median_high(rates))


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate | None:
    """Return the ratio of two medians with its interval; None where either is missing or the denominator is zero.

    On the log scale a ratio is a difference: its squared standard error is the sum of both, and its degrees of freedom
    are Welch's (B. L. Welch, Biometrika 34, 1947; F. E. Satterthwaite, Biometrics Bulletin 2, 1946). Where a rate is
    zero, the bounds are those of the two intervals against each other.
    """
    above, below = estimate(numerator), estimate(denominator)
    if above is None or below is None or below.median <= 0:
        return None
    middle = above.median / below.median
    if above.low is None or above.high is None or below.low is None or below.high is None:
        return Estimate(middle)
    if min(numerator) > 0 and min(denominator) > 0:
        return _welch(middle, [log(rate) for rate in numerator], [log(rate) for rate in denominator])
    return Estimate(middle, above.low / below.high, above.high / below.low) if below.low > 0 else Estimate(middle)


def _welch(middle: float, one: Sequence[float], other: Sequence[float]) -> Estimate:
    variances = (_standard_error(one) ** 2, _standard_error(other) ** 2)
    total = sum(variances)
    if total == 0.0:
        return Estimate(middle, middle, middle)
    # Shares, not squares: variances of windows that agree to the last digits underflow when squared.
    shares = (variances[0] / total, variances[1] / total)
    freedom = 1 / (shares[0] ** 2 / (len(one) - 1) + shares[1] ** 2 / (len(other) - 1))
    return _around(middle, _student(freedom) * sqrt(total))


def _around(middle: float, half_width: float) -> Estimate:
    factor = exp(min(half_width, WIDEST_LOG))
    return Estimate(middle, middle / factor, middle * factor)


def _standard_error(values: Sequence[float]) -> float:
    return MEDIAN_OVER_MEAN * stdev(values) / sqrt(len(values))


@cache
def _student(freedom: float) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415 - imported on use: it takes longer than most commands

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
