"""How often intervals hold the truth, by simulation, on machines that the method does not assume. Prints Markdown.

``python interval_coverage.py [RUNS]``: how often the 95 % interval of a rate, and of a speedup, holds the true value,
and how wide it is (the median half). A row for each plan, in each world of ``worlds.py``.
"""

from __future__ import annotations

import sys
from math import log
from typing import TYPE_CHECKING

import numpy as np
from worlds import Schedule, World, simulate, summaries

from vebench.analysis.precision import FEWEST_PROCESSES, narrow

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate

WORLDS = (
    World("as assumed", heavy=False, stalls=0, noise=0.03, luck=(0.02, 0.02), correlation=(0.3, 0.3)),
    World("no drift"),
    World("returning", drift="returning"),
    World("walk", drift="walk"),
)
PLANS = (
    Schedule(1, 6, interleave=False),
    Schedule(2, 2),
    Schedule(2, 6),
    Schedule(3, 2),
    Schedule(3, 2, interleave=False),
    Schedule(5, 2),
    Schedule(5, 6, interleave=False),
)
SIZES = ((1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 3, 2), (1, 9, 3), (2, 9, 3))  # tasks, backends, numbers of workers
FULL, DEFAULT = SIZES[-1], Schedule(3, 2)
TRUE_RATE = 1e6
MOST_REPEATS = 40


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
        """Return the share and the median half as two places of a table."""
        return f"{np.mean(self.held):.1%} | ±{np.median(self.halves):.1%}" if self.held else "- | -"


def cover(world: World, plan: Schedule, size: tuple[int, int, int], runs: int) -> tuple[Tally, Tally]:
    """Return how often the intervals of rates and of speedups hold the truth, in simulated runs."""
    tasks, backends, workers = size
    random, rates, speedups = np.random.default_rng(1), Tally(), Tally()
    for _ in range(runs):
        (logs,) = simulate(random, world, plan, (np.ones(tasks * backends * workers),), tasks)
        for cell in summaries(logs, plan, tasks, backends):
            rates.add(cell.frames_per_second, TRUE_RATE)
            if cell.backend != "for-loop" or cell.workers > 1:
                speedups.add(cell.speedup, 1.0)
    return rates, speedups


def row(name: str, plan: Schedule, found: tuple[Tally, Tally]) -> None:
    """Print a line of a table."""
    turns = "in turn" if plan.interleave else "one after another"
    rates, speedups = found
    print(f"| {name} | {plan.repeats} x {plan.rounds} | {turns} | {rates} | {speedups} |", flush=True)


def until(share: float, runs: int) -> None:
    """Print how often intervals of rates hold where passes go on until each is within ``share`` of its level."""
    random, held, counts = np.random.default_rng(2), Tally(), []
    for _ in range(runs):
        (logs,) = simulate(random, WORLDS[1], Schedule(MOST_REPEATS, 2), (np.ones(6),), 1)
        for repeats in range(FEWEST_PROCESSES, MOST_REPEATS + 1):
            plan = Schedule(repeats, 2)
            cells = summaries(logs[:, :repeats], plan, 1, 3)
            if all(narrow(cell, share) for cell in cells):
                break
        _count(cells, held)
        counts.append(repeats)
    print(f"| ±{share:.0%} | {np.mean(held.held):.1%} | {np.median(counts):.0f} |", flush=True)


def _count(cells: tuple[CellSummary, ...], held: Tally) -> None:
    for cell in cells:
        held.add(cell.frames_per_second, TRUE_RATE)


def main(runs: int = 200) -> None:
    """Print the tables of docs/method.md."""
    head = (
        "| repeats x windows | order | rate held | half | speedup held | half |\n"
        "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    )
    print(f"54 cells, {runs} runs each\n\n| world {head}")
    for world in WORLDS:
        for plan in PLANS:
            row(world.name, plan, cover(world, plan, FULL, runs))
    print(f"\nThe default plan\n\n| cells, world {head}")
    for size in SIZES[:-1]:
        for world in WORLDS[1:]:
            cells = size[0] * size[1] * size[2]
            row(f"{cells}, {world.name}", DEFAULT, cover(world, DEFAULT, size, max(runs, 5 * runs // cells)))
    print("\n| until | held | repeats |\n| ---: | ---: | ---: |")
    for share in (0.02, 0.03, 0.05):
        until(share, runs)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
