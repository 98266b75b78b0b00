"""The windows of a cell: which of them count, how steady they are, and where the time of a policy's loop goes.

A window is calm if neither a CPU quota nor others kept the cell from its CPUs. Where too few are calm, or the calm ones
are not calm together, the windows that no quota held back count, and only if there are none, all of them do. Pure
functions of raw counts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from math import erfc, exp, log, sqrt
from statistics import fmean, linear_regression, median
from typing import TYPE_CHECKING, Any

from vebench.analysis.statistics import COMMON, WINDOW_CORRELATION, Contrast, Error, student_quantile
from vebench.child.schedule import MOST_TRIES
from vebench.child.window import Window, too_much

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.statistics import Estimate
    from vebench.plan.spec import LearnerStep
    from vebench.results.records import CellRecord

# How often a steady cell may be called unsteady, with all its processes taken together.
_OUTLIER_LEVEL = 0.01
_DRIFT_LEVEL = 0.02  # five windows are in order by chance in 1.7 % of cases, fewer windows more often
DRIFT = 0.05  # the least relative change from the first window to the last that is worth a word
_CLOSE = 1e-9  # what rounding leaves of windows that all hold the same number of resets for each step
# Of three values, no statistic differs clearly from chance.
_FEWEST_FOR_OUTLIERS = 4
# With more windows than this, a trend is sought in the medians of this many groups of them. With more processes than
# this, the distribution is approximated by the normal one.
_MOST_MEDIANS = 12
_MOST_EXACT = 8
# As one process does not show how much processes differ, a cell that has several keeps at least two.
_FEWEST_PROCESSES = 2
_UNKNOWNS = 2  # of a regression: the time of a step, and of a reset
_UNEVEN = 2  # the longest window of a process over its shortest
Counting = list[tuple["CellRecord", "Sequence[Window]"]]
Aged = tuple[tuple[int, tuple[tuple[float, float], ...]], ...]


@dataclass(frozen=True)
class Stability:
    """What the windows of a cell that count show beyond their rates, with all repeats that went well taken together.

    ``fewest_batches`` is how many batches a window of a process held, the fewest mean, None without windows.
    ``unsettled`` counts processes whose rate had not settled when their warm-up ended. ``aged`` has, for the process
    of each pass, the windows whose ages are known: the steps that an environment had made in the middle of one, and
    its rate. See the functions of these names for the others.
    """

    ended: bool = False  # whether any episode ended
    # Share of time that resets take, 0 to 1, a lower bound. If no episode ended, the share of the first reset.
    reset_share: float = 0.0
    episode: float = 0.0  # mean steps of an episode; if no episode ended, the steps of a process

    outliers: int = 0
    drift: float = 0.0
    fewest_batches: int | None = None
    unsettled: int = 0
    aged: Aged = ()

    @property
    def age(self) -> float | None:
        """The logarithm of the steps that an environment had made, the mean over windows; None if unknown."""
        ages = [log(age) for _, points in self.aged for age, _ in points]
        return fmean(ages) if ages else None

    @property
    def drifts(self) -> bool:
        """Whether the rate rises or falls by more than ``DRIFT``, beyond chance."""
        return abs(self.drift) > DRIFT


STEADY = Stability()


def stability(records: Sequence[CellRecord], counted: Counting) -> Stability:
    """Return how steady a cell was, given all its repeats, and those of their windows that count."""
    batches = [
        sum([window.rows for window in windows]) // (record.batch_size * len(windows))
        for record, windows in counted
        if record.batch_size and windows
    ]
    windows = [window for _, each in counted for window in each]
    least = max([one.ns for one in windows], default=0) / _UNEVEN  # the rate of a shorter one says little
    processes = [
        [(one.rows - one.resets) / one.ns for one in each if one.rows > one.resets and one.ns >= least]
        for each in ([window for window in windows if not window.held_back] for _, windows in counted)
    ]
    steps, resets = sum([one.rows - one.resets for one in windows]), sum([one.resets for one in windows])
    return Stability(
        outliers=outliers(processes),
        drift=drift(processes),
        fewest_batches=min(batches, default=None),
        ended=resets > 0,
        reset_share=reset_share(records, windows),
        episode=steps / max(resets, len(counted), 1),
        unsettled=sum(record.settled is False for record in records if record.status == "ok"),
        aged=tuple((record.repeat, _ages(record, windows)) for record, windows in counted),
    )


def _ages(record: CellRecord, windows: Sequence[Window]) -> tuple[tuple[float, float], ...]:
    return tuple(
        ((one.steps_before * record.batch_size + one.rows / 2) / record.num_envs, (one.rows - one.resets) / one.ns)
        for one in windows
        if one.steps_before is not None and one.rows > one.resets and not one.held_back
    )


def trend(aged: Aged) -> Contrast | None:
    """Return the slope of log rates over log ages, with its error; None without three windows of one process.

    The slope of each pass is one observation. The variance within processes counts for ``COMMON`` degrees of freedom,
    and allows for ``WINDOW_CORRELATION``.
    """
    passes, left, freedom = dict[int, list[tuple[float, float]]](), 0.0, 0  # weights, and slopes times them
    for number, points in aged:
        ages, rates = [log(age) for age, _ in points], [log(rate) for _, rate in points]
        if len(set(ages)) < 2:  # noqa: PLR2004 - a slope needs two
            continue
        slope, start = linear_regression(ages, rates)
        middle = fmean(ages)
        weight = sum((age - middle) ** 2 for age in ages)
        passes.setdefault(number, []).append((weight, weight * slope))
        left += sum((rate - start - slope * age) ** 2 for age, rate in zip(ages, rates, strict=True))
        freedom += len(ages) - 2
    if not freedom:
        return None
    sums = [tuple(map(sum, zip(*each, strict=True))) for each in passes.values()]
    total, others = sum(weight for weight, _ in sums), len(sums) - 1
    slope = sum(product for _, product in sums) / total
    within = (1 + WINDOW_CORRELATION) / (1 - WINDOW_CORRELATION) * left / freedom
    between = sum(weight * (product / weight - slope) ** 2 for weight, product in sums)
    return Contrast(slope, Error((COMMON * within + between) / (COMMON + others) / total, COMMON + others))


def outliers(processes: Sequence[Sequence[float]]) -> int:
    """Return how many windows lie apart from the others of their process; at most one in each process.

    This is Grubbs' test on log rates. It compares the window farthest from the mean, in standard deviations, with what
    chance exceeds in ``_OUTLIER_LEVEL`` of cases (F. Grubbs, Procedures for detecting outlying observations in samples,
    Technometrics 11, 1969).
    """
    tested = [[log(rate) for rate in rates] for rates in processes if len(rates) >= _FEWEST_FOR_OUTLIERS]
    found = 0
    for logs in tested:
        count, centre = len(logs), fmean(logs)
        spread = sqrt(sum([(value - centre) ** 2 for value in logs]) / (count - 1))
        quantile = student_quantile(1 - _OUTLIER_LEVEL / len(tested) / (2 * count), count - 2)
        bound = (count - 1) / sqrt(count) * sqrt(quantile**2 / (count - 2 + quantile**2))
        found += spread > 0 and max(max(logs) - centre, centre - min(logs)) / spread > bound
    return found


def drift(processes: Sequence[Sequence[float]]) -> float:
    """Return the relative change from the first window of a process to its last, 0 if it may be chance.

    Whether there is a trend is decided by the seasonal Kendall test, with each process as a season, and the exact
    distribution of its statistic (R. Hirsch, J. Slack, R. Smith, Water Resources Research 18, 1982). The size of the
    trend is the median slope (P. Sen, Journal of the American Statistical Association 63, 1968).
    """
    logs = []
    for values in ([log(rate) for rate in rates] for rates in processes if len(rates) > 1):
        ends = [len(values) * index // _MOST_MEDIANS for index in range(_MOST_MEDIANS + 1)]
        few = len(values) <= _MOST_MEDIANS
        logs.append(values if few else [median(values[start:end]) for start, end in pairwise(ends)])
    if not logs:
        return 0.0
    slopes = [
        (values[after] - values[before]) / (after - before)
        for values in logs
        for after in range(len(values))
        for before in range(after)
    ]
    rises = sum([(slope > 0) + (slope == 0) / 2 for slope in slopes])  # equal ones count half
    rarer = min(rises, len(slopes) - rises)
    if 2 * _share_at_most(int(rarer), tuple(map(len, logs))) > _DRIFT_LEVEL:
        return 0.0
    return exp(median(slopes) * (max(map(len, logs)) - 1)) - 1


@cache
def _share_at_most(rises: int, lengths: tuple[int, ...]) -> float:
    """Return the probability that randomly ordered values, ``lengths`` in each process, have at most ``rises`` rises.

    The number of orders of n values that have k such pairs is the coefficient of x^k in the product of
    (1 + x + ... + x^j) for j below n (M. Kendall, Biometrika 30, 1938). The number of pairs has the variance
    n (n - 1) (2 n + 5) / 72.
    """
    if len(lengths) > _MOST_EXACT:
        mean = sum(length * (length - 1) / 4 for length in lengths)
        variance = sum(length * (length - 1) * (2 * length + 5) / 72 for length in lengths)
        return erfc((mean - rises - 0.5) / sqrt(2 * variance)) / 2
    shares = [1.0]
    for length in lengths:
        for last in range(1, length):
            grown = [0.0] * (len(shares) + last)
            for at, share in enumerate(shares):
                for step in range(last + 1):
                    grown[at + step] += share / (last + 1)
            shares = grown
    return sum(shares[: rises + 1])


def reset_share(records: Sequence[CellRecord], windows: Sequence[Window]) -> float:
    """Return the share of the time that resets take, 0 to 1, less two standard errors.

    Regress the times of windows on their steps and resets, through the origin, with variances in proportion to times.
    If no episode ended, use the time of the first reset.
    """
    resets = sum([one.resets for one in windows])
    span = sum([one.ns for one in windows])
    if not resets:
        first = max([record.reset_ns or 0 for record in records], default=0)
        return first / (first + span / max(1, len(records))) if windows else 0.0
    counts = [(one.ns, one.rows - one.resets, one.resets) for one in windows]
    of_steps = sum([steps**2 / ns for ns, steps, _ in counts])
    of_both = sum([steps * ended / ns for ns, steps, ended in counts])
    of_resets = sum([ended**2 / ns for ns, _, ended in counts])
    determinant = of_steps * of_resets - of_both**2
    if determinant <= _CLOSE * of_steps * of_resets or len(windows) <= _UNKNOWNS:
        return 0.0
    whole = sum([steps for _, steps, _ in counts])
    step = (of_resets * whole - of_both * resets) / determinant
    reset = (of_steps * resets - of_both * whole) / determinant
    left = [(ns - step * steps - reset * ended) ** 2 / ns for ns, steps, ended in counts]
    error = sqrt(sum(left) / (len(counts) - _UNKNOWNS) * of_steps / determinant)
    return max(0.0, reset - 2 * error) * resets / span


def that_count(records: Sequence[CellRecord]) -> Counting:
    """Return the repeats of a cell that went well, each with its windows that count, if any do."""
    well = [record for record in records if record.status == "ok"]
    calm = [_calm(record) for record in well]
    if enough([len(windows) for windows in calm], [len(record.windows) for record in well]):
        kept: Counting = [(record, windows) for record, windows in zip(well, calm, strict=True) if windows]
        # The kernel counts in ticks: the calmest of short windows seem calm on a machine that is not.
        if not disturbed(kept):
            return kept
    free = [[window for window in record.windows if not window.held_back] for record in well]
    return list(zip(well, free if any(free) else [record.windows for record in well], strict=True))


def _calm(record: CellRecord) -> Sequence[Window]:
    """Return the calm windows of a process: all or none of them if their lengths differ much.

    Windows with a slow reset are longer, so they are disturbed more often. The other windows alone would be too fast.
    """
    windows = record.windows
    calm = [window for window in windows if window.undisturbed(len(record.cpus))]
    spans = [window.ns for window in windows]
    if len(calm) == len(windows) or max(spans) < _UNEVEN * min(spans):
        return calm
    held_back = any(window.held_back for window in windows)
    return [] if held_back or disturbed([(record, windows)]) else windows


def disturbed(counted: Counting) -> bool:
    """Return whether others took too much of the CPUs' time, over all these windows together."""
    each = [(len(record.cpus), window) for record, windows in counted for window in windows]
    span = sum([cpus * window.ns for cpus, window in each])
    return too_much(sum([window.taken_ns for _, window in each]), span, sum([cpus for cpus, _ in each]))


def enough(calm: Sequence[int], windows: Sequence[int]) -> bool:
    """Return whether the calm windows of a cell suffice, given how many each of its processes has, and how many in all.

    Of several processes, each is one observation: at least two, and half of them, need a calm window. Of one process,
    a third of the windows need to be calm, as is the case if the last try of each was calm.
    """
    if len(calm) == 1:
        return 0 < MOST_TRIES * calm[0] >= windows[0]
    some = sum(count > 0 for count in calm)
    return some >= _FEWEST_PROCESSES and 2 * some >= len(calm)


def all_of(windows: Sequence[Window]) -> Window:
    """Return one window with all that these have counted; of percentiles, the median."""
    counts: dict[str, Any] = {}
    for item in fields(Window):
        values = [getattr(window, item.name) for window in windows]
        counts[item.name] = None if None in values else round(median(values)) if "_p" in item.name else sum(values)
    counts["steps_before"] = windows[0].steps_before
    return Window(**counts)


@dataclass(frozen=True)
class Acting:
    """Where the time of a loop with a policy went, over the windows that count: shares of the wall time, 0 to 1.

    ``latency_p50_ns`` and ``latency_p99_ns``: from the actions of a batch to the next batch, the median over windows.
    ``age``: how often the policy acted between choosing an action and getting its row, the mean over rows; 0 if every
    action is answered by the next batch.
    """

    waiting: float
    inference: float
    copies: float
    latency_p50_ns: float
    latency_p99_ns: float
    age: float

    @property
    def counting(self) -> float:
        """The share of the time in which the loop counts rows, and notes what is compared later."""
        return max(0.0, 1 - self.waiting - self.inference - self.copies)


@dataclass(frozen=True)
class BatchSizes:
    """How many rows batches had: 5 % have fewer than ``few``, 5 % more than ``many``; the medians over windows."""

    mean: float
    few: float
    median: float
    many: float


@dataclass(frozen=True)
class Learning:
    """A learner that takes a stated time, after each batch or some number of steps, while nothing is sampled.

    ``sampling``: the share of the whole that sampling takes, 0 to 1. ``steps_per_second``: of the whole. ``at_most``:
    how many times faster the whole would be if sampling took no time at all (Amdahl's law).
    """

    sampling: float
    steps_per_second: float
    at_most: float


def acting(windows: Sequence[Window]) -> Acting | None:
    """Return where the time went, None if no policy acted."""
    known = [window for window in windows if window.waited_ns is not None]
    if not known:
        return None
    span = sum(window.ns for window in known)
    rows = sum(window.rows for window in known)
    return Acting(
        waiting=sum(window.waited_ns or 0 for window in known) / span,
        inference=sum(window.inferred_ns or 0 for window in known) / span,
        copies=sum(window.copied_ns or 0 for window in known) / span,
        latency_p50_ns=median(window.latency_p50_ns or 0 for window in known),
        latency_p99_ns=median(window.latency_p99_ns or 0 for window in known),
        age=sum(window.aged or 0 for window in known) / max(1, rows),
    )


def batch_sizes(windows: Sequence[Window]) -> BatchSizes | None:
    """Return how many rows batches had, None if all have the same."""
    known = [window for window in windows if window.batches]
    if not known:
        return None
    return BatchSizes(
        mean=sum(window.rows for window in known) / sum(window.batches or 0 for window in known),
        few=median(window.rows_p5 or 0 for window in known),
        median=median(window.rows_p50 or 0 for window in known),
        many=median(window.rows_p95 or 0 for window in known),
    )


def learning(learner: LearnerStep | None, rate: Estimate | None, batch_size: int) -> Learning | None:
    """Return what a learner makes of sampling at ``rate``, in steps per second; None if there is no learner or rate."""
    if learner is None or rate is None or rate.median <= 0:
        return None
    steps = learner.steps or batch_size
    sampled = steps / rate.median
    whole = sampled + learner.seconds
    return Learning(sampled / whole, steps / whole, whole / learner.seconds)
