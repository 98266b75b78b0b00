"""What a run answers of six backends whose true rates are equal, or differ, by simulation. Prints a Markdown table.

``python answers.py [RUNS]``: three repeats of two windows, 6 and 18 cells, seed 5. How often some backend is called
slower, how often there is no recommendation, and how often the printed interval holds the true rate.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.records import make_cell, make_header

from vebench.analysis.answer import answer
from vebench.analysis.contrasts import estimate, ratio
from vebench.analysis.pooling import pooled
from vebench.analysis.statistics import Sample
from vebench.analysis.summary import summarise
from vebench.results.records import Run

NAMES = ("for-loop", "gym-sync", "gym-async", "shm-sync", "envpool-sync", "envpool-async")
REPEATS, STALLS = 3, 0.05


def logs_of(random: np.random.Generator, world: str, sizes: int) -> np.ndarray:
    """Return log rates: backends x sizes x passes x windows, whose mean is zero."""
    shape = (len(NAMES), sizes, REPEATS)
    luck = random.standard_t(3, shape) * 0.03 / 3**0.5 if world == "heavy" else random.normal(0, 0.02, shape)
    logs = luck[..., None] + random.normal(0, 0.02, (*shape, 2))
    return logs + log(0.7) * ((random.random(logs.shape) < STALLS) - STALLS) if world == "stalls" else logs


def main(runs: int = 100) -> None:
    """Print the table."""
    head = make_header(4)
    print("| world | cells | sd | some told slower | none recommended | held | too high |\n| --- |" + " ---: |" * 6)
    for world in ("luck2", "heavy", "stalls"):
        for sizes in (1, 3):
            blank = [make_cell(name, size + 1, (1000,) * 2) for name in NAMES for size in range(sizes)]
            empty = summarise(Run(head, tuple(blank)))
            for sd in (0, 0.03, 0.08):
                random, found = np.random.default_rng(5), []
                for _ in range(runs):
                    truth = dict(zip(NAMES, 1e5 * np.exp(random.normal(0, sd, len(NAMES))), strict=True))
                    each = logs_of(random, world, sizes).reshape(-1, REPEATS, 2)
                    samples = {
                        cell.key: Sample.of(
                            {number: tuple(truth[cell.label] * np.exp(two)) for number, two in enumerate(logs)}
                        )
                        for cell, logs in zip(empty, each, strict=True)
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
                    rate, true = said.best.frames_per_second.scaled(said.selected), truth[said.best.label]
                    told = len(said.tied) < len(NAMES) - 1
                    found.append((told, said.winner is None, rate.low <= true <= rate.high, log(rate.median / true)))
                shares = " | ".join(f"{share:.1%}" for share in np.mean(found, axis=0))
                print(f"| {world} | {len(cells)} | {sd:.0%} | {shares} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
