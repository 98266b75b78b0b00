"""Decides when warm-up ends: once the rate has settled, or at an upper bound."""

from __future__ import annotations

from collections import deque
from math import sqrt
from statistics import median, stdev
from typing import TYPE_CHECKING, NamedTuple

from vebench.child.loop import READINGS_PER_WINDOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.loop import Loop, Stretch

# The shortest warm-up has this many slices. The rates of the last SLICES slices are compared, one half with the other.
SLICES = 8
# The rate has settled if the medians of both halves differ by at most this share, or by no more than the noise.
_TOLERANCE = 0.02
_NOISE = 2.0  # standard errors of the difference between the medians of both halves


class Warmup(NamedTuple):
    """How long a warm-up took, whether the rate had settled when it ended (None if not checked), and the pace.

    ``pace`` is how many batches fit between two clock readings in a window.
    """

    ns: int
    settled: bool | None
    pace: int


def warm_up(loop: Loop, least_ns: int, most_ns: int, window_ns: int, batch_size: int) -> Warmup:
    """Step batches for at least ``least_ns``, until the rate has settled or ``most_ns`` have passed."""
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
    """Return whether the last ``SLICES`` rates have no trend: the medians of their two halves agree."""
    if len(rates) < SLICES:
        return False
    half = SLICES // 2
    before, after = rates[-SLICES:-half], rates[-half:]
    level = median(rates[-SLICES:])
    gap = abs(median(after) - median(before))
    noise = sqrt((stdev(before) ** 2 + stdev(after) ** 2) / half)
    return gap <= max(_TOLERANCE * level, _NOISE * noise)
