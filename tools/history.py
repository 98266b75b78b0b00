"""How often ``vebench history`` finds a drop in simulated runs, how soon, and how often it raises a false alarm.

``python tools/history.py [DRAWS [SEED]]``: each draw has 60 runs with 3 % noise and, in some, one drop of 8 % at run
40. Further tables replay what CI sees: the command after each run, with the exit status 1 while a change is new. The
first one has five times as many draws, of runs that resemble the ones before. Prints Markdown tables, in some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import log
from random import Random

from vebench.gates.series import FEWEST, RECENT, PastRun, Point, Series, SeriesKey, change_points, with_changes
from vebench.plan.cells import CellKey

RUNS, AT, NEAR, NOISE, DROP = 60, 40, 5, 0.03, 0.92
MANY = 54  # cells of a run: three tasks, six backends, three numbers of workers
HEAVY_TAILS = 3  # degrees of freedom
SOON = (3, 5, 8, 12)  # runs after the drop

Noise = Callable[[Random], float]


def normal(random: Random) -> float:
    """Return the noise of a run, as a difference of logarithms."""
    return random.gauss(0, NOISE)


def heavy(random: Random) -> float:
    """Return noise of the same standard deviation, by Student's distribution: now and then a run lies far apart."""
    chi = random.gammavariate(HEAVY_TAILS / 2, 2)
    return random.gauss(0, NOISE) * (HEAVY_TAILS / chi) ** 0.5 * ((HEAVY_TAILS - 2) / HEAVY_TAILS) ** 0.5


def draw(random: Random, noise: Noise, drop: float = 1.0) -> list[float]:
    """Return the log levels of all runs."""
    return [noise(random) + (log(drop) if index >= AT else 0.0) for index in range(RUNS)]


def with_outlier(levels: Sequence[float], at: int) -> list[float]:
    """Return the levels with one run a fifth slower."""
    return [level + (log(0.8) if index == at else 0.0) for index, level in enumerate(levels)]


def found(levels: Sequence[float]) -> bool:
    """Return whether the drop is found within ``NEAR`` runs."""
    return any(change.worse and abs(change.at - AT) <= NEAR for change in change_points(levels))


def only(levels: Sequence[float]) -> bool:
    """Return whether nothing else is found."""
    return len(change_points(levels)) == found(levels)


def alarms(levels: Sequence[Sequence[float]], runs: int) -> bool:
    """Return whether the command ends with status 1 after this many runs of the cells with these levels."""
    past = [PastRun(str(index), "", "") for index in range(runs)]
    series = [
        Series(
            SeriesKey(CellKey("CartPole-v1", "gym-async", workers, 1), (), ""),
            tuple(Point(index, level) for index, level in enumerate(cell[:runs])),
        )
        for workers, cell in enumerate(levels, start=1)
    ]
    return any(one.news is not None and one.news.worse for one in with_changes(series, past))


def print_found(random: Random, draws: int) -> None:
    """Print how often the drop is found, and how often anything else is."""
    print(
        f"| {draws} series of {RUNS} runs | the drop, within {NEAR} runs | nothing else | both | {NEAR} runs after it |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, noise in (("normal noise", normal), ("heavy tails", heavy)):
        dropped = [draw(random, noise, DROP) for _ in range(draws)]
        steady = [draw(random, noise) for _ in range(draws)]
        both = sum(found(levels) and only(levels) for levels in dropped)
        soon = sum(found(levels[: AT + NEAR]) for levels in dropped)
        row = (sum(map(found, dropped)), sum(map(only, dropped)), both, soon)
        print(f"| {DROP - 1:.0%} at run {AT}, {name} | {' | '.join(map(str, row))} |")
        print(f"| steady, {name} | - | {sum(not change_points(levels) for levels in steady)} | - | - |")
        for at, where in ((AT, f"run {AT}"), (RUNS - 1, "the newest run")):
            still = sum(not change_points(with_outlier(levels, at)) for levels in steady)
            print(f"| steady, {name}, {where} 20% slower | - | {still} | - | - |", flush=True)


def print_alarms(random: Random, draws: int) -> None:
    """Print how soon CI fails after the drop, and how often without one."""
    heads = [f"failed by {soon} runs after" for soon in SOON]
    print(f"\n| CI after each run | histories | failed before it | {' | '.join(heads)} |")
    print(f"| --- | {' | '.join('---:' for _ in range(len(SOON) + 2))} |")
    for name, cells, slower in (("1 cell", 1, 1), (f"1 of {MANY} cells", MANY, 1), (f"all {MANY} cells", MANY, MANY)):
        before, after, histories = 0, [0] * len(SOON), draws if cells == 1 else draws // 5
        for _ in range(histories):
            levels = [draw(random, normal, DROP if cell < slower else 1.0) for cell in range(cells)]
            failed = [alarms(levels, AT + runs) for runs in range(1, max(SOON) + 1)]
            before += any(alarms(levels, runs) for runs in range(RECENT, AT + 1, 1 if cells == 1 else RECENT))
            after = [count + any(failed[:soon]) for count, soon in zip(after, SOON, strict=True)]
        print(f"| {name} | {histories} | {before} | {' | '.join(map(str, after))} |", flush=True)


def correlated(random: Random, correlation: float, drop: float = 1.0) -> list[float]:
    """Return the log levels of runs that resemble the ones before: a first-order autoregression."""
    levels = [normal(random)]
    while len(levels) < RUNS:
        levels.append(correlation * levels[-1] + (1 - correlation**2) ** 0.5 * normal(random))
    return [level + (log(drop) if index >= AT else 0.0) for index, level in enumerate(levels)]


def print_correlated(random: Random, draws: int) -> None:
    """Print how often CI fails at some time in steady series, and soon after a drop, as runs are correlated."""
    print(f"\n| correlation of runs | histories | failed, steady | failed, drop, within {NEAR} runs |")
    print("| ---: | ---: | ---: | ---: |")
    for correlation in (0.0, 0.3, 0.6):
        steady = [correlated(random, correlation) for _ in range(draws)]
        dropped = [correlated(random, correlation, DROP) for _ in range(draws)]
        failed = sum(any(alarms([levels], runs) for runs in range(FEWEST, RUNS + 1)) for levels in steady)
        soon = sum(any(alarms([levels], AT + runs) for runs in range(1, NEAR + 1)) for levels in dropped)
        print(f"| {correlation} | {draws} | {failed / draws:.1%} | {soon / draws:.1%} |", flush=True)


def main(draws: int = 100, seed: int = 100) -> None:
    """Print all tables."""
    random = Random(seed)  # noqa: S311 - a simulation to repeat, no secret
    print_correlated(random, 5 * draws)
    print_found(random, draws)
    print_alarms(random, draws)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
