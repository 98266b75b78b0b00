"""Where the level of a series changes: e-divisive change points with Student's test. Pure functions of log levels.

E-divisive looks for the place that divides a stretch into the two parts that are farthest apart, and then divides the
parts in the same way (D. Matteson, N. James, A nonparametric approach for multiple change point analysis of
multivariate data, Journal of the American Statistical Association 109, 2014; used on benchmarks by D. Daly et al., The
use of change point detection to identify software performance regressions in a continuous integration system, ICPE
2020). As in Hunter, now Apache Otava, a place is tested by Student's t instead of permutations, so that a series always
has the same answer; it is looked for in windows, so that a long history hides nothing; and it is first accepted at a
lenient level, then tested again between its neighbours (M. Fleming et al., Hunter: using change point detection to hunt
for performance regressions, ICPE 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf, log1p, sqrt
from statistics import fmean, variance
from typing import TYPE_CHECKING

from vebench.analysis.statistics import Contrast, Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import float64
    from numpy.typing import NDArray

    from vebench.analysis.statistics import Estimate

# The level of the test of one place in a series of WINDOW values or more. Shorter series have a lower one: they show
# the correlation of runs less well, and CI looks at them after each run (tools/history.py).
LEVEL = 0.002
_LENIENT = 10.0  # times that, for a place that is still to be tested between its neighbours, as in Hunter
WINDOW = 50  # values in which places are looked for at a time, as in Hunter; windows overlap by half
# A part has at least so many values: one that lies apart is no level.
SHORTEST = 3
FEWEST = 2 * SHORTEST
# A smaller change is left alone, however certain: the place of data in memory alone makes one as large.
LEAST = 0.02
# Without the farthest value of each part, this share of the change is left: else one value that lies apart has made it.
_LEAST_LEFT = 0.5
# By how many standard errors the correlation of neighbouring runs is taken to be higher, and the most that it may be.
_CAUTION, _MOST = 1.35, 0.9


@dataclass(frozen=True)
class Change:
    """A change of level. ``at`` is the index of the first value after it.

    ``ratio`` is the level after it over that before it, each up to the next change, with its 95 % interval. ``chance``
    is the probability of a difference as large at this place if there were no change.
    """

    at: int
    ratio: Estimate
    chance: float

    @property
    def worse(self) -> bool:
        """Whether the level is lower after it."""
        return self.ratio.median < 1


def change_points(levels: Sequence[float], level: float = LEVEL) -> tuple[Change, ...]:
    """Return the changes in ``levels``, which are logarithms of rates, the first one first.

    ``level`` is that of the test of one place in a long series. One value that lies apart from all others is no change.
    """
    level *= min(len(levels) / WINDOW, 1.0) ** 2
    places = _candidates(levels, _LENIENT * level)
    while places:
        between = parts(levels, places)
        r = _correlation(between)
        changes = [_change(at, *sides, r) for at, sides in zip(places, pairwise(between), strict=True)]
        weakest = max(changes, key=lambda change: change.chance)
        if weakest.chance <= level:
            return tuple(changes)
        places.remove(weakest.at)
    return ()


def parts(levels: Sequence[float], places: Sequence[int]) -> list[Sequence[float]]:
    """Return the parts into which ``places``, the indices at which a new part begins, divide ``levels``."""
    return [levels[start:end] for start, end in pairwise((0, *places, len(levels)))]


def _correlation(between: Sequence[Sequence[float]]) -> float:
    """Return the correlation of neighbouring values, beside the levels of the parts.

    Each estimated level lowers it by (1 + 3 r) / n (F. Marriott, J. Pope, Biometrika 41, 1954). It is raised by that,
    and by ``_CAUTION`` standard errors, since few runs hardly show it, and is between 0 and ``_MOST``.
    """
    rest = [level - fmean(part) for part in between for level in part]
    found = sum(one * later for one, later in pairwise(rest)) / (sum(one**2 for one in rest) or 1.0)
    found += len(between) * (1 + 3 * max(found, 0.0)) / len(rest) + _CAUTION / sqrt(len(rest))
    return min(max(found, 0.0), _MOST)


def _candidates(levels: Sequence[float], level: float) -> list[int]:
    """Return the places that are significant at this level within their window."""
    distances = _summed_distances(levels)
    found: set[int] = set()
    start = 0
    while start + FEWEST <= len(levels):
        end = min(start + WINDOW, len(levels))
        found.update(_divided(levels, distances, start, end, level))
        if end == len(levels):
            break
        # A window that begins at a change has one level more to itself.
        start = max(start + WINDOW // 2, *found, 0)
    return sorted(found)


def _divided(levels: Sequence[float], sums: NDArray[float64], start: int, end: int, level: float) -> Iterator[int]:
    """Yield the best place between ``start`` and ``end``, if it is significant, and those of both parts."""
    if end - start < FEWEST:
        return
    at, stop = _best_place(sums, start, end)
    # Of a level that ended again, more places were tried: it has to be more certain.
    both = [(levels[start:at], levels[at:last]) for last in (end, stop)]
    lasting, ended = (_chance(_ratio(*sides, _correlation(sides))) for sides in both)
    if min(lasting, _LENIENT**2 * ended) > level:
        return
    yield at
    yield from _divided(levels, sums, start, at, level)
    yield from _divided(levels, sums, at, end, level)


def _summed_distances(levels: Sequence[float]) -> NDArray[float64]:
    """Return the sums of all distances between one of the first i levels and one of the first j."""
    import numpy as np  # noqa: PLC0415 - imported on use: other commands that come by here need no arrays

    values = np.asarray(levels, dtype=float)
    sums = np.zeros((len(values) + 1, len(values) + 1))
    sums[1:, 1:] = np.abs(values[:, None] - values[None, :]).cumsum(axis=0).cumsum(axis=1)
    return sums


def _best_place(sums: NDArray[float64], start: int, end: int) -> tuple[int, int]:
    """Return where the right one of the two neighbouring parts that are farthest apart begins, and where it ends.

    The left part begins at ``start``; the right part may end before ``end``, because another change may follow. Parts
    of m and n values are apart by m n / (m + n) times their energy distance, with distances of power 1 (Matteson &
    James, equations 5 to 7).
    """
    import numpy as np  # noqa: PLC0415 - as above

    places = np.arange(start + SHORTEST, end - SHORTEST + 1)[:, None]
    ends = np.arange(start + FEWEST, end + 1)[None, :]
    left, right = places - start, np.maximum(ends - places, SHORTEST)
    across = sums[places, ends] - sums[start, ends] - sums[places, places] + sums[start, places]
    within_left = sums[places, places] - 2 * sums[start, places] + sums[start, start]
    within_right = sums[ends, ends] - 2 * sums[places, ends] + sums[places, places]
    apart = (2 * across - right * within_left / (left - 1) - left * within_right / (right - 1)) / (left + right)
    row, column = np.unravel_index(np.where(ends - places >= SHORTEST, apart, -inf).argmax(), apart.shape)
    return start + SHORTEST + int(row), start + FEWEST + int(column)


def _change(at: int, before: Sequence[float], after: Sequence[float], r: float) -> Change:
    """Return the change between two parts; its chance is 1 if it is too small.

    What is left without the farthest value of each part must still be half of the change, at the lenient level.
    """
    ratio = _ratio(before, after, r)
    low, high = fmean(before), fmean(after)
    trimmed = _ratio(
        sorted(before, key=lambda level: abs(level - high))[:-1],
        sorted(after, key=lambda level: abs(level - low))[:-1],
        r,
    )
    if abs(ratio.log) < -log1p(-LEAST) or trimmed.log / ratio.log < _LEAST_LEFT:
        return Change(at, ratio.estimate, 1.0)
    return Change(at, ratio.estimate, max(_chance(ratio), _chance(trimmed) / _LENIENT))


def _ratio(before: Sequence[float], after: Sequence[float], r: float) -> Contrast:
    """Return the ratio of the levels of two neighbouring parts of a first-order autoregression with correlation ``r``.

    Both have the same variance: a part of three values cannot tell its own.
    """
    m, n = len(before), len(after)
    spread = ((m - 1) * variance(before) + (n - 1) * variance(after)) / (m + n - 2)
    left, right, factor = (1 - r**m) / m, (1 - r**n) / n, (1 + r) / (1 - r)
    error = factor * (1 / m + 1 / n) - 2 * r * (left / m + right / n + left * right) / (1 - r) ** 2
    return Contrast(fmean(after) - fmean(before), Error(spread * error, max((m + n) / factor - 2, 1.0)))


def _chance(ratio: Contrast) -> float:
    """Return the probability of a ratio as far from 1, to either side, if the true one is 1."""
    return 2 * min(ratio.chance_above(1.0), ratio.chance_below(1.0))
