"""The cost of uneven steps and slow resets, and the predicted gain of partial batches and spare environments."""

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

_ROWS, _MOST_ROWS = 30_000, 200_000  # most rows of a simulation, usually and if episodes are long
_CHEAPER = 0.05  # steps that are cheaper by a smaller share are not reported


class Prediction(NamedTuple):
    """The cost of uneven steps and resets in a setting with whole batches, and the gain of two remedies."""

    resets: float  # the share of a plain loop's time that resets take
    waiting: float  # the share of time in which processes wait for the slowest of them
    partial: float  # the rate with two environments for each row of a batch, divided by the rate with one
    ahead: float  # the rate if spares are reset ahead, divided by the rate without spares


def cheaper(proof: CellProof | None) -> str:
    """Return in words how far a cell's batches hold fewer slow steps than a plain loop's; empty if they do not.

    A plain loop steps all environments equally often. A cell whose batches have the rows that are ready first may not.
    """
    known = [one for one in proof.costs if one.steps and one.mean_ns] if proof else []
    number, steps, times = len(known), [one.steps for one in known], [float(one.mean_ns) for one in known]
    if number < 2 or sum(steps) == number:  # noqa: PLR2004
        return ""
    weights = [one.steps / max(1, one.batches) for one in known]
    slow = [one.slow / one.steps for one in known]
    cost = fmean(times, weights) / fmean(times)
    # An analysis of variance shows whether environments differ. By chance, the ratio is about 1, hardly ever 25.
    centre = fmean(times, steps)
    between = sum(count * (time - centre) ** 2 for count, time in zip(steps, times, strict=True)) / (number - 1)
    within = sum(one.steps * one.deviation_ns**2 for one in known) / (sum(steps) - number)
    if cost > 1 - _CHEAPER or between <= 25 * within:
        return ""
    shares = f"{fmean(slow, weights):.1%} of its steps take over 2x the median, in a plain loop {fmean(slow):.1%}"
    return f"in {number} environments, {shares}; at equal shares, its rate would be {cost:.0%} of this rate"


@cache
def predicted(timed: Timed, processes: int, rows: int) -> Prediction | None:
    """Return the prediction for batches of ``rows`` in so many processes; None if times are not known."""
    if not (sum(timed.step_ns) and timed.reset_ns) or rows > _ROWS:
        return None
    reset = fmean(timed.reset_ns) if timed.lengths else 0.0
    resets = reset / (reset + fmean(timed.lengths or (1,)) * fmean(timed.step_ns))
    whole, waiting = _simulated(timed, processes, rows)
    partial, _ = _simulated(timed, processes, rows, ratio=2)
    ahead, _ = _simulated(timed, processes, rows, ahead=True)
    return Prediction(resets, waiting, whole / partial, whole / ahead)


def _times(timed: Timed, env_id: int) -> Iterator[int]:
    """Yield the nanoseconds of each row of an environment. The time of a reset is negative."""
    choice = Random(env_id).choice
    while True:
        for _ in range(max(1, choice(timed.lengths))) if timed.lengths else count():
            yield choice(timed.step_ns)
        yield -max(1, choice(timed.reset_ns))


def _simulated(timed: Timed, processes: int, rows: int, *, ratio: int = 1, ahead: bool = False) -> tuple[float, float]:
    """Simulate a setting with random times. Return its nanoseconds, and the share of time in which processes wait.

    A batch has the ``rows`` that are ready first, of ``rows`` times ``ratio`` environments. Process 0 also receives
    the batches, and steps its own environments while a batch is not complete. ``ahead``: idle CPUs make resets ahead.
    """
    number, busy, now = ratio * rows, 0.0, 0.0
    streams = [_times(timed, env_id) for env_id in range(number)]
    # The share of a reset that is not ahead: the CPU has no time for it.
    idle_ns = timed.idle_ns * fmean(timed.lengths or (1,)) if ahead else 0.0
    works = max(0.0, 1 - idle_ns / max(1.0, fmean(timed.reset_ns)))
    waited = [0.0] * number  # from when on the next reset of each environment needs only the CPU
    free = [0.0] * processes  # when each process has made all rows that were requested

    def end_of_row(env_id: int, start: float) -> float:
        nonlocal busy
        ns = next(streams[env_id])
        end = start + ns
        if ns < 0:
            end = max(start, waited[env_id]) - ns * works
            waited[env_id] = end - ns * (1 - works)
        busy += end - start
        return end

    coming: list[tuple[float, int]] = []  # environments of other processes, by the time when they are ready
    ready, own = deque(range(number)), deque[int]()
    for _ in range(min(_MOST_ROWS // rows, max(_ROWS // rows, 3 * max(timed.lengths, default=0)))):
        for _ in range(rows):
            env_id = ready.popleft()
            if process := env_id * processes // number:
                free[process] = end_of_row(env_id, max(free[process], now))
                heappush(coming, (free[process], env_id))
            else:
                own.append(env_id)
        while len(ready) < rows:
            if own and not (coming and coming[0][0] <= now):
                env_id = own.popleft()
                now = end_of_row(env_id, now)
            else:
                made, env_id = heappop(coming)
                now = max(now, made)
            ready.append(env_id)
    return now, 1 - busy / (processes * now)
