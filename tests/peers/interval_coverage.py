"""How often intervals hold the true median, by simulation, beside a hierarchical bootstrap. Prints Markdown tables.

``python interval_coverage.py [TRIALS]``: log rates are a process' luck plus windows that follow a first-order
autoregression, so the true median is known. The bootstrap resamples processes, then windows, and takes percentiles.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, sqrt
from random import Random

import numpy as np

from vebench.analysis.precision import FEWEST_PROCESSES
from vebench.analysis.statistics import PROCESS_SPREAD, Estimate, Sample, estimate

WINDOWS, REPEATS = range(3, 11), range(1, 6)
RESAMPLES, BOOTSTRAPS = 1000, 400
MOST_REPEATS = 60

Rates = list[list[float]]
Method = Callable[[Rates, np.random.Generator], Estimate | None]


@dataclass(frozen=True)
class World:
    """What the rates of processes and windows vary by, as standard deviations of log rates."""

    noise: float = 0.03
    correlation: float = 0.3
    spread: float = PROCESS_SPREAD

    def run(self, random: Random, windows: int, repeats: int) -> Rates:
        """Return the rates of each process' windows, the true median being 1."""
        return [self._process(random, windows) for _ in range(repeats)]

    def _process(self, random: Random, windows: int) -> list[float]:
        luck, deviation, rates = random.gauss(0, self.spread), random.gauss(0, self.noise), []
        for _ in range(windows):
            rates.append(exp(luck + deviation))
            deviation = self.correlation * deviation + sqrt(1 - self.correlation**2) * random.gauss(0, self.noise)
        return rates


def bootstrap(rates: Rates, generator: np.random.Generator) -> Estimate:
    """Return the median with the percentile interval of medians of resampled windows of resampled processes."""
    table = np.array(rates)
    repeats, windows = table.shape
    processes = generator.integers(0, repeats, (RESAMPLES, repeats, 1))
    medians = np.median(
        table[processes, generator.integers(0, windows, (RESAMPLES, repeats, windows))].reshape(RESAMPLES, -1), axis=1
    )
    low, high = np.quantile(medians, (0.025, 0.975))
    return Estimate(float(np.median(table)), float(low), float(high))


def holds(found: Estimate | None) -> bool:
    """Return whether the interval holds the true median."""
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low <= 1 <= found.high


def model(rates: Rates, _: np.random.Generator) -> Estimate | None:
    """Return the estimate as vebench has it."""
    return estimate(Sample.of(dict(enumerate(rates))))


def table(title: str, world: World, method: Method, trials: int) -> None:
    """Print one table: repeats down, windows across, how often the interval holds in percent, and how wide it is."""
    print(f"\n{title}; {trials} trials each\n")
    print(f"| repeats | {' | '.join(f'{windows} windows' for windows in WINDOWS)} | half width |")
    print(f"| ---: |{' ---: |' * (len(WINDOWS) + 1)}")
    for repeats in REPEATS:
        row, widths = [], []
        for windows in WINDOWS:
            random = Random(f"{repeats} {windows}")  # noqa: S311 - a simulation to repeat, no secret
            generator = np.random.default_rng(1000 * repeats + windows)
            found = [method(world.run(random, windows, repeats), generator) for _ in range(trials)]
            row.append(f"{sum(map(holds, found)) / trials:.1%}")
            widths += [log(one.high / one.low) / 2 for one in found if one and one.high and one.low]
        print(f"| {repeats} | {' | '.join(row)} | ±{np.median(widths):.1%} |", flush=True)


def until(share: float, trials: int) -> None:
    """Print how often the interval holds where repeats go on until it is within ``share`` of the median."""
    random, held, counts = Random(f"{share}"), 0, []  # noqa: S311 - a simulation to repeat, no secret
    for _ in range(trials):
        processes: Rates = []
        found = None
        while len(processes) < MOST_REPEATS:
            processes += World().run(random, 6, 1)
            found = estimate(Sample.of(dict(enumerate(processes))))
            half = found.half_width if found else None
            if len(processes) >= FEWEST_PROCESSES and half is not None and half <= share:
                break
        held += holds(found)
        counts.append(len(processes))
    print(f"| ±{share:.0%} | {held / trials:.1%} | {np.median(counts):.0f} |", flush=True)


def main(trials: int = 4000) -> None:
    """Print the tables of docs/method.md."""
    print("| until | holds | repeats |\n| ---: | ---: | ---: |")
    for share in (0.01, 0.02, 0.03, 0.05):
        until(share, trials)
    table("As it is computed; noise 3 %, correlation 0.3, processes 2 %", World(), model, trials)
    table("Hierarchical bootstrap; the same", World(), bootstrap, BOOTSTRAPS)
    table("As it is computed; noise 1 %", World(noise=0.01), model, trials)
    table("As it is computed; windows independent", World(correlation=0.0), model, trials)
    table("As it is computed; correlation 0.6", World(correlation=0.6), model, trials)
    table("As it is computed; processes 5 %", World(spread=0.05), model, trials)
    table("As it is computed; processes 0.5 %", World(spread=0.005), model, trials)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
