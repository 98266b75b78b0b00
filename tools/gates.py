"""What ``check`` and ``compare`` say of simulated runs whose truth is known: false alarms, power, coverage, time.

``python tools/gates.py [RUNS [WORLD ...]]`` prints a Markdown table for each gate. Three backends, ``for-loop`` among
them, with 1 and 2 workers, and the yardstick; the baseline is a run by the default plan (3 processes of 2 windows).
``check BASELINE`` measures for ten simulated minutes at most, a pass of 7 cells takes ``PASS_S``.

In every world windows vary by 2 % and, but in ``white``, processes by 2 %. The speed of the machine is a function of
time; what a world does beside that is said where it is made.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from vebench.analysis.comparison import compare, resolution, without_unknown_reference
from vebench.analysis.pooling import pooled
from vebench.analysis.sequential import enough_passes
from vebench.analysis.statistics import Sample
from vebench.analysis.summary import summarise
from vebench.child.window import Window
from vebench.commands.deciding import until_decided
from vebench.commands.gating import exit_status
from vebench.machine.topology import flat
from vebench.plan.spec import RunSpec
from vebench.results.header import topology_record
from vebench.results.records import SCHEMA, CellRecord, HostRecord, Run, RunRecord

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.random import Generator
    from numpy.typing import NDArray

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, Levels
    from vebench.analysis.pairing import Metric
    from vebench.plan.cells import CellKey

    Floats = NDArray[np.float64]

START_S, WINDOW_S, WINDOWS, TURN_S = 2.0, 0.5, 2, 0.1  # a cell to start, warm up and be proven; its windows
BUDGET_S = 600.0
NAMES = [("yardstick", 1), *((backend, workers) for backend in ("for-loop", "mine", "other") for workers in (1, 2))]
LOOP, MINE = (1, 2), (3, 4)  # places in NAMES
PASS_S = len(NAMES) * (START_S + WINDOWS * (WINDOW_S + TURN_S))


@dataclass(frozen=True)
class World:
    """How a machine behaves, on the log scale.

    ``luck`` is that of processes: its standard deviation, or what draws it. ``day``: of a run as a whole; ``own``: of
    each cell in each run. ``walk``: per square root of a minute. ``neighbour``: 30 % slower for 4 s, every 20 s, in the
    mean. ``sag``: clocks fall by 10 % with 45 s. ``stalls``: one window of twenty is 30 % slower.
    """

    name: str
    luck: float = 0.02
    heavy: bool = False
    bimodal: bool = False
    day: float = 0.0
    own: float = 0.0
    walk: float = 0.0
    neighbour: bool = False
    sag: bool = False
    stalls: bool = False


WORLDS = (
    World("white", luck=0.0),
    World("luck2"),
    World("heavy", luck=0.03, heavy=True),
    World("bimodal", bimodal=True),
    World("stalls", stalls=True),
    World("walk", walk=0.05),
    World("day", day=0.05),
    World("daycell", day=0.05, own=0.02),
    World("neighbour", neighbour=True),
    World("sag", sag=True),
)


class Machine:
    """A machine on one day: its speed as a function of time."""

    def __init__(self, random: Generator, world: World) -> None:
        self._random, self._world = random, world
        self._grid = np.zeros(0)
        self._slow_until, self._next = 0.0, random.exponential(20)
        self.day = world.day * random.normal()

    def speed(self, now: float) -> float:
        """Return the log speed in a window that begins at ``now``; times ascend."""
        world, found = self._world, self.day
        if world.walk:
            while len(self._grid) <= now:
                step = world.walk / sqrt(60) * self._random.normal()
                self._grid = np.append(self._grid, (self._grid[-1] if len(self._grid) else 0.0) + step)
            found += self._grid[int(now)]
        if world.sag:
            found += log(1 - 0.1 * (1 - exp(-now / 45)))
        if world.neighbour:
            while self._next < now:
                self._slow_until = self._next + self._random.exponential(4)
                self._next = self._slow_until + self._random.exponential(16)
            shared = min(max(self._slow_until - now, 0.0), WINDOW_S) / WINDOW_S
            found += log(1 - 0.3 * shared)
        return float(found)


@dataclass
class Simulated:
    """One run, pass by pass: the rates of the windows of each cell, by pass. Sides of a comparison share a machine."""

    random: Generator
    world: World
    truth: Floats
    machine: Machine
    processes: dict[int, dict[int, list[float]]] = field(
        default_factory=lambda: {cell: {} for cell in range(len(NAMES))}
    )

    def __post_init__(self) -> None:
        """Draw what each cell has of its own in this run."""
        self.own = self.world.own * self.random.normal(size=len(NAMES))

    def process(self, cell: int, number: int) -> None:
        """Start the process of a cell in a pass."""
        world, random = self.world, self.random
        luck = world.luck * (random.standard_t(3) / sqrt(3) if world.heavy else random.normal())
        luck += log(0.92) if world.bimodal and random.random() < 0.2 else 0.0
        self.processes[cell][number] = []
        self.base = getattr(self, "base", {})
        self.base[cell] = log(self.truth[cell]) + self.own[cell] + luck

    def window(self, cell: int, number: int, now: float) -> None:
        """Measure one window."""
        noise = 0.02 * self.random.normal()
        noise += log(0.7) if self.world.stalls and self.random.random() < 0.05 else 0.0
        self.processes[cell][number].append(1e6 * exp(self.base[cell] + noise + self.machine.speed(now)))

    @property
    def summaries(self) -> tuple[CellSummary, ...]:
        """What vebench makes of it."""
        samples = {key: Sample.of(self.processes[cell]) for cell, key in enumerate(TEMPLATE) if self.processes[cell]}
        found = pooled(samples, dict.fromkeys(samples, "calm"))
        return tuple(replace(TEMPLATE[key], sample=sample) for key, sample in found.items())


def one_pass(sides: list[Simulated], number: int, now: float, cells: Collection[int]) -> float:
    """Measure one more pass of these cells; sides take turns cell by cell. Returns when it is over."""
    order = list(sides[0].random.permutation(list(cells)))
    groups = [order] if len(sides) == 1 else [[cell] for cell in order]
    for group in groups:
        members = [(side, cell) for cell in group for side in sides]
        for side, cell in members:
            side.process(cell, number)
            now += START_S
        for window in range(WINDOWS if len(sides) == 1 else 3):
            for side, cell in members if (window + number) % 2 == 0 else members[::-1]:
                side.window(cell, number, now)
                now += WINDOW_S + TURN_S
    return now


def run_of(random: Generator, world: World, truth: Floats, passes: int) -> Simulated:
    """Return a run of so many passes."""
    found, now = Simulated(random, world, truth, Machine(random, world)), 0.0
    for number in range(passes):
        now = one_pass([found], number, now, range(len(NAMES)))
    return found


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
KEYS = list(TEMPLATE)


@dataclass(frozen=True)
class Gate:
    """A command, with how it compares."""

    name: str
    metric: Metric
    tolerance: float
    repeats: int = 3
    files: bool = False
    in_turn: bool = False

    def judge(self, random: Generator, world: World, truth: Floats) -> tuple[Comparison, int]:
        """Return what it says of a run with these true ratios, and how many passes that took."""
        same = np.ones(len(NAMES))
        if self.in_turn:
            machine = Machine(random, world)
            sides = [Simulated(random, world, one, machine) for one in (same, truth)]
            now = 0.0
            for number in range(self.repeats):
                now = one_pass(sides, number, now, range(1, len(NAMES)))
            return compare(*(side.summaries for side in sides), metric="fps", tolerance=self.tolerance, in_turn=True), 5
        before = run_of(random, world, same, self.repeats).summaries
        if self.files:
            after = run_of(random, world, truth, self.repeats).summaries
            found = compare(before, after, metric=self.metric, tolerance=self.tolerance)
            return without_unknown_reference(found), self.repeats
        once, forever = (
            resolution(before, metric=self.metric, tolerance=self.tolerance, forever=forever)
            for forever in (False, True)
        )
        enough = enough_passes(once, forever, self.repeats)
        candidate = run_of(random, world, truth, 3)
        clock, passes = [3 * PASS_S], [3]

        def look(levels: Levels) -> Comparison:
            return compare(before, candidate.summaries, metric=self.metric, tolerance=self.tolerance, levels=levels)

        def another(wanted: frozenset[CellKey]) -> bool:
            cells = {cell for cell, key in enumerate(KEYS) if key in wanted} | {0}
            if self.metric == "speedup":
                cells.add(LOOP[0])
            clock[0] = one_pass([candidate], passes[0], clock[0], sorted(cells))
            passes[0] += 1
            return True

        found = until_decided(look, another, 3, 0.0, BUDGET_S, lambda: clock[0], enough)
        return without_unknown_reference(found), passes[0]


def held(found: Comparison, truth: Floats, metric: Metric) -> list[bool]:
    """Return whether the interval of each cell's ratio holds the true one."""
    true = dict(zip(KEYS, truth, strict=True))
    answers = []
    for cell in found.cells:
        if cell.ratio is None:
            continue
        base = true[KEYS[LOOP[0]]] if metric == "speedup" and cell.key.backend != "for-loop" else 1.0
        answers.append(cell.ratio.low <= true[cell.key] / base <= cell.ratio.high)
    return answers


def with_mine(ratio: float) -> Floats:
    """Return true ratios in which one backend has this one."""
    return np.array([ratio if cell in MINE else 1.0 for cell in range(len(NAMES))])


def percent(part: float, whole: float) -> str:
    """Return a share in percent."""
    return f"{100 * part / whole:.1f}" if whole else "-"


def row(gate: Gate, world: World, runs: int) -> str:
    """Return a row of the table."""
    random = np.random.default_rng(11)
    same = np.ones(len(NAMES))
    statuses: Counter[int] = Counter()
    intervals: list[bool] = []
    passes: list[int] = []
    for _ in range(runs):
        found, took = gate.judge(random, world, same)
        statuses[exit_status(found, "default")] += 1
        intervals += held(found, same, gate.metric)
        passes.append(took)
    # Every ratio that is judged is exactly at the tolerance. Of speedups, the loop must stay as it is.
    edge = np.array([1.0 if cell == 0 else 1 - gate.tolerance for cell in range(len(NAMES))])
    if gate.metric == "speedup":
        edge[[*LOOP]] = 1.0
    alarms = sum(exit_status(gate.judge(random, world, edge)[0], "default") == 1 for _ in range(runs))
    power = []
    for slower in (0.10, 0.15, 0.25):
        verdicts: Counter[str] = Counter()
        for _ in range(max(1, runs // 4)):
            found, _ = gate.judge(random, world, with_mine(1 - slower))
            verdicts += Counter(group.verdict for group in found.groups if group.key.backend == "mine")
        power.append(f"{percent(verdicts['slower'], verdicts.total())} ({percent(verdicts['same'], verdicts.total())})")
    shares = [percent(statuses[status], runs) for status in (0, 1, 3)]
    return " | ".join(
        (
            f"| {world.name}",
            *shares,
            percent(alarms, runs),
            *power,
            percent(sum(intervals), len(intervals)),
            f"{np.mean(passes):.1f} |",
        )
    )


GATES = (
    Gate("check BASELINE --metric yardstick --tolerance 10%", "yardstick", 0.10),
    Gate("check BASELINE --metric speedup --tolerance 10%", "speedup", 0.10),
    Gate("check BASELINE --metric yardstick --tolerance 5%, baseline of 10 repeats", "yardstick", 0.05, repeats=10),
    Gate("check A B --metric yardstick --tolerance 10%, 5 repeats", "yardstick", 0.10, repeats=5, files=True),
    Gate("check A B --metric speedup --tolerance 10%, 5 repeats", "speedup", 0.10, repeats=5, files=True),
    Gate("check A B --metric speedup --tolerance 5%, 5 repeats", "speedup", 0.05, repeats=5, files=True),
    Gate("check A B --metric fps --tolerance 10%", "fps", 0.10, files=True),
    Gate("compare --tolerance 5%", "fps", 0.05, repeats=5, in_turn=True),
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
