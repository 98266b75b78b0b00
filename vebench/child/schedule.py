"""When a cell is warm, and when its windows are measured: alone, in turn with others, or in step with replicas."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf, sqrt
from statistics import median, stdev
from typing import NamedTuple

from vebench.child.answers import Answer, Begins, Ends, ReplicaWindow, Warm
from vebench.child.equality.recorder import Recorder
from vebench.child.loop import Loop, Stretch
from vebench.child.request import Request
from vebench.child.window import READINGS_PER_WINDOW, Watched, Window, difference, read_counters

MOST_TRIES = 3  # of a window that is throttled or disturbed
# In step with replicas:
_IDLE_NS = 2_000_000  # between two checks for the start
PAUSE_NS = 20_000_000  # between two windows, or a share of a window if that is longer
_PAUSE_SHARE = 20
_READING_NS = 2_000_000  # to read the counters before a window
# Uncounted steps before a window that had to wait for its turn, on average. Of Pong, HalfCheetah and CartPole on a
# virtual machine, the first 5 ms were up to 15 % slower, the next ones as fast as all later ones, within 1 %.
LEAD_NS = 10_000_000
_NANO = 1e9


class Windows:
    """Measures the windows of a cell in the mode of its request, and answers each.

    Windows sample the time that the cell spends stepping, without regard to its episodes. Each window is due at a time
    of that clock, with drawn pauses between windows. It begins with the first batch after it is due, and ends with the
    first batch after the next pause is due. So a slow reset counts for its share of the time. See docs/method.md.

    The parent has its own clock. It is told right before a window, and when the kernel's counters are read after it,
    which takes long for many processes.

    - ``started``: when the cell began, in nanoseconds of ``clock``
    - ``ahead``: batches that contain all rows that were ready before
    - ``moments``: about how many a window has
    - ``draw``: returns random numbers from 0 to 1
    """

    def __init__(  # noqa: PLR0913
        self,
        request: Request,
        loop: Loop,
        recorder: Recorder | None,
        watched: Watched,
        answer: Callable[[Answer], None],
        clock: Callable[[], int],
        started: int,
        *,
        warmup: Warmup,
        ahead: int,
        moments: int,
        draw: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self._request, self._settings = request, request.settings
        self._loop, self._recorder, self._watched = loop, recorder, watched
        self._answer, self._clock, self._started = answer, clock, started
        self._warmup, self._ahead, self._moments = warmup, ahead, moments
        self._duration = int(request.settings.duration * _NANO)
        self._began = 0  # when the last window began
        self._left = 0  # when the last turn was over
        self._waited_ns = 0  # for turns
        self._owed: dict[str, int] = {}  # by counters, to the next window
        self._late = warmup.late_ns  # nanoseconds that the cell has stepped since its next window was due
        self._draw = draw

    def measure(self) -> None:
        """Measure all of them. Raises EOFError if the parent has exited."""
        mode = self._request.mode
        self._between()
        self._left = self._clock()
        if mode != "alone":
            self._answer(Warm())
        if mode == "in_step":
            self._measure_in_step()
            return
        measured: Callable[[], Window] = self._in_turn if mode == "in_turn" else self._window
        for window in valid(measured, self._settings.windows, len(self._watched.cpus), self._has_time):
            self._finish(window)
        if mode == "in_turn":
            self._take_turn()  # the answers that follow, and close(), would otherwise disturb other cells

    def _finish(self, window: Window | ReplicaWindow) -> None:
        self._left = self._clock()  # noted first: the process may be stopped before it begins to wait for its next turn
        self._answer(window)
        self._between()

    def _between(self) -> None:
        """Expect no moments until the next window, and record one batch with the frames that were simulated so far.

        If a slow reset made the window so long that the next one is due, the batch belongs to that one. It is not
        timed: the process may be stopped meanwhile.
        """
        if self._recorder is None:
            return
        self._recorder.expect(0)
        if self._late < LEAD_NS // 2:
            self._recorder.keep_last(self._loop.batches + 1, self._loop.step())
            if self._ahead:  # in the pause for this, asynchronous environments have run ahead
                self._loop.step(self._ahead)

    def _run(self, span: int) -> Stretch:
        return self._loop.run_for(span, self._warmup.pace)

    def _window(self, begin: int | None = None) -> Window:
        """Return a window that begins when the counters are read, or later, at the time ``begin``."""
        while begin is None and not 0 <= self._late < self._duration:
            if self._late < 0:
                self._late += self._run(-self._late).ns
            else:  # one batch took longer than a window
                self._late -= self._duration + self._pause()
        before = read_counters(self._watched)
        if begin is not None:
            self._run(begin - self._clock())
            self._late = min(self._clock() - begin, self._duration - 1)
        if self._recorder is not None:
            self._recorder.expect(self._moments)
        begun = self._loop.batches
        self._answer(Begins())
        self._began = self._clock()
        left = self._duration - self._late
        stretch = self._run(left)
        self._late = stretch.ns - left
        ended = self._clock()
        counts = difference(before, read_counters(self._watched), self._owed)
        self._answer(Ends(self._clock() - ended))
        return Window(stretch.ns, stretch.rows, stretch.resets, **counts, **stretch.times, steps_before=begun)

    def _has_time(self) -> bool:
        """Return whether there is time to repeat one window and still measure all others."""
        spent = self._clock() - self._started - self._waited_ns
        return spent + (self._settings.windows + 1) * self._duration < self._settings.timeout * _NANO

    def _in_turn(self) -> Window:
        """Wait for the next turn, step uncounted, and return a window.

        The uncounted steps use up rows that were ready before, raise CPU clocks, and warm the caches.
        """
        self._take_turn()
        if self._ahead:
            began = self._clock()
            self._loop.step(self._ahead)
            self._late += self._clock() - began
        self._late -= self._pause()
        return self._window()

    def _pause(self) -> int:
        """Draw how long the cell steps uncounted between two windows, in nanoseconds."""
        return round(LEAD_NS * (0.5 + self._draw()))

    def _take_turn(self) -> None:
        if not os.read(self._request.go_ahead, 1):
            raise EOFError("the parent exited before the next turn")
        self._waited_ns += self._clock() - self._left

    def _measure_in_step(self) -> None:
        """Measure windows at times that all replicas share.

        Before the first, whose time the parent says, and between windows, the replica steps uncounted. So every window
        of a replica is measured while all others step, too.
        """
        while not select.select([self._request.go_ahead], [], [], 0)[0]:
            self._run(_IDLE_NS)
        line = os.read(self._request.go_ahead, 64)
        if not line:
            raise EOFError("the parent exited before the first window")
        pause = max(PAUSE_NS, self._duration // _PAUSE_SHARE)
        for number in range(self._settings.windows):
            begin = int(line) + number * (self._duration + pause)
            self._run(begin - _READING_NS - self._clock())
            window = self._window(begin)
            self._finish(ReplicaWindow(self._began, window))
        self._run(pause)


def valid(measure: Callable[[], Window], windows: int, cpus: int, may_repeat: Callable[[], bool]) -> Iterator[Window]:
    """Yield windows until each of ``windows`` windows is valid or has been tried ``MOST_TRIES`` times.

    A window is not valid if a CPU quota throttled the cell, or others took its ``cpus`` CPUs: it does not measure the
    backend. It is yielded, too: the reader decides how to use it. After a window that was invalid at every try, no
    later one is repeated. ``may_repeat`` returns whether there is time for another try.
    """
    tries = MOST_TRIES
    for _ in range(windows):
        for _ in range(tries):
            window = measure()
            yield window
            if window.undisturbed(cpus) or not may_repeat():
                break
        else:
            tries = 1


# The shortest warm-up has this many slices, and each slice is this share of the warm-up so far: a slow trend only shows
# over a longer time. The rates of the last SLICES slices are compared, one half with the other.
SLICES = 8
# The rate has settled if the medians of both halves differ by at most this share, or by no more than the noise.
_TOLERANCE = 0.02
_NOISE = 2.0  # standard errors of the difference between the medians of both halves
# Standard errors above this share of the rate hide a trend: then a warm-up lasts this many times the least.
_HIDES, _LONGER = 0.04, 2


class Warmup(NamedTuple):
    """A warm-up that is over."""

    ns: int
    settled: bool | None  # whether the rate had settled when it ended; None if not checked
    pace: int  # how many batches fit between two clock readings in a window
    late_ns: int = 0  # by how much the last batch overran the end of the warm-up


def warm_up(
    loop: Loop,
    least_ns: int,
    most_ns: int,
    window_ns: int,
    batch_size: int,
    ahead: int = 0,
    *,
    phase: float = 0.0,
    longest_phase_ns: int = 0,
) -> Warmup:
    """Step for at least ``least_ns`` and ``ahead`` batches, until the rate has settled or ``most_ns`` have passed.

    Then step for the share ``phase`` of an episode, or of ``longest_phase_ns`` if episodes take longer or none ended.
    Windows of all passes would otherwise begin at the same step of an episode.
    """
    slice_ns = least_ns // SLICES
    if not slice_ns:
        return Warmup(0, None, loop.warm_up(least_ns, window_ns))
    ahead += loop.batches
    pace = loop.warm_up(slice_ns, window_ns)
    stretches: deque[Stretch] = deque(maxlen=SLICES)
    spent = slice_ns
    while True:
        slice_ns = min(max(slice_ns, spent // SLICES), max(1, most_ns - spent))
        stretches.append(loop.run_for(slice_ns, max(1, pace * slice_ns // window_ns)))
        spent += stretches[-1].ns
        rows, ns = sum(stretch.rows for stretch in stretches), max(1, sum(stretch.ns for stretch in stretches))
        pace = max(1, rows // batch_size * window_ns // (READINGS_PER_WINDOW * ns))
        rates = [stretch.rows / max(1, stretch.ns) for stretch in stretches]
        is_enough = spent >= least_ns and loop.batches >= ahead
        if spent >= most_ns or (is_enough and settled(rates, _HIDES if spent < _LONGER * least_ns else inf)):
            episode_ns = spent * loop.num_envs / loop.ends if loop.ends else inf
            asked = int(phase * min(episode_ns, longest_phase_ns))
            further = loop.run_for(asked, pace).ns
            return Warmup(spent + further, settled(rates), pace, further - asked)


def settled(rates: Sequence[float], most_noise: float = inf) -> bool:
    """Return whether the last ``SLICES`` rates have no trend: the medians of their two halves agree.

    Not if the standard error of their difference is above the share ``most_noise`` of the rate.
    """
    if len(rates) < SLICES:
        return False
    half = SLICES // 2
    before, after = rates[-SLICES:-half], rates[-half:]
    level = median(rates[-SLICES:])
    gap = abs(median(after) - median(before))
    noise = sqrt((stdev(before) ** 2 + stdev(after) ** 2) / half)
    return noise <= most_noise * level and gap <= max(_TOLERANCE * level, _NOISE * noise)
