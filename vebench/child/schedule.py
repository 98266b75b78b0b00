"""When the windows of a cell are measured: alone, in turn with other cells, or in step with other replicas."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from vebench.child.answers import ReplicaWindow
from vebench.child.window import Window, difference, read_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.child.loop import Stretch
    from vebench.child.window import Counts, Watched

# A window that was held back is measured again, twice at most.
MOST_TRIES = 3
# In step: between looks for the start; from the end of a window to the next, at least and as a share of it; for reading
# the counters before one.
IDLE_NS = 2_000_000
PAUSE_NS = 20_000_000
PAUSE_SHARE = 20
READING_NS = 2_000_000
# What goes uncounted before a window that had to wait for its turn: a share of it, and no less than this.
LEAD_SHARE = 20
LEAD_NS = 50_000_000


class Meter:
    """Measures windows: ``run`` steps for so many nanoseconds and counts, the kernel's counters are read around it."""

    def __init__(self, run: Callable[[int], Stretch], watched: Watched) -> None:
        self.run = run
        self._watched = watched

    def read(self) -> Counts:
        """Return what the kernel has counted so far."""
        return read_counters(self._watched)

    def window(self, stretch: Stretch, before: Counts) -> Window:
        """Return the window of a stretch that is just over, the counters having been read ``before``."""
        return Window(stretch.ns, stretch.rows, stretch.resets, **difference(before, self.read()))

    def measure(self, duration: int) -> Window:
        """Return a window of ``duration`` nanoseconds."""
        before = self.read()
        return self.window(self.run(duration), before)


def valid(measure: Callable[[], Window], rounds: int, may_repeat: Callable[[], bool]) -> Iterator[Window]:
    """Yield windows until ``rounds`` of them are valid, or have been tried ``MOST_TRIES`` times.

    A window in which a CPU quota held the cell back is no measurement of the backend. It is yielded, too: its reader
    decides what to make of it. Once a window was held back at every try, the quota always does so, and none after it is
    tried again; nor is any when ``may_repeat`` says that there is no time.
    """
    tries = MOST_TRIES
    for _ in range(rounds):
        for _ in range(tries):
            window = measure()
            yield window
            if not window.held_back or not may_repeat():
                break
        else:
            tries = 1


class Turns:
    """The turns of a cell among others, between which it waits. ``rested_ns`` is how long it has waited.

    The word to go on comes on ``descriptor``. ``run`` steps for so many nanoseconds, in so many batches at least.
    """

    def __init__(self, descriptor: int, run: Callable[[int, int], object], clock: Callable[[], int]) -> None:
        self._descriptor = descriptor
        self._run = run
        self._clock = clock
        self._since: int | None = None
        self.rested_ns = 0

    def take(self) -> None:
        """Wait for the next turn. Raises EOFError if the parent has gone, which would give it."""
        since = self._clock() if self._since is None else self._since
        if not os.read(self._descriptor, 1):
            raise EOFError("the parent has gone: there will be no next turn")
        self.rested_ns += self._clock() - since
        self._since = None

    def begin(self, duration: int, batches: int) -> None:
        """Wait for the next turn, and step on uncounted, before a window of this duration.

        So rows that were ready before are gone, clocks are up, and caches are warm again.
        """
        self.take()
        self._run(max(LEAD_NS, duration // LEAD_SHARE), batches)

    def leave(self) -> None:
        """Note that the turn is over: the process may be stopped before it comes to wait for the next."""
        self._since = self._clock()


def in_turn(windows: Iterator[Window], turns: Turns) -> Iterator[Window]:
    """Yield ``windows``, whose measuring begins each with ``turns.begin``; the end comes in a turn of its own, too."""
    for window in windows:
        turns.leave()
        yield window
    turns.take()  # the answers that follow, and closing, would disturb other cells


def in_step(
    meter: Meter, rounds: int, duration: int, start: Callable[[], int | None], clock: Callable[[], int]
) -> Iterator[ReplicaWindow]:
    """Yield ``rounds`` windows at times that all replicas share, each with the time at which it began.

    Until ``start()`` says when the first begins, and between windows, the replica steps on uncounted, so that no
    replica ever has the machine to itself while another is counted.
    """
    first = start()
    while first is None:
        meter.run(IDLE_NS)
        first = start()
    pause = max(PAUSE_NS, duration // PAUSE_SHARE)
    for number in range(rounds):
        begin = first + number * (duration + pause)
        meter.run(begin - READING_NS - clock())
        before = meter.read()
        meter.run(begin - clock())
        began = clock()
        yield ReplicaWindow(began, meter.window(meter.run(duration), before))
    meter.run(pause)


def number_on(descriptor: int) -> Callable[[], int | None]:
    """Return a function that returns the number on a line that has come there, None if none has come yet.

    It raises EOFError if the parent has gone, which would write one.
    """

    def look() -> int | None:
        if not select.select([descriptor], [], [], 0)[0]:
            return None
        line = os.read(descriptor, 64)
        if not line:
            raise EOFError("the parent has gone: the windows will never begin")
        return int(line)

    return look
