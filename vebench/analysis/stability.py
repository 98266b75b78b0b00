"""How steady a cell was while it was measured: outliers, drift, bursts of resets. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import erfc, exp, log, sqrt
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from vebench.analysis.counting import that_count
from vebench.analysis.statistics import student_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.window import Window
    from vebench.results.records import CellRecord

# How often a steady cell may be called unsteady, with all its processes taken together.
_OUTLIER_LEVEL = 0.01
_DRIFT_LEVEL = 0.02  # five windows are in order by chance in 1.7 % of cases, fewer windows more often
_BURST_LEVEL = 0.001
DRIFT = 0.05  # the least relative change from the first window to the last that is worth a word
# Of three values, no statistic differs clearly from chance.
_FEWEST_FOR_OUTLIERS = 4
# With more windows than this, a trend is looked for in the medians of so many groups of them. With more processes than
# this, the distribution is approximated by the normal one.
_MOST_MEDIANS = 12
_MOST_EXACT = 8


@dataclass(frozen=True)
class Stability:
    """What the windows of a cell that count show beyond their rates, with all repeats that went well taken together.

    ``outliers`` is how many windows lie apart from the others of their process. ``drift`` is the relative change of the
    rate from the first window of a process to its last, 0 if there is none beyond chance. ``fewest_batches`` is how
    many batches the shortest window held, None without windows. ``bursts``: some windows have more resets than others,
    beyond chance. ``unsettled`` counts processes whose rate had not settled when their warm-up ended.
    """

    outliers: int = 0
    drift: float = 0.0
    fewest_batches: int | None = None
    bursts: bool = False
    unsettled: int = 0

    @property
    def drifts(self) -> bool:
        """Whether the rate rises or falls by more than ``DRIFT``, beyond chance."""
        return abs(self.drift) > DRIFT


STEADY = Stability()


def stability(records: Sequence[CellRecord]) -> Stability:
    """Return how steady a cell was, given all its repeats."""
    counted = that_count(records)
    processes = [
        [window.transitions / window.ns for window in windows if window.transitions and not window.held_back]
        for _, windows in counted
    ]
    return Stability(
        outliers=outliers(processes),
        drift=drift(processes),
        fewest_batches=min(
            (
                window.rows // record.batch_size
                for record, windows in counted
                for window in windows
                if record.batch_size
            ),
            default=None,
        ),
        bursts=any(bursts(windows) for _, windows in counted),
        unsettled=sum(record.settled is False for record in records if record.status == "ok"),
    )


def outliers(processes: Sequence[Sequence[float]]) -> int:
    """Return how many windows lie apart from the others of their process; at most one in each process.

    This is Grubbs' test on log rates. It compares the window farthest from the mean, in standard deviations, with what
    chance exceeds in ``_OUTLIER_LEVEL`` of cases (F. Grubbs, Procedures for detecting outlying observations in samples,
    Technometrics 11, 1969).
    """
    tested = [rates for rates in processes if len(rates) >= _FEWEST_FOR_OUTLIERS]
    return sum(_has_outlier(rates, _OUTLIER_LEVEL / len(tested)) for rates in tested)


def _has_outlier(rates: Sequence[float], level: float) -> bool:
    logs, count = [log(rate) for rate in rates], len(rates)
    centre, spread = fmean(logs), stdev(logs)
    if spread == 0:
        return False
    farthest = max(max(logs) - centre, centre - min(logs)) / spread
    quantile = student_quantile(1 - level / (2 * count), count - 2)
    return farthest > (count - 1) / sqrt(count) * sqrt(quantile**2 / (count - 2 + quantile**2))


def drift(processes: Sequence[Sequence[float]]) -> float:
    """Return the relative change from the first window of a process to its last, 0 if it may be chance.

    Whether there is a trend is decided by the seasonal Kendall test, with each process as a season, and the exact
    distribution of its statistic (R. Hirsch, J. Slack, R. Smith, Water Resources Research 18, 1982). The size of the
    trend is the median slope (P. Sen, Journal of the American Statistical Association 63, 1968).
    """
    logs = [_medians([log(rate) for rate in rates]) for rates in processes if len(rates) > 1]
    if not logs:
        return 0.0
    rises = sum(_rises(values) for values in logs)
    pairs = sum(len(values) * (len(values) - 1) // 2 for values in logs)
    rarer = min(rises, pairs - rises)
    if 2 * _share_at_most(int(rarer), tuple(map(len, logs))) > _DRIFT_LEVEL:
        return 0.0
    slope = median(
        (values[after] - values[before]) / (after - before)
        for values in logs
        for after in range(len(values))
        for before in range(after)
    )
    return exp(slope * (max(map(len, logs)) - 1)) - 1


def _medians(values: Sequence[float]) -> list[float]:
    """Return the values; if there are many, the medians of groups of values that follow each other."""
    count = min(len(values), _MOST_MEDIANS)
    ends = [len(values) * index // count for index in range(count + 1)]
    return [median(values[start:end]) for start, end in pairwise(ends)]


def _rises(values: Sequence[float]) -> float:
    """Return in how many pairs of values the later one is larger; equal ones count half."""
    return sum(
        (values[before] < values[after]) + (values[before] == values[after]) / 2
        for after in range(len(values))
        for before in range(after)
    )


@cache
def _share_at_most(rises: int, lengths: tuple[int, ...]) -> float:
    """Return the probability that values in random order, so many in each process, have at most ``rises`` such pairs.

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


def bursts(windows: Sequence[Window]) -> bool:
    """Return whether the numbers of resets in windows vary more than counts of random events do.

    This is the dispersion test: the sum of (count - mean)^2 / mean is compared with the chi-square distribution
    (R. Fisher, Statistical Methods for Research Workers, 1925, section 16). The mean is in proportion to the rows of
    the window.
    """
    rows, resets = sum(window.rows for window in windows), sum(window.resets for window in windows)
    if len(windows) < 2 or not resets:  # noqa: PLR2004 - a spread needs two
        return False
    expected = [resets * window.rows / rows for window in windows]
    dispersion = sum(
        (window.resets - mean) ** 2 / mean for window, mean in zip(windows, expected, strict=True) if mean > 0
    )
    from scipy.special import chdtrc  # noqa: PLC0415 - imported on use

    return float(chdtrc(len(windows) - 1, dispersion)) < _BURST_LEVEL
