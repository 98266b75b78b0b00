"""Uneven steps and slow resets: what they cost, and what partial batches or spare environments would gain."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache
from heapq import heappop, heappush
from itertools import count
from random import Random
from statistics import fmean
from typing import NamedTuple

from vebench.child.answers import CellProof, Timed

_ROWS, _MOST_ROWS = 30_000, 200_000  # rows that a prediction plays; the latter, in half a second, if episodes are long


class Prediction(NamedTuple):
    """What uneven steps and resets cost a setting with whole batches."""

    resets: float  # the share of a plain loop's time that resets take
    waiting: float  # the share of time in which processes wait for the slowest of them
    partial: float  # the rate with two environments for each row of a batch, divided by the rate with one
    ahead: float  # the rate if spares are reset ahead, divided by the rate without spares


class Mix(NamedTuple):
    """The steps of a cell whose batches have the rows that are ready first. A plain loop steps all equally often."""

    slow: float  # the share of the cell's steps that take more than twice the median time
    slow_of_loop: float  # the share of a plain loop's steps that do
    cost: float  # the mean time of the cell's steps, divided by that of the loop's
    is_cheaper: bool  # whether the cost is below 1 by more than 5 % and chance

    @property
    def words(self) -> str:
        """The shares, and the rate at equal shares."""
        shares = f"{self.slow:.1%} of its steps take over twice the median time, {self.slow_of_loop:.1%} of a loop's"
        return f"{shares}; at equal shares, its rate is {self.cost:.0%} of this rate"


def mix(proof: CellProof | None) -> Mix | None:
    """Return the mix of a cell's steps; None if fewer than two environments are known."""
    known = [one for one in proof.costs if one.steps and one.mean_ns] if proof else []
    if not known[1:]:
        return None
    weights = [one.steps / max(1, one.batches) for one in known]
    slow = [one.slow / one.steps for one in known]
    times = [float(one.mean_ns) for one in known]
    cost, least = fmean(times, weights) / fmean(times), 0.05
    # If environments differ by chance alone, 1 - cost is this variance on average, and hardly ever five times it.
    chance = fmean((one.error_ns / fmean(times)) ** 2 for one in known)
    return Mix(fmean(slow, weights), fmean(slow), cost, 1 - cost > least + 5 * chance)


@cache
def predicted(timed: Timed, processes: int, rows: int) -> Prediction | None:
    """Return the prediction for batches of ``rows`` in so many processes; None if times are not known."""
    if not (sum(timed.step_ns) and timed.reset_ns) or rows > _ROWS:
        return None
    reset = fmean(timed.reset_ns) if timed.lengths else 0.0
    resets = reset / (reset + fmean(timed.lengths or (1,)) * fmean(timed.step_ns))
    whole, waiting = _played(timed, processes, rows)
    partial, _ = _played(timed, processes, rows, ratio=2)
    ahead, _ = _played(timed, processes, rows, ahead=True)
    return Prediction(resets, waiting, whole / partial, whole / ahead)


def _times(timed: Timed, env_id: int) -> Iterator[int]:
    """Yield the nanoseconds of each row of an environment. The time of a reset is negative."""
    choice = Random(env_id).choice
    while True:
        for _ in range(max(1, choice(timed.lengths))) if timed.lengths else count():
            yield choice(timed.step_ns)
        yield -max(1, choice(timed.reset_ns))


def _played(timed: Timed, processes: int, rows: int, *, ratio: int = 1, ahead: bool = False) -> tuple[float, float]:
    """Play a setting with random times. Return its nanoseconds, and the share of time in which processes wait.

    A batch has the ``rows`` that are ready first, of ``ratio`` times as many environments. Process 0 also receives
    the batches, and steps its own environments while a batch is not complete. ``ahead``: each environment has a spare,
    which a thread of its process resets.
    """
    number, busy, now = ratio * rows, 0.0, 0.0
    streams = [_times(timed, env_id) for env_id in range(number)]
    cpu_share = min(1.0, timed.reset_cpu_ns / max(1.0, fmean(timed.reset_ns)))
    spares = [0.0] * number  # when the spare of each environment is ready
    free = [0.0] * processes  # when each process has made all rows that were requested
    owed = [0.0] * processes  # the CPU time that the threads of each process still need

    def end_of_row(env_id: int, start: float) -> float:
        nonlocal busy
        ns, process = next(streams[env_id]), env_id * processes // number
        owed[process] = max(0.0, owed[process] - (start - free[process]))
        if ns < 0 and ahead:
            end = max(start, spares[env_id])
            spares[env_id] = end + owed[process] - ns
            owed[process] -= ns * cpu_share
        else:
            together = min(owed[process], abs(ns))  # the threads and the step each get half of the CPU
            owed[process] -= together
            end = start + abs(ns) + together
        free[process] = end
        busy += end - start
        return end

    coming: list[tuple[float, int]] = []  # environments of other processes, by the time when they are ready
    ready, own = deque(range(number)), deque[int]()
    for _ in range(min(_MOST_ROWS // rows, max(_ROWS // rows, 3 * max(timed.lengths, default=0)))):
        for _ in range(rows):
            env_id = ready.popleft()
            if process := env_id * processes // number:
                heappush(coming, (end_of_row(env_id, max(free[process], now)), env_id))
            else:
                own.append(env_id)
        while len(ready) < rows:
            if coming and coming[0][0] <= now:
                ready.append(heappop(coming)[1])
            elif own:
                ready.append(own.popleft())
                now = end_of_row(ready[-1], now)
            else:
                now = coming[0][0]
    return now, 1 - busy / (processes * now)
