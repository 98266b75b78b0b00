"""How much the processes of a run vary, estimated from all its cells together. Pure functions.

Two or three processes of one cell hardly show how much a further process would differ. But all cells of a run were
measured on one machine in the same passes, so each cell tells something about the others.

A log rate is the sum of a level of the cell, an effect of the pass on all cells of its task, and a residual of the
process. Median polish estimates all three, and a noisy minority of cells does not distort it (J. Tukey, Exploratory
Data Analysis, 1977, chapter 11). Cells whose residuals may have one variance form a pool. ``statistics`` weighs the
variance of the pool against the variance of the cell itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean, median, median_high, median_low
from typing import Literal

from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Effects, Error, ProcessPool, Sample, new_id
from vebench.plan.cells import CellKey

# The measuring loop alone (overhead), disturbed cells, and cells that share CPUs vary differently from other cells.
Condition = Literal["undisturbed", "oversubscribed", "disturbed", "overhead"]
_Conditions = Mapping[CellKey, Condition]
_Logs = Mapping[int, float]  # log rates by the number of the pass

_FEWEST_IN_BLOCK = 2  # fewer cells do not show the effects of passes
_MOST_SWEEPS, _CLOSE = 50, 1e-12
_EXACT = 1e9  # degrees of freedom of a variance that counts as known
# A backend or a cell is a pool of its own if its variance is above the median at this level of significance. Backends
# differ by design. A single cell that seems to vary more mostly does so by chance.
_NOISY_BACKEND, _NOISY_CELL = 0.05, 0.001


def pooled(samples: Mapping[CellKey, Sample], conditions: _Conditions) -> dict[CellKey, Sample]:
    """Return the samples of a run with their pools and effects of passes, as far as the run shows them."""
    if max((len(sample.passes) for sample in samples.values()), default=0) < FEWEST_FOR_INTERVAL:
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
        for key, of_cell in logs.items():
            if not sides:
                errors[key] = _error([*of_cell.values()])
                continue
            number = int(len(sides) > 1 and key.workers > 1)
            effects[key] = of_sides[number]
            # A cell from which the effects were estimated lost a part of its residuals to them.
            left = 1 - 1 / len(sides[number]) if key in sides[number] else 1.0
            of_pass = of_sides[number].of_pass
            errors[key] = _error([value - of_pass.get(run, 0.0) for run, value in of_cell.items()], left)
    pools = _pools(errors, conditions, by_backend=True)
    return {
        key: Sample(one.rates, one.one_process, one.passes, pools.get(key), effects.get(key), one.id)
        for key, one in samples.items()
    }


def pooled_alone(samples: Mapping[CellKey, Sample], conditions: _Conditions) -> dict[CellKey, Sample]:
    """Return independent samples with their pools, without effects of passes. An example: ratios within each pass."""
    pools = _pools({key: _error([*sample.residuals.values()]) for key, sample in samples.items()}, conditions)
    return {key: replace(sample, pool=pools.get(key)) for key, sample in samples.items()}


def _sides(logs: Mapping[CellKey, _Logs], conditions: _Conditions) -> list[list[CellKey]]:
    """Return one or two lists of the cells of a task that show the effects of passes; none if there are too few cells.

    Cells with one worker have a list of their own if both lists cover all passes. Other processes may slow many workers
    but not a single worker.
    """
    steady = [key for key in logs if conditions[key] == "undisturbed"]
    if len(steady) < _FEWEST_IN_BLOCK:
        steady = [key for key in logs if conditions[key] != "overhead"]
    passes = {number for key in steady for number in logs[key]}
    if len(steady) < _FEWEST_IN_BLOCK or len(passes) < FEWEST_FOR_INTERVAL:
        return []
    sides = [[key for key in steady if key.workers <= 1], [key for key in steady if key.workers > 1]]
    for side in sides:
        if len(side) < _FEWEST_IN_BLOCK or {number for key in side for number in logs[key]} != passes:
            return [steady]
    return sides


def _joined(cells: Mapping[int, int]) -> dict[int, int]:
    """Return, for each pass, the first pass of its group, given the number of cells in each pass.

    Consecutive short passes form a group until they have the number of cells of a full pass. They show the state of the
    machine no better than one full pass.
    """
    first, left, found = -1, 0, {}
    for number, count in sorted(cells.items()):
        if left < count:
            first, left = number, max(cells.values())
        found[number] = first
        left -= count
    return found


def _effects(cells: Sequence[_Logs]) -> dict[int, float]:
    """Return the effect of each pass: the median of its log rates, without the levels of cells and the mean effect."""
    effects = dict.fromkeys(sorted({number for logs in cells for number in logs}), 0.0)
    for _ in range(_MOST_SWEEPS):
        residuals: dict[int, list[float]] = {number: [] for number in effects}
        for logs in cells:
            mean = fmean(value - effects[number] for number, value in logs.items())
            for number, value in logs.items():
                residuals[number].append(value - mean)
        medians = {number: median(values) for number, values in residuals.items()}
        middle = fmean(medians.values())
        before, effects = effects, {number: value - middle for number, value in medians.items()}
        if max(abs(effects[number] - before[number]) for number in effects) < _CLOSE:
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
        for backends, level in ((by_backend, _NOISY_BACKEND), (False, _NOISY_CELL)):
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
    # cell. Then the median counts as exact, although some cells are wrongly called noisy.
    enough = max(error.freedom for error in errors.values()) > 1
    freedom = sum(one.freedom for one in known.values()) / 2 if enough else _EXACT
    variances = [one.variance * one.freedom / float(chdtri(one.freedom, 0.5)) for one in known.values()]
    typical = max(sqrt(median_low(variances) * median_high(variances)), _CLOSE**2)
    return [
        groups[group]
        for group, one in known.items()
        # A variance below the typical one is never significantly above it.
        if one.variance > typical and float(fdtrc(one.freedom, freedom, one.variance / typical)) < level
    ]
