"""What ``compare`` says of simulated runs of 54 cells, in the worlds of ``worlds.py``. Prints Markdown tables.

``python gate_simulation.py [RUNS]``: 18 backends with 3 numbers of workers each, a tolerance of 5 %. How often a gate
ends with which status, finds backends and single cells that are slower, and passes them by mistake.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from worlds import BACKENDS, TASKS, WORKERS, Schedule, World, simulate, summaries

from vebench.analysis.comparison import compare
from vebench.analysis.sequential import Decisions, passes_until_next_look, undecided
from vebench.commands.gating import exit_status

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from vebench.analysis.comparison import Comparison

CELLS, GROUP, TOLERANCE = 54, 3, 0.05
SLOWER = 3  # backends, or cells, of which a gate is to find as many as it can
NAMES = [(task, backend, workers) for task in TASKS for backend in BACKENDS for workers in WORKERS]
SAME, EDGE = np.ones(CELLS), np.full(CELLS, 1 - TOLERANCE)
WORLDS = {
    world.name: world
    for world in (
        World("no drift"),
        World("returning", drift="returning"),
        World("walk", drift="walk"),
        World("stalls", stalls=0.05),
    )
}
MOST_PASSES = 40


@dataclass(frozen=True)
class Gate:
    """A command: what it compares, and by which plan."""

    name: str
    kind: Literal["compare", "until decided"]
    plan: Schedule

    def judge(self, random: Generator, world: World, factors: NDArray[np.float64]) -> Comparison:
        """Return what it says of a run in which the true ratios are ``factors``."""
        sides = simulate(random, world, self.plan, (SAME, factors))
        return self._until_decided(sides) if self.kind == "until decided" else self._in_turn(sides)

    def _in_turn(self, sides: NDArray[np.float64]) -> Comparison:
        one, other = (summaries(side, self.plan) for side in sides)
        return compare(one, other, metric="fps", tolerance=TOLERANCE, in_turn=True)

    def _until_decided(self, sides: NDArray[np.float64]) -> Comparison:
        decisions, passes = Decisions(), 5
        while True:
            plan = Schedule(passes, self.plan.rounds)
            one, other = (summaries(side[:, :passes], plan) for side in sides)
            levels = decisions.levels(passes / self.plan.repeats)
            found = decisions.after(compare(one, other, metric="fps", tolerance=TOLERANCE, in_turn=True, levels=levels))
            if not undecided(found) or passes == self.plan.repeats:
                return found
            passes = min(self.plan.repeats, passes + passes_until_next_look(passes))


GATES = {
    "compare": Gate("compare, 5 repeats", "compare", Schedule(5, 10, 0.25, interleave=False)),
    "decided": Gate("compare --until-decided, at most 40", "until decided", Schedule(40, 10, 0.25, interleave=False)),
}
ROWS = (
    ("compare", ("no drift", "returning", "walk", "stalls")),
    ("decided", ("walk",)),
)


def some(random: Generator, ratio: float, size: int) -> NDArray[np.float64]:
    """Return true ratios of which ``SLOWER`` groups of this size, whole backends or single cells, are ``ratio``."""
    chosen = random.choice(CELLS // size, SLOWER, replace=False)
    return np.where(np.isin(np.arange(CELLS) // size, chosen), ratio, 1.0)


def found_among(found: Comparison, factors: NDArray[np.float64]) -> Counter[str]:
    """Return the verdicts on backends of which a cell is slower than the tolerance allows."""
    truth = dict(zip(NAMES, factors, strict=True))
    slow = {
        (cell.key.env, cell.key.backend)
        for cell in found.cells
        if truth[cell.key.env, cell.key.backend, cell.key.workers] < EDGE[0]
    }
    return Counter(group.verdict for group in found.groups if tuple(group.key) in slow)


def share(part: int, whole: int) -> str:
    """Return a share in percent."""
    return f"{part / whole:.0%}" if whole else "-"


def row(gate: Gate, world: World, runs: int) -> None:
    """Print what a gate says in a world, a line."""
    random = np.random.default_rng(3)
    same = Counter(exit_status(gate.judge(random, world, SAME), "default") for _ in range(runs))
    edge = Counter(exit_status(gate.judge(random, world, EDGE), "default") for _ in range(runs))
    places = [share(same[status], runs) for status in (0, 1, 3)] + [share(edge[1], runs)]
    for ratio, size in ((0.9, GROUP), (0.85, GROUP), (0.9, 1), (0.85, 1)):
        verdicts: Counter[str] = Counter()
        for _ in range(max(1, runs // SLOWER)):
            factors = some(random, ratio, size)
            verdicts += found_among(gate.judge(random, world, factors), factors)
        places.append(f"{share(verdicts['slower'], verdicts.total())} ({share(verdicts['same'], verdicts.total())})")
    print(f"| {gate.name} | {world.name} | {' | '.join(places)} |", flush=True)


def main(runs: int = 100, *only: str) -> None:
    """Print the table of docs/method.md: statuses, and found (passed by mistake)."""
    print(
        "| gate | world | unchanged: 0 | 1 | 3 | edge: 1 "
        "| backend at 0.9 | backend at 0.85 | cell at 0.9 | cell at 0.85 |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for gate, worlds in ROWS:
        for world in worlds:
            if not only or gate in only:
                row(GATES[gate], WORLDS[world], runs)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
