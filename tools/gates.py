"""What ``check`` and ``compare`` say of simulated runs whose truth is known: false alarms, power, coverage, time.

``python tools/gates.py [RUNS [WORLD ... gNUMBER ...]]`` prints a Markdown table for each gate, or for those with these
numbers. Three backends, ``for-loop`` among them, with 1 and 2 workers, and the yardstick; the baseline is a run by the
default plan (3 processes of 2 windows). ``check BASELINE`` measures for ten simulated minutes at most, a pass of 7
cells takes ``PASS_S``. ``compare`` measures 6 passes of 40 windows of 50 ms. In every world windows vary by 2 % and,
but in ``white``, processes by 2 %; ``World`` says what else happens.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from simulated import Machine, Plan, Simulated, World, one_pass, run_of, share

from vebench.analysis.comparison import compare_runs, without_unknown_reference
from vebench.analysis.summary import summarise
from vebench.child.answers import Window
from vebench.gates.gate import PassBudget, decide, enough_passes, exit_status, resolution
from vebench.machine.host import flat
from vebench.plan.spec import RunSpec
from vebench.results.records import SCHEMA, CellRecord, HostRecord, Run, RunRecord, topology_record

if TYPE_CHECKING:
    from numpy.random import Generator

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, Metric
    from vebench.plan.cells import CellKey

    Truth = dict[CellKey, float]

RUN, COMPARE = Plan(), Plan(windows=40, window_s=0.05, turn_s=0.02)
BUDGET_S = 600.0
NAMES = [("yardstick", 1), *((backend, workers) for backend in ("for-loop", "mine", "other") for workers in (1, 2))]
PASS_S = len(NAMES) * (RUN.start_s + RUN.windows * (RUN.window_s + RUN.turn_s))
WORLDS = (
    World("white", luck=0.0),
    World("luck2"),
    World("heavy", luck=0.03, heavy=True),
    World("bimodal", bimodal=True),
    World("stalls", stalls=0.05),
    World("walk", walk=0.05),
    World("day", day=0.05),
    World("daycell", day=0.05, own=0.02),
    World("neighbour", neighbour=(4.0, 16.0)),
    World("two speeds", neighbour=(1.5, 1.5)),
    World("sag", sag=True),
)


def _template() -> dict[CellKey, CellSummary]:
    cells = [
        CellRecord(
            env="CartPole-v1",
            backend=backend,
            options={},
            workers=workers,
            envs_per_worker=1,
            cpus=tuple(range(workers)),
            repeat=0,
            status="ok",
            windows=(Window(10**9, 1000, 0),) * 2,
            verdict=None if backend == "yardstick" else "identical",
            num_envs=workers,
            batch_size=workers,
            processes=1,
            threads=1,
            frame_skip=1,
        )
        for backend, workers in NAMES
    ]
    host = HostRecord("Linux", "6", "x86_64", "CPU", 64, tuple(range(64)), 64, topology_record(flat(range(64))))
    head = RunRecord(SCHEMA, RunSpec(("CartPole",), (1, 2)), host, {}, "vebench run")
    return {cell.key: replace(cell, findings=()) for cell in summarise(Run(head, tuple(cells)))}


TEMPLATE = _template()
SAME = dict.fromkeys(TEMPLATE, 1.0)
YARDSTICK, LOOP, *_ = TEMPLATE


def summaries(run: Simulated) -> tuple[CellSummary, ...]:
    """Return what vebench makes of a run."""
    return tuple(replace(TEMPLATE[key], sample=sample) for key, sample in run.samples().items())


@dataclass(frozen=True)
class Gate:
    """A command, with how it compares."""

    name: str
    metric: Metric
    tolerance: float
    repeats: int = 3
    files: bool = False
    in_turn: bool = False

    def judge(self, random: Generator, world: World, truth: Truth) -> tuple[Comparison, int]:
        """Return what it says of a run with these true ratios, and how many passes that took."""
        if self.in_turn:
            return self._in_turn(random, world, truth), self.repeats
        before = summaries(run_of(random, world, SAME, self.repeats, RUN))
        if self.files:
            after = summaries(run_of(random, world, truth, self.repeats, RUN))
            found = compare_runs(before, after, metric=self.metric, tolerance=self.tolerance)
            return without_unknown_reference(found), self.repeats
        compare = partial(compare_runs, metric=self.metric, tolerance=self.tolerance)
        once, forever = (resolution(before, compare, forever=forever) for forever in (False, True))
        enough = enough_passes(once, forever, self.repeats)
        candidate = run_of(random, world, truth, 2, RUN)
        clock, passes = 0.0, 2
        budget = PassBudget(BUDGET_S, lambda: clock)
        clock = 2 * PASS_S

        def another(wanted: frozenset[CellKey]) -> bool:
            nonlocal clock, passes
            cells = wanted | {YARDSTICK} | ({LOOP} if self.metric == "speedup" else set())
            clock = one_pass([candidate], passes, clock, [key for key in TEMPLATE if key in cells], RUN)
            passes += 1
            return True

        every = frozenset(cell.key for cell in before)
        found = decide(lambda: (before, summaries(candidate)), another, compare, every, 3, budget, enough)
        return without_unknown_reference(found), passes

    def _in_turn(self, random: Generator, world: World, truth: Truth) -> Comparison:
        machine, now = Machine(random, world), 0.0
        sides = [Simulated(random, world, one, machine) for one in (SAME, truth)]
        for number in range(self.repeats):
            now = one_pass(sides, number, now, [key for key in TEMPLATE if key != YARDSTICK], COMPARE)
        return compare_runs(*map(summaries, sides), metric="fps", tolerance=self.tolerance, in_turn=True)


def held(found: Comparison, truth: Truth, metric: Metric) -> list[bool]:
    """Return whether the interval of each cell's ratio holds the true one."""
    answers = []
    for cell in found.cells:
        if cell.ratio is not None:
            base = truth[LOOP] if metric == "speedup" and cell.key.backend != LOOP.backend else 1.0
            answers.append(cell.ratio.low <= truth[cell.key] / base <= cell.ratio.high)
    return answers


def row(gate: Gate, world: World, runs: int) -> str:
    """Return a row of the table."""
    random = np.random.default_rng(11)
    statuses: Counter[int] = Counter()
    intervals: list[bool] = []
    passes: list[int] = []
    for _ in range(runs):
        found, took = gate.judge(random, world, SAME)
        statuses[exit_status(found)] += 1
        intervals += held(found, SAME, gate.metric)
        passes.append(took)
    # Every ratio that is judged is exactly at the tolerance. Of speedups, the loop must stay as it is.
    unchanged = {YARDSTICK.backend} | ({LOOP.backend} if gate.metric == "speedup" else set())
    edge = {key: 1.0 if key.backend in unchanged else 1 - gate.tolerance for key in TEMPLATE}
    alarms = sum(exit_status(gate.judge(random, world, edge)[0]) == 1 for _ in range(runs))
    power = []
    for slower in (0.10, 0.15, 0.25):
        verdicts: Counter[str] = Counter()
        truth = {key: 1 - slower if key.backend == "mine" else 1.0 for key in TEMPLATE}
        for _ in range(max(1, runs // 4)):
            found, _ = gate.judge(random, world, truth)
            verdicts += Counter(group.verdict for group in found.groups if group.key.backend == "mine")
        power.append(f"{share(verdicts['slower'], verdicts.total())} ({share(verdicts['same'], verdicts.total())})")
    places = (
        world.name,
        *(share(statuses[status], runs) for status in (0, 1, 3)),
        share(alarms, runs),
        *power,
        share(sum(intervals), len(intervals)),
        f"{np.mean(passes):.1f}",
    )
    return f"| {' | '.join(places)} |"


GATES = (
    Gate("check BASELINE --metric yardstick --tolerance 10%", "yardstick", 0.10),
    Gate("check BASELINE --metric speedup --tolerance 10%", "speedup", 0.10),
    Gate("check BASELINE --metric yardstick --tolerance 5%, baseline of 10 repeats", "yardstick", 0.05, repeats=10),
    Gate("check A B --metric yardstick --tolerance 10%, 5 repeats", "yardstick", 0.10, repeats=5, files=True),
    Gate("check A B --metric speedup --tolerance 10%, 5 repeats", "speedup", 0.10, repeats=5, files=True),
    Gate("check A B --metric speedup --tolerance 5%, 5 repeats", "speedup", 0.05, repeats=5, files=True),
    Gate("check A B --metric fps --tolerance 10%", "fps", 0.10, files=True),
    Gate("compare --tolerance 10%", "fps", 0.10, repeats=6, in_turn=True),
    Gate("compare --tolerance 5%", "fps", 0.05, repeats=6, in_turn=True),
)


def main(runs: int = 200, *only: str) -> None:
    """Print the tables."""
    names = [word for word in only if not word.startswith("g")]
    gates = [int(word[1:]) for word in only if word.startswith("g")]
    for number, gate in enumerate(GATES):
        if gates and number not in gates:
            continue
        print(f"\n{gate.name}\n")
        print("| world | unchanged: 0 | 1 | 3 | edge: 1 | 10 % slower | 15 % | 25 % | held | passes |")
        print("| --- " * 10 + "|")
        for world in WORLDS:
            if (not names or world.name in names) and not (gate.in_turn and world.own):
                print(row(gate, world, runs), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
