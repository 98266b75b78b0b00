"""Simulates cells whose resets are slow: ``python tools/resets.py [RUNS]``, three minutes for 40 runs of each world.

A run has six cells, measured by ``vebench.child.cell`` on a clock of its own: a plain loop and one 10 % slower, of
one and of four environments, and two backends whose four environments step at the same time. A step takes 1 ms; windows
and processes have noise of 2 %. Printed is how often 95 % intervals hold the rates, and the ratios to the plain loop of
one environment, that very long runs have; and how many cells have too few episodes, which reports say.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from itertools import product
from math import exp
from random import Random
from statistics import fmean, median
from typing import TYPE_CHECKING

from vebench.analysis.pooling import pooled
from vebench.analysis.statistics import Counts, Sample, estimate, ratio
from vebench.backends.interface import Setup, Task
from vebench.child.answers import Watched, Window
from vebench.child.cell import Schedule
from vebench.child.loop import Stretch
from vebench.child.request import Request, Settings
from vebench.plan.cells import CellKey

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_NS, NOISE, PASSES = 1_000_000, 0.02, 3
ROUNDS, DURATION, WARMUP, LONGEST = 12, 0.2, 0.1, 2.5
ENOUGH_EPISODES, RESETS_MATTER = 5, 0.02  # as in analysis/rules.py


@dataclass(frozen=True)
class World:
    """Episodes of ``length`` steps on average, of one of ``LENGTHS``, with resets that take ``reset`` steps' time."""

    length: int
    reset: int
    lengths: str
    synchronised: bool

    @property
    def share(self) -> float:
        """The share of the time that resets take in a plain loop."""
        return self.reset / (self.reset + self.length)

    def episodes(self, random: Random) -> Iterator[int]:
        """Yield the lengths of episodes."""
        while True:
            if self.lengths == "equal":
                yield self.length
            elif self.lengths == "geometric":
                yield max(1, round(random.expovariate(1 / self.length)))
            else:
                yield random.randint(max(1, self.length // 2), self.length + self.length // 2)


@dataclass(frozen=True)
class Cell:
    """A backend of ``envs`` environments, which step one after another or all at the same time."""

    envs: int
    parallel: bool = False
    slowness: float = 1.0


CELLS = (Cell(1), Cell(1, slowness=1.1), Cell(4), Cell(4, slowness=1.1), Cell(4, True), Cell(4, True, 1.1))


class Loop:
    """A loop over a cell's environments, in simulated time, with the methods of ``vebench.child.loop.Loop``."""

    def __init__(self, cell: Cell, world: World, random: Random, luck: float) -> None:
        self.now, self.batches, self.ends, self.num_envs, self.batch_size = 0, 0, 0, cell.envs, cell.envs
        self._cell, self._world, self._random, self._luck = cell, world, random, luck * cell.slowness
        own = [world.episodes(random) for _ in range(cell.envs)]
        self._episodes = [own[0]] if world.synchronised else own
        self._left = [next(each) for each in self._episodes]

    def clock(self) -> int:
        """Return the simulated time in nanoseconds."""
        return self.now

    def _batch(self) -> int:
        resets, each = 0, self.num_envs // len(self._left)
        for number, left in enumerate(self._left):
            resets += each * (left == 0)
            self._left[number] = next(self._episodes[number]) if left == 0 else left - 1
            self.ends += each * (left == 1)
        reset = self._world.reset
        steps = (max(1, reset) if resets else 1) if self._cell.parallel else self.num_envs + resets * (reset - 1)
        self.now += round(STEP_NS * steps * self._luck)
        self.batches += 1
        return resets

    def run_for(self, span: int, _pace: int = 1) -> Stretch:
        """Step until ``span`` nanoseconds are over."""
        start, rows, resets = self.now, 0, 0
        while self.now - start < span:
            resets += self._batch()
            rows += self.num_envs
        return Stretch(self.now - start, rows, resets)

    def step(self, batches: int = 1) -> None:
        """Step so many batches."""
        for _ in range(batches):
            self._batch()

    def warm_up(self, span: int, _window: int) -> int:
        """Step until ``span`` nanoseconds are over."""
        self.run_for(span)
        return 1


def windows_of(cell: Cell, world: World, random: Random) -> list[Window]:
    """Return the windows of one process."""
    loop, found = Loop(cell, world, random, exp(random.gauss(0, NOISE))), list[Window]()
    settings = Settings(DURATION, ROUNDS, WARMUP, LONGEST, 300.0, "local")
    reading, writing = os.pipe()
    os.write(writing, b"\n" * (3 * ROUNDS + 1))
    mode = {"tape_seed": random.getrandbits(32), "mode": "in_turn", "go_ahead": reading}
    request = Request(Setup(Task("T", "s", 1), 1), "b", "m:C", {}, settings, "/", **mode)
    keep = lambda one: found.append(one) if isinstance(one, Window) else None  # noqa: E731 - a name for it
    schedule = Schedule(request, loop, None, keep, loop.clock, 0)
    schedule.warm_up()
    schedule.measure(Watched([], (), ()))
    os.close(reading)
    os.close(writing)
    return found


def counts_of(windows: list[Window], random: Random) -> list[Counts]:
    """Return what windows have counted, with noise."""
    return [(one.rows - one.resets, one.ns * exp(random.gauss(0, NOISE))) for one in windows]


def true_rate(cell: Cell, world: World, random: Random) -> float:
    """Return the rate of a very long run."""
    loop = Loop(cell, world, random, 1.0)
    found = loop.run_for(STEP_NS * cell.envs * 400 * (world.length + world.reset))
    return (found.rows - found.resets) / found.ns


def study(world: World, runs: int, random: Random) -> str:
    """Return a row of the table."""
    truths = [true_rate(cell, world, random) for cell in CELLS]
    rates, ratios, widths, few = [], [], [], []
    for _ in range(runs):
        samples, enough = {}, []
        for number, cell in enumerate(CELLS):
            passes = [windows_of(cell, world, random) for _ in range(PASSES)]
            key = CellKey("T", f"b{number}", cell.envs if cell.parallel else 1, cell.envs)
            samples[key] = Sample.of({turn: counts_of(windows, random) for turn, windows in enumerate(passes)})
            steps = sum(one.rows - one.resets for windows in passes for one in windows) / cell.envs / PASSES
            enough.append(world.share <= RESETS_MATTER or steps >= ENOUGH_EPISODES * world.length)
        found = list(pooled(samples, dict.fromkeys(samples, "undisturbed")).values())
        for sample, truth, told in zip(found, truths, enough, strict=True):
            few.append(not told)
            if told:
                level, speedup = estimate(sample), ratio(sample, found[0])
                rates.append(level.low <= truth <= level.high)
                widths.append(level.half_width)
                if sample is not found[0] and enough[0]:
                    ratios.append(speedup.low <= truth / truths[0] <= speedup.high)
    shares = [f"{fmean(each):.1%}" if each else "-" for each in (rates, ratios)]
    width = f"±{median(widths):.1%}" if widths else "-"
    kind = f"{world.lengths}, {'together' if world.synchronised else 'apart'}"
    return f"| {world.length:,} | {world.reset:,} | {kind} | {shares[0]} | {width} | {shares[1]} | {fmean(few):.0%} |"


def main() -> None:
    """Print the table."""
    runs, random = int([*sys.argv, "40"][1]), Random(1)
    print("| steps of an episode | of a reset | episodes | rates held | width | speedups held | too few episodes |")
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    kinds = (("equal", True), ("uneven", True), ("uneven", False), ("geometric", False))
    for length, reset, (lengths, together) in product((5, 50, 200, 1000, 5000), (0, 20, 300, 1000), kinds):
        print(study(World(length, reset, lengths, together), runs, random), flush=True)


if __name__ == "__main__":
    main()
