"""How often 95 % intervals of rates and speedups hold the truth, in simulated runs, and how wide they are.

``python tools/coverage.py [RUNS]`` prints Markdown tables: runs of 18 cells, 6 backends with 3 numbers of workers, in
several worlds, noisy and quiet cells apart; other orders and numbers of windows; and runs of fewer cells.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from math import log
from typing import TYPE_CHECKING

import numpy as np
from simulated import TRUE_RATE, Plan, World, run_of

from vebench.analysis.statistics import estimate, ratio
from vebench.plan.cells import CellKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.analysis.statistics import Estimate

REAL = {"alike": True, "stalls": 0.01}
WORLDS = (
    World("equal"),
    World("alike", **REAL),
    *(World(f"one by {spread:.0%}", one_noisy=spread) for spread in (0.04, 0.08, 0.20)),
    World("1 to 27%", each_noisy=(0.01, 0.27)),
    World("many workers", many_workers=0.08),
    World("returning", returning=0.05, **REAL),
    World("walk", walk=0.05, **REAL),
)
NOISY = 0.05  # the standard deviation of processes from which on a cell of ``1 to 27%`` counts as noisy
SIZES = ((1, 1), (2, 1), (3, 1), (6, 1), (3, 2), (6, 3))  # backends, numbers of workers


class Tally:
    """How often intervals held the truth, and their halves on the log scale."""

    def __init__(self) -> None:
        self.held: list[bool] = []
        self.halves: list[float] = []

    def add(self, found: Estimate | None, truth: float) -> None:
        """Count an interval."""
        if found is not None and found.low and found.high:
            self.held.append(found.low <= truth <= found.high)
            self.halves.append(log(found.high / found.low) / 2)

    def __str__(self) -> str:
        """Return the share and the median half as a place of a table."""
        return f"{np.mean(self.held):.1%}, ±{np.median(self.halves):.1%}" if self.held else "-"


def classified(key: CellKey, world: World, luck: float) -> str:
    """Return which cells of a world one of them is told with."""
    if world.many_workers:
        return "many" if key.workers > 1 else "one"
    if world.one_noisy or world.each_noisy:
        return "noisy" if luck >= (world.one_noisy or NOISY) else "quiet"
    return "all"


def cover(world: World, size: tuple[int, int], repeats: int, plan: Plan, runs: int) -> dict[str, tuple[Tally, Tally]]:
    """Return how often the intervals of rates and of speedups hold, for each class of cells."""
    backends, workers = size
    keys = [CellKey("task", f"b{backend}", count, 1) for backend in range(backends) for count in range(1, workers + 1)]
    random = np.random.default_rng(1)
    found: dict[str, tuple[Tally, Tally]] = defaultdict(lambda: (Tally(), Tally()))
    for _ in range(runs):
        run = run_of(random, world, dict.fromkeys(keys, 1.0), repeats, plan)
        samples = run.samples()
        for key, sample in samples.items():
            rates, speedups = found[classified(key, world, run.luck[key])]
            rates.add(estimate(sample), TRUE_RATE)
            if key != keys[0]:
                speedups.add(ratio(sample, samples[keys[0]]), 1.0)
    return found


def table(head: Iterable[str]) -> None:
    """Print the head of a table."""
    names = list(head)
    print(f"\n| {' | '.join(names)} |\n| {' | '.join(['---', *['---:'] * (len(names) - 1)])} |", flush=True)


def main(runs: int = 100) -> None:
    """Print the tables of docs/method.md."""
    table(("world: cells", "rate, 3 repeats", "speedup, 2 repeats", "speedup, 3 repeats", "speedup, 5 repeats"))
    for world in WORLDS:
        by_repeats = [cover(world, SIZES[-1], repeats, Plan(), runs) for repeats in (2, 3, 5)]
        for name in sorted(by_repeats[0]):
            speedups = " | ".join(str(found[name][1]) for found in by_repeats)
            print(f"| {world.name}: {name} | {by_repeats[1][name][0]} | {speedups} |", flush=True)
    table(("world", "repeats x windows", "rate", "speedup"))
    for world in (WORLDS[1], *WORLDS[-2:]):
        for repeats, plan in ((1, Plan(6, in_turn=False)), (3, Plan(in_turn=False)), (2, Plan(6)), (3, Plan())):
            (rates, speedups), *_ = cover(world, SIZES[-1], repeats, plan, runs).values()
            order = "in turn" if plan.in_turn else "one after another"
            print(f"| {world.name} | {repeats} x {plan.windows}, {order} | {rates} | {speedups} |", flush=True)
    table(("world", "cells", "rate", "speedup"))
    for world in (WORLDS[1], WORLDS[3], *WORLDS[-2:]):
        for size in SIZES[1 if world.one_noisy else 0 : -1]:
            for name, (rates, speedups) in cover(world, size, 3, Plan(), 3 * runs).items():
                print(f"| {world.name}: {name} | {size[0]} x {size[1]} | {rates} | {speedups} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
