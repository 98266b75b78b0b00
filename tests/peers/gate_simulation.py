"""What ``vebench check`` says of simulated runs: false alarms, and regressions found. Prints a Markdown table.

``python gate_simulation.py [RUNS]``: 5 repeats and 6 windows in both runs, tolerance 5 %. Noise is the standard
deviation of a window's log rate, of which a share is its process' luck and the rest the window's own, correlated by
0.3.
"""

from __future__ import annotations

import sys
from collections import Counter
from math import sqrt
from random import Random
from typing import TYPE_CHECKING

from interval_coverage import World

from vebench.analysis.comparison import compare
from vebench.analysis.summary import CellSummary, summarise
from vebench.child.window import Window
from vebench.plan.spec import RunSpec
from vebench.results.records import SCHEMA, CellRecord, HostRecord, Run, RunRecord

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary

WINDOWS, REPEATS, TOLERANCE = 6, 5, 0.05
FEWEST = 200
HOST = HostRecord("Linux", "6", "x86_64", "CPU", 64, (0,), 64)
HEAD = RunRecord(SCHEMA, RunSpec(("CartPole",), (1,)), HOST, {}, "vebench run")


def cell(rates: list[float], workers: int, repeat: int) -> CellRecord:
    """Return one process of a cell with these rates, relative to a million steps a second."""
    windows = tuple(Window(10**9, round(1e6 * rate), 0) for rate in rates)
    counts = (workers, 1, workers, workers, 1, 1)
    return CellRecord("CartPole-v1", "shm-sync", {}, *counts, (0,), 1, repeat, "ok", windows=windows)


def run(random: Random, world: World, factors: list[float]) -> tuple[CellSummary, ...]:
    """Return a run of as many cells as there are ``factors``, which their true rates are multiplied by."""
    return summarise(
        Run(
            HEAD,
            tuple(
                cell([factor * rate for rate in rates], workers, repeat)
                for workers, factor in enumerate(factors, start=1)
                for repeat, rates in enumerate(world.run(random, WINDOWS, REPEATS))
            ),
        )
    )


def judge(world: World, factors: list[float], runs: int) -> tuple[Counter[str], Counter[str], int]:
    """Return the verdicts on cells that are slower and on those that are not, and the runs with a false alarm."""
    random = Random(f"{world} {factors}")  # noqa: S311 - a simulation to repeat, no secret
    slower: Counter[str] = Counter()
    others: Counter[str] = Counter()
    alarms = 0
    for _ in range(runs):
        before, after = run(random, world, [1.0] * len(factors)), run(random, world, factors)
        verdicts = [one.verdict for one in compare(before, after, metric="fps", tolerance=TOLERANCE).cells]
        slower.update(verdict for verdict, factor in zip(verdicts, factors, strict=True) if factor < 1)
        others.update(verdict for verdict, factor in zip(verdicts, factors, strict=True) if factor == 1)
        alarms += any(
            verdict == "slower" for verdict, factor in zip(verdicts, factors, strict=True) if factor >= 1 - TOLERANCE
        )
    return slower, others, alarms


def share(counts: Counter[str], verdict: str) -> str:
    """Return how often a verdict came, in percent."""
    return f"{counts[verdict] / counts.total():.1%}" if counts.total() else "-"


def main(runs: int = 2000) -> None:
    """Print a line for each kind of noise and each set of true ratios."""
    print(
        "| noise | of which processes | true ratios | slower found | others slower | others same | runs with a false |"
    )
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    sets = {
        "1 (8 cells)": [1.0] * 8,
        "0.95 (8 cells)": [0.95] * 8,
        "0.9 (1 cell)": [0.9],
        "0.9 (8 cells)": [0.9] * 8,
        "0.9 (1 of 8 cells)": [0.9] + [1.0] * 7,
        "0.8 (1 of 8 cells)": [0.8] + [1.0] * 7,
    }
    for noise, part in ((0.03, 0.0), (0.03, 0.1), (0.03, 0.25), (0.03, 0.5), (0.03, 1.0)):
        world = World(noise * sqrt(1 - part), 0.3, noise * sqrt(part))
        for name, factors in sets.items():
            every = max(FEWEST, runs // len(factors))
            slower, others, alarms = judge(world, factors, every)
            row = (share(slower, "slower"), share(others, "slower"), share(others, "same"), f"{alarms / every:.1%}")
            print(f"| {noise:.0%} | {part:.0%} | {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
