"""How often intervals hold where one backend is noisy, or where passes act on cells of many workers only.

``python noisy_coverage.py [RUNS]``: the share of 95 % intervals of speedups that hold the truth, for noisy and quiet
backends apart, with their median half. Seed 1. Prints Markdown, in about two minutes for 60 runs.
"""

from __future__ import annotations

import sys
from math import log

import numpy as np

from vebench.analysis.contrasts import ratio
from vebench.analysis.pooling import pooled
from vebench.analysis.statistics import Sample
from vebench.plan.cells import CellKey

WORLDS = ("equal", "one by 4%", "one by 8%", "one by 20%", "1 to 27%", "many workers")
SIZES, REPEATS, NOISY = ((3, 2), (6, 3), (6, 1)), (2, 3, 5), 0.05


def simulate(random: np.random.Generator, world: str, shape: tuple[int, int], repeats: int) -> tuple[dict, dict]:
    """Return the samples of backends x workers, and the class of each."""
    backends, workers = shape
    spreads = np.full(backends, 0.02)
    passes = np.broadcast_to(random.normal(0, 0.03, repeats), (backends, workers, repeats)).copy()
    if world.startswith("one by"):
        spreads[:] = 0.01
        spreads[random.integers(1, backends)] = float(world.rsplit(maxsplit=1)[-1].rstrip("%")) / 100
    elif world == "1 to 27%":
        spreads = np.exp(random.uniform(log(0.01), log(0.27), backends))
        spreads[0] = 0.01
    elif world == "many workers":
        passes[:] = 0
        passes[:, 1:] = random.normal(0, 0.08, repeats)
    luck = spreads[:, None, None] * random.normal(size=passes.shape)
    logs = (passes + luck)[..., None] + 0.01 * random.normal(size=(*passes.shape, 2))
    samples, classes = {}, {}
    for backend, of_backend in enumerate(logs):
        for size, processes in enumerate(of_backend, start=1):
            key = CellKey("task", f"backend-{backend}", size, 1)
            samples[key] = Sample.of({number: tuple(1e6 * np.exp(two)) for number, two in enumerate(processes)})
            many = "many" if size > 1 else "one"
            noisy = "noisy" if spreads[backend] >= min(NOISY, max(spreads)) > 0.02 else "quiet"
            classes[key] = many if world == "many workers" else noisy
    return pooled(samples, dict.fromkeys(samples, "calm")), classes


def main(runs: int = 60) -> None:
    """Print the table."""
    print("| backends x sizes | world | repeats | class | held | half |\n| --- | --- | ---: | --- | ---: | ---: |")
    for shape in SIZES:
        for world in WORLDS:
            for repeats in REPEATS:
                random, held = np.random.default_rng(1), {}
                for _ in range(runs):
                    samples, classes = simulate(random, world, shape, repeats)
                    base, *others = samples
                    for key in others:
                        found = ratio(samples[key], samples[base])
                        one = (found.low <= 1 <= found.high, log(found.high / found.low) / 2)
                        held.setdefault(classes[key], []).append(one)
                for name, found in sorted(held.items()):
                    share, half = np.mean([one for one, _ in found]), np.median([half for _, half in found])
                    print(f"| {shape[0]} x {shape[1]} | {world} | {repeats} | {name} | {share:.1%} | ±{half:.1%} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
