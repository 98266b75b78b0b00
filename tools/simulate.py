"""Intervals, verdicts and alarms of vebench in simulated runs, whose true rates are known.

``python tools/simulate.py coverage [RUNS]`` prints how often 95 % intervals of rates and speedups hold the truth, and
how wide they are: in runs of 18 cells, 6 backends with 3 numbers of workers, in several worlds; with other orders and
numbers of windows; and in runs of fewer cells.

``python tools/simulate.py gates [RUNS [GATE ...]]`` prints what ``check`` and ``compare`` say: false alarms, power,
coverage. Three backends, ``for-loop`` among them, with 1 and 2 workers, and the yardstick; the baseline is a run by the
default plan (3 processes of 2 windows). ``check BASELINE`` measures for ten simulated minutes at most, a pass of 7
cells takes ``PASS_S``. ``compare`` measures 6 passes of 40 windows of 50 ms. ``python tools/simulate.py slowdowns``
prints how often ``compare`` exits with each status, by the true slowdown.

Log rates of windows are sums: of the cell's true rate, what the run, the cell in it, its process and the window have of
their own, and the speed of the machine, which is a function of time. Times are in seconds. In every world windows vary
by 2 %, and except in the first, processes by 2 %. ``World`` says what else happens.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import exp, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from evidence import table

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]  # as pytest has it

from support import records

from vebench.analysis.comparison import compare_runs, without_unknown_reference
from vebench.analysis.statistics import Sample, estimate, pooled, ratio
from vebench.analysis.summary import summarise
from vebench.gates.gate import PassBudget, decide, exit_status, foreseen
from vebench.plan.cells import CellKey
from vebench.plan.grammar import Tolerance

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.random import Generator

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, Metric
    from vebench.analysis.statistics import Estimate

    Truth = dict[CellKey, float]

TRUE_RATE = 1e6
MEMORY_S = 120.0  # of a drift that returns


@dataclass(frozen=True)
class World:
    """How a machine behaves, on the log scale; numbers are standard deviations unless said otherwise.

    Of windows: ``noise``; ``alike``: they correlate by 0.5 and have heavy tails (Student's t, 4 degrees of freedom);
    ``stalls``: a share of them is 30 % slower. Of processes: ``luck``; ``heavy``: with 3 degrees of freedom;
    ``bimodal``: one of five is 8 % slower; ``one_noisy``: those of one backend, drawn anew in each run;
    ``each_noisy``: each backend has a deviation between these. Of passes: ``many_workers``, in cells of many workers
    only. Of runs: ``day``, and ``own`` of each cell. Of the machine's speed: ``walk`` per square root of a minute,
    ``returning`` with a memory of two minutes; ``neighbour``: 30 % slower for the first of these times, then as fast as
    usual for the second, in the mean; ``sag``: clocks fall by 10 % with 45 s.
    """

    name: str
    noise: float = 0.02
    luck: float = 0.02
    alike: bool = False
    stalls: float = 0.0
    heavy: bool = False
    bimodal: bool = False
    one_noisy: float = 0.0
    each_noisy: tuple[float, float] | None = None
    many_workers: float = 0.0
    day: float = 0.0
    own: float = 0.0
    walk: float = 0.0
    returning: float = 0.0
    neighbour: tuple[float, float] | None = None
    sag: bool = False


@dataclass(frozen=True)
class Plan:
    """How cells are measured: windows of each process, their length, and whether cells take turns."""

    windows: int = 2
    window_s: float = 0.5
    in_turn: bool = True
    start_s: float = 2.0  # to start, to warm up, to be proven
    turn_s: float = 0.1


class Machine:
    """A machine on one day: its speed as a function of time, which is asked for at ascending times."""

    def __init__(self, random: Generator, world: World) -> None:
        self._random, self._world = random, world
        self._drift = [world.returning * random.normal()]  # at each second
        self._slow = [(0.0, 0.0)]  # when the neighbour works
        self.day = world.day * random.normal()

    def speed(self, begin: float, seconds: float) -> float:
        """Return the log speed in a window."""
        world, found = self._world, self.day
        while len(self._drift) <= begin:
            kept = exp(-1 / MEMORY_S) if world.returning else 1.0
            step = world.returning * sqrt(1 - kept**2) if world.returning else world.walk / sqrt(60)
            self._drift.append(kept * self._drift[-1] + step * self._random.normal())
        found += self._drift[int(begin)]
        if world.sag:
            found += log(1 - 0.1 * (1 - exp(-begin / 45)))
        if world.neighbour:
            works, rests = world.neighbour
            while self._slow[-1][1] < begin + seconds:
                slow = self._slow[-1][1] + self._random.exponential(rests)
                self._slow.append((slow, slow + self._random.exponential(works)))
            while self._slow[0][1] < begin:
                self._slow.pop(0)
            shared = sum(max(0.0, min(end, begin + seconds) - max(start, begin)) for start, end in self._slow)
            found += log(1 - 0.3 * shared / seconds)
        return found


class Simulated:
    """One run, or one side of a comparison: the rates of the windows of each cell, by pass."""

    def __init__(
        self, random: Generator, world: World, truth: dict[CellKey, float], machine: Machine | None = None
    ) -> None:
        self.random, self.world, self.truth = random, world, truth
        self.machine = machine or Machine(random, world)
        self.rates: dict[CellKey, dict[int, list[float]]] = {key: {} for key in truth}
        self.luck = dict.fromkeys(truth, world.luck)
        backends = list(dict.fromkeys(key.backend for key in truth))
        if world.one_noisy or world.each_noisy:
            of_backend = dict.fromkeys(backends, 0.01)
            if world.each_noisy:
                drawn = random.uniform(*map(log, world.each_noisy), len(backends) - 1)
                of_backend |= dict(zip(backends[1:], map(exp, drawn), strict=True))
            else:
                of_backend[backends[random.integers(1, len(backends))]] = world.one_noisy
            self.luck = {key: of_backend[key.backend] for key in truth}
        self.speeds: list[float] = []  # of the machine, in each window
        self._own = {key: world.own * random.normal() for key in truth}
        self._passes: dict[int, float] = {}
        self._process: dict[CellKey, float] = {}
        self._before: dict[CellKey, float] = {}

    def start(self, key: CellKey, number: int) -> None:
        """Start the process of a cell in a pass."""
        world, random = self.world, self.random
        luck = self.luck[key] * (random.standard_t(3) / sqrt(3) if world.heavy else random.normal())
        luck += log(0.92) if world.bimodal and random.random() < 0.2 else 0.0
        if world.many_workers and key.workers > 1:
            luck += self._passes.setdefault(number, world.many_workers * random.normal())
        self.rates[key][number] = []
        self._process[key] = log(TRUE_RATE * self.truth[key]) + self._own[key] + luck
        self._before[key] = random.standard_t(4) / sqrt(2)

    def window(self, key: CellKey, number: int, begin: float, seconds: float) -> None:
        """Measure one window."""
        world, random = self.world, self.random
        noise = random.normal()
        if world.alike:
            noise = 0.5 * self._before[key] + sqrt(0.75) * random.standard_t(4) / sqrt(2)
            self._before[key] = noise
        stalled = log(0.7) if random.random() < world.stalls else 0.0
        self.speeds.append(self.machine.speed(begin, seconds))
        self.rates[key][number].append(exp(self._process[key] + world.noise * noise + stalled + self.speeds[-1]))

    def samples(self) -> dict[CellKey, Sample]:
        """Return what vebench makes of the rates."""
        samples = {}
        for key, by_pass in self.rates.items():
            passes = [number for number, rates in by_pass.items() for _ in rates]
            rates = [rate for rates in by_pass.values() for rate in rates]
            if rates:
                samples[key] = Sample.of(passes, rates, np.ones(len(rates)))
        return pooled(samples, dict.fromkeys(samples, "undisturbed"))


def one_pass(sides: Sequence[Simulated], number: int, now: float, keys: Collection[CellKey], plan: Plan) -> float:
    """Measure one more pass of these cells; sides take turns cell by cell. Returns when it is over."""
    order = [list(keys)[place] for place in sides[0].random.permutation(len(keys))]
    for group in [order] if plan.in_turn and len(sides) == 1 else [[key] for key in order]:
        members = [(side, key) for key in group for side in sides]
        for side, key in members:
            side.start(key, number)
            now += plan.start_s
        for window in range(plan.windows):
            for side, key in members if (window + number) % 2 == 0 else members[::-1]:
                side.window(key, number, now, plan.window_s)
                now += plan.window_s + plan.turn_s
    return now


def run_of(random: Generator, world: World, truth: dict[CellKey, float], passes: int, plan: Plan) -> Simulated:
    """Return a run of this number of passes."""
    found, now = Simulated(random, world, truth), 0.0
    for number in range(passes):
        now = one_pass([found], number, now, truth, plan)
    return found


REAL = {"alike": True, "stalls": 0.01}
INTERVAL_WORLDS = (
    World("all by 2 %"),
    World("all by 2 %, windows correlated", **REAL),
    *(World(f"one by {100 * spread:.0f} %", one_noisy=spread) for spread in (0.04, 0.08, 0.20)),
    World("each by 1 to 27 %", each_noisy=(0.01, 0.27)),
    World("passes differ by 8 % for many workers", many_workers=0.08),
    World("the machine drifts and returns", returning=0.05, **REAL),
    World("the machine drifts without bound", walk=0.05, **REAL),
)
NOISY = 0.05  # the standard deviation of processes from which on a cell counts as noisy if each differs
SIZES = ((1, 1), (2, 1), (3, 1), (6, 1), (3, 2), (6, 3))  # backends, numbers of workers


class Tally:
    """How often intervals held the truth, and their halves on the log scale."""

    def __init__(self) -> None:
        self.held: list[bool] = []
        self.halves: list[float] = []

    def add(self, found: Estimate | None, truth: float) -> None:
        """Count an interval."""
        if found is not None and found.low and found.high:
            self.held.append(found.low <= truth <= found.high)
            self.halves.append(log(found.high / found.low) / 2)

    def __str__(self) -> str:
        """Return the share and the median half as a place of a table."""
        return f"{100 * np.mean(self.held):.1f} %, ±{100 * np.median(self.halves):.1f} %" if self.held else "-"


def classified(key: CellKey, world: World, luck: float) -> str:
    """Return the world, and which of its cells this is one of."""
    which = ""
    if world.many_workers:
        which = ": many" if key.workers > 1 else ": one"
    elif world.one_noisy:
        which = ": that one" if luck >= world.one_noisy else ": the others"
    elif world.each_noisy:
        which = ": 5 % and more" if luck >= NOISY else ": less than 5 %"
    return world.name + which


def cover(world: World, size: tuple[int, int], repeats: int, plan: Plan, runs: int) -> dict[str, tuple[Tally, Tally]]:
    """Return how often the intervals of rates and of speedups hold, for each class of cells."""
    backends, workers = size
    keys = [CellKey("task", f"b{backend}", count, 1) for backend in range(backends) for count in range(1, workers + 1)]
    random = np.random.default_rng(1)
    found: dict[str, tuple[Tally, Tally]] = defaultdict(lambda: (Tally(), Tally()))
    for _ in range(runs):
        run = run_of(random, world, dict.fromkeys(keys, 1.0), repeats, plan)
        samples = run.samples()
        for key, sample in samples.items():
            rates, speedups = found[classified(key, world, run.luck[key])]
            rates.add(estimate(sample), TRUE_RATE)
            if key != keys[0]:
                speedups.add(ratio(sample, samples[keys[0]]), 1.0)
    return found


RUN, COMPARE = Plan(), Plan(windows=40, window_s=0.05, turn_s=0.02)
BUDGET_S = 600.0
NAMES = [("yardstick", 1), *((backend, workers) for backend in ("for-loop", "mine", "other") for workers in (1, 2))]
PASS_S = len(NAMES) * (RUN.start_s + RUN.windows * (RUN.window_s + RUN.turn_s))
GATE_WORLDS = (
    World("only windows vary", luck=0.0),
    World("processes differ by 2 %"),
    World("processes differ by 3 %, heavy tails", luck=0.03, heavy=True),
    World("one process of five is 8 % slower", bimodal=True),
    World("one window of 20 is 30 % slower", stalls=0.05),
    World("the machine drifts by 5 % per root of a minute", walk=0.05),
    World("runs differ by 5 %", day=0.05),
    World("runs differ by 5 %, their cells by 2 %", day=0.05, own=0.02),
    World("another job takes 30 % for 4 s every 20 s", neighbour=(4.0, 16.0)),
    World("another job takes 30 % for 1.5 s every 3 s", neighbour=(1.5, 1.5)),
    World("clocks fall by 10 %", sag=True),
)
JUDGED = ("unchanged: exit 0, %", "exit 1, %", "exit 3, %", "at the tolerance: exit 1, %")
JUDGED += (*(f"{slower} % slower: found, %" for slower in (10, 15, 25)), "intervals that held, %", "passes")


HEAD = records.make_header(64, envs=["CartPole"])
CELLS = [
    records.make_cell(backend, workers, (1000, 1000), env="CartPole-v1", frame_skip=1, cpus=tuple(range(workers)))
    for backend, workers in NAMES
]
TEMPLATE = {cell.key: replace(cell, findings=()) for cell in summarise(records.Run(HEAD, tuple(CELLS)))}
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
        compare = partial(compare_runs, metrics=(self.metric,), tolerance=Tolerance(self.tolerance))
        if self.files:
            after = summaries(run_of(random, world, truth, self.repeats, RUN))
            return without_unknown_reference(compare(before, after)), self.repeats
        _, enough = foreseen(before, compare)
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
        tolerance = Tolerance(self.tolerance)
        return compare_runs(*map(summaries, sides), metrics=("fps",), tolerance=tolerance, in_turn=True)


def percent(found: Sequence[bool]) -> str:
    """Return the share of true answers in percent."""
    return f"{100 * np.mean(found):.1f}"


def held(found: Comparison, truth: Truth, metric: Metric) -> list[bool]:
    """Return whether the interval of each cell's ratio holds the true one."""
    answers = []
    for cell in found.cells:
        if cell.ratio is not None:
            base = truth[LOOP] if metric == "speedup" and cell.key.backend != LOOP.backend else 1.0
            answers.append(cell.ratio.low <= truth[cell.key] / base <= cell.ratio.high)
    return answers


def row(gate: Gate, world: World, runs: int) -> tuple[str, ...]:
    """Return a row of the table."""
    random = np.random.default_rng(11)

    def judged(truth: Truth, number: int = runs) -> list[tuple[Comparison, int]]:
        return [gate.judge(random, world, truth) for _ in range(number)]

    found, passes = zip(*judged(SAME), strict=True)
    statuses = [exit_status(one) for one in found]
    # Every ratio that is judged is exactly at the tolerance. Of speedups, the loop must stay as it is.
    unchanged = {YARDSTICK.backend} | ({LOOP.backend} if gate.metric == "speedup" else set())
    edge = {key: 1.0 if key.backend in unchanged else 1 - gate.tolerance for key in TEMPLATE}
    alarms = percent([exit_status(one) == 1 for one, _ in judged(edge)])
    power = []
    for slower in (0.10, 0.15, 0.25):
        truth = {key: 1 - slower if key.backend == "mine" else 1.0 for key in TEMPLATE}
        groups = [group for one, _ in judged(truth, max(1, runs // 4)) for group in one.groups]
        power.append(percent([group.verdict == "slower" for group in groups if group.key.backend == "mine"]))
    exits = (percent([one == status for one in statuses]) for status in (0, 1, 3))
    holds = percent([holds for one in found for holds in held(one, SAME, gate.metric)])
    return gate.name, world.name, *exits, alarms, *power, holds, f"{np.mean(passes):.1f}"


GATES = {
    "yardstick": Gate("`check BASELINE`", "yardstick", 0.10),
    "speedup": Gate("`--metric speedup`", "speedup", 0.10),
    "files": Gate("`check A B --metric speedup`, 5 passes", "speedup", 0.10, repeats=5, files=True),
    "compare": Gate("`compare`", "fps", 0.10, repeats=6, in_turn=True),
}


def coverage(runs: int = 100) -> None:
    """Print three tables of docs/evidence/simulations.md."""
    rows: list[tuple[object, ...]] = []
    for world in INTERVAL_WORLDS:
        two, three, five = (cover(world, SIZES[-1], passes, Plan(), runs) for passes in (2, 3, 5))
        rows += [(name, three[name][0], *(found[name][1] for found in (two, three, five))) for name in sorted(two)]
    speedups = (f"speedup, {passes} passes" for passes in (2, 3, 5))
    print(table(("processes differ: cells", "rate, 3 passes", *speedups), rows), "\n")
    rows = []
    for world in (INTERVAL_WORLDS[1], *INTERVAL_WORLDS[-2:]):
        for passes, plan in ((1, Plan(6, in_turn=False)), (3, Plan(in_turn=False)), (2, Plan(6)), (3, Plan())):
            (tallies,) = cover(world, SIZES[-1], passes, plan, runs).values()
            order = "interleaved" if plan.in_turn else "one after another"
            rows.append((world.name, f"{passes} x {plan.windows}, {order}", *tallies))
    print(table(("drift", "passes x windows", "rate", "speedup"), rows), "\n")
    rows = []
    for world in (INTERVAL_WORLDS[1], INTERVAL_WORLDS[3], *INTERVAL_WORLDS[-2:]):
        for size in SIZES[1 if world.one_noisy else 0 : -1]:
            for name, tallies in cover(world, size, 3, Plan(), 3 * runs).items():
                rows.append((name, f"{size[0]} x {size[1]}", *tallies))
    print(table(("processes differ: cells", "backends x numbers of workers", "rate", "speedup"), rows))


def gates(runs: int = 200, *only: str) -> None:
    """Print a table of all gates, or of those with these names."""
    asked = [GATES[name] for name in only or GATES]
    tried = [(gate, world) for gate in asked for world in GATE_WORLDS if not (gate.in_turn and world.own)]
    print(table(("gate", "world", *JUDGED), [row(gate, world, runs) for gate, world in tried]))


def slowdowns(pairs: int = 30) -> None:
    """Print how often ``compare`` exits with each status if all backends became slower by the same share."""
    random, rows = np.random.default_rng(11), []
    worlds = [world for world in GATE_WORLDS if not world.own]
    for tolerance, slower in product((0.10, 0.05), (0.0, 0.05, 0.08, 0.10, 0.15, 0.25)):
        gate = Gate("compare", "fps", tolerance, repeats=6, in_turn=True)
        truth = dict.fromkeys(TEMPLATE, 1 - slower)
        found = [exit_status(gate.judge(random, world, truth)[0]) for world in worlds for _ in range(pairs)]
        shares = (percent([one == status for one in found]) for status in (0, 1, 3))
        rows.append((f"{tolerance:.0%}", f"{slower:.0%}", *shares))
    print(table(("tolerance", "all backends are slower by", "exit 0", "exit 1", "exit 3"), rows))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["slowdowns", *pairs]:
            slowdowns(*map(int, pairs))
        case ["coverage", *runs]:
            coverage(*map(int, runs))
        case ["gates", *asked]:
            gates(*map(int, asked[:1]), *asked[1:])
        case _:
            sys.exit(__doc__)
