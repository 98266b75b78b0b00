"""How often ``vebench tune`` and ``vebench run`` find one within 5 % of the best, by simulation.

``python tools/racing.py [RUNS]`` prints Markdown. Of ``tune``: 60 settings with log-normal rates, a second of measuring
each in a pass, beside measuring all alike. Of ``run``: 8 backends with 3 numbers of workers, and how often intervals
hold of cells that had the passes of all alone, and of those that went on. Processes differ by 3 %, windows are
correlated and have heavy tails, some stall, and the machine drifts.
"""

from __future__ import annotations

import sys

import numpy as np
from coverage import Tally
from simulated import TRUE_RATE, Plan, Simulated, World, one_pass

from vebench.analysis.race import affordable, may_be_fastest, standing
from vebench.analysis.statistics import estimate, ratio
from vebench.plan.cells import CellKey
from vebench.plan.spec import EFFORTS, PASSES_OF_ALL

ARMS, TOLERANCE = 60, 0.05
BUDGETS = (60, 120, 300, 600)
PLAN = Plan(windows=2, window_s=0.2, start_s=0.6, turn_s=0.0)
COST = PLAN.start_s + PLAN.windows * PLAN.window_s  # seconds of one setting in one pass
REAL = {"luck": 0.03, "alike": True, "stalls": 0.01}
WORLDS = (World("no drift", **REAL), World("returning", returning=0.05, **REAL), World("walk", walk=0.05, **REAL))
KEYS = [CellKey("task", f"backend-{number}", 1, 1) for number in range(ARMS)]
REPEATS, ROUNDS, DURATION, *_ = EFFORTS["run"]["normal"]
FULL = Plan(ROUNDS, DURATION, start_s=1.0, turn_s=0.04)
CELLS = [CellKey("task", f"backend-{number}", workers, 1) for number in range(8) for workers in (1, 2, 4)]
SPREADS = (0.02, 0.1, 0.4)  # of the true log rates of backends


def tuned(run: Simulated, budget: float) -> tuple[CellKey, bool, float]:
    """Return the setting that racing chooses, whether it says that it is decided, and the time used."""
    alive, look, now = list(KEYS), 0, 0.0
    while True:
        now = one_pass([run], look, now, alive, PLAN)
        look += 1
        samples = run.samples()
        race = standing({key: samples[key] for key in alive}, look, TOLERANCE)
        done = {key: len(run.rates[key]) for key in alive}
        alive = list(affordable(race.alive, done, dict.fromkeys(alive, COST), budget - now))
        if race.decided or len(alive) * COST > budget - now:
            break
    most = max(len(run.rates[key]) for key in race.alive)
    best = max((key for key in race.alive if len(run.rates[key]) == most), key=lambda key: samples[key].level)
    return best, race.decided, now


def alike(run: Simulated, budget: float) -> CellKey:
    """Return the setting with the highest level if all get equally many passes."""
    number, now = 0, 0.0
    while number == 0 or now + ARMS * COST <= budget:
        now = one_pass([run], number, now, KEYS, PLAN)
        number += 1
    samples = run.samples()
    return max(KEYS, key=lambda key: samples[key].level)


def raced(run: Simulated) -> set[CellKey]:
    """Measure as ``vebench run`` does. Returns the cells that went on to the end."""
    base, left, now, wanted = CELLS[0], (REPEATS - PASSES_OF_ALL) * len(CELLS), 0.0, {*CELLS}
    for number in range(PASSES_OF_ALL):
        now = one_pass([run], number, now, CELLS, FULL)
    while True:
        number += 1
        samples = run.samples()
        alive = may_be_fastest({key: samples[key] for key in wanted}, number - PASSES_OF_ALL + 1)
        wanted = {key for key in wanted if (key.env, key.backend) in alive}
        if len(wanted | {base}) > 2 * left:
            return wanted
        now = one_pass([run], number, now, sorted(wanted | {base}, key=CELLS.index), FULL)
        left -= len(wanted | {base})


def runs_that_race(runs: int) -> None:
    """Print how often the fastest that is found is within the tolerance, and how often intervals hold."""
    print("\n| machine | backends differ by | good choice | left early: rate | speedup | others: rate | speedup |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for world in WORLDS:
        for spread in SPREADS:
            random = np.random.default_rng(1)
            good, tallies = [], [Tally() for _ in range(4)]
            for _ in range(runs):
                by_backend = {key.backend: random.normal(0, spread) for key in CELLS}
                truth = {key: float(np.exp(by_backend[key.backend] + 0.3 * np.log(key.workers))) for key in CELLS}
                run = Simulated(random, world, truth)
                on = raced(run)
                samples = run.samples()
                chosen = max(on, key=lambda key: samples[key].level)
                good.append(truth[chosen] >= (1 - TOLERANCE) * max(truth.values()))
                for key in CELLS[1:]:
                    rates, speedups = tallies[2:] if key in on else tallies[:2]
                    rates.add(estimate(samples[key]), TRUE_RATE * truth[key])
                    speedups.add(ratio(samples[key], samples[CELLS[0]]), truth[key] / truth[CELLS[0]])
            found = " | ".join(map(str, tallies))
            print(f"| {world.name} | {spread:.0%} | {np.mean(good):.0%} | {found} |", flush=True)


def main(runs: int = 200) -> None:
    """Print how often the choice is within the tolerance of the best, for each world and budget."""
    runs_that_race(runs)
    print("| machine | budget | tuned | alike | decided | wrongly decided | time used |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for world in WORLDS:
        for budget in BUDGETS:
            random = np.random.default_rng(1)
            good, uniform, sure, wrong, used = [], [], [], [], []
            for _ in range(runs):
                truth = dict(zip(KEYS, np.exp(random.normal(0, 0.3, ARMS)), strict=True))
                enough = (1 - TOLERANCE) * max(truth.values())
                chosen, decided, took = tuned(Simulated(random, world, truth), budget)
                good.append(truth[chosen] >= enough)
                sure.append(decided)
                wrong.append(decided and not good[-1])
                used.append(took)
                uniform.append(truth[alike(Simulated(random, world, truth), budget)] >= enough)
            shares = " | ".join(f"{np.mean(one):.0%}" for one in (good, uniform, sure, wrong))
            print(f"| {world.name} | {budget} s | {shares} | {np.median(used):.0f} s |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
