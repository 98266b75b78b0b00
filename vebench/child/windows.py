"""The windows of a cell: each timed by the loop, with what the kernel counted meanwhile.

Loaded by the measuring child, also in interpreters that do not have vebench: standard library and Python 3.10 only.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Any

from vebench.machine import counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vebench.child.loop import Count

    Reading = dict[str, int | None]

# A window that was held back is measured again, twice at most.
MOST_TRIES = 3
# Of several pools: between looks for the start; from the end of a window to the next, at least and as a share of it;
# for reading the counters before one.
IDLE_NS = 2_000_000
PAUSE_NS = 20_000_000
PAUSE_SHARE = 20
READING_NS = 2_000_000
# What goes uncounted before a window that had to wait for its turn: a share of it, and no less than this.
LEAD_SHARE = 20
LEAD_NS = 50_000_000


def measured(
    run: Callable[[], Count],
    read: Callable[[], Reading],
    rounds: int,
    may_repeat: Callable[[], bool],
    prepare: Callable[[], None] = lambda: None,
) -> Iterator[Reading]:
    """Yield windows until ``rounds`` of them are valid, or have been tried ``MOST_TRIES`` times; ``prepare`` for each.

    A window in which a CPU quota held the cell back is no measurement of the backend. It is yielded, too: what to make
    of it is for its reader to say. Once a window was held back at every try, the quota does so always, and none after
    it is tried again; nor is any when ``may_repeat`` says that there is no time.
    """
    tries = MOST_TRIES
    for _ in range(rounds):
        for _ in range(tries):
            prepare()
            before = read()
            count = run()
            window = {**count._asdict(), **difference(before, read())}
            yield window
            if not (window["throttles"] or window["throttled_ns"]):
                break
            if not may_repeat():
                break
        else:
            tries = 1


class Turns:
    """The turns of a cell among others, between which it waits; of one that is measured alone the turn never ends.

    Words to go on come on ``descriptor``, None for one alone. ``run`` steps for so many nanoseconds, in so many batches
    at least. ``rested_ns`` is how long the cell has waited.
    """

    def __init__(self, descriptor: int | None, run: Callable[[int, int], object], clock: Callable[[], int]) -> None:
        self._descriptor = descriptor
        self._run = run
        self._clock = clock
        self._since: int | None = None
        self.rested_ns = 0

    def take(self) -> None:
        """Wait for the next turn. Raises EOFError once nobody is there any more to give it one."""
        if self._descriptor is None:
            return
        since = self._clock() if self._since is None else self._since
        if not os.read(self._descriptor, 1):
            raise EOFError("nobody is there to give it a turn")
        self.rested_ns += self._clock() - since
        self._since = None

    def begin(self, duration: int, batches: int) -> None:
        """Wait for the next turn, and step on uncounted, before a window of this duration.

        So what was ready before is gone, clocks are up, and caches warm again.
        """
        if self._descriptor is not None:
            self.take()
            self._run(max(LEAD_NS, duration // LEAD_SHARE), batches)

    def leave(self) -> None:
        """Note that the turn is over: the process may be stopped before it comes to wait for the next."""
        self._since = self._clock()


class Stretches:
    """Stretches of the loop at times that several pools share. ``run`` steps for so many nanoseconds and counts."""

    def __init__(self, run: Callable[[int], Count], read: Callable[[], Reading], clock: Callable[[], int]) -> None:
        self._run = run
        self._read = read
        self._clock = clock

    def in_step(self, rounds: int, duration: int, told: Callable[[], int | None]) -> Iterator[dict[str, Any]]:
        """Yield ``rounds`` windows, each with the time at which it began.

        Until ``told()`` says when the first begins, and between windows, the pool steps on uncounted, so that none ever
        has the machine to itself while another is counted.
        """
        start = told()
        while start is None:
            self._run(IDLE_NS)
            start = told()
        pause = max(PAUSE_NS, duration // PAUSE_SHARE)
        for number in range(rounds):
            begin = start + number * (duration + pause)
            self._run(begin - READING_NS - self._clock())
            before = self._read()
            self._run(begin - self._clock())
            began = self._clock()
            count = self._run(duration)
            yield {"start_ns": began, "window": {**count._asdict(), **difference(before, self._read())}}
        self._run(pause)


def told(descriptor: int) -> Callable[[], int | None]:
    """Return a function that returns the number on a line that has come there, None if none has come yet.

    Raises EOFError once nobody is there any more to write one.
    """

    def look() -> int | None:
        if not select.select([descriptor], [], [], 0)[0]:
            return None
        line = os.read(descriptor, 64)
        if not line:
            raise EOFError("nobody says when to begin")
        return int(line)

    return look


def read_counters(processes: list[int], cpus: list[int], groups: tuple[Path, ...]) -> Reading:
    """Return what the kernel has counted so far of a cell's processes, of its CPUs, and of its control groups.

    ``others_ns`` is what its CPUs worked less what its processes did: only differences of it mean anything.
    """
    spent, busy, throttling = counters.cpu_time_ns(processes), counters.busy_ns(cpus), counters.throttling(groups)
    return {
        "cpu_ns": spent,
        "throttles": throttling[0] if throttling else None,
        "throttled_ns": throttling[1] if throttling else None,
        "steal_ns": counters.steal_ns(cpus),
        "others_ns": None if spent is None or busy is None else busy - spent,
        "switches": counters.involuntary_switches(processes),
        "migrations": counters.migrations(processes),
    }


def difference(before: Reading, after: Reading) -> Reading:
    """Return how far each counter has gone, None where it could not be read both times."""
    gone: Reading = {}
    for name, first in before.items():
        second = after[name]
        gone[name] = None if first is None or second is None else max(0, second - first)
    return gone
