"""What a run answers of six backends whose true rates are equal, or differ, by simulation. Prints a Markdown table.

``python answers.py [RUNS] [SEED]``: 6 and 18 cells in three passes of two windows. How often some backend is called
slower than the one that is named, how often none is named, how often the interval of the printed rate holds the true
one, and the mean of the printed rate, relative to the true one. About a minute for 100 runs.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
from worlds import Schedule

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.records import make_cell, make_header

from vebench.analysis.answer import answer, corrected
from vebench.analysis.contrasts import estimate, ratio
from vebench.analysis.pooling import pooled
from vebench.analysis.statistics import Sample
from vebench.analysis.summary import summarise
from vebench.results.records import Run

NAMES = ("for-loop", "gym-sync", "gym-async", "shm-sync", "envpool-sync", "envpool-async")
SCHEDULE = Schedule(repeats=3, rounds=2)
BURST, PERIOD, SLOWER = 4.0, 20.0, 0.3  # of a neighbour: it has a share of the CPUs for 4 s in each 20 s


def slowed(times: np.ndarray) -> np.ndarray:
    """Return the log rates of windows of 1 s that begin at these times, beside the neighbour."""
    begins = times % PERIOD
    shared = np.clip(BURST - begins, 0, 1) + np.clip(begins + 1 - PERIOD, 0, 1)
    return np.log(1 - SLOWER * shared)


def logs_of(random: np.random.Generator, world: str, sizes: int) -> np.ndarray:
    """Return log rates, whose mean is zero: cells x passes x windows."""
    cells = len(NAMES) * sizes
    luck = random.normal(0, 0.02, (cells, SCHEDULE.repeats, 1))
    if world == "heavy":
        luck = random.standard_t(3, luck.shape) * 0.03 / 3**0.5
    logs = luck + random.normal(0, 0.02, (cells, SCHEDULE.repeats, SCHEDULE.rounds))
    if world == "neighbour":
        times = random.uniform(0, PERIOD) + SCHEDULE.times(random, 1, cells, 1)[0]
        logs += slowed(times) - slowed(np.arange(0, PERIOD, 0.01)).mean()
    return logs


def main(runs: int = 100, seed: int = 100) -> None:
    """Print the table."""
    head = make_header(4)
    print("| world | cells | sd | some told slower | none named | held | too high |\n| --- |" + " ---: |" * 6)
    for world in ("luck2", "heavy", "neighbour"):
        for sizes in (1, 3):
            blank = [make_cell(name, size + 1, (1000,) * 2) for name in NAMES for size in range(sizes)]
            empty = summarise(Run(head, tuple(blank)))
            for sd in (0, 0.03, 0.08):
                random, found = np.random.default_rng(seed), []
                for _ in range(runs):
                    truth = dict(zip(NAMES, 1e5 * np.exp(random.normal(0, sd, len(NAMES))), strict=True))
                    samples = {
                        cell.key: Sample.of(
                            {number: tuple(truth[cell.label] * np.exp(two)) for number, two in enumerate(logs)}
                        )
                        for cell, logs in zip(empty, logs_of(random, world, sizes), strict=True)
                    }
                    samples = pooled(samples, dict.fromkeys(samples, "calm"))
                    base = samples[empty[0].key]
                    cells = [
                        replace(
                            cell, sample=one, frames_per_second=estimate(one), speedup=ratio(one, base), findings=()
                        )
                        for cell, one in zip(empty, samples.values(), strict=True)
                    ]
                    said = answer(cells, head.spec, 4)
                    rate, true = corrected(said.best.frames_per_second, said.selected), truth[said.best.label]
                    told = len(said.tied) < len(NAMES) - 1
                    found.append((told, said.winner is None, rate.low <= true <= rate.high, log(rate.median / true)))
                told, none, held, high = (f"{share:.1%}" for share in np.mean(found, axis=0))
                print(f"| {world} | {len(cells)} | {sd:.0%} | {told} | {none} | {held} | {high} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
