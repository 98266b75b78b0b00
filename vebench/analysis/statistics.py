"""Samples of rates, and their levels, ratios and products with intervals and tests. Pure functions.

Rates are positive and their noise is multiplicative, so errors and intervals are for log rates. An interval that is
symmetric on the log scale never reaches below zero. docs/evidence/simulations.md says how often intervals hold.

The level of a cell, a ratio, a ratio of two speedups and a geometric mean of ratios are weighted sums of log levels.
Each is a ``Contrast`` with a variance and degrees of freedom, and therefore has intervals and tests of any level.
``pooled`` estimates how much the processes of a run vary.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import count, product
from math import exp, fsum, inf, log, sqrt
from statistics import fmean, geometric_mean, median, median_high, median_low
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from vebench.plan.cells import CellKey

SIDE_LEVEL = 0.025  # the level of a one-sided test, like each side of a 95 % interval

# Standard deviation of log rates between processes that do the same work. The interval of a single process assumes this
# value. The place of data in memory alone makes differences of a few percent (T. Mytkowicz, A. Diwan,
# M. Hauswirth, P. Sweeney, ASPLOS 2009; T. Kalibera, R. Jones, Rigorous benchmarking in reasonable time, ISMM 2013).
PROCESS_SPREAD = 0.02

# Standard deviation of log rates between runs of one command, because the machine changes. It cancels in ratios within
# a run. docs/evidence/repeated-runs.md describes the runs that show it.
RUN_SPREAD = 0.05

# Correlation of a window with the one before it. Three to twelve windows are too few to estimate it.
WINDOW_CORRELATION = 0.3

WIDEST_LOG = 100.0  # exp() of much larger numbers overflows
COMMON = 4.0  # degrees of freedom of a pool's variance when it is averaged with an estimate's own variance
_NOTHING = 1e-12  # the rounding error of numbers that cancel

# The measuring loop alone (overhead), disturbed cells, and cells that share CPUs vary differently from other cells.
Condition = Literal["undisturbed", "oversubscribed", "disturbed", "overhead"]
_Conditions = Mapping[CellKey, Condition]
_Logs = Mapping[int, float]  # log rates by the number of the pass

new_id = count().__next__
Key = TypeVar("Key")


class Error(Struct, frozen=True, gc=False):
    """The variance of an estimate on the log scale, and its degrees of freedom."""

    variance: float
    freedom: float

    def times(self, factor: float) -> Error:
        """Return the error with its variance times an exact factor."""
        return Error(self.variance * factor, self.freedom)

    def half_width(self) -> float:
        """Return half the width of the 95 % interval on the log scale."""
        return student_quantile(1 - SIDE_LEVEL, self.freedom) * sqrt(self.variance)


@dataclass(frozen=True, eq=False)
class ProcessPool:
    """Cells whose processes have the same variance."""

    variance: float  # the variance of one process on the log scale
    freedom: float  # the degrees of freedom of all these cells together


@dataclass(frozen=True, eq=False)
class Effects:
    """The effect of each pass on the log rates of similar cells. A block has all cells measured in the same passes."""

    block: int  # the id of the block
    of_pass: Mapping[int, float]
    joined: Mapping[int, int]  # for each pass, the first pass of its group: short passes are joined into groups

    @cached_property
    def joint(self) -> dict[int, float]:
        """The mean effect of each group of short passes, by the first pass of the group."""
        groups = defaultdict(list)
        for number, effect in self.of_pass.items():
            groups[self.joined.get(number, number)].append(effect)
        return {number: fmean(effects) for number, effects in groups.items()}


@dataclass(frozen=True)
class Sample:
    """The rates from which an estimate is computed.

    With several processes, each process has one independent rate. With ``one_process``, each window has a value. The
    mean of these values is the rate over all windows.
    """

    rates: tuple[float, ...]
    one_process: bool
    passes: tuple[int, ...] = ()  # the pass of each process; empty if unknown
    pool: ProcessPool | None = None  # the variance of similar processes; without it, only the sample shows a variance
    effects: Effects | None = None  # None: the effects of passes are unknown
    id: int = field(default_factory=new_id, compare=False)  # samples of the same measurement have the same id

    @classmethod
    def of(cls, passes: ArrayLike, counts: ArrayLike, times: ArrayLike) -> Sample:
        """Return the sample of a cell, given the pass, the count and the time of each window. Unknown times are NaN.

        A rate is the sum of counts over the sum of times. A median of windows would miss slow resets. For one process,
        the values are linearised, so that their variance is the variance of the ratio (W. Cochran, Sampling Techniques,
        1977, section 6.4).
        """
        times = np.asarray(times, float)
        known = times > 0
        passes, counts, times = np.asarray(passes)[known], np.asarray(counts, float)[known], times[known]
        if not len(times):
            return cls((), one_process=False)
        starts = np.flatnonzero(np.concatenate(([True], passes[1:] != passes[:-1])))
        rates = np.add.reduceat(counts, starts) / np.add.reduceat(times, starts)
        if len(starts) == 1:
            rates = rates + (counts - rates * times) / times.mean()
        return cls(tuple(rates.tolist()), one_process=len(starts) == 1, passes=tuple(passes[starts].tolist()))

    def of_passes(self, passes: Container[int]) -> Sample:
        """Return a sample of several processes with only these passes."""
        kept = {number: rate for number, rate in self.by_pass.items() if number in passes}
        return replace(self, rates=tuple(kept.values()), passes=tuple(kept), id=new_id())

    @cached_property
    def positive(self) -> bool:
        """Whether there are rates, and the rate of every process is above zero. Values of windows may be negative."""
        return bool(self.rates) and (self.level if self.one_process else min(self.rates)) > 0

    @property
    def measurable(self) -> bool:
        """Whether the sample has an interval."""
        return (len(self.rates) > 1 or self.pool is not None) and self.positive

    @property
    def processes(self) -> int:
        """The number of processes."""
        return 1 if self.one_process and self.rates else len(self.rates)

    @cached_property
    def by_pass(self) -> dict[int, float]:
        """The rate of each pass; empty if passes are unknown."""
        rates = (fmean(self.rates),) if self.one_process and self.rates else self.rates
        return dict(zip(self.passes, rates, strict=True)) if self.passes else {}

    @cached_property
    def residuals(self) -> dict[int, float]:
        """The log rate of each pass, without the effect of the pass on all similar cells."""
        effects = {} if self.effects is None else self.effects.of_pass
        return {number: log(rate) - effects.get(number, 0.0) for number, rate in self.by_pass.items()}

    @cached_property
    def level(self) -> float:
        """The level of positive rates: the geometric mean of several processes, or the rate of one."""
        return fmean(self.rates) if self.one_process else geometric_mean(self.rates)

    @property
    def middle(self) -> float | None:
        """The median of the estimate: the level, or without an interval the median rate; None without rates."""
        return self.level if self.measurable else median(self.rates) if self.rates else None

    @cached_property
    def alone(self) -> Contrast | None:
        """The level as a contrast of this sample alone; None without an interval."""
        return contrast([(1.0, self)])

    @cached_property
    def own_error(self) -> Error:
        """The error of the level of at least two positive rates, without the help of a pool.

        With the standard deviation ``s`` of n log rates, the variance is ``s^2 / n``, with n - 1 degrees of freedom.
        Windows of one process are correlated, which makes the variance larger. The spread of processes is added.
        """
        number = len(self.rates)
        if not self.one_process:
            return Error(variance([log(rate) for rate in self.rates]) / number, number - 1)
        own = Error(variance([rate / self.level for rate in self.rates]) / number, number - 1)
        return summed((own.times(correlation_factor(number)), Error(PROCESS_SPREAD**2, inf)))


Term = tuple[float, Sample]  # the power of a sample in a product, and the sample


@dataclass(frozen=True)
class Estimate:
    """A median and its 95 % interval, in the same unit. Without an interval, ``low`` and ``high`` are None."""

    median: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """The larger half of the interval divided by the median; None without an interval, or for a median of zero."""
        if self.low is None or self.high is None or self.median <= 0:
            return None
        return max(self.high / self.median - 1, 1 - self.low / self.median)

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate multiplied by an exact, positive number."""
        ends = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.median * factor, *ends)


class Contrast(Struct, frozen=True, gc=False):
    """The logarithm of a product of powers of rates, and the error of this logarithm."""

    log: float
    error: Error

    @property
    def estimate(self) -> Estimate:
        """The product, with its 95 % interval."""
        return around(exp(self.log), self.error.half_width())

    def chance_above(self, bound: float) -> float:
        """Return the largest probability of a product as small as this, if the true product is at least ``bound``."""
        distance, freedom = self.log - log(bound), self.error.freedom
        if self.error.variance == 0:
            return 0.5 if distance == 0 else float(distance > 0)
        from scipy.special import ndtr, stdtr

        value = distance / sqrt(self.error.variance)
        return float(ndtr(value) if freedom == inf else stdtr(freedom, value))

    def chance_below(self, bound: float) -> float:
        """Return the largest probability of a product as large as this, if the true product is at most ``bound``."""
        return Contrast(-self.log, self.error).chance_above(1 / bound)


def variance(values: Sequence[float]) -> float:
    """Return the variance of a sample; 0 if all values are equal. Python's function takes a hundred times as long."""
    apart = [value - values[0] for value in values]
    middle = fsum(apart) / len(apart)
    return fsum([(value - middle) ** 2 for value in apart]) / (len(apart) - 1)


@cache
def correlation_factor(number: int, correlation: float = WINDOW_CORRELATION) -> float:
    """Return the variance of the mean of ``number`` windows, divided by ``s^2 / n``.

    In a first-order autoregressive series, values k apart correlate by ``correlation ** k`` (T. Anderson, The
    Statistical Analysis of Time Series, 1971, section 8.2).
    """
    excess = sum((1 - lag / number) * correlation**lag for lag in range(1, number))
    return (1 + 2 * excess) / (1 - 2 * excess / (number - 1))


def summed(errors: Sequence[Error]) -> Error:
    """Return the error of a sum of independent estimates, by B. Welch, Biometrika 34, 1947."""
    total = sum([error.variance for error in errors])
    if total == 0.0:
        return Error(0.0, min(error.freedom for error in errors))
    # Squares of tiny variances would underflow; squares of shares do not.
    spent = sum([(error.variance / total) ** 2 / error.freedom for error in errors])
    return Error(total, 1 / spent if spent else inf)


def around(middle: float, half_width: float) -> Estimate:
    """Return the estimate whose interval reaches ``half_width`` to either side on the log scale."""
    factor = exp(min(half_width, WIDEST_LOG))
    return Estimate(middle, middle / factor, middle * factor)


@cache
def student_quantile(share: float, freedom: float) -> float:
    """Return the quantile of Student's distribution, or of the normal distribution for infinite degrees of freedom."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(share) if freedom == inf else stdtrit(freedom, share))


def contrast(terms: Sequence[Term]) -> Contrast | None:
    """Return the ``power_product`` of samples; None if any sample has no interval."""
    return power_product(terms) if all(sample.measurable for _, sample in terms) else None


def power_product(terms: Iterable[Term]) -> Contrast:
    """Return the product of the samples' levels, each to the power of its weight. All samples must have an interval.

    A sample may occur more than once, such as the for-loop in a mean of speedups. Its weights are added up first.

    The effect of a pass on all cells of a block is multiplied by the sum of their weights in that pass. So it cancels
    in a ratio of two cells that were measured in the same passes (a paired comparison: G. Box, W. Hunter, J. Hunter,
    Statistics for Experimenters, 1978, section 4.2).
    """
    weights: dict[int, float] = defaultdict(float)
    samples: dict[int, Sample] = {}
    for weight, sample in terms:
        weights[sample.id] += weight
        samples[sample.id] = sample
    blocks: dict[int, list[Term]] = defaultdict(list)
    alone: list[Term] = []
    for number, weight in weights.items():
        sample = samples[number]
        if weight and sample.pool is None:
            alone.append((weight, sample))
        elif weight:
            blocks[number if sample.effects is None else sample.effects.block].append((weight, sample))
    paired = [_paired(block) for block in blocks.values()]
    log_level = fsum([weight * log(sample.level) for block in (alone, *paired) for weight, sample in block])
    errors = [*_own_errors(alone, paired), *(shift for block in paired if (shift := _shift(block)))]
    return Contrast(log_level, summed(errors) if errors else Error(0.0, inf))


def _paired(block: list[Term]) -> list[Term]:
    """Return the samples of a ratio with only their common passes, whose effects cancel, if there are two or more."""
    cancels = abs(sum(weight for weight, _ in block)) <= _NOTHING
    common = set.intersection(*(set(sample.passes) for _, sample in block)) if cancels else set()
    if len(common) <= 1 or all(len(sample.passes) == len(common) for _, sample in block):
        return block
    return [(weight, sample.of_passes(common)) for weight, sample in block]


def _own_errors(alone: Sequence[Term], blocks: Sequence[list[Term]]) -> list[Error]:
    """Return the errors that come from processes, without the effects of passes."""
    errors = [sample.own_error.times(weight**2) for weight, sample in alone]
    if blocks:
        total = summed([_moderated(block) for block in blocks])
        pools = {sample.pool for block in blocks for _, sample in block if sample.pool is not None}
        # The variance of the sum is known no better than the variances of the pools.
        errors.append(Error(total.variance, min(total.freedom, sum(pool.freedom for pool in pools))))
    return errors


def _moderated(block: Sequence[Term]) -> Error:
    """Return the error of a sum of levels of one block: a mean of the pools' variance and the variance over its passes.

    The pools count for ``COMMON`` degrees of freedom (the posterior variance of G. Smyth, Statistical Applications in
    Genetics and Molecular Biology 3, 2004). The variance over passes includes effects of passes on only some cells.
    """
    shares: dict[ProcessPool, float] = defaultdict(float)
    for weight, sample in block:
        if sample.pool is not None:
            shares[sample.pool] += weight**2 / sample.processes
    pools = summed([Error(pool.variance * share, pool.freedom) for pool, share in shares.items()])
    cells = [{number: weight * residual for number, residual in sample.residuals.items()} for weight, sample in block]
    own_freedom = min(map(len, cells)) - 1
    if own_freedom < 1:
        return Error(pools.variance, min(COMMON, pools.freedom))
    if all(cell.keys() == cells[0].keys() for cell in cells):  # with the same passes, add up the cells in each pass
        cells = [{number: sum([cell[number] for cell in cells]) for number in cells[0]}]
    own = sum([variance([*cell.values()]) / len(cell) for cell in cells])
    freedom = COMMON + own_freedom
    return Error((COMMON * pools.variance + own_freedom * own) / freedom, min(freedom, pools.freedom))


def _shift(block: Sequence[Term]) -> Error | None:
    """Return the error of a block from passes that affect all its cells alike, None if these effects cancel.

    Joined short passes count as one pass. Its effect is the mean of their effects.
    """
    weights: dict[Effects, dict[int, float]] = {}  # the sum of weights in each pass
    for weight, sample in block:
        if sample.effects is None:
            return None
        of_pass = weights.setdefault(sample.effects, defaultdict(float))
        for number in sample.passes:
            of_pass[sample.effects.joined.get(number, number)] += weight / len(sample.passes)
    if all(abs(weight) <= _NOTHING for of_pass in weights.values() for weight in of_pass.values()):
        return None
    total = 0.0
    for (effects, of_pass), (others, of_other) in product(weights.items(), repeat=2):
        total += _dot(of_pass, of_other) * _dot(effects.joint, others.joint)
    freedom = len(set(effects.joined.values())) - 1
    return Error(total / freedom, freedom) if total / freedom > _NOTHING else None


def _dot(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    return sum([value * other.get(number, 0.0) for number, value in one.items()])


def estimate(sample: Sample) -> Estimate | None:
    """Return the level of a sample, with its interval if it has one; None without a rate."""
    if sample.alone is not None:
        return around(sample.level, sample.alone.error.half_width())
    return None if sample.middle is None else Estimate(sample.middle)


def estimate_of_rate(sample: Sample) -> Estimate | None:
    """Return the estimate of a rate. Its interval also holds for other runs on the same machine."""
    if (found := sample.alone) is None:
        return estimate(sample)
    return around(sample.level, summed([found.error, Error(RUN_SPREAD**2, inf)]).half_width())


def width_within_run(sample: Sample) -> float | None:
    """Return the relative upper half-width of the interval, excluding pass effects common to all cells."""
    if not sample.measurable:
        return None
    term = [(1.0, sample)]
    errors = _own_errors(term, []) if sample.pool is None else _own_errors([], [term])
    return exp(min(summed(errors).half_width(), WIDEST_LOG)) - 1


def ratio(numerator: Sample, denominator: Sample) -> Estimate | None:
    """Return the ratio of two levels, with an interval if both have one; None without levels or for a zero divisor."""
    if (found := contrast([(1.0, numerator), (-1.0, denominator)])) is not None:
        return found.estimate
    above, below = numerator.middle, denominator.middle
    return Estimate(above / below) if above is not None and below else None


def rejected(chances: Mapping[Key, float], level: float, tests: Callable[[int], int] = int) -> frozenset[Key]:
    """Return the rejected hypotheses. The probability that one of them is true is at most ``level``.

    This is the step-down procedure of S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian
    Journal of Statistics 6, 1979. It holds for any dependence between the tests. ``tests`` maps the number of remaining
    hypotheses to the number that may be true together, by default all (J. Shaffer, Journal of the American Statistical
    Association 81, 1986).
    """
    ranked = sorted(chances, key=chances.__getitem__)
    kept = (rank for rank, key in enumerate(ranked) if chances[key] > level / tests(len(ranked) - rank))
    return frozenset(ranked[: next(kept, len(ranked))])


def slower(
    ratios: Mapping[Key, Contrast | None],
    low: float = 1.0,
    level: float = SIDE_LEVEL,
    tests: Callable[[int], int] = int,
) -> frozenset[Key]:
    """Return the keys of the ratios that are significantly below ``low``, all tested together.

    A ratio that is None is never among them, but counts as tested. ``tests``: see ``rejected``.
    """
    chances = {key: 1.0 if found is None else found.chance_above(low) for key, found in ratios.items()}
    return rejected(chances, level, tests)


def pooled(samples: Mapping[CellKey, Sample], conditions: _Conditions) -> dict[CellKey, Sample]:
    """Return the samples of a run with their pools and effects of passes, as far as the run shows them.

    A log rate is the sum of a level of the cell, an effect of the pass on all cells of its task, and a residual of the
    process. Median polish estimates all three, and a noisy minority of cells does not distort it (J. Tukey, Exploratory
    Data Analysis, 1977, chapter 11). Cells whose residuals may have one variance form a pool.
    """
    if max((len(sample.passes) for sample in samples.values()), default=0) <= 1:
        return {**samples}  # one process of each cell does not show how processes vary
    tasks: dict[str, dict[CellKey, _Logs]] = defaultdict(dict)
    for key, sample in samples.items():
        if sample.passes and sample.positive:
            tasks[key.env][key] = sample.residuals
    effects: dict[CellKey, Effects] = {}
    errors: dict[CellKey, Error] = {}
    for logs in tasks.values():
        sides = _sides(logs, conditions)
        joined = _joined(Counter(number for side in sides for key in side for number in logs[key]))
        block = new_id()
        of_sides = [Effects(block, _effects([logs[key] for key in side]), joined) for side in sides]
        members = [set(side) for side in sides]
        for key, of_cell in logs.items():
            if not sides:
                errors[key] = _error([*of_cell.values()])
                continue
            number = int(len(sides) > 1 and key.workers > 1)
            effects[key] = of_sides[number]
            # A cell from which the effects were estimated lost a part of its residuals to them.
            left = 1 - 1 / len(sides[number]) if key in members[number] else 1.0
            of_pass = of_sides[number].of_pass
            errors[key] = _error([value - of_pass.get(run, 0.0) for run, value in of_cell.items()], left)
    pools = _pools(errors, conditions, by_backend=True)
    return {key: replace(one, pool=pools.get(key), effects=effects.get(key)) for key, one in samples.items()}


def pooled_alone(samples: Mapping[CellKey, Sample], conditions: _Conditions) -> dict[CellKey, Sample]:
    """Return independent samples, such as ratios within each pass, with their pools. Passes have no effects."""
    pools = _pools({key: _error([*sample.residuals.values()]) for key, sample in samples.items()}, conditions)
    return {key: replace(sample, pool=pools.get(key)) for key, sample in samples.items()}


def _sides(logs: Mapping[CellKey, _Logs], conditions: _Conditions) -> list[list[CellKey]]:
    """Return one or two lists of the cells of a task that show the effects of passes; none if there are too few cells.

    Cells with one worker get their own list if both lists cover all passes. Other processes slow these cells less.
    """
    steady = [key for key in logs if conditions[key] == "undisturbed"]
    if len(steady) <= 1:
        steady = [key for key in logs if conditions[key] != "overhead"]
    passes = {number for key in steady for number in logs[key]}
    if len(steady) <= 1 or len(passes) <= 1:
        return []
    sides = [[key for key in steady if key.workers <= 1], [key for key in steady if key.workers > 1]]
    for side in sides:
        if len(side) <= 1 or {number for key in side for number in logs[key]} != passes:
            return [steady]
    return sides


def _joined(cells: Mapping[int, int]) -> dict[int, int]:
    """Return, for each pass, the first pass of its group, given the number of cells in each pass.

    Consecutive short passes form a group, until the group has as many cells as a full pass.
    """
    first, left, found = -1, 0, {}
    for number, there in sorted(cells.items()):
        if left < there:
            first, left = number, max(cells.values())
        found[number] = first
        left -= there
    return found


def _effects(cells: Sequence[_Logs]) -> dict[int, float]:
    """Return the effect of each pass: the median of its log rates, without the levels of cells and the mean effect."""
    effects = dict.fromkeys(sorted({number for logs in cells for number in logs}), 0.0)
    for _ in range(50):  # far fewer rounds converge
        residuals: dict[int, list[float]] = {number: [] for number in effects}
        for logs in cells:
            mean = fmean(value - effects[number] for number, value in logs.items())
            for number, value in logs.items():
                residuals[number].append(value - mean)
        medians = {number: median(values) for number, values in residuals.items()}
        middle = fmean(medians.values())
        before, effects = effects, {number: value - middle for number, value in medians.items()}
        if max(abs(effects[number] - before[number]) for number in effects) < _NOTHING:
            break
    return effects


def _error(residuals: Sequence[float], left: float = 1.0) -> Error:
    """Return the variance of processes, given residuals that contain the share ``left`` of this variance."""
    freedom = (len(residuals) - 1) * left
    middle = fmean(residuals) if residuals else 0.0
    squares = sum([(value - middle) ** 2 for value in residuals])
    return Error(squares / freedom if freedom else 0.0, freedom)


def _pools(
    errors: Mapping[CellKey, Error], conditions: _Conditions, *, by_backend: bool = False
) -> dict[CellKey, ProcessPool]:
    """Return the pool of each cell, if it is known: the pool of its condition, or of the noisy cell or backend."""
    pools: dict[CellKey, ProcessPool] = {}
    for condition in dict.fromkeys(conditions[key] for key in errors):
        left = {key: error for key, error in errors.items() if conditions[key] == condition}
        # Backends differ by design. A single cell that seems to vary more mostly does so by chance.
        for backends, level in ((by_backend, 0.05), (False, 0.001)):
            for noisy in _noisy(left, level, by_backend=backends):
                pools |= dict.fromkeys(noisy, _pool([left.pop(key) for key in noisy]))
        common = _pool(left.values())
        pools |= dict.fromkeys(left, common) if common.freedom else {}
    return pools


def _pool(errors: Iterable[Error]) -> ProcessPool:
    known = [error for error in errors if error.freedom]
    freedom = sum([error.freedom for error in known])
    return ProcessPool(sum([error.freedom * error.variance for error in known]) / freedom if known else 0.0, freedom)


def _noisy(errors: Mapping[CellKey, Error], level: float, *, by_backend: bool) -> list[list[CellKey]]:
    """Return the groups of cells whose variance is significantly above the median. A group is a cell or a backend."""
    from scipy.special import chdtri, fdtrc

    groups: dict[CellKey | str, list[CellKey]] = defaultdict(list)
    for key in errors:
        groups[key.backend if by_backend else key].append(key)
    means = {group: _pool([errors[key] for key in keys]) for group, keys in groups.items()}
    known = {group: mean for group, mean in means.items() if mean.freedom}
    if not known:
        return []
    # A median has about half the degrees of freedom of a mean. With two passes, this is too little to find a noisy
    # cell. Then the median counts as exact, and some cells are wrongly called noisy.
    enough = max(error.freedom for error in errors.values()) > 1
    freedom = sum(one.freedom for one in known.values()) / 2 if enough else 1e9
    variances = [one.variance * one.freedom / float(chdtri(one.freedom, 0.5)) for one in known.values()]
    typical = max(sqrt(median_low(variances) * median_high(variances)), _NOTHING**2)
    return [
        groups[group]
        for group, one in known.items()
        # A variance below the typical one is never significantly above it.
        if one.variance > typical and float(fdtrc(one.freedom, freedom, one.variance / typical)) < level
    ]
