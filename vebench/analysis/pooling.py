"""How much the processes of a run vary, estimated from all its cells together. Pure functions.

Two or three processes of one cell hardly show how much the next would differ. But the cells of a run were measured on
one machine in the same passes, so each of them says something about the others.

First, log rates are taken apart into a level of the cell, an effect of the pass on all cells of its task, and a rest
that belongs to the one process (the two-way layout: R. Fisher, The Design of Experiments, 1935). Then the variances of
the rests are moderated: each is drawn towards what all cells have in common, the more so the less the cell shows itself
(G. Smyth, Linear models and empirical Bayes methods for assessing differential expression in microarray experiments,
Statistical Applications in Genetics and Molecular Biology 3, 2004). Cells of unlike conditions are in pools of their
own.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log
from statistics import fmean, median, median_low, variance
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Block, Error, Pool, Sample, Spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.plan.cells import CellKey

# The conditions of a cell. Those that were disturbed, that share CPUs among too many threads, and the measuring loop
# alone vary in other ways than the cells that are calm.
Condition = Literal["calm", "crowded", "disturbed", "overhead"]

FEWEST_BESIDE = 2  # cells that show what a pass did to all
REWEIGHTED = 5  # times that noisy cells are given less weight
MOST_SWEEPS, CLOSE = 50, 1e-12
# Of the mean variance: where windows agree to the last digit, a variance of zero would have no logarithm.
LEAST_SHARE = 1e-5

# Cells never vary all alike. Their standard deviations are taken to differ by a fifth at least, so log variances by
# 0.4: twice the inverse of the trigamma function of 0.4^2 is this d0. Few processes cannot show it, but without it,
# cells that happen to vary more would be called slower too often.
MOST_COMMON = 13.0
OUTLYING_LEVEL, OUTLYING_FREEDOM = 0.001, 2.0
NOTHING_KNOWN = Error(0.0, 0)

Levels = dict["CellKey", dict[int, float]]
Key = TypeVar("Key")


class Rest(NamedTuple):
    """What is left to a cell's own processes: their variance, and the block that the cell is in.

    ``freedom`` is what the cell adds to the degrees of freedom of its pool: the rests of cells in a block depend on
    each other, since effects of passes were estimated from all of them.
    """

    own: Error
    freedom: float
    block: Block | None = None


def pooled(samples: Mapping[CellKey, Sample], conditions: Mapping[CellKey, Condition]) -> dict[CellKey, Sample]:
    """Return the samples of a run, each with how its processes vary, as far as the run shows it."""
    known = {key: sample for key, sample in samples.items() if sample.passes and min(sample.rates) > 0}
    rests: dict[CellKey, Rest] = {}
    for env in dict.fromkeys(key.env for key in known):
        rests |= _rests({key: _logs(sample) for key, sample in known.items() if key.env == env}, conditions)
    spreads: dict[CellKey, Spread] = {}
    for condition in dict.fromkeys(conditions[key] for key in rests):
        here = {key: rest for key, rest in rests.items() if conditions[key] == condition}
        spreads |= _spreads(here)
    return {key: replace(sample, spread=spreads[key]) if key in spreads else sample for key, sample in samples.items()}


def pooled_alone(samples: Sequence[Sample], conditions: Sequence[Condition]) -> list[Sample]:
    """Return independent samples, such as ratios of two cells in each pass, each with how those like it vary."""
    rests = {number: _alone(_logs(sample)) for number, sample in enumerate(samples)}
    spreads: dict[int, Spread] = {}
    for condition in dict.fromkeys(conditions):
        spreads |= _spreads({number: rest for number, rest in rests.items() if conditions[number] == condition})
    return [replace(sample, spread=spreads.get(number)) for number, sample in enumerate(samples)]


def moderated(errors: Sequence[Error]) -> list[Error]:
    """Return each variance drawn towards what all have in common, with the degrees of freedom that it then has.

    With s0^2 and d0, the common variance and the degrees of freedom that it counts for, this is
    (d0 s0^2 + d s^2) / (d0 + d). Both follow from the mean and the variance of the log variances (Smyth 2004,
    section 6.2). d0 is ``MOST_COMMON`` at most, with the mean variance as s0^2.

    What others have in common says little about a variance that is larger beyond chance, as after a stall: it is drawn
    to it as if d0 were ``OUTLYING_FREEDOM`` (B. Phipson, S. Lee, I. Majewski, W. Alexander, G. Smyth, Robust
    hyperparameter estimation protects against hypervariable genes, Annals of Applied Statistics 10, 2016).
    """
    typical = _typical(errors)
    outlying = [_is_outlying(error, typical) for error in errors]
    common = _common(errors)
    weak = Error(common.variance, min(common.freedom, OUTLYING_FREEDOM))
    return [_drawn(error, weak if out else common) for error, out in zip(errors, outlying, strict=True)]


def _typical(errors: Sequence[Error]) -> float:
    """Return the variance of which half of the variances are larger than chance makes half of them."""
    from scipy.special import chdtri  # noqa: PLC0415 - imported on use: it takes longer than most commands

    known = [error for error in errors if error.freedom > 0]
    return median(error.variance * error.freedom / float(chdtri(error.freedom, 0.5)) for error in known)


def _is_outlying(error: Error, typical: float) -> bool:
    """Return whether a variance is larger than the typical one, beyond chance."""
    if error.freedom <= 0 or typical <= 0:
        return False
    from scipy.special import chdtrc  # noqa: PLC0415 - as above

    return float(chdtrc(error.freedom, error.freedom * error.variance / typical)) < OUTLYING_LEVEL


def _drawn(error: Error, common: Error) -> Error:
    freedom = common.freedom + error.freedom
    return Error((common.freedom * common.variance + error.freedom * error.variance) / freedom, freedom)


def _common(errors: Sequence[Error]) -> Error:
    """Return s0^2 with d0. At least one variance must be known."""
    known = [error for error in errors if error.freedom > 0]
    mean = sum(error.freedom * error.variance for error in known) / sum(error.freedom for error in known)
    if len(known) < FEWEST_FOR_INTERVAL or mean == 0.0:
        return Error(mean, MOST_COMMON)
    from scipy.special import digamma, polygamma  # noqa: PLC0415 - imported on use: it takes longer than most commands

    halves = [error.freedom / 2 for error in known]
    logs = [
        log(max(error.variance, LEAST_SHARE * mean)) - float(digamma(half)) + log(half)
        for error, half in zip(known, halves, strict=True)
    ]
    excess = variance(logs) - fmean(float(polygamma(1, half)) for half in halves)
    half = _inverse_trigamma(excess) if excess > 0 else inf
    if 2 * half >= MOST_COMMON:
        return Error(mean, MOST_COMMON)
    return Error(exp(fmean(logs) + float(digamma(half)) - log(half)), 2 * half)


def _inverse_trigamma(value: float) -> float:
    """Return the number whose trigamma function is ``value`` (Newton's method on its inverse: Smyth 2004, appendix)."""
    from scipy.special import polygamma  # noqa: PLC0415 - as above

    found = 0.5 + 1 / value
    for _ in range(MOST_SWEEPS):
        trigamma = float(polygamma(1, found))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, found))
        found += step
        if -step < CLOSE * found:
            break
    return found


def _spreads(rests: Mapping[Key, Rest]) -> dict[Key, Spread]:
    """Return how the processes of cells of one pool vary; empty if nothing shows it."""
    total = sum(rest.freedom for rest in rests.values())
    if total < CLOSE:
        return {}
    pool = Pool(total)
    errors = moderated([rest.own for rest in rests.values()])
    return {key: Spread(own, pool, rest.block) for (key, rest), own in zip(rests.items(), errors, strict=True)}


def _logs(sample: Sample) -> dict[int, float]:
    return {number: log(rate) for number, rate in sample.by_pass.items()}


def _alone(logs: Mapping[int, float]) -> Rest:
    """Return what is left to the processes of a cell that has no others beside it."""
    freedom = len(logs) - 1
    return Rest(Error(variance(logs.values()) if freedom else 0.0, freedom), freedom)


def _rests(levels: Levels, conditions: Mapping[CellKey, Condition]) -> dict[CellKey, Rest]:
    """Return what is left to the processes of the cells of one task, after what each pass did to all of them."""
    steady = [key for key in levels if conditions[key] == "calm"]
    if len(steady) < FEWEST_BESIDE:
        steady = [key for key in levels if conditions[key] != "overhead"]
    passes = {number for key in steady for number in levels[key]}
    if len(steady) < FEWEST_BESIDE or len(passes) < FEWEST_FOR_INTERVAL:
        return {key: _alone(logs) for key, logs in levels.items()}
    weights = dict.fromkeys(steady, 1.0)
    for _ in range(REWEIGHTED):
        rests = _beside(levels, weights)
        weights = _weights({key: rests[key].own for key in steady})
    return _beside(levels, weights)


def _weights(errors: Mapping[CellKey, Error]) -> dict[CellKey, float]:
    """Return how much each cell says about what passes did: one that varies more than half of the others says less."""
    if not any(error.freedom for error in errors.values()):
        return dict.fromkeys(errors, 1.0)
    variances = dict(zip(errors, (one.variance for one in moderated(list(errors.values()))), strict=True))
    middle = median_low(variances.values())
    return {key: middle / variance if variance > middle else 1.0 for key, variance in variances.items()}


def _beside(levels: Levels, weights: Mapping[CellKey, float]) -> dict[CellKey, Rest]:
    """Return what is left to the processes of cells, after what passes did to all, as those with weights show it."""
    effects = _effects({key: levels[key] for key in weights}, weights)
    totals = {number: sum(weight for key, weight in weights.items() if number in levels[key]) for number in effects}
    total = sum(totals.values())
    rests = {}
    for key, logs in levels.items():
        cleared = [value - effects.get(number, 0.0) for number, value in logs.items()]
        squares = sum((value - fmean(cleared)) ** 2 for value in cleared)
        # What a value itself adds to the level of its cell and of its pass does not show in its rest.
        weight = weights.get(key, 0.0)
        freedom = len(logs) - 1 - sum(weight / totals[number] - weight / total for number in logs if weight)
        rests[key] = (
            Rest(Error(squares / freedom, len(logs) - 1), freedom) if freedom > CLOSE else Rest(NOTHING_KNOWN, 0.0)
        )
    shares = fmean(sum(weights[key] ** 2 for key in weights if n in levels[key]) / totals[n] ** 2 for n in effects)
    block = Block(_shift(effects, shares, [rests[key] for key in weights]))
    return {key: rest._replace(block=block) for key, rest in rests.items()}


def _passes(levels: Levels) -> list[int]:
    return sorted({number for logs in levels.values() for number in logs})


def _effects(levels: Levels, weights: Mapping[CellKey, float]) -> dict[int, float]:
    """Return by how much each pass differs from the others, the same for all cells, by weighted least squares.

    Where every cell has every pass, these are the means of passes. Otherwise levels and effects are improved in turn.
    """
    effects = dict.fromkeys(_passes(levels), 0.0)
    for _ in range(MOST_SWEEPS):
        means = {key: fmean(value - effects[number] for number, value in logs.items()) for key, logs in levels.items()}
        better = {
            number: fmean(
                (logs[number] - means[key] for key, logs in levels.items() if number in logs),
                (weights[key] for key, logs in levels.items() if number in logs),
            )
            for number in effects
        }
        change = max(abs(better[number] - effects[number]) for number in effects)
        effects = better
        if change < CLOSE:
            break
    return effects


def _shift(effects: Mapping[int, float], share: float, rests: Sequence[Rest]) -> Error:
    """Return the error of one pass: the variance of effects, beyond what the cells' own variance makes of them.

    An effect has ``share`` of the variance of one cell.
    """
    freedom = sum(rest.freedom for rest in rests)
    own = sum(rest.own.variance * rest.freedom for rest in rests) / freedom if freedom else 0.0
    return Error(max(0.0, variance(effects.values()) - own * share), len(effects) - 1)
