"""What a run answers of six backends whose true rates are equal, or differ, by simulation. Prints a Markdown table.

``python tools/answers.py [RUNS] [SEED]``: 6 and 18 cells in three passes of two windows. How often some backend is
called slower than the one that is named, how often none is named, how often the interval of the printed rate holds the
true one (that of the machine during the run), the mean of the printed rate relative to it, and by how much the setting
that is named is slower than the fastest. Ten seconds for 100 runs.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
from simulated import TRUE_RATE, Plan, World, run_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.records import make_cell, make_header

from vebench.analysis.answer import answer
from vebench.analysis.statistics import estimate, ratio
from vebench.analysis.summary import summarise
from vebench.results.records import Run

NAMES = ("for-loop", "gym-sync", "gym-async", "shm-sync", "envpool-sync", "envpool-async")
WORLDS = (World("luck2"), World("heavy", luck=0.03, heavy=True), World("neighbour", neighbour=(4.0, 16.0)))


def main(runs: int = 100, seed: int = 100) -> None:
    """Print the table."""
    head = make_header(4)
    print("| world | cells | sd | some told slower | none named | held | too high | lost |\n| --- |" + " ---: |" * 7)
    for world in WORLDS:
        for sizes in (1, 3):
            blank = [make_cell(name, size + 1, (1000,) * 2) for name in NAMES for size in range(sizes)]
            empty = summarise(Run(head, tuple(blank)))
            for sd in (0, 0.03, 0.08):
                random, found = np.random.default_rng(seed), []
                for _ in range(runs):
                    rates = dict(zip(NAMES, np.exp(random.normal(0, sd, len(NAMES))), strict=True))
                    truth = {cell.key: rates[cell.label] for cell in empty}
                    run = run_of(random, world, truth, 3, Plan())
                    samples = run.samples()
                    base = samples[empty[0].key]
                    cells = [
                        replace(
                            cell, sample=one, frames_per_second=estimate(one), speedup=ratio(one, base), findings=()
                        )
                        for cell, one in zip(empty, samples.values(), strict=True)
                    ]
                    said = answer(cells, head.spec, 4)
                    rate, true = (
                        said.best.frames_per_second,
                        TRUE_RATE * exp(np.mean(run.speeds)) * truth[said.best.key],
                    )
                    told = len({cell.label for cell in (said.best, *said.tied)}) < len(NAMES)
                    lost = 1 - truth[said.best.key] / max(truth.values())
                    held = rate.low <= true <= rate.high
                    found.append((told, said.winner is None, held, log(rate.median / true), lost))
                shares = " | ".join(f"{share:.1%}" for share in np.mean(found, axis=0))
                print(f"| {world.name} | {len(cells)} | {sd:.0%} | {shares} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
