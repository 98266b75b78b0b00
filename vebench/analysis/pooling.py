"""How much the processes of a run vary, estimated from all its cells together. Pure functions.

Two or three processes of one cell hardly show how much the next would differ. But the cells of a run were measured on
one machine in the same passes, so each of them says something about the others.

Log rates are taken apart into a level of the cell, an effect of the pass on all cells of its task, and a residual that
belongs to the one process, by median polish, which a noisy minority of cells does not disturb (J. Tukey, Exploratory
Data Analysis, 1977, chapter 11). Cells whose residuals may have one variance are a pool; ``statistics`` weighs the
variance of the pool against what an estimate shows itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from math import log, sqrt
from statistics import fmean, median, median_high, median_low
from typing import TYPE_CHECKING, Literal

from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Block, Error, Pool, Sample, Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vebench.plan.cells import CellKey

# The conditions of a cell. Those that were disturbed, that share CPUs among too many threads, and the measuring loop
# alone vary in other ways than undisturbed cells.
Condition = Literal["undisturbed", "oversubscribed", "disturbed", "overhead"]

_FEWEST_BESIDE = 2  # cells that show what a pass did to all
_MOST_SWEEPS, _CLOSE = 50, 1e-12
_EXACT = 1e9  # degrees of freedom of what is taken as known
# A backend, or a cell, is a pool of its own if it varies more than half of the others at this level of significance.
# Backends differ by design; a single cell that seems to vary more mostly does so by chance.
_NOISY_BACKEND, _NOISY_CELL = 0.05, 0.001


def pooled(samples: Mapping[CellKey, Sample], conditions: Mapping[CellKey, Condition]) -> dict[CellKey, Sample]:
    """Return the samples of a run, each with how its processes vary, as far as the run shows it."""
    if max([len(sample.passes) for sample in samples.values()], default=0) < FEWEST_FOR_INTERVAL:
        return {**samples}  # one process of each shows nothing of how they vary
    known = {key: _logs(sample) for key, sample in samples.items() if sample.passes and sample.positive}
    passes: dict[CellKey, tuple[Block, Mapping[int, float]]] = {}
    errors: dict[CellKey, Error] = {}
    for env in dict.fromkeys(key.env for key in known):
        levels = {key: logs for key, logs in known.items() if key.env == env}
        steady = [key for key in levels if conditions[key] == "undisturbed"]
        if len(steady) < _FEWEST_BESIDE:
            steady = [key for key in levels if conditions[key] != "overhead"]
        numbers = sorted({number for key in steady for number in levels[key]})
        if len(steady) < _FEWEST_BESIDE or len(numbers) < FEWEST_FOR_INTERVAL:
            errors |= {key: _error([*logs.values()]) for key, logs in levels.items()}
            continue
        block = Block(_alike(Counter(number for key in steady for number in levels[key])))
        showing = frozenset(steady)
        # What disturbs a pass may slow many workers and not one.
        sides = [[key for key in steady if (key.workers > 1) is many] for many in (False, True)]
        apart = min(map(len, sides)) >= _FEWEST_BESIDE and all(
            numbers == sorted({number for key in side for number in levels[key]}) for side in sides
        )
        effects = [_effects(numbers, [levels[key] for key in side]) for side in (sides if apart else [steady])]
        for key, logs in levels.items():
            number = int(apart and key.workers > 1)
            # The cells that show the effects have a share of them, which their residuals lack.
            left = 1 - 1 / len(sides[number] if apart else steady) if key in showing else 1.0
            passes[key] = block, effects[number]
            errors[key] = _error([value - effects[number].get(run, 0.0) for run, value in logs.items()], left)
    pools = _pools(errors, conditions, by_backend=True)
    spreads = {key: Spread(pool, *passes.get(key, ())) for key, pool in pools.items()}
    return {
        key: Sample(one.rates, one.one_process, one.passes, spreads[key], one.id) if key in spreads else one
        for key, one in samples.items()
    }


def pooled_alone(samples: Mapping[CellKey, Sample], conditions: Mapping[CellKey, Condition]) -> dict[CellKey, Sample]:
    """Return independent samples, such as ratios of two cells in each pass, each with how those like it vary."""
    pools = _pools({key: _error([*_logs(sample).values()]) for key, sample in samples.items()}, conditions)
    spreads = {key: Spread(pool) for key, pool in pools.items()}
    return {key: replace(sample, spread=spreads.get(key)) for key, sample in samples.items()}


def _alike(cells: Mapping[int, int]) -> dict[int, int]:
    """Return the passes, each with the first of those that are close to it in time.

    ``cells`` is how many each has. Passes of few cells are short: so many as have the cells of a whole one together
    show what the machine did then no better than that one does.
    """
    first, left, found = -1, 0, {}
    for number, count in sorted(cells.items()):
        if left < count:
            first, left = number, max(cells.values())
        found[number] = first
        left -= count
    return found


def _logs(sample: Sample) -> dict[int, float]:
    return {number: log(rate) for number, rate in sample.by_pass.items()}


def _error(residuals: Sequence[float], left: float = 1.0) -> Error:
    """Return the variance of processes, of which ``left`` is in their residuals."""
    freedom = (len(residuals) - 1) * left
    middle = fmean(residuals) if residuals else 0.0
    squares = sum([(value - middle) ** 2 for value in residuals])
    return Error(squares / freedom if freedom else 0.0, freedom)


def _effects(passes: Sequence[int], levels: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return by how much each pass differs from the mean of all: the median of what is left of its log rates."""
    effects = dict.fromkeys(passes, 0.0)
    for _ in range(_MOST_SWEEPS):
        means = [fmean(value - effects[number] for number, value in logs.items()) for logs in levels]
        better = {
            number: median(logs[number] - mean for mean, logs in zip(means, levels, strict=True) if number in logs)
            for number in effects
        }
        middle = fmean(better.values())
        better = {number: value - middle for number, value in better.items()}
        change = max(abs(better[number] - effects[number]) for number in effects)
        effects = better
        if change < _CLOSE:
            break
    return effects


def _pools(
    errors: Mapping[CellKey, Error], conditions: Mapping[CellKey, Condition], *, by_backend: bool = False
) -> dict[CellKey, Pool]:
    """Return the pool of each, as far as anything shows how they vary: of its condition, unless it is noisy."""
    pools: dict[CellKey, Pool] = {}
    for condition in dict.fromkeys(conditions[key] for key in errors):
        left = {key: error for key, error in errors.items() if conditions[key] == condition}
        for backends, level in ((by_backend, _NOISY_BACKEND), (False, _NOISY_CELL)):
            for noisy in _noisy(left, level, by_backend=backends):
                pools |= dict.fromkeys(noisy, _pool([left.pop(key) for key in noisy]))
        common = _pool(left.values())
        pools |= dict.fromkeys(left, common) if common.freedom else {}
    return pools


def _pool(errors: Iterable[Error]) -> Pool:
    known = [error for error in errors if error.freedom]
    freedom = sum([error.freedom for error in known])
    return Pool(sum([error.freedom * error.variance for error in known]) / freedom if known else 0.0, freedom)


def _noisy(errors: Mapping[CellKey, Error], level: float, *, by_backend: bool) -> list[list[CellKey]]:
    """Return the cells, or those of a backend, whose variance is significantly larger than that of half of all."""
    from scipy.special import chdtri, fdtrc  # noqa: PLC0415 - imported on use: it takes longer than most commands

    groups: dict[CellKey | str, list[CellKey]] = defaultdict(list)
    for key in errors:
        groups[key.backend if by_backend else key].append(key)
    means = {group: _pool([errors[key] for key in keys]) for group, keys in groups.items()}
    known = {group: mean for group, mean in means.items() if mean.freedom}
    if not known:
        return []
    # A median shows a variance with about half the degrees of freedom that a mean has. Of two passes these are too few
    # to find any that is noisy: there, some are taken to be that are not.
    enough = max(error.freedom for error in errors.values()) > 1
    freedom = sum(one.freedom for one in known.values()) / 2 if enough else _EXACT
    variances = [one.variance * one.freedom / float(chdtri(one.freedom, 0.5)) for one in known.values()]
    typical = sqrt(median_low(variances) * median_high(variances))
    return [
        groups[group]
        for group, one in known.items()
        if one.variance > max(typical, _CLOSE**2)  # a smaller variance is never significantly larger
        and float(fdtrc(one.freedom, freedom, one.variance / max(typical, _CLOSE**2))) < level
    ]
