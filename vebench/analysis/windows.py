"""The windows of a run as one array: which windows count, how steady they are, and how a policy's loop spends its time.

A window is undisturbed if neither a CPU quota nor other processes kept the cell from its CPUs. If a cell has enough
undisturbed windows, only these count. Otherwise all windows count that no quota slowed. If there are none of these, all
windows count. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations, pairwise
from math import exp, log, sqrt
from operator import attrgetter
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vebench.analysis.statistics import COMMON, WINDOW_CORRELATION, Contrast, Error, Estimate, student_quantile
from vebench.child.answers import MOST_TRIES, Window, too_much
from vebench.plan.grammar import LearnerStep
from vebench.results.records import CellRecord

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Windows = NDArray[np.void]  # an element for each window, with the fields of ``_DTYPE``

DRIFT = 0.05  # the smallest relative change from the first window to the last that is reported
LEAK = 256.0  # bytes for each step. A smaller growth may come from vebench's own records.
_UNEVEN = 2  # windows are uneven if the longest takes this many times as long as the shortest

_COUNTS = tuple(item.name for item in fields(Window))
_PLACES = ("cell", "process", "repeat")  # the index of the cell, of the process, and the number of the pass
_READ = (*_PLACES, "cpus", "frame_skip", "batch_size", "num_envs", *_COUNTS)
_DTYPE = np.dtype(
    [(name, np.intp if name in _PLACES else np.float64) for name in _READ]
    # Rows that are steps, not only reports of a reset. CPU time that the hypervisor and other processes took.
    + [("steps", np.float64), ("taken_ns", np.float64)]
    # Whether a CPU quota slowed the window, whether others took too much CPU time, and whether the window counts.
    + [("throttled", np.bool_), ("disturbed", np.bool_), ("counts", np.bool_)],
    align=True,  # numpy adds up unaligned fields five times as slowly
)
# For each process, the number of its pass and an array. The array has a row for each window: its age and its rate.
Aged = tuple[tuple[int, Floats], ...]


def windows_of(cells: Iterable[Sequence[CellRecord]]) -> Windows:
    """Return the windows of all successful repeats, given the repeats of each cell. NaN: unknown."""
    count = attrgetter(*_COUNTS)
    rows: list[tuple[float | None, ...]] = []
    process = 0
    for cell, records in enumerate(cells):
        for one in records:
            if one.status == "ok" and one.windows:
                place = (cell, process, one.repeat, len(one.cpus), one.frame_skip, one.batch_size, one.num_envs)
                rows += [(*place, *count(window)) for window in one.windows]
                process += 1
    table = np.array(rows, dtype=float).reshape(-1, len(_READ))
    found = np.zeros(len(table), dtype=_DTYPE)
    for column, name in zip(table.T, _READ, strict=True):
        found[name] = column
    found["steps"] = found["rows"] - found["resets"]
    found["taken_ns"] = np.nan_to_num(found["steal_ns"]) + np.nan_to_num(found["others_ns"])
    found["throttled"] = (found["throttles"] > 0) | (found["throttled_ns"] > 0)
    found["disturbed"] = too_much(found["taken_ns"], found["cpus"] * found["ns"], found["cpus"])
    if len(found):
        found["counts"] = _that_count(found)
    return found


def _disturbed_by(group: NDArray[np.intp], windows: Windows, share: Floats) -> Bools:
    """Return, for each group, whether others took too much CPU time. A ``share`` of 0 leaves a window out."""
    taken = np.bincount(group, share * windows["taken_ns"])
    span = np.bincount(group, share * windows["cpus"] * windows["ns"])
    found: Bools = too_much(taken, span, np.bincount(group, share * windows["cpus"]))
    return found


def _that_count(windows: Windows) -> Bools:
    """Return, for each window, whether it counts.

    If enough windows are undisturbed, only they count. They are enough if at least two processes, and at least half of
    all processes, have one. For a cell with one process, they are enough if they are a third of its windows.
    """
    process, cell, ns, slowed = windows["process"], windows["cell"], windows["ns"], windows["throttled"]
    calm = ~(slowed | windows["disturbed"])
    # Windows with a slow reset are longer, so they are disturbed more often. Without them, the rate would be too high.
    # If the lengths differ much, all or none of a process's windows count.
    starts = _starts(windows)
    uneven = np.maximum.reduceat(ns, starts) >= _UNEVEN * np.minimum.reduceat(ns, starts)
    spoilt = (np.bincount(process, slowed) > 0) | _disturbed_by(process, windows, np.ones(len(windows)))
    mixed = uneven & (np.bincount(process, ~calm) > 0)
    kept = np.where(mixed[process], ~spoilt[process], calm)
    cell_of_process = cell[starts]
    processes = np.bincount(cell_of_process)
    useful = np.bincount(cell_of_process, np.bincount(process, kept) > 0)
    total, left = np.bincount(cell), np.bincount(cell, kept)
    enough_of_one = (left > 0) & (MOST_TRIES * left >= total)
    enough_of_several = (useful > 1) & (2 * useful >= processes)
    enough = np.where(processes == 1, enough_of_one, enough_of_several)
    # The kernel counts in ticks, so some short windows seem undisturbed on a disturbed machine.
    enough &= ~_disturbed_by(cell, windows, kept.astype(float))
    all_slowed = np.bincount(cell, ~slowed) == 0
    found: Bools = np.where(enough[cell], kept, ~slowed | all_slowed[cell])
    return found


def _starts(windows: Windows) -> NDArray[np.intp]:
    """Return the index of the first window of each process."""
    process = windows["process"]
    return np.flatnonzero(np.concatenate(([True], process[1:] != process[:-1])))


def one_for_each_process(windows: Windows) -> Windows:
    """Return one window for each process, with the sums of the counts of its windows."""
    starts = _starts(windows)
    found = windows[starts]
    for name in ("ns", "rows", "resets", "steps"):
        found[name] = np.add.reduceat(windows[name], starts)
    found["throttled"] = np.logical_or.reduceat(windows["throttled"], starts)
    return found


@dataclass(frozen=True)
class Stability:
    """The stability of a cell: properties of the windows that count, over all successful repeats."""

    ended: bool = False  # whether any episode ended
    reset_share: float = 0.0  # a lower bound of the share of time that resets take; see the function ``reset_share``
    episode: float = 0.0  # the mean steps of an episode; of an environment in one process if no episode ended
    outliers: int = 0  # the number of windows that differ clearly from the others of their process
    drift: float = 0.0  # the relative change from the first window to the last; 0 if it may be chance
    fewest_batches: int | None = None  # the mean number of batches in a window, of the process with the fewest
    unsettled: int = 0  # the number of processes whose rate had not settled when warm-up ended
    aged: Aged = ()  # for each window, an environment's steps by the middle of the window, and the rate

    @property
    def age(self) -> float | None:
        """The mean, over windows, of the logarithm of the steps that an environment had made; None if unknown."""
        ages = [log(age) for _, points in self.aged for age in points[:, 0].tolist()]
        return fmean(ages) if ages else None

    @property
    def drifts(self) -> bool:
        """Whether the rate rises or falls by more than ``DRIFT``, beyond chance."""
        return abs(self.drift) > DRIFT


def stability(records: Sequence[CellRecord], windows: Windows) -> Stability:
    """Return the stability of a cell, given all its repeats, and the windows that count."""
    unsettled = sum(record.settled is False for record in records if record.status == "ok")
    if not len(windows):
        return Stability(unsettled=unsettled)
    rates = windows["steps"] / windows["ns"]
    ages = (windows["steps_before"] * windows["batch_size"] + windows["rows"] / 2) / windows["num_envs"]
    known = ~windows["throttled"] & (rates > 0)
    aged = known & (ages >= 0)  # not NaN
    long = known & (windows["ns"] >= windows["ns"].max() / _UNEVEN)  # the rate of a shorter window says little
    starts = _starts(windows)
    processes = [slice(*ends) for ends in pairwise([*starts.tolist(), len(windows)])]
    by_process = [rates[part][long[part]].tolist() for part in processes]
    points = np.stack((ages, rates), axis=1)
    batches = np.add.reduceat(windows["rows"], starts) / np.diff([*starts, len(windows)])
    size, resets = float(windows["batch_size"][0]), int(windows["resets"].sum())
    return Stability(
        ended=resets > 0,
        reset_share=reset_share(records, windows),
        episode=float(windows["steps"].sum()) / (resets or len(processes) * float(windows["num_envs"][0])),
        outliers=outliers(by_process),
        drift=drift(by_process),
        fewest_batches=int(batches.min() // size) if size else None,
        unsettled=unsettled,
        aged=tuple((int(windows["repeat"][part.start]), points[part][aged[part]]) for part in processes),
    )


def trend(aged: Aged) -> Contrast | None:
    """Return the slope of log rates over log ages, with its error; None without three windows of one process.

    The slope of each pass is one observation. The variance within processes counts for ``COMMON`` degrees of freedom,
    and allows for ``WINDOW_CORRELATION``.
    """
    sums: dict[int, Floats] = {}  # the weight of each pass, and the slope times the weight
    left, freedom = 0.0, 0
    for number, points in aged:
        ages, rates = np.log(points).T
        if len({*ages.tolist()}) <= 1:
            continue
        apart = ages - ages.mean()
        weight, product = float(apart @ apart), float(apart @ rates)
        sums[number] = sums.get(number, 0.0) + np.array((weight, product))
        residuals = rates - rates.mean() - product / weight * apart
        left += float(residuals @ residuals)
        freedom += len(ages) - 2
    if not freedom:
        return None
    weights, products = np.array([*sums.values()]).T
    total, others = float(weights.sum()), len(weights) - 1
    slope = float(products.sum()) / total
    within = (1 + WINDOW_CORRELATION) / (1 - WINDOW_CORRELATION) * left / freedom
    between = float((weights * (products / weights - slope) ** 2).sum())
    return Contrast(slope, Error((COMMON * within + between) / (COMMON + others) / total, COMMON + others))


def outliers(processes: Sequence[Sequence[float]]) -> int:
    """Return the number of windows that differ clearly from the others of their process, at most one per process.

    Grubbs' test on log rates, which finds one in 1 % of cells by chance (F. Grubbs, Technometrics 11, 1969).
    """
    fewest = 4  # three values never differ clearly from chance
    tested = [[log(rate) for rate in rates] for rates in processes if len(rates) >= fewest]
    found = 0
    for logs in tested:
        count, centre = len(logs), fmean(logs)
        spread = sqrt(sum([(value - centre) ** 2 for value in logs]) / (count - 1))
        quantile = student_quantile(1 - 0.01 / len(tested) / (2 * count), count - 2)
        bound = (count - 1) / sqrt(count) * sqrt(quantile**2 / (count - 2 + quantile**2))
        found += spread > 0 and max(max(logs) - centre, centre - min(logs)) / spread > bound
    return found


def drift(processes: Sequence[Sequence[float]]) -> float:
    """Return the relative change from the first window of a process to its last; 0 if it may be chance.

    The seasonal Kendall test decides whether there is a trend, with each process as a season, and the exact
    distribution of its statistic (R. Hirsch, J. Slack, R. Smith, Water Resources Research 18, 1982). The size of the
    trend is the median slope (P. Sen, Journal of the American Statistical Association 63, 1968).
    """
    # Five windows are in order by chance in 1.7 % of cases, and fewer windows more often.
    level, most = 0.02, 12  # more windows are reduced to this number of medians
    logs = []
    for rates in processes:
        values = [log(rate) for rate in rates]
        if len(values) > most:
            ends = [len(values) * index // most for index in range(most + 1)]
            values = [median(values[start:end]) for start, end in pairwise(ends)]
        if len(values) > 1:
            logs.append(values)
    slopes = []
    for values in logs:
        slopes += [(after - before) / (m - n) for (n, before), (m, after) in combinations(enumerate(values), 2)]
    rises = sum([(slope > 0) + (slope == 0) / 2 for slope in slopes])  # slopes of zero count half
    rarer = int(min(rises, len(slopes) - rises))
    if not slopes or 2 * _chances_of_rises(tuple(map(len, logs)))[rarer] > level:
        return 0.0
    return exp(median(slopes) * (max(map(len, logs)) - 1)) - 1


@cache
def _chances_of_rises(lengths: tuple[int, ...]) -> Floats:
    """Return, for each number, the probability of at most this number of rising pairs among values in random order.

    ``lengths`` has the number of values of each process. Orders of n values are counted as by M. Kendall, Biometrika
    30, 1938: the coefficients of the product of (1 + x + ... + x^j) for j below n.
    """
    shares = np.ones(1)
    for length in lengths:
        for last in range(1, length):
            shares = np.convolve(shares, np.full(last + 1, 1 / (last + 1)))
    return np.cumsum(shares)


def reset_share(records: Sequence[CellRecord], windows: Windows) -> float:
    """Return a lower bound of the share of time that resets take: the estimate less two standard errors.

    A regression of the times of windows on their steps and resets gives the estimate. It passes through the origin, and
    variances are proportional to times. If no episode ended, use the time of the first reset. Return 0 if JAX or
    torch may have compiled in it, or if the step that ends an episode resets.
    """
    ns, made, ended = windows["ns"], windows["steps"], windows["resets"]
    span, resets = float(ns.sum()), float(ended.sum())
    if not resets and ((windows["compiles"] >= 0).any() or any(one.autoreset == "same_step" for one in records)):
        return 0.0
    if not resets:
        first = max(record.reset_ns or 0 for record in records)
        return first / (first + span / len(records))
    of_steps = float((made**2 / ns).sum())
    of_both = float((made * ended / ns).sum())
    of_resets = float((ended**2 / ns).sum())
    determinant = of_steps * of_resets - of_both**2
    unknowns = 2  # the times of a step and of a reset
    # Windows with the same number of resets for each step have no determinant, apart from rounding errors.
    if determinant <= 1e-9 * of_steps * of_resets or len(windows) <= unknowns:
        return 0.0
    step = (of_resets * float(made.sum()) - of_both * resets) / determinant
    reset = (of_steps * resets - of_both * float(made.sum())) / determinant
    left = float(((ns - step * made - reset * ended) ** 2 / ns).sum())
    error = sqrt(left / (len(windows) - unknowns) * of_steps / determinant)
    return max(0.0, reset - 2 * error) * resets / span


def recompiled(windows: Windows) -> int:
    """Return the number of windows in which a library compiled; 0 if at most one in each process, unless all did."""
    found = int((windows["compiles"] > 0).sum())
    return found if found > len(_starts(windows)) or found == len(windows) else 0


class Growth(NamedTuple):
    """The growth of a cell's memory with its steps."""

    bytes_per_step: Estimate
    chance: float  # the largest probability of such a growth in both halves if memory grows by at most ``LEAK``


def growth(windows: Windows) -> Growth | None:
    """Return how memory grows with steps; None if it is unknown, or if too few windows show it.

    Each process has up to four parts, each with a slope. A cache that fills, or memory that is allocated once, shows in
    few parts. So a leak must show in both halves.
    """
    halves: tuple[list[float], list[float]] = ([], [])
    known = windows[~np.isnan(windows["resident_bytes"] + windows["steps_before"])]
    for process in np.split(known, _starts(known)[1:]):
        if (parts := min(2, (len(process) - 1) // 2)) > 0:  # of each half
            ends = process[np.linspace(0, len(process) - 1, 2 * parts + 1).round().astype(np.intp)]
            stepped = np.diff(ends["steps_before"] * ends["batch_size"])
            slopes = (np.diff(ends["resident_bytes"]) / np.maximum(stepped, 1.0)).tolist()
            halves[0].extend(slopes[:parts])
            halves[1].extend(slopes[parts:])
    if (count := len(halves[0])) <= 1:
        return None
    means = [fmean(half) for half in halves]
    error = Error(float(np.var(halves, axis=1, ddof=1).mean()) / count, 2 * count - 2)
    mean, width = fmean(means), error.times(0.5).half_width()
    return Growth(Estimate(mean, mean - width, mean + width), Contrast(min(means) - LEAK, error).chance_below(1.0))


@dataclass(frozen=True)
class PolicyTime:
    """The time of a loop with a policy, as shares of the wall time from 0 to 1."""

    waiting: float  # the share of waiting for rows
    inference: float
    copies: float
    latency_p50_ns: float  # the time from the actions of a batch to the next batch; the median over windows
    latency_p99_ns: float
    age: float  # the mean number of times that the policy acts between choosing an action and receiving its row


@dataclass(frozen=True)
class Learning:
    """Training with a learner that takes a known time after each batch or number of steps.

    Meanwhile, sampling stops, or goes on if ``LearnerStep.overlaps``.
    """

    sampling: float  # the share of sampling in the whole time, 0 to 1; with overlaps, 1 if the learner waits
    steps_per_second: float  # the rate of sampling and learning together
    at_most: float  # the factor by which training would be faster if sampling took no time (Amdahl's law)
    learner: LearnerStep  # on the CPUs that the cell leaves


def acting(windows: Windows) -> PolicyTime | None:
    """Return the times of a policy's loop; None if no policy acts."""
    known = windows[~np.isnan(windows["waited_ns"])]
    if not len(known):
        return None
    span = float(known["ns"].sum())
    return PolicyTime(
        waiting=float(known["waited_ns"].sum()) / span,
        inference=float(np.nansum(known["inferred_ns"])) / span,
        copies=float(np.nansum(known["copied_ns"])) / span,
        latency_p50_ns=median(map(int, np.nan_to_num(known["latency_p50_ns"]))),
        latency_p99_ns=median(map(int, np.nan_to_num(known["latency_p99_ns"]))),
        age=float(np.nansum(known["aged"])) / max(1.0, float(known["rows"].sum())),
    )


def learning(learner: LearnerStep | None, rate: Estimate | None, batch_size: int) -> Learning | None:
    """Return the shares of sampling and learning at ``rate`` steps per second; None without a learner or a rate."""
    if learner is None or rate is None or rate.median <= 0:
        return None
    sampled_steps = learner.steps or batch_size
    sampled = sampled_steps / rate.median
    whole = max(sampled, learner.seconds) if learner.overlaps else sampled + learner.seconds
    return Learning(sampled / whole, sampled_steps / whole, whole / learner.seconds, learner)
