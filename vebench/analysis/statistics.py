"""Estimates with their intervals, and ratios of them. Pure functions of samples of rates.

Rates are positive and their noise is multiplicative. So intervals are formed on the log scale: there they are
symmetric, and turned back into rates they never reach below zero. How windows and repeats are treated is said in
``Sample``. docs/method.md has how often the intervals hold the true value, for many numbers of windows and repeats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import exp, inf, log, pi, sqrt
from statistics import median, median_high, median_low, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIDENCE = 0.95

# Standard error of a median over that of a mean, for many normal values. The variance of a median of n values with
# density f around their true median m tends to 1 / (4 n f(m)^2), which is pi sigma^2 / (2 n) where they are normal
# (H. Cramer, Mathematical Methods of Statistics, 1946, section 28.5).
MEDIAN_OVER_MEAN = sqrt(pi / 2)

# By how much the rates of two processes that do the same differ, as a standard deviation of log rates. One process
# alone cannot show it, so its interval allows for this much. The place of data in memory alone makes differences of a
# few percent (T. Mytkowicz, A. Diwan, M. Hauswirth, P. Sweeney, Producing wrong data without doing anything obviously
# wrong, ASPLOS 2009; T. Kalibera, R. Jones, Rigorous benchmarking in reasonable time, ISMM 2013).
PROCESS_SPREAD = 0.02

# Correlation of a window with the one before it. Three to ten windows are too few to estimate it from.
WINDOW_CORRELATION = 0.3

# An interval needs a spread, and a spread needs two values.
FEWEST_FOR_INTERVAL = 2

# With fewer passes, the degrees of freedom that pairing costs weigh more than the noise that it cancels.
FEWEST_PAIRS = 4

# exp() of much more overflows, and so wide an interval says nothing anyway.
WIDEST_LOG = 100.0


@dataclass(frozen=True)
class Sample:
    """The rates that an estimate is made from.

    Of several processes there is one rate for each, the middle of its windows; these are independent. ``passes`` are
    the numbers of the passes that they belong to, empty if unknown. Of ``one_process`` there are the rates of its
    windows; these are alike, and share the luck of that process.
    """

    rates: tuple[float, ...]
    one_process: bool
    passes: tuple[int, ...] = ()

    @classmethod
    def of(cls, processes: Mapping[int, Sequence[float]]) -> Sample:
        """Return the sample of a cell, given the rates of the windows of each pass. Passes without any do not count."""
        measured = {number: windows for number, windows in processes.items() if windows}
        if len(measured) == 1:
            return cls(tuple(*measured.values()), one_process=True)
        return cls(tuple(map(middle_of, measured.values())), one_process=False, passes=tuple(measured))

    def scaled(self, factor: float) -> Sample:
        """Return the sample with every rate times an exact, positive number."""
        return replace(self, rates=tuple(rate * factor for rate in self.rates))

    @property
    def by_pass(self) -> dict[int, float]:
        """The rate of each pass, by its number; empty if passes are unknown."""
        return dict(zip(self.passes, self.rates, strict=True)) if self.passes else {}


@dataclass(frozen=True)
class Error:
    """The variance of an estimate on the log scale, and the degrees of freedom with which it is known."""

    variance: float
    freedom: float

    def half_width(self, confidence: float = CONFIDENCE) -> float:
        """Return how far the interval of this confidence reaches to either side, on the log scale."""
        return student_quantile((1 + confidence) / 2, self.freedom) * sqrt(self.variance)


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


def estimate(sample: Sample) -> Estimate | None:
    """Return the median of a sample with its interval; without an interval for a single rate, None for no rate.

    The interval is ``median * exp(+-t * se)``; ``error_of`` gives the standard error, and the degrees of freedom of
    Student's t. A rate of zero has no logarithm: then the spread is that of the rates themselves, and the interval is
    cut off at zero.
    """
    rates = sample.rates
    if not rates:
        return None
    middle = median(rates)
    if len(rates) < FEWEST_FOR_INTERVAL:
        return Estimate(middle)
    if min(rates) > 0:
        return around(middle, error_of(sample).half_width())
    half = student_quantile((1 + CONFIDENCE) / 2, len(rates) - 1) * MEDIAN_OVER_MEAN * stdev(rates) / sqrt(len(rates))
    return Estimate(middle, max(0.0, middle - half), middle + half)


def middle_of(rates: Sequence[float]) -> float:
    """Return the median on the log scale: of an even number of rates, the geometric mean of the middle two."""
    return sqrt(median_low(rates) * median_high(rates))


def ratio(numerator: Sample, denominator: Sample) -> Estimate | None:
    """Return the ratio of two medians with its interval; None if either is missing or the denominator is zero.

    For cells measured in the same passes, it is the median of the ratios of all passes. For others, a ratio is a
    difference on the log scale: its variance is the sum of both, and its degrees of freedom are those of ``summed``. If
    a rate is zero, the bounds are the low bound over the high one, and the high bound over the low one.
    """
    if (pairs := paired(numerator, denominator)) is not None:
        return estimate(pairs)
    above, below = estimate(numerator), estimate(denominator)
    if above is None or below is None or below.median <= 0:
        return None
    middle = above.median / below.median
    if above.low is None or above.high is None or below.low is None or below.high is None:
        return Estimate(middle)
    if min(numerator.rates) > 0 and min(denominator.rates) > 0:
        return around(middle, summed((error_of(numerator), error_of(denominator))).half_width())
    return Estimate(middle, above.low / below.high, above.high / below.low) if below.low > 0 else Estimate(middle)


def paired(numerator: Sample, denominator: Sample, fewest: int = FEWEST_PAIRS) -> Sample | None:
    """Return the ratio in each pass that both have; None for fewer than ``fewest`` such passes, or half of either's.

    Cells of one pass are measured at about the same time. If the machine is slower for a while, it is slower for both,
    and in their ratio that cancels (a paired comparison: G. Box, W. Hunter, J. Hunter, Statistics for Experimenters,
    1978, section 4.2).
    """
    above, below = numerator.by_pass, denominator.by_pass
    common = tuple(number for number in above if below.get(number, 0) > 0)
    if len(common) < fewest or 2 * len(common) <= max(len(above), len(below)):
        return None
    return Sample(tuple(above[number] / below[number] for number in common), one_process=False, passes=common)


def error_of(sample: Sample) -> Error:
    """Return the error of the median of two positive rates or more.

    Its variance is ``pi / 2 * s^2 / n``, where ``s`` is the standard deviation of the n log rates, with n - 1 degrees
    of freedom. Windows of one process are correlated, so that their variance is larger, and the spread of processes is
    added to it.
    """
    logs = [log(rate) for rate in sample.rates]
    own = Error((MEDIAN_OVER_MEAN * stdev(logs)) ** 2 / len(logs), len(logs) - 1)
    if not sample.one_process:
        return own
    inflated = Error(own.variance * correlation_factor(len(logs)), own.freedom)
    return summed((inflated, Error(PROCESS_SPREAD**2, inf)))


def correlation_factor(count: int, correlation: float = WINDOW_CORRELATION) -> float:
    """Return the variance of a mean of ``count`` windows over ``s^2 / n``.

    In a first-order autoregressive series, values k apart correlate by ``correlation ** k``. Then their mean varies
    more than ``sigma^2 / n``, and ``s^2`` is less than ``sigma^2`` (G. Box, G. Jenkins, Time Series Analysis, 1970,
    section 2.1; T. Anderson, The Statistical Analysis of Time Series, 1971, section 8.2).
    """
    excess = sum((1 - lag / count) * correlation**lag for lag in range(1, count))
    return (1 + 2 * excess) / (1 - 2 * excess / (count - 1))


def summed(errors: Sequence[Error]) -> Error:
    """Return the error of a sum of independent estimates.

    Its degrees of freedom are those of B. L. Welch, Biometrika 34, 1947, and F. E. Satterthwaite, Biometrics Bulletin
    2, 1946.
    """
    total = sum(error.variance for error in errors)
    if total == 0.0:
        return Error(0.0, min(error.freedom for error in errors))
    # Shares of the total are squared, not variances: those of windows that agree to the last digits would underflow.
    spent = sum((error.variance / total) ** 2 / error.freedom for error in errors)
    return Error(total, 1 / spent if spent else inf)


def around(middle: float, half_width: float) -> Estimate:
    """Return the estimate whose interval reaches ``half_width`` to either side on the log scale."""
    factor = exp(min(half_width, WIDEST_LOG))
    return Estimate(middle, middle / factor, middle * factor)


@cache
def student_quantile(share: float, freedom: float) -> float:
    """Return the quantile of Student's distribution below which ``share`` of it lies; the normal one for infinity."""
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415 - imported on use: it takes longer than most commands

    return float(ndtri(share) if freedom == inf else stdtrit(freedom, share))
