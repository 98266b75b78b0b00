"""What a runner of many replicas costs, and how wrong its rates are: real joining of simulated replicas.

``python tests/peers/hosts_simulation.py [CELLS]`` prints Markdown. Replicas step at rates of their own, which wander
within a window and rise or fall together; their clocks are known to a millisecond at the worst, messages take drawn
times, some replicas stall, and in some cells one dies. The engine's own class joins them. The truth is what all did in
the time that was said to be common.
"""

from __future__ import annotations

import math
import random
import resource
import sys
import time
import tracemalloc
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.child.answers import Done, Layout, Ready, ReplicaWindow, Warm
from vebench.child.window import Window
from vebench.engine.conversation import CellError
from vebench.engine.replicas import FAR_LEAD_NS, Replicas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.child.answers import Answer

COUNTS = (1, 10, 100, 1000)
WINDOWS, WINDOW_S = 4, 5.0
CLOCK_S, BATCH_S, STALL_S = 1e-3, 2e-3, 0.3  # at the worst; a batch ends after the window's time; of one in a hundred
DIES = 0.1  # of cells, in which one replica is lost
NANO = 1e-9


@dataclass
class Truth:
    """One replica's steps: a rate that wanders, in a world that drifts."""

    rate: float
    wander: float
    period: float
    phase: float
    drift: float

    def steps(self, begin: float, end: float) -> float:
        """Return the steps made from ``begin`` to ``end``, in seconds of true time."""
        angular = 2 * math.pi / self.period
        wave = self.wander / angular * (math.cos(angular * begin + self.phase) - math.cos(angular * end + self.phase))
        return self.rate * ((end - begin) + wave + self.drift * (end**2 - begin**2) / 2)


class Simulated:
    """A replica that answers what it would, at once: its times are drawn, and nobody waits for them."""

    news = ()

    def __init__(self, truth: Truth, draw: random.Random, *, dies: bool) -> None:
        self._truth, self._draw, self._dies = truth, draw, dies
        self._off = draw.uniform(-CLOCK_S, CLOCK_S)  # what is not known of its clock
        self._start: int | None = None
        self._answers = self._told()

    def look(self) -> Answer | None:
        return next(self._answers)

    def start(self, at_ns: int) -> None:
        self._start = at_ns

    def log(self) -> str:
        return ""

    def _told(self) -> Iterator[Answer | None]:
        yield Ready(1, Layout(8, 8, 1, 1, 4))
        yield Warm()
        while self._start is None:
            yield None
        for number in range(WINDOWS):
            if self._dies and number == WINDOWS // 2:
                raise CellError("lost")
            begin = self._start * NANO + number * (WINDOW_S + 0.1) + self._off
            stall = self._draw.random() < 0.01
            end = begin + WINDOW_S + self._draw.uniform(0, BATCH_S) + stall * self._draw.uniform(0, STALL_S)
            steps = round(self._truth.steps(begin - 1000, end - 1000))
            yield ReplicaWindow(round((begin - self._off) / NANO), Window(round((end - begin) / NANO), steps, 0))
        yield Done()


def cell(count: int, draw: random.Random) -> tuple[list[float], float, float]:
    """Return the errors of a cell's windows, as shares; seconds of the runner; and bytes for each replica."""
    drift = draw.uniform(-0.01, 0.01)  # of all, a second: as clocks of CPUs that grow warm
    truths = [
        Truth(draw.uniform(5e3, 2e4), draw.uniform(0, 0.2), draw.uniform(0.3, 30), draw.uniform(0, 6), drift)
        for _ in range(count)
    ]
    lost = draw.randrange(count) if draw.random() < DIES else -1
    replicas = [Simulated(truth, draw, dies=number == lost) for number, truth in enumerate(truths)]
    origin = 1000_000_000_000
    tracemalloc.start()
    joined = Replicas(replicas, WINDOWS, clock=lambda: origin - FAR_LEAD_NS, lead_ns=FAR_LEAD_NS)
    began, errors, windows = time.process_time(), [], []
    with suppress(CellError):  # which is how a cell ends that has lost one: with the reason, and the others go on
        windows += [answer for answer in joined.messages() if isinstance(answer, Window)]
    spent, memory = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for number, window in enumerate(windows):
        begin = number * (WINDOW_S + 0.1)
        true = sum(truth.steps(begin, begin + window.ns * NANO) for truth in truths) / (window.ns * NANO)
        errors.append(abs(window.rows / (window.ns * NANO) / true - 1))
    return errors, spent, memory / count


def main(cells: int = 40) -> None:
    """Print a table of replicas, errors of the rate, and what the runner spent."""
    draw = random.Random(18)  # noqa: S311 - repeatable, not secret
    print("| replicas | cells | error of a rate: median | at the worst | runner's CPU, a window | memory, a replica |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for count in COUNTS:
        found = [cell(count, draw) for _ in range(cells)]
        errors = sorted(error for errors, _, _ in found for error in errors)
        spent = sum(seconds for _, seconds, _ in found) / (cells * WINDOWS)
        memory = max(bytes_each for _, _, bytes_each in found)
        print(
            f"| {count:,} | {cells} | {errors[len(errors) // 2]:.4%} | {errors[-1]:.3%} | {1e3 * spent:.2f} ms "
            f"| {memory / 1024:.1f} KiB |"
        )
    print(f"\nIn total {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
