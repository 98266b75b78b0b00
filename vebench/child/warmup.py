"""When warm-up is over: not before the rate has settled, and not later than a bound."""

from __future__ import annotations

from collections import deque
from math import sqrt
from statistics import median, stdev
from typing import TYPE_CHECKING, NamedTuple

from vebench.child.loop import READINGS_PER_WINDOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.loop import Loop, Stretch

# The shortest warm-up is looked at in so many slices, half of which are compared with the other half.
SLICES = 8
# Medians of both halves that differ by no more than this have settled, and so have those that differ by no more than
# the slices themselves scatter.
TOLERANCE = 0.02
NOISE = 2.0  # standard errors of the difference between the medians of both halves


class Warmup(NamedTuple):
    """How long a warm-up took, whether the rate had settled when it ended (None if not looked at), and the pace.

    ``pace`` is how many batches fit between two readings of the clock in a window.
    """

    ns: int
    settled: bool | None
    pace: int


def warm_up(loop: Loop, least_ns: int, most_ns: int, window_ns: int, batch_size: int) -> Warmup:
    """Step batches for ``least_ns`` and on until the rate has settled, but not beyond ``most_ns``."""
    slice_ns = least_ns // SLICES
    if not slice_ns:
        return Warmup(0, None, loop.warm_up(least_ns, window_ns))
    pace = loop.warm_up(slice_ns, window_ns)
    stretches: deque[Stretch] = deque(maxlen=SLICES)
    spent = slice_ns
    while True:
        stretches.append(loop.run_for(slice_ns, max(1, pace * slice_ns // window_ns)))
        spent += stretches[-1].ns
        batches = sum(stretch.rows for stretch in stretches) // batch_size
        pace = max(1, batches * window_ns // (READINGS_PER_WINDOW * max(1, sum(stretch.ns for stretch in stretches))))
        done = settled([stretch.rows / max(1, stretch.ns) for stretch in stretches])
        if spent >= most_ns or (done and spent >= least_ns):
            return Warmup(spent, done, pace)


def settled(rates: Sequence[float]) -> bool:
    """Return whether the last ``SLICES`` rates have no trend: the median of their second half is that of the first."""
    if len(rates) < SLICES:
        return False
    half = SLICES // 2
    before, after = rates[-SLICES:-half], rates[-half:]
    level = median(rates[-SLICES:])
    gap = abs(median(after) - median(before))
    noise = sqrt((stdev(before) ** 2 + stdev(after) ** 2) / half)
    return gap <= max(TOLERANCE * level, NOISE * noise)
