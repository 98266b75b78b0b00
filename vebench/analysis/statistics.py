"""Samples of rates, and what is known of their error. Pure values.

Rates are positive and their noise is multiplicative. So errors are those of log rates, and intervals are formed on the
log scale: there they are symmetric, and turned back into rates they never reach below zero. ``contrasts`` makes
estimates of samples, ``pooling`` says how much the processes of a run vary. docs/method.md has how often the intervals
hold the true value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from math import exp, inf, log, pi, sqrt
from statistics import geometric_mean, median_high, median_low, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

CONFIDENCE = 0.95

# Standard error of a median over that of a mean, for many normal values. The variance of a median of n values with
# density f around their true median m tends to 1 / (4 n f(m)^2), which is pi sigma^2 / (2 n) where they are normal
# (H. Cramer, Mathematical Methods of Statistics, 1946, section 28.5).
_MEDIAN_OVER_MEAN = sqrt(pi / 2)

# By how much the rates of two processes that do the same differ, as a standard deviation of log rates. One process
# alone cannot show it, so its interval allows for this much. The place of data in memory alone makes differences of a
# few percent (T. Mytkowicz, A. Diwan, M. Hauswirth, P. Sweeney, Producing wrong data without doing anything obviously
# wrong, ASPLOS 2009; T. Kalibera, R. Jones, Rigorous benchmarking in reasonable time, ISMM 2013).
PROCESS_SPREAD = 0.02

# Correlation of a window with the one before it. Three to ten windows are too few to estimate it from.
WINDOW_CORRELATION = 0.3

# An interval needs a spread, and a spread needs two values.
FEWEST_FOR_INTERVAL = 2

# exp() of much more overflows, and so wide an interval says nothing anyway.
WIDEST_LOG = 100.0

new_id = count().__next__


@dataclass(frozen=True)
class Error:
    """The variance of an estimate on the log scale, and the degrees of freedom with which it is known."""

    variance: float
    freedom: float

    def times(self, factor: float) -> Error:
        """Return the error with its variance times an exact factor."""
        return Error(self.variance * factor, self.freedom)

    def half_width(self, confidence: float = CONFIDENCE) -> float:
        """Return how far the interval of this confidence reaches to either side, on the log scale."""
        return student_quantile((1 + confidence) / 2, self.freedom) * sqrt(self.variance)


@dataclass(frozen=True)
class Pool:
    """Cells whose processes vary alike: the variance of one process, and the degrees of freedom of all together.

    No estimate that stands on this variance is known with more.
    """

    variance: float
    freedom: float
    id: int = field(default_factory=new_id)


@dataclass(frozen=True)
class Block:
    """Cells that were measured in the same passes: the ``number`` of all passes that any of them has."""

    number: int
    id: int = field(default_factory=new_id)


@dataclass(frozen=True)
class Spread:
    """How the processes of a cell vary: as those of its pool, beside ``effects``.

    These are what each pass of its block did to all cells like it, on the log scale; they add up to zero.
    """

    pool: Pool
    block: Block | None = None
    effects: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """The rates that an estimate is made from.

    Of several processes there is one rate for each, the middle of its windows; these are independent. ``passes`` are
    the numbers of the passes that they belong to, empty if unknown. Of ``one_process`` there are the rates of its
    windows; these are alike, and share the luck of that process. ``spread`` is how processes vary, as far as the run
    shows it; without it, the sample has to show it alone. Samples with one ``id`` are of the same measurement.
    """

    rates: tuple[float, ...]
    one_process: bool
    passes: tuple[int, ...] = ()
    spread: Spread | None = None
    id: int = field(default_factory=new_id, compare=False)

    @classmethod
    def of(cls, processes: Mapping[int, Sequence[float]]) -> Sample:
        """Return the sample of a cell, given the rates of the windows of each pass. Passes without any do not count."""
        measured = {number: windows for number, windows in processes.items() if windows}
        if len(measured) == 1:
            return cls(tuple(*measured.values()), one_process=True, passes=tuple(measured))
        return cls(tuple(map(middle_of, measured.values())), one_process=False, passes=tuple(measured))

    def scaled(self, factor: float) -> Sample:
        """Return the sample with every rate times an exact, positive number."""
        return replace(self, rates=tuple(rate * factor for rate in self.rates), id=new_id())

    def of_passes(self, passes: Container[int]) -> Sample:
        """Return the sample of several processes with these passes only."""
        kept = [(rate, number) for rate, number in zip(self.rates, self.passes, strict=True) if number in passes]
        rates, passes = tuple(rate for rate, _ in kept), tuple(number for _, number in kept)
        return replace(self, rates=rates, passes=passes, id=new_id())

    @property
    def measurable(self) -> bool:
        """Whether the sample has an interval on the log scale."""
        enough = len(self.rates) >= FEWEST_FOR_INTERVAL or (self.spread is not None and bool(self.rates))
        return enough and min(self.rates) > 0

    @property
    def processes(self) -> int:
        """How many processes the rates are of."""
        return 1 if self.one_process and self.rates else len(self.rates)

    @property
    def by_pass(self) -> dict[int, float]:
        """The rate of each pass, by its number; empty if passes are unknown."""
        rates = (middle_of(self.rates),) if self.one_process and self.rates else self.rates
        return dict(zip(self.passes, rates, strict=True)) if self.passes else {}

    @property
    def level(self) -> float:
        """The level of positive rates: of several processes their geometric mean.

        Of the windows of one process it is their median, because a short disturbance makes an outlier among them.
        """
        return middle_of(self.rates) if self.one_process else geometric_mean(self.rates)

    @property
    def own_error(self) -> Error:
        """The error of the level of two positive rates or more, as far as they show it themselves.

        With the standard deviation ``s`` of n log rates it is ``s^2 / n``, with n - 1 degrees of freedom. For windows
        of one process it is that of a median; they are correlated, so that it is larger, and the spread of processes is
        added to it.
        """
        logs = [log(rate) for rate in self.rates]
        mean = Error(stdev(logs) ** 2 / len(logs), len(logs) - 1)
        if not self.one_process:
            return mean
        return summed((mean.times(_MEDIAN_OVER_MEAN**2 * correlation_factor(len(logs))), Error(PROCESS_SPREAD**2, inf)))


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


def middle_of(rates: Sequence[float]) -> float:
    """Return the median on the log scale: of an even number of rates, the geometric mean of the middle two."""
    return sqrt(median_low(rates) * median_high(rates))


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
