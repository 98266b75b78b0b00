"""When a cell is warm, and when its windows are measured: alone, in turn with others, or in step with replicas."""

from __future__ import annotations

import os
import select
from collections import deque
from math import sqrt
from statistics import median, stdev
from typing import TYPE_CHECKING, NamedTuple

from vebench.child.answers import Begins, Ends, ReplicaWindow
from vebench.child.window import READINGS_PER_WINDOW, Window, difference, read_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.child.loop import Loop, Stretch
    from vebench.child.window import Counts, Watched

# A window that was throttled or disturbed is measured again, at most twice.
MOST_TRIES = 3
# In step: the time between two checks for the start; the pause between two windows, the larger of PAUSE_NS and
# 1/_PAUSE_SHARE of a window; the time to read the counters before a window.
_IDLE_NS = 2_000_000
PAUSE_NS = 20_000_000
_PAUSE_SHARE = 20
_READING_NS = 2_000_000
# Uncounted steps before a window that had to wait for its turn: the larger of LEAD_NS and 1/_LEAD_SHARE of the window.
_LEAD_SHARE = 20
LEAD_NS = 50_000_000


class Meter:
    """Measures windows: ``run`` steps for a given number of nanoseconds; kernel counters are read before and after.

    ``tell`` is told right before a window, and once the counters are read after it: as reading those of many processes
    takes long, it must not be taken for a part of the window. ``clock`` returns nanoseconds, at first ``started``.
    """

    def __init__(
        self,
        run: Callable[[int], Stretch],
        watched: Watched,
        tell: Callable[[Begins | Ends], None],
        clock: Callable[[], int],
        started: int,
    ) -> None:
        self.run = run
        self.tell = tell
        self._watched = watched
        self._clock = clock
        self._started = started

    def read(self) -> Counts:
        """Return the kernel's counters as they are now."""
        return read_counters(self._watched)

    def window(self, stretch: Stretch, before: Counts) -> Window:
        """Return the window of a stretch that has just ended. ``before`` are the counters as read before it."""
        ended = self._clock()
        counts = difference(before, self.read())
        now = self._clock()
        self.tell(Ends(now - ended, now - self._started))
        return Window(stretch.ns, stretch.rows, stretch.resets, **counts, **stretch.times)

    def measure(self, duration: int) -> Window:
        """Return a window of ``duration`` nanoseconds."""
        before = self.read()
        self.tell(Begins())
        return self.window(self.run(duration), before)


def valid(measure: Callable[[], Window], rounds: int, cpus: int, may_repeat: Callable[[], bool]) -> Iterator[Window]:
    """Yield windows until each of ``rounds`` windows is valid or has been tried ``MOST_TRIES`` times.

    A window in which a CPU quota throttled the cell, or others took its CPUs, of which there are ``cpus``, does not
    measure the backend. It is yielded, too: the reader decides how to use it. After a window that was so at every try,
    all windows are taken to be, and no later one is repeated. A window is also not repeated if ``may_repeat`` returns
    that there is no time.
    """
    tries = MOST_TRIES
    for _ in range(rounds):
        for _ in range(tries):
            window = measure()
            yield window
            if window.calm(cpus) or not may_repeat():
                break
        else:
            tries = 1


class Turns:
    """The turns of a cell that is interleaved with others. Between turns it waits, so far for ``waited_ns``.

    The parent writes to ``descriptor`` to start a turn. ``run`` steps for a given number of nanoseconds, and at least a
    given number of batches.
    """

    def __init__(self, descriptor: int, run: Callable[[int, int], object], clock: Callable[[], int]) -> None:
        self._descriptor = descriptor
        self._run = run
        self._clock = clock
        self._since: int | None = None
        self.waited_ns = 0

    def take(self) -> None:
        """Wait for the next turn. Raises EOFError if the parent has exited."""
        since = self._clock() if self._since is None else self._since
        if not os.read(self._descriptor, 1):
            raise EOFError("the parent has gone: there will be no next turn")
        self.waited_ns += self._clock() - since
        self._since = None

    def begin(self, duration: int, batches: int) -> None:
        """Wait for the next turn, and step uncounted, before a window of this duration.

        This uses up rows that were ready before, raises CPU clocks, and warms the caches.
        """
        self.take()
        self._run(max(LEAD_NS, duration // _LEAD_SHARE), batches)

    def leave(self) -> None:
        """Note that the turn is over: the process may be stopped before it begins to wait for the next."""
        self._since = self._clock()


def in_turn(windows: Iterator[Window], turns: Turns) -> Iterator[Window]:
    """Yield ``windows``, each measured in a turn that ``turns.begin`` has begun, and return in one more turn."""
    for window in windows:
        turns.leave()
        yield window
    turns.take()  # the answers that follow, and close(), would otherwise disturb other cells


def in_step(
    meter: Meter, rounds: int, duration: int, start: Callable[[], int | None], clock: Callable[[], int]
) -> Iterator[ReplicaWindow]:
    """Yield ``rounds`` windows at times that all replicas share, each with the time at which it began.

    Before the first window, whose time ``start()`` returns, and between windows, the replica steps uncounted. So every
    window of a replica is measured while all others step, too.
    """
    first = start()
    while first is None:
        meter.run(_IDLE_NS)
        first = start()
    pause = max(PAUSE_NS, duration // _PAUSE_SHARE)
    for number in range(rounds):
        begin = first + number * (duration + pause)
        meter.run(begin - _READING_NS - clock())
        before = meter.read()
        meter.run(begin - clock())
        meter.tell(Begins())
        began = clock()
        yield ReplicaWindow(began, meter.window(meter.run(duration), before))
    meter.run(pause)


def number_on(descriptor: int) -> Callable[[], int | None]:
    """Return a function that reads a number from ``descriptor`` without waiting, None if there is no line yet.

    The function raises EOFError if the parent has exited.
    """

    def look() -> int | None:
        if not select.select([descriptor], [], [], 0)[0]:
            return None
        line = os.read(descriptor, 64)
        if not line:
            raise EOFError("the parent has gone: the windows will never begin")
        return int(line)

    return look


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
