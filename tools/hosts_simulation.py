"""What a runner of many hosts costs, and how wrong its rates are: the engine's own code, and simulated hosts.

``python tools/hosts_simulation.py [CELLS]`` prints Markdown. All hosts are one process at the other ends of real
pipes. Each has a clock of its own, takes a drawn time for each way of a message, and tells windows of replicas that it
does not have, in real time: rates wander within a window and rise or fall together, some stall, and in some cells a
host hangs up in the middle. The truth is what all would have done in the time that the engine took for common.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import random
import select
import sys
import time
import tracemalloc
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vebench.backends.interface import Setup, Task
from vebench.child.request import Request, Settings
from vebench.child.window import Window
from vebench.engine.cell_process import FarCell
from vebench.engine.interface import CellError
from vebench.engine.launcher import FAR_LEAD_NS, Replicas
from vebench.hosts.site import Site, payload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.interpreters.waiting import Interrupts

COUNTS = (1, 10, 100, 1000)
WINDOWS, WINDOW_S, PAUSE_S = 4, 5.0, 0.25  # as the schedule of a child has them
WAY_S, SLOW_WAY_S, AHEAD_S = 2e-4, 2e-3, 3600.0  # of a message: as a rule, and of one in ten; of a clock at the most
BATCH_S, STALL_S = 2e-3, 0.3  # a batch ends after the window's time; of one window in a hundred
DIES = 0.2  # of cells, in which one host is lost
NANO = 1e-9
REQUEST = Request(
    Setup(Task("Simulated-v0", "gymnasium", 1), 1),
    "for-loop",
    "",
    {},
    Settings(WINDOW_S, WINDOWS, 0.0, 0.0, 300.0, "none"),
    "/",
    mode="in_step",
)


@dataclass
class Host:
    """One host: its ends of two pipes, its clock, and the rate of its replica, which wanders in a world that drifts."""

    reading: int
    writing: int
    ahead: float
    rate: float
    wander: float
    period: float
    phase: float
    drift: float
    origin: float
    dies: bool
    rest: bytes = b""

    def steps(self, begin: float, end: float) -> float:
        """Return the steps made from ``begin`` to ``end``, in seconds of the runner's clock."""
        begin, end = begin - self.origin, end - self.origin
        angular = 2 * math.pi / self.period
        wave = self.wander / angular * (math.cos(angular * begin + self.phase) - math.cos(angular * end + self.phase))
        return self.rate * ((end - begin) + wave + self.drift * (end**2 - begin**2) / 2)


class World:
    """All hosts, in a process of their own: what they say is due at a time, and waits for that."""

    def __init__(self, hosts: list[Host], seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._due: list[tuple[float, int, Host, dict[str, Any] | None]] = []
        self._number = 0
        self._poll = select.poll()
        self._of = {host.reading: host for host in hosts}
        for descriptor in self._of:
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        """Answer until all runners have hung up."""
        while self._of:
            wait = 1000 * max(0.0, self._due[0][0] - time.perf_counter()) if self._due else 1000
            for descriptor, _ in self._poll.poll(wait):
                self._hear(self._of[descriptor])
            while self._due and self._due[0][0] <= time.perf_counter():
                _, _, host, said = heapq.heappop(self._due)
                _say(host, said)

    def _hear(self, host: Host) -> None:
        chunk = os.read(host.reading, 1 << 16)
        if not chunk:
            self._poll.unregister(host.reading)
            del self._of[host.reading]
        *lines, host.rest = (host.rest + chunk).split(b"\n")
        for line in map(json.loads, lines):
            came = time.perf_counter() + self._way()
            if "clock" in line:
                told = {"cell": line["clock"], "clock": round((came + host.ahead) / NANO)}
                self._later(came + self._way(), host, told)
            elif "start" in line:
                layout = {"num_envs": 8, "batch_size": 8, "processes": 1, "threads": 1, "frame_skip": 4}
                self._answer(came, host, Ready={"startup_ns": 1, "layout": layout})
                self._answer(came, host, Warm={})
            elif "say" in line:
                self._measure(host, int(line["say"]) * NANO - host.ahead)

    def _way(self) -> float:
        return self._draw.expovariate(1 / (SLOW_WAY_S if self._draw.random() < 0.1 else WAY_S))

    def _measure(self, host: Host, start: float) -> None:
        for window in range(WINDOWS):
            begin = start + window * (WINDOW_S + PAUSE_S)
            if host.dies and window == WINDOWS // 2:
                self._later(begin, host, None)
                return
            stall = self._draw.uniform(0, STALL_S) if self._draw.random() < 0.01 else 0.0
            end = begin + WINDOW_S + self._draw.uniform(0, BATCH_S) + stall
            counted = {"ns": round((end - begin) / NANO), "rows": round(host.steps(begin, end)), "resets": 0}
            self._answer(begin, host, Begins={})
            self._answer(end, host, ReplicaWindow={"start_ns": round((begin + host.ahead) / NANO), "window": counted})
        self._answer(end, host, Done={})

    def _answer(self, when: float, host: Host, **answer: Any) -> None:  # noqa: ANN401 - JSON
        self._later(when, host, {"cell": 1, "line": json.dumps(answer)})

    def _later(self, when: float, host: Host, said: dict[str, Any] | None) -> None:
        self._number += 1  # of two at the same time the first comes first
        heapq.heappush(self._due, (when, self._number, host, said))


def _say(host: Host, said: dict[str, Any] | None) -> None:
    """Send a line to the runner, or hang up."""
    if said is None:
        os.close(host.writing)
        return
    with suppress(OSError):  # it has hung up
        os.write(host.writing, json.dumps(said).encode() + b"\n")


class Found(NamedTuple):
    """What one cell has shown: errors of its rates, as shares; of clocks, in truth and as claimed; costs.

    Times are in seconds, ``memory`` in bytes for each host, ``cpu`` for each window.
    """

    rates: list[float]
    clock: float
    claimed: float
    starting: float
    cpu: float
    memory: float


def cell(count: int, draw: random.Random) -> Found:
    """Measure on so many hosts."""
    drift = draw.uniform(-0.01, 0.01)  # of all, a second: as clocks of CPUs that grow warm
    lost = draw.randrange(count) if draw.random() < DIES else -1
    hosts, ours, origin = [], [], time.perf_counter()
    for number in range(count):
        (there, say), (hear, back) = os.pipe(), os.pipe()
        rates = draw.uniform(5e3, 2e4), draw.uniform(0, 0.2), draw.uniform(0.3, 30), draw.uniform(0, 6)
        hosts.append(Host(there, back, draw.uniform(-AHEAD_S, AHEAD_S), *rates, drift, origin, number == lost))
        ours.append((say, hear))
    world = os.fork()
    for descriptor in (
        end for ends in (ours if not world else [(one.reading, one.writing) for one in hosts]) for end in ends
    ):
        os.close(descriptor)
    if not world:
        World(hosts, draw.randrange(1 << 30)).run()
        os._exit(0)
    try:
        return _measured(hosts, ours)
    finally:
        os.waitpid(world, 0)


def _measured(hosts: Sequence[Host], ours: Sequence[tuple[int, int]]) -> Found:
    never, kept_open = os.pipe()
    interrupts = cast("Interrupts", SimpleNamespace(requested=False, fileno=lambda: never))
    payload()  # once for all, and not to be counted
    tracemalloc.start(1)
    sites = [
        Site(f"host-{number}", os.fdopen(say, "wb", 0), os.fdopen(hear, "rb", 0), lambda: "it hung up")
        for number, (say, hear) in enumerate(ours)
    ]
    began, spent, windows = time.perf_counter(), time.process_time(), list[Window]()
    far = [FarCell(site, REQUEST, interrupts, 300.0) for site in sites]
    first: list[int] = []

    def clock() -> int:
        first.append(time.perf_counter_ns())
        return first[-1]

    starting = memory = 0.0
    with suppress(CellError):  # which is how a cell ends that has lost one
        for answer in Replicas(far, WINDOWS, clock, lead_ns=FAR_LEAD_NS).messages():
            if not starting:
                starting, memory = time.perf_counter() - began, tracemalloc.get_traced_memory()[0] / len(sites)
                tracemalloc.stop()
                spent = time.process_time()
            if isinstance(answer, Window):
                windows.append(answer)
    spent = (time.process_time() - spent) / max(1, len(windows))
    known = [(one.ahead_ns, min(one._trips)[0], host) for one, host in zip(far, hosts, strict=True) if one.ahead_ns]  # noqa: SLF001 - for the truth
    for site in sites:
        site.hang_up()
    for site in sites:
        site.close()
    os.close(never)
    os.close(kept_open)
    return Found(
        [_error(window, number, first[0], hosts) for number, window in enumerate(windows)],
        max(abs(ahead_ns * NANO - host.ahead) for ahead_ns, _, host in known),
        max(error_ns * NANO for _, error_ns, _ in known),
        starting,
        spent,
        memory,
    )


def _error(window: Window, number: int, noted_ns: int, hosts: Sequence[Host]) -> float:
    """Return by which share the rate of a window is wrong."""
    begin = (noted_ns + FAR_LEAD_NS) * NANO + number * (WINDOW_S + PAUSE_S)
    true = sum(host.steps(begin, begin + window.ns * NANO) for host in hosts)
    return abs(window.rows / true - 1)


def main(cells: int = 3) -> None:
    """Print a table of hosts, errors of rates and clocks, and what the runner spent."""
    draw = random.Random(18)  # noqa: S311 - repeatable, not secret
    heads = ("hosts", "windows", "error of a rate: median", "at the worst", "of a clock", "as claimed", "to start")
    print(f"| {' | '.join((*heads, 'CPU of the runner, a window', 'memory, a host'))} |")
    print("| ---: " * (len(heads) + 2) + "|")
    for count in COUNTS:
        found = [cell(count, draw) for _ in range(cells)]
        errors = sorted(error for one in found for error in one.rates)
        print(
            f"| {count:,} | {len(errors)} | {errors[len(errors) // 2]:.4%} | {errors[-1]:.3%} "
            f"| {1e3 * max(one.clock for one in found):.3f} ms | {1e3 * max(one.claimed for one in found):.3f} ms "
            f"| {max(one.starting for one in found):.2f} s | {1e3 * max(one.cpu for one in found):.1f} ms "
            f"| {max(one.memory for one in found) / 1024:.1f} KiB |",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
