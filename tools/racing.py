"""How often ``vebench tune`` finds a setting within 5 % of the best, by simulation, beside measuring all alike.

``python tools/racing.py [RUNS]``. 60 settings with log-normal rates, a second of measuring each in a pass: processes
differ by 3 %, windows are correlated and have heavy tails, some stall, and the machine drifts. Prints Markdown.
"""

from __future__ import annotations

import sys

import numpy as np
from simulated import Plan, Simulated, World, one_pass

from vebench.analysis.tuning import affordable, standing
from vebench.plan.cells import CellKey

ARMS, TOLERANCE = 60, 0.05
BUDGETS = (60, 120, 300, 600)
PLAN = Plan(windows=2, window_s=0.2, start_s=0.6, turn_s=0.0)
COST = PLAN.start_s + PLAN.windows * PLAN.window_s  # seconds of one setting in one pass
REAL = {"luck": 0.03, "alike": True, "stalls": 0.01}
WORLDS = (World("no drift", **REAL), World("returning", returning=0.05, **REAL), World("walk", walk=0.05, **REAL))
KEYS = [CellKey("task", f"backend-{number}", 1, 1) for number in range(ARMS)]


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


def main(runs: int = 200) -> None:
    """Print how often the choice is within the tolerance of the best, for each world and budget."""
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
