"""Estimates with their intervals, and ratios of them. Pure functions of samples of rates.

Rates are positive and their noise is multiplicative, so intervals are formed on the log scale, where they are
symmetric and turned back never reach below zero. What is made of windows and repeats stands in ``Sample``; how often
the intervals hold what they should, for every number of either, in docs/method.md.
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

# By how much the rates of two processes that do the same differ, as a standard deviation of log rates: one process
# alone cannot tell, and so its interval allows for this. Differences of a few percent come from no more than where
# memory comes to lie (T. Mytkowicz, A. Diwan, M. Hauswirth, P. Sweeney, Producing wrong data without doing anything
# obviously wrong, ASPLOS 2009; T. Kalibera, R. Jones, Rigorous benchmarking in reasonable time, ISMM 2013).
PROCESS_SPREAD = 0.02

# Correlation of a window with the one before it, which three to ten windows are too few to tell.
WINDOW_CORRELATION = 0.3

# An interval needs a spread, and a spread needs two values.
FEWEST_FOR_INTERVAL = 2

# Of fewer passes, the degrees of freedom that pairing them costs weigh more than what it cancels.
FEWEST_PAIRS = 4

# exp() of more overflows; an interval as wide says nothing anyway.
WIDEST_LOG = 100.0


@dataclass(frozen=True)
class Sample:
    """The rates that an estimate stands on.

    Of several processes, one rate for each, the middle of its windows: they are independent. ``passes`` are the numbers
    of the passes that they belong to, none where that is not known. Of ``one_process`` its windows: they are alike, and
    all share the luck of that process.
    """

    rates: tuple[float, ...]
    one_process: bool
    passes: tuple[int, ...] = ()

    @classmethod
    def of(cls, processes: Mapping[int, Sequence[float]]) -> Sample:
        """Return the sample of a cell, given the rates of each pass' windows. Passes without any do not count."""
        measured = {number: windows for number, windows in processes.items() if windows}
        if len(measured) == 1:
            return cls(tuple(*measured.values()), one_process=True)
        return cls(tuple(map(middle_of, measured.values())), one_process=False, passes=tuple(measured))

    def scaled(self, factor: float) -> Sample:
        """Return the sample with every rate times an exact, positive number."""
        return replace(self, rates=tuple(rate * factor for rate in self.rates))

    @property
    def by_pass(self) -> dict[int, float]:
        """The rate of each pass; nothing where passes are not known."""
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
    """Return the median of a sample with its interval; without one for a single rate, None for no rate at all.

    The interval is ``median * exp(+-t * se)``, where ``error_of`` has the standard error and the degrees of freedom of
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
    """Return the ratio of two medians with its interval; None where either is missing or the denominator is zero.

    Of cells measured in the same passes, it is the median of each pass' ratio. Otherwise, on the log scale a ratio is a
    difference: its variance is the sum of both, and its degrees of freedom are those of ``summed``. Where a rate is
    zero, the bounds are those of the two intervals against each other.
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
    """Return the ratio in each pass that both have; None if those are fewer than ``fewest``, or than half of either's.

    What is measured in one pass is measured at about the same time. A machine that is slower for a while is so for
    both, and in their ratio that cancels (a paired comparison: G. Box, W. Hunter, J. Hunter, Statistics for
    Experimenters, 1978, section 4.2).
    """
    above, below = numerator.by_pass, denominator.by_pass
    common = tuple(number for number in above if below.get(number, 0) > 0)
    if len(common) < fewest or 2 * len(common) <= max(len(above), len(below)):
        return None
    return Sample(tuple(above[number] / below[number] for number in common), one_process=False, passes=common)


def error_of(sample: Sample) -> Error:
    """Return the error of the median of two positive rates or more.

    Its variance is ``pi / 2 * s^2 / n``, where ``s`` is the standard deviation of the n log rates, with n - 1 degrees
    of freedom. To that of windows of one process, which are correlated, comes the spread of processes.
    """
    logs = [log(rate) for rate in sample.rates]
    own = Error((MEDIAN_OVER_MEAN * stdev(logs)) ** 2 / len(logs), len(logs) - 1)
    if not sample.one_process:
        return own
    inflated = Error(own.variance * correlation_factor(len(logs)), own.freedom)
    return summed((inflated, Error(PROCESS_SPREAD**2, inf)))


def correlation_factor(count: int, correlation: float = WINDOW_CORRELATION) -> float:
    """Return by how much ``s^2 / n`` falls short of the variance of a mean of ``count`` windows.

    In a first-order autoregressive series values k apart correlate by ``correlation ** k``. Their mean then varies
    more than ``sigma^2 / n``, and ``s^2`` falls short of ``sigma^2`` (G. Box, G. Jenkins, Time Series Analysis, 1970,
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
    # Shares, not squares: variances of windows that agree to the last digits underflow when squared.
    spent = sum((error.variance / total) ** 2 / error.freedom for error in errors)
    return Error(total, 1 / spent if spent else inf)


def around(middle: float, half_width: float) -> Estimate:
    """Return the estimate whose interval reaches ``half_width`` to either side on the log scale."""
    factor = exp(min(half_width, WIDEST_LOG))
    return Estimate(middle, middle / factor, middle * factor)


@cache
def student_quantile(share: float, freedom: float) -> float:
    """Return the quantile of Student's distribution below which ``share`` of it lies; infinite freedom is normal."""
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415 - imported on use: it takes longer than most commands

    return float(ndtri(share) if freedom == inf else stdtrit(freedom, share))
