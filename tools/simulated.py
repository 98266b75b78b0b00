"""Machines whose truth is known, and what is measured on them, for simulations of what vebench says.

Log rates of windows are sums: of the cell's true rate, what the run, the cell in it, its process and the window have of
their own, and the speed of the machine, which is a function of time. Times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import TYPE_CHECKING

from vebench.analysis.pooling import pooled
from vebench.analysis.statistics import Sample

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.random import Generator

    from vebench.plan.cells import CellKey

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
        for key, rates in self.rates.items():
            if rates:
                samples[key] = Sample.of({number: [(rate, 1.0) for rate in each] for number, each in rates.items()})
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
    """Return a run of so many passes."""
    found, now = Simulated(random, world, truth), 0.0
    for number in range(passes):
        now = one_pass([found], number, now, truth, plan)
    return found


def share(part: float, whole: float) -> str:
    """Return a share in percent."""
    return f"{100 * part / whole:.1f}" if whole else "-"
