"""How often ``vebench tune`` finds a setting within 5 % of the best, by simulation, beside measuring all alike.

``python racing_simulation.py [RUNS]``. 60 settings with log-normal rates, on the machines of ``worlds.py``: processes
have their luck, windows are correlated and have heavy tails, some stall, and the machine drifts. Prints Markdown.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import exp, log

import numpy as np
from worlds import World

from vebench.analysis.pooling import pooled
from vebench.analysis.racing import affordable, standing
from vebench.analysis.statistics import Sample
from vebench.plan.cells import CellKey

ARMS, TOLERANCE = 60, 0.05
BUDGETS = (60, 120, 300, 600)
STARTUP, WARMUP, DURATION, ROUNDS = 0.4, 0.2, 0.2, 2
COST = STARTUP + WARMUP + ROUNDS * DURATION  # seconds of one setting in one pass
WORLDS = (World("no drift"), World("returning", drift="returning"), World("walk", drift="walk"))
KEYS = [CellKey("task", f"backend-{number}", 1, 1) for number in range(ARMS)]


@dataclass
class Machine:
    """Measures settings in passes, window by window in turn, while its speed drifts."""

    random: np.random.Generator
    world: World
    truth: dict[CellKey, float]
    speed: np.ndarray  # log speed, ten times a second
    now: float = 0.0

    def measure(self, keys: list[CellKey], number: int, rates: dict[CellKey, dict[int, list[float]]]) -> None:
        """Give each of the keys one more process."""
        self.now += len(keys) * (STARTUP + WARMUP)
        luck = {key: self.random.normal(0, self.random.uniform(*self.world.luck)) for key in keys}
        before = dict.fromkeys(keys, 0.0)
        correlation = self.random.uniform(*self.world.correlation)
        for _ in range(ROUNDS):
            for key in keys:
                fresh = self.random.standard_t(4) / np.sqrt(2) * self.world.noise
                before[key] = correlation * before[key] + np.sqrt(1 - correlation**2) * fresh
                stall = log(0.7) if self.random.random() < self.world.stalls else 0.0
                place = min(len(self.speed) - 1, int(self.now * 10))
                value = log(self.truth[key]) + luck[key] + before[key] + stall + self.speed[place]
                rates[key].setdefault(number, []).append(exp(value))
                self.now += DURATION


def tuned(machine: Machine, budget: float) -> tuple[CellKey, bool]:
    """Return the setting that racing chooses, and whether it says that it is decided."""
    rates: dict[CellKey, dict[int, list[float]]] = {key: {} for key in KEYS}
    alive, look, race = list(KEYS), 0, None
    while True:
        look += 1
        machine.measure(list(machine.random.permutation(np.array(alive, object))), look, rates)
        samples = samples_of({key: rates[key] for key in KEYS})
        race = standing({key: samples[key] for key in alive}, look, TOLERANCE)
        left = budget - machine.now
        alive = list(affordable(race, {key: len(rates[key]) for key in alive}, dict.fromkeys(alive, COST), left))
        if race.decided or len(alive) * COST > left:
            break
    most = max(len(rates[key]) for key in race.alive)
    best = max((key for key in race.alive if len(rates[key]) == most), key=lambda key: samples[key].level)
    return best, race.decided


def alike(machine: Machine, budget: float) -> CellKey:
    """Return the setting with the highest level if all get equally many passes."""
    rates: dict[CellKey, dict[int, list[float]]] = {key: {} for key in KEYS}
    number = 0
    while number == 0 or machine.now + ARMS * COST <= budget:
        number += 1
        machine.measure(list(machine.random.permutation(np.array(KEYS, object))), number, rates)
    samples = samples_of(rates)
    return max(KEYS, key=lambda key: samples[key].level)


def samples_of(rates: dict[CellKey, dict[int, list[float]]]) -> dict[CellKey, Sample]:
    """Return what is known of each setting, with how processes vary."""
    samples = {key: Sample.of(found) for key, found in rates.items()}
    return pooled(samples, dict.fromkeys(samples, "calm"))


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
                best = max(truth.values())
                speed = world.speed(random, np.arange(0, 2 * budget + 120, 0.1))
                machine = Machine(random, world, truth, speed)
                chosen, decided = tuned(machine, budget)
                good.append(truth[chosen] >= (1 - TOLERANCE) * best)
                sure.append(decided)
                wrong.append(decided and not good[-1])
                used.append(machine.now)
                uniform.append(truth[alike(Machine(random, world, truth, speed), budget)] >= (1 - TOLERANCE) * best)
            shares = " | ".join(f"{np.mean(one):.0%}" for one in (good, uniform, sure, wrong))
            print(f"| {world.name} | {budget} s | {shares} | {np.median(used):.0f} s |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
