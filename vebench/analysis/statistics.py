"""Samples of rates, and their levels, ratios and products with intervals and tests. Pure functions.

Rates are positive and their noise is multiplicative. So errors are those of log rates, and intervals are formed on the
log scale: there they are symmetric, and turned back into rates they never reach below zero. ``pooling`` says how much
the processes of a run vary. docs/method.md has how often the intervals hold the true value.

On the log scale the level of a cell, a ratio of rates, a ratio of two speedups, and a geometric mean of ratios are all
weighted sums of the samples' levels: a ``Contrast``. It has a variance and degrees of freedom, and so intervals and
tests of any level. Reports and gates use the same ones.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import count
from itertools import product as pairs_of
from math import exp, inf, isqrt, log, sqrt
from statistics import fmean, geometric_mean, median
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

CONFIDENCE = 0.95

# By how much the rates of two processes that do the same differ, as a standard deviation of log rates. One process
# alone cannot show it, so its interval allows for this much. The place of data in memory alone makes differences of a
# few percent (T. Mytkowicz, A. Diwan, M. Hauswirth, P. Sweeney, Producing wrong data without doing anything obviously
# wrong, ASPLOS 2009; T. Kalibera, R. Jones, Rigorous benchmarking in reasonable time, ISMM 2013).
PROCESS_SPREAD = 0.02

# Standard deviation of log rates between runs of one command. The machine is not the same an hour later. The effect
# cancels in ratios within a run. docs/method.md has the runs from which it was measured.
RUN_SPREAD = 0.05

# Correlation of a window with the one before it. Three to twelve windows are too few to estimate it from.
WINDOW_CORRELATION = 0.3

# An interval needs a spread, and a spread needs two values.
FEWEST_FOR_INTERVAL = 2

# exp() of much more overflows, and so wide an interval says nothing anyway.
WIDEST_LOG = 100.0

new_id = count().__next__
Key = TypeVar("Key")
Counts = tuple[float, float]  # how much was counted in a window, and in which time
Term = tuple[float, "Sample"]  # a sample, and the power with which it enters a product
Outcome = Literal["slower", "faster", "same", "inconclusive"]
LEVEL = 0.025  # of a one-sided test, as the two sides of a 95 % interval
# For how many degrees of freedom the variance of a pool counts, beside what an estimate shows itself.
COMMON = 4.0
_NOTHING = 1e-12  # what rounding leaves of weights that cancel


class Error(Struct, frozen=True, gc=False):
    """The variance of an estimate on the log scale, and the degrees of freedom with which it is known."""

    variance: float
    freedom: float

    def times(self, factor: float) -> Error:
        """Return the error with its variance times an exact factor."""
        return Error(self.variance * factor, self.freedom)

    def half_width(self) -> float:
        """Return how far the 95 % interval reaches to either side, on the log scale."""
        return student_quantile((1 + CONFIDENCE) / 2, self.freedom) * sqrt(self.variance)


class Pool(Struct, frozen=True, gc=False):
    """Cells whose processes vary alike: the variance of one process, and the degrees of freedom of all together."""

    variance: float
    freedom: float
    id: int = msgspec.field(default_factory=new_id)


@dataclass(frozen=True)
class Block:
    """Cells that were measured in the same passes, by number: those that are ``alike`` have the same value."""

    alike: Mapping[int, int] = field(compare=False)
    id: int = field(default_factory=new_id)


@dataclass(frozen=True)
class Spread:
    """How the processes of a cell vary: as those of its pool, beside the log ``effects`` of passes on all like it."""

    pool: Pool
    block: Block | None = None
    effects: Mapping[int, float] = field(default_factory=dict)

    @cached_property
    def of_alike(self) -> dict[int, float]:
        """The effects of passes that are alike as one, their mean, by the number that they have in the block."""
        together = defaultdict(list)
        for number, effect in self.effects.items():
            together[self.block.alike.get(number, number) if self.block else number].append(effect)
        return {number: fmean(each) for number, each in together.items()}


@dataclass(frozen=True)
class Sample:
    """The rates that an estimate is made from.

    Of several processes there is one rate for each, over all its windows; these are independent. ``passes`` are the
    numbers of the passes that they belong to, empty if unknown. Of ``one_process`` there is a value for each window:
    their mean is the rate over all windows, and they vary as much as that. They share the luck of that process.
    ``spread`` is how processes vary, as far as the run shows it; without it, the sample has to show it alone. Samples
    with one ``id`` are of the same measurement.
    """

    rates: tuple[float, ...]
    one_process: bool
    passes: tuple[int, ...] = ()
    spread: Spread | None = None
    id: int = field(default_factory=new_id, compare=False)

    @classmethod
    def of(cls, processes: Mapping[int, Sequence[Counts]]) -> Sample:
        """Return the sample of a cell, given what the windows of each pass counted, and in which time.

        A rate is the sum of counts over the sum of times. A median of windows would miss slow resets. For one process,
        the values are linearised, so that their variance is that of the ratio (W. Cochran, Sampling Techniques, 1977,
        section 6.4). Passes without windows do not count.
        """
        measured = {number: windows for number, windows in processes.items() if windows}
        rates = {number: _over_all(windows) for number, windows in measured.items()}
        if len(measured) != 1:
            return cls(tuple(rates.values()), one_process=False, passes=tuple(measured))
        ((number, windows),) = measured.items()
        rate, time = rates[number], fmean(time for _, time in windows)
        values = tuple([rate + (count - rate * span) / time for count, span in windows])
        return cls(values, one_process=True, passes=(number,))

    def scaled(self, factor: float) -> Sample:
        """Return the sample with every rate times an exact, positive number."""
        if factor == 1:
            return self
        return Sample(tuple([rate * factor for rate in self.rates]), self.one_process, self.passes, self.spread)

    def of_passes(self, passes: Container[int]) -> Sample:
        """Return the sample of several processes with these passes only."""
        kept = [(rate, number) for rate, number in zip(self.rates, self.passes, strict=True) if number in passes]
        rates, passes = tuple(rate for rate, _ in kept), tuple(number for _, number in kept)
        return replace(self, rates=rates, passes=passes, id=new_id())

    @property
    def positive(self) -> bool:
        """Whether there is a rate, and each process has one above zero. Values of windows may be below."""
        return bool(self.rates) and (self.level if self.one_process else min(self.rates)) > 0

    @property
    def measurable(self) -> bool:
        """Whether the sample has an interval on the log scale."""
        return (len(self.rates) >= FEWEST_FOR_INTERVAL or self.spread is not None) and self.positive

    @cached_property
    def residuals(self) -> dict[int, float]:
        """The log rate of each pass, by its number, without what the pass did to all cells like this one."""
        effects = {} if self.spread is None else self.spread.effects
        return {number: log(rate) - effects.get(number, 0.0) for number, rate in self.by_pass.items()}

    @property
    def processes(self) -> int:
        """How many processes the rates are of."""
        return 1 if self.one_process and self.rates else len(self.rates)

    @property
    def by_pass(self) -> dict[int, float]:
        """The rate of each pass, by its number; empty if passes are unknown."""
        rates = (fmean(self.rates),) if self.one_process and self.rates else self.rates
        return dict(zip(self.passes, rates, strict=True)) if self.passes else {}

    @cached_property
    def _over(self) -> dict[int, tuple[Sample, Contrast | None]]:
        return {}

    def over(self, other: Sample) -> Contrast | None:
        """Return its level over that of ``other``, None if one of them has no interval. A ratio is computed once."""
        if id(other) not in self._over:
            _, back = other._over.get(id(self), (self, None))
            found = contrast([(1.0, self), (-1.0, other)]) if back is None else Contrast(-back.log, back.error)
            self._over[id(other)] = other, found  # which keeps its number from another sample
        return self._over[id(other)][1]

    @cached_property
    def level(self) -> float:
        """The level of positive rates: the geometric mean of several processes, or the rate of one."""
        return fmean(self.rates) if self.one_process else geometric_mean(self.rates)

    @property
    def middle(self) -> float | None:
        """The median of its estimate: the level or, if a rate is zero, their median; None without rates."""
        return self.level if self.measurable else median(self.rates) if self.rates else None

    @cached_property
    def alone(self) -> Contrast | None:
        """The level as a contrast of this sample alone, None without an interval."""
        if self.spread is None and self.measurable:
            return Contrast(log(self.level), summed([self.own_error]))
        return contrast([(1.0, self)])

    @cached_property
    def own_error(self) -> Error:
        """The error of the level of two positive rates or more, as far as they show it themselves.

        With the standard deviation ``s`` of n log rates it is ``s^2 / n``, with n - 1 degrees of freedom. Windows of
        one process are correlated, so that it is larger, and the spread of processes is added to it.
        """
        count = len(self.rates)
        values = [rate / self.level for rate in self.rates] if self.one_process else [log(rate) for rate in self.rates]
        mean = Error(variance(values) / count, count - 1)
        if not self.one_process:
            return mean
        return summed((mean.times(correlation_factor(count)), Error(PROCESS_SPREAD**2, inf)))


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
        ends = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.median * factor, *ends)


def variance(values: Iterable[float]) -> float:
    """Return the variance of a sample of two values or more, correctly rounded, as that of Python's ``statistics``.

    That one computes with fractions, and takes seven times as long.
    """
    squares, whole = _exact_variance(values)
    return squares / whole


def stdev(values: Iterable[float]) -> float:
    """Return the standard deviation of a sample in the same way."""
    squares, whole = _exact_variance(values)
    shift = max(0, 112 - squares.bit_length() + whole.bit_length()) // 2 * 2
    root = isqrt((squares << shift) // whole)
    # Rounded to odd if it is inexact, so that the division rounds correctly (S. Boldo, G. Melquiond, 2008).
    return (root | (root * root * whole != squares << shift)) / (1 << shift // 2)


def _exact_variance(values: Iterable[float]) -> tuple[int, int]:
    ratios = [value.as_integer_ratio() for value in values]
    scale = max([whole for _, whole in ratios])  # all are powers of two
    parts = [part * (scale // whole) for part, whole in ratios]
    n = len(parts)
    return n * sum([part * part for part in parts]) - sum(parts) ** 2, scale * scale * n * (n - 1)


def _over_all(windows: Sequence[Counts]) -> float:
    return sum([count for count, _ in windows]) / sum([time for _, time in windows])


@cache
def correlation_factor(count: int, correlation: float = WINDOW_CORRELATION) -> float:
    """Return the variance of a mean of ``count`` windows over ``s^2 / n``.

    In a first-order autoregressive series, values k apart correlate by ``correlation ** k``. Then their mean varies
    more than ``sigma^2 / n``, and ``s^2`` is less than ``sigma^2`` (G. Box, G. Jenkins, Time Series Analysis, 1970,
    section 2.1; T. Anderson, The Statistical Analysis of Time Series, 1971, section 8.2).
    """
    excess = sum((1 - lag / count) * correlation**lag for lag in range(1, count))
    return (1 + 2 * excess) / (1 - 2 * excess / (count - 1))


def summed(errors: Sequence[Error]) -> Error:
    """Return the error of a sum of independent estimates, with the degrees of freedom of B. L. Welch and Satterthwaite.

    Biometrika 34, 1947, and Biometrics Bulletin 2, 1946.
    """
    total = sum([error.variance for error in errors])
    if total == 0.0:
        return Error(0.0, min(error.freedom for error in errors))
    # Shares of the total are squared, not variances: those of windows that agree to the last digits would underflow.
    spent = sum([(error.variance / total) ** 2 / error.freedom for error in errors])
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


class Contrast(Struct, frozen=True, gc=False):
    """A product of powers of rates: its logarithm, and the error of the logarithm."""

    log: float
    error: Error

    @property
    def estimate(self) -> Estimate:
        """The product, with its 95 % interval."""
        return around(exp(self.log), self.error.half_width())

    def chance_above(self, bound: float) -> float:
        """Return the probability of this product, or a smaller one, if the true product is ``bound`` or more."""
        return self._chance(self.log - log(bound))

    def chance_below(self, bound: float) -> float:
        """Return the probability of this product, or a larger one, if the true product is ``bound`` or less."""
        return self._chance(log(bound) - self.log)

    def _chance(self, distance: float) -> float:
        if self.error.variance == 0:
            return 0.5 if distance == 0 else float(distance > 0)
        from scipy.special import ndtr, stdtr  # noqa: PLC0415 - imported on use: it takes longer than most commands

        value, freedom = distance / sqrt(self.error.variance), self.error.freedom
        return float(ndtr(value) if freedom == inf else stdtr(freedom, value))


def contrast(terms: Sequence[Term]) -> Contrast | None:
    """Return the ``product`` of samples, None if one of them has no positive interval."""
    return product(terms) if all(sample.measurable for _, sample in terms) else None


def product(terms: Iterable[Term]) -> Contrast:
    """Return the product of each sample's level to the power of its weight. All have a positive interval.

    A sample may occur more than once, as the for-loop does in a mean of speedups. Its weights are added up first, so
    that a sample divided by itself cancels.

    What a pass did to all cells of a block enters with the sum of their weights in that pass, and so cancels in a ratio
    of two cells that were measured in the same passes (a paired comparison: G. Box, W. Hunter, J. Hunter, Statistics
    for Experimenters, 1978, section 4.2).
    """
    weights: dict[int, Term] = {}
    for weight, sample in terms:
        before, _ = weights.get(sample.id, (0.0, sample))
        weights[sample.id] = (before + weight, sample)
    parts = [(weight, sample) for weight, sample in weights.values() if weight]
    groups: dict[Block | int, list[Term]] = {}
    for number, (weight, sample) in enumerate(parts):
        block = None if sample.spread is None else sample.spread.block
        groups.setdefault(number if block is None else block, []).append((weight, sample))
    blocks = [_paired(block) for block in groups.values()]
    log_level = sum([weight * log(sample.level) for block in blocks for weight, sample in block])
    errors = (*_own(blocks), *(shift for block in blocks for shift in _shift(block)))
    return Contrast(log_level, summed(errors) if errors else Error(0.0, inf))


def _paired(parts: list[Term]) -> list[Term]:
    """Return the samples of a ratio without the passes that not all of them have, so that what passes did cancels.

    They are returned as they are if that would leave one pass.
    """
    cancels = abs(sum(weight for weight, _ in parts)) <= _NOTHING
    common = set.intersection(*(set(sample.passes) for _, sample in parts)) if cancels else set()
    if len(common) < FEWEST_FOR_INTERVAL or all(len(sample.passes) == len(common) for _, sample in parts):
        return parts
    return [(weight, sample.of_passes(common)) for weight, sample in parts]


def _own(blocks: Sequence[list[Term]]) -> list[Error]:
    """Return the error of what belongs to the processes alone. It is known no better than the pools of variances."""
    alone = [sample.own_error.times(weight**2) for ((weight, sample), *_) in blocks if sample.spread is None]
    errors = [_moderated(block) for block in blocks if block[0][1].spread is not None]
    if not errors:
        return alone
    pools = {sample.spread.pool for block in blocks for _, sample in block if sample.spread is not None}
    total = summed(errors)
    return [*alone, Error(total.variance, min(total.freedom, sum(pool.freedom for pool in pools)))]


def _moderated(block: Sequence[Term]) -> Error:
    """Return the error of a sum of levels of one block: the mean of what its pools and its own passes show.

    The pools count for as much as ``COMMON`` degrees of freedom: the posterior variance of G. Smyth, Linear models and
    empirical Bayes methods for assessing differential expression in microarray experiments, Statistical Applications in
    Genetics and Molecular Biology 3, 2004. What passes do to some cells only is seen in the latter.
    """
    by_pool: dict[Pool, float] = {}
    for weight, sample in block:
        if sample.spread is not None:
            pool = sample.spread.pool
            by_pool[pool] = by_pool.get(pool, 0.0) + weight**2 / sample.processes
    common = summed([Error(pool.variance * share, pool.freedom) for pool, share in by_pool.items()])
    # What its own passes show: of the sum, or, if passes differ, of each cell.
    cells = [{number: weight * residual for number, residual in sample.residuals.items()} for weight, sample in block]
    seen, seen_freedom = 0.0, max(0, min(map(len, cells)) - 1)
    if seen_freedom:
        if all(cell.keys() == cells[0].keys() for cell in cells):
            cells = [{number: sum([cell[number] for cell in cells]) for number in cells[0]}]
        seen = sum([variance(cell.values()) / len(cell) for cell in cells])
    freedom = COMMON + seen_freedom
    return Error((COMMON * common.variance + seen_freedom * seen) / freedom, min(freedom, common.freedom))


def _shift(parts: Sequence[Term]) -> list[Error]:
    """Return the error that what passes did to all cells of a block contributes, if it does not cancel.

    Passes that are alike count as one: what they did is the mean of their effects.
    """
    spread = parts[0][1].spread
    if spread is None or spread.block is None:
        return []
    kinds = {(sample.passes, id(sample.spread and sample.spread.effects)) for _, sample in parts}
    if len(kinds) == 1 and abs(sum(weight for weight, _ in parts)) <= _NOTHING:
        return []
    joined = spread.block.alike
    alike: dict[tuple[tuple[int, float], ...], tuple[Mapping[int, float], dict[int, float]]] = {}
    for weight, sample in parts:
        effects = {} if sample.spread is None else sample.spread.of_alike
        _, of_pass = alike.setdefault(tuple(effects.items()), (effects, {}))
        for number in sample.passes:
            when = joined.get(number, number)
            of_pass[when] = of_pass.get(when, 0.0) + weight / sample.processes
    freedom = len({*joined.values()}) - 1
    total = sum(
        sum(value * theirs.get(number, 0.0) for number, value in ours.items())
        * sum(effect * others.get(number, 0.0) for number, effect in effects.items())
        / freedom
        for (effects, ours), (others, theirs) in pairs_of(alike.values(), repeat=2)
    )
    return [Error(total, freedom)] if total > _NOTHING else []


def estimate(sample: Sample) -> Estimate | None:
    """Return the level of a sample with its interval; without an interval for a single rate, None for no rate.

    The interval is ``level * exp(+-t * se)``. A rate of zero has no logarithm: then the level is the median, the spread
    is that of the rates themselves, and the interval is cut off at zero.
    """
    if (found := sample.alone) is not None:
        return around(sample.level, found.error.half_width())
    rates = sample.rates
    if len(rates) < FEWEST_FOR_INTERVAL:
        return Estimate(rates[0]) if rates else None
    half = student_quantile((1 + CONFIDENCE) / 2, len(rates) - 1) * stdev(rates) / sqrt(len(rates))
    return Estimate(median(rates), max(0.0, median(rates) - half), median(rates) + half)


def estimate_of_rate(sample: Sample) -> Estimate | None:
    """Return the estimate of a rate. Its interval also holds for other runs on the same machine."""
    if (found := sample.alone) is None:
        return estimate(sample)
    return around(sample.level, summed([found.error, Error(RUN_SPREAD**2, inf)]).half_width())


def width_beside_others(sample: Sample) -> float | None:
    """Return how far the interval of a level reaches above it, relative to it, without what passes did to all cells."""
    if not sample.measurable:
        return None
    return exp(min(summed(_own([[(1.0, sample)]])).half_width(), WIDEST_LOG)) - 1


def ratio(numerator: Sample, denominator: Sample) -> Estimate | None:
    """Return the ratio of two levels with its interval; None if either is missing or the denominator is zero.

    If a rate is zero, the bounds are the low bound over the high one, and the high bound over the low one.
    """
    if not (numerator.rates and denominator.rates):
        return None
    if (found := numerator.over(denominator)) is not None:
        return found.estimate
    above, below = estimate(numerator), estimate(denominator)
    if above is None or below is None or below.median <= 0:
        return None
    middle = above.median / below.median
    if above.low is None or above.high is None or below.low is None or below.high is None:
        return Estimate(middle)
    return Estimate(middle, above.low / below.high, above.high / below.low) if below.low > 0 else Estimate(middle)


def rejected(chances: Mapping[Key, float], level: float, tests: Callable[[int], int] = int) -> frozenset[Key]:
    """Return which hypotheses are rejected; the probability that a true one is among them is ``level`` at most.

    This is the step-down procedure of S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian
    Journal of Statistics 6, 1979. It assumes nothing about how the tests depend on each other. ``tests`` is how many
    may still be true together, given how many are left: all of them, unless they depend on each other (J. Shaffer,
    Journal of the American Statistical Association 81, 1986).
    """
    ranked = sorted(chances, key=chances.__getitem__)
    kept = (rank for rank, key in enumerate(ranked) if chances[key] > level / tests(len(ranked) - rank))
    return frozenset(ranked[: next(kept, len(ranked))])


def verdicts(  # noqa: PLR0913 - how to test
    ratios: Mapping[Key, Contrast | None],
    *,
    low: float = 1.0,
    high: float | None = None,
    level: float = LEVEL,
    same: float = 0.0,
    tests: Callable[[int], int] = int,
) -> dict[Key, Outcome]:
    """Return the verdict on each ratio: every comparison of rates, of a run's cells or of two runs, is made here.

    A ratio is ``slower`` if it is significantly below ``low``, ``faster`` if it is significantly above ``high``, where
    that is asked for. All ratios are tested together, each side at ``level``. Where both bounds are one number, the
    test of a ratio is two-sided. It is the ``same`` if it is not below ``low`` by a test of its own at the level
    ``same``, and ``inconclusive`` otherwise. One that is None is not known, but counts as tested.
    """
    below = {key: 1.0 if found is None else found.chance_above(low) for key, found in ratios.items()}
    above = {key: 1.0 if found is None or high is None else found.chance_below(high) for key, found in ratios.items()}
    if high == low:
        either = rejected({key: min(below[key], above[key]) for key in ratios}, level, tests)
        slower = frozenset(key for key in either if below[key] < above[key])
        faster = either - slower
    else:
        slower = rejected(below, level, tests)
        faster = frozenset() if high is None else rejected(above, level, tests)

    def verdict(key: Key, found: Contrast | None) -> Outcome:
        if key in slower:
            return "slower"
        if key in faster:
            return "faster"
        return "same" if same and found is not None and found.chance_below(low) <= same else "inconclusive"

    return {key: verdict(key, found) for key, found in ratios.items()}
