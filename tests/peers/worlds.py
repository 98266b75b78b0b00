"""Machines that are not as the method assumes, and runs on them, for simulations in which the truth is known.

A process has its luck, its windows follow a first-order autoregression with heavy tails (Student's t with 4 degrees of
freedom), some of them stall, and the speed of the machine drifts while the run goes on. True log rates are 0, or those
of ``factors``. Times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from vebench.analysis.summary import summarise
from vebench.child.window import Window
from vebench.machine.topology import flat
from vebench.plan.spec import RunSpec
from vebench.results.header import topology_record
from vebench.results.records import SCHEMA, CellRecord, HostRecord, Run, RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    from vebench.analysis.cell import CellSummary

    Floats = NDArray[np.float64]

START, WARMUP, PER_TURN = 1.0, 1.0, 0.05  # of a process: to start, to warm up, and what a turn takes beside its window
TASKS = ("CartPole-v1", "Acrobot-v1")
BACKENDS = (
    *("for-loop", "gym-sync", "gym-async", "shm-sync", "shm-async"),
    *("envpool-sync", "envpool-async", "mine:One", "mine:Other"),
)
WORKERS = (1, 2, 3)
HOST = HostRecord("Linux", "6", "x86_64", "CPU", 64, tuple(range(64)), 64, topology_record(flat(range(64))))


@dataclass(frozen=True)
class World:
    """How a machine behaves.

    ``drift``: ``none``, ``returning`` (mean-reverting: 5 % with a memory of 2 minutes), or ``walk`` (5 % per square
    root of a minute, without bound). ``day``: by how much a run as a whole differs from others.
    """

    name: str
    drift: Literal["none", "returning", "walk"] = "none"
    day: float = 0.0
    noise: float = 0.02
    luck: tuple[float, float] = (0.02, 0.04)
    correlation: tuple[float, float] = (0.3, 0.7)
    stalls: float = 0.01
    heavy: bool = True

    def speed(self, random: Generator, times: Floats) -> Floats:
        """Return the log speed of the machine at ascending times."""
        steps = np.diff(times, prepend=times[0])
        if self.drift == "walk":
            return np.cumsum(random.normal(0, 1, len(times)) * 0.05 * np.sqrt(steps / 60))
        if self.drift == "none":
            return np.zeros(len(times))
        kept, fresh, value = np.exp(-steps / 120), random.normal(0, 1, len(times)), 0.05 * random.normal()
        speeds = np.empty(len(times))
        for index, (keep, new) in enumerate(zip(kept, fresh, strict=True)):
            value = keep * value + 0.05 * np.sqrt(1 - keep**2) * new
            speeds[index] = value
        return speeds


@dataclass(frozen=True)
class Schedule:
    """A plan: passes, windows of each process, their duration, and whether the cells of a task take turns."""

    repeats: int
    rounds: int
    duration: float = 1.0
    interleave: bool = True

    def times(self, random: Generator, tasks: int, cells: int, sides: int) -> Floats:
        """Return when each window is measured: sides x cells x passes x windows. Cells of a task follow each other."""
        times = np.empty((sides, tasks * cells, self.repeats, self.rounds))
        now = 0.0
        for number in range(self.repeats):
            for group in self._groups(random, tasks, cells):
                members = [(side, cell) for cell in group for side in range(sides)]
                now += len(members) * (START + WARMUP)
                for window in range(self.rounds):
                    for side, cell in members if (window + number) % 2 == 0 else reversed(members):
                        times[side, cell, number, window] = now
                        now += self.duration + PER_TURN
        return times

    def _groups(self, random: Generator, tasks: int, cells: int) -> list[Sequence[int]]:
        if self.interleave:
            return [list(task * cells + random.permutation(cells)) for task in random.permutation(tasks)]
        return [[int(cell)] for cell in random.permutation(tasks * cells)]


def simulate(  # noqa: PLR0913, PLR0917 - what a run depends on
    random: Generator,
    world: World,
    schedule: Schedule,
    factors: Sequence[Floats],
    tasks: int = 2,
    days: Sequence[float] = (0.0, 0.0),
) -> Floats:
    """Return log rates, sides x cells x passes x windows, of sides with these true rates, measured at the same time."""
    cells = len(factors[0])
    shape = (len(factors), cells, schedule.repeats, schedule.rounds)
    correlation = random.uniform(*world.correlation, cells)[None, :, None]
    luck = random.uniform(*world.luck, cells)[None, :, None, None] * random.normal(size=(*shape[:3], 1))
    fresh = random.standard_t(4, shape) / np.sqrt(2) if world.heavy else random.normal(size=shape)
    noise = np.empty(shape)
    noise[..., 0] = fresh[..., 0]
    for window in range(1, schedule.rounds):
        noise[..., window] = correlation * noise[..., window - 1] + np.sqrt(1 - correlation**2) * fresh[..., window]
    stalled = np.log(0.7) * (random.random(shape) < world.stalls)
    times = schedule.times(random, tasks, cells // tasks, len(factors))
    order = np.argsort(times, axis=None)
    speeds = np.empty(times.size)
    speeds[order] = world.speed(random, times.ravel()[order])
    truth = np.array([np.log(side) + day for side, day in zip(factors, days, strict=False)])[:, :, None, None]
    return truth + luck + world.noise * noise + stalled + speeds.reshape(shape)


def summaries(
    logs: Floats, schedule: Schedule, tasks: int = 2, backends: int = len(BACKENDS)
) -> tuple[CellSummary, ...]:
    """Return what vebench makes of a side's log rates: cells x passes x windows."""
    workers = len(logs) // tasks // backends
    spec = RunSpec(TASKS[:tasks], tuple(range(1, workers + 1)), rounds=schedule.rounds, repeats=schedule.repeats)
    cells = []
    for index, processes in enumerate(logs):
        task, backend, count = np.unravel_index(index, (tasks, backends, workers))
        for repeat, windows in enumerate(processes):
            counts = (int(count) + 1, 1, int(count) + 1, int(count) + 1, 1, 1)
            measured = tuple(Window(10**9, round(1e6 * rate), 0) for rate in np.exp(windows))
            cells.append(
                CellRecord(
                    num_envs=counts[0],
                    batch_size=counts[0],
                    processes=1,
                    threads=1,
                    frame_skip=1,
                    env=TASKS[task],
                    backend=BACKENDS[backend],
                    options={},
                    workers=counts[0],
                    envs_per_worker=1,
                    cpus=tuple(range(counts[0])),
                    repeat=repeat,
                    status="ok",
                    windows=measured,
                    verdict="identical",
                )
            )
    return summarise(Run(RunRecord(SCHEMA, spec, HOST, {}, "vebench run"), tuple(cells)))
