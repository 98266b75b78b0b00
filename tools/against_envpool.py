"""Compares ``make_vec`` with ``envpool.make_gymnasium``, as training code uses both: ``step(actions)`` in one process.

``python tools/against_envpool.py COMMAND FILE [--env NAMES] [--sizes N,N] [--repeats N] [--window SECONDS]``

- ``beside``: with no, one and two busy processes next to them, and with Gymnasium's ``SyncVectorEnv`` as the third;
- ``best``: the fastest settings of each, which are searched first.

Prints a Markdown table, with the median over repeats and the lowest and highest. Rates are rows per second, of which
the same share begins an episode on all sides; ratios are ``make_vec``'s rate to the other's. A repeat is one window of
each in this order, and one in reverse order. All do the same work, as ``envpool-sync`` is set to, with actions that are
drawn before. FILE keeps the results as JSON Lines; what is in it is not measured again. For a quiet machine: 5 to 15
minutes on two CPUs, ``best`` 30.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import cycle, product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import envpool
import numpy as np
from evidence import table
from gymnasium.vector import SyncVectorEnv
from orphans import end_with_parent

from vebench.backends.environments.making import make
from vebench.backends.environments.suites import fast_settings
from vebench.backends.fast import make_vec
from vebench.backends.pools import envpool_name, envpool_settings
from vebench.plan.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gymnasium.vector import VectorEnv
    from numpy.typing import NDArray

    Rates = dict[str, list[float]]

SPAWN = get_context("spawn")
CPUS = len(os.sched_getaffinity(0))
OURS, ENVPOOL, LOOP = "make_vec", "EnvPool", "SyncVectorEnv"
TAPE = 64  # batches of actions, which are played again and again
STARTED: dict[Setup, Any] = {}  # in this process, as ``start`` returns it
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6): pass"


class Setup(NamedTuple):
    """What steps. ``batch`` below ``num_envs`` means ``send`` and ``recv``, 0 threads the library's own number."""

    library: str
    task: str
    num_envs: int
    batch: int
    threads: int = 0
    pinned: bool = False  # EnvPool's threads, by itself

    def __str__(self) -> str:
        return f"{self.num_envs} environments, {self.threads} threads{', pinned' if self.pinned else ''}"


def quiet() -> None:
    """End with the process that started this one, and drop what emulators print."""
    end_with_parent()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)


def make_envs(setup: Setup) -> VectorEnv:
    """Return what steps. Raises ValueError if it is to be vebench's own class and that cannot."""
    task = TASKS[setup.task]
    if setup.library == LOOP:
        return SyncVectorEnv([partial(make, task)] * setup.num_envs, copy=False)
    if setup.library == ENVPOOL:
        settings = envpool_settings(task) | {"num_envs": setup.num_envs, "batch_size": setup.batch}
        settings |= {"num_threads": setup.threads, "thread_affinity_offset": 0 if setup.pinned else -1}
        return envpool.make_gymnasium(envpool_name(task), **settings)
    settings = {"copy": False, "own_classes": True, "seed": 0, **fast_settings(task)}
    batch = setup.batch if setup.batch < setup.num_envs else None
    return make_vec(task.id, setup.num_envs, num_processes=setup.threads or None, batch_size=batch, **settings)


def start(setup: Setup) -> tuple[VectorEnv, Callable[[NDArray], object], Iterator[NDArray]]:
    """Return environments after their reset, what steps a batch of them, and its actions."""
    envs, theirs, at_once = make_envs(setup), setup.library == ENVPOOL, setup.batch == setup.num_envs
    random, space = np.random.default_rng(0), envs.single_action_space
    low, high, kind = (0, space.n, np.int64) if hasattr(space, "n") else (space.low, space.high, np.float32)
    tape = random.uniform(low, high, (TAPE, setup.num_envs, *space.shape)).astype(kind)

    def receive_and_send(actions: NDArray) -> None:
        last = envs.recv()[-1]
        envs.send(actions, last["env_id"] if theirs else last)

    (envs.async_reset if theirs and not at_once else envs.reset)()
    if not theirs and not at_once:
        envs.send(tape[0])
    return envs, envs.step if at_once else receive_and_send, cycle(tape[:, : setup.batch])


def rate(setup: Setup, seconds: float, kept: Collection[Setup] | None = None) -> float:
    """Return rows per second of what was started before, or is now; if some are to be kept, after closing others."""
    for other in STARTED.keys() - {setup, *(STARTED if kept is None else kept)}:
        STARTED.pop(other)[0].close()
    if setup not in STARTED:
        STARTED[setup] = start(setup)
    _, step, tape = STARTED[setup]
    for at_least in (seconds / 4, seconds):  # in the first, what other processes have in flight ends
        rows, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < at_least or rows < setup.num_envs:
            step(next(tape))
            rows += setup.batch
    return rows / spent


class Bench(ExitStack):
    """Processes that stay alive, one for each library, for a task and a size; and the results on file."""

    def __init__(self, asked: argparse.Namespace, name: str, count: int) -> None:
        super().__init__()
        self.asked, self.task, self.count = asked, TASKS[name], count
        self.processes: dict[str, ProcessPoolExecutor] = {}

    def setup(self, library: str) -> Setup:
        """Return how a library steps all environments at once."""
        return Setup(library, self.task.id, self.count, self.count)

    def kept(self, what: object, measure: Callable[..., Any], *arguments: object) -> Any:
        """Return what is on file, after measuring it if it is not there."""
        path, key = self.asked.file, f"{self.asked.command} {self.task.id} {self.count} {json.dumps(what)}"
        for line in map(json.loads, path.read_text().splitlines() if path.exists() else ()):
            if line["key"] == key:
                return line["found"]
        found = measure(*arguments)
        with path.open("a") as file:
            file.write(json.dumps({"key": key, "found": found}) + "\n")
        return found

    def rate(self, setup: Setup, *arguments: object) -> float:
        """Return what ``rate`` returns in the process of the library."""
        if setup.library not in self.processes:
            self.processes[setup.library] = self.enter_context(ProcessPoolExecutor(1, SPAWN, quiet))
        return self.processes[setup.library].submit(rate, setup, *arguments).result()

    def rates(self, setups: Mapping[str, Setup], busy: int = 0) -> Rates:
        """Return the rates of each repeat by name, with so many busy processes."""
        return self.kept([setups, busy, self.asked.repeats, self.asked.window], self.in_turn, setups, busy)

    def in_turn(self, setups: Mapping[str, Setup], busy: int) -> Rates:
        for setup in setups.values():
            self.rate(setup, 0.0)  # makes the environments
        windows: Rates = {name: [] for name in setups}
        with ExitStack() as stack:
            for _ in range(busy):
                stack.callback(stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY])).kill)
            time.sleep(busy)  # until they have started
            for name in (*setups, *reversed(setups)) * self.asked.repeats:
                windows[name].append(self.rate(setups[name], self.asked.window))
        return {name: [*map(mean, zip(rates[::2], rates[1::2], strict=True))] for name, rates in windows.items()}


def compared(ours: Sequence[float], *others: Sequence[float]) -> tuple:
    """Return the rate of ours, and its ratio to each of the others."""
    ratios = [[one / other for one, other in zip(ours, rates, strict=True)] for rates in others]
    return f"{median(ours):,.0f}", *(f"{median(some):.2f} ({min(some):.2f} to {max(some):.2f})" for some in ratios)


def beside(bench: Bench) -> Iterator[tuple]:
    setups = {library: bench.setup(library) for library in (OURS, ENVPOOL, LOOP)}
    for busy in range(3):
        yield busy, *compared(*bench.rates(setups, busy).values())


def best(bench: Bench) -> Iterator[tuple]:
    what = bench.asked.window
    setups = {library: Setup(*bench.kept([library, what], searched, bench, library)) for library in (OURS, ENVPOOL)}
    yield *setups.values(), *compared(*bench.rates(setups).values())


def searched(bench: Bench, library: str) -> Setup:
    """Return the fastest setup: the best three of all run again."""
    theirs, found, leaders = library == ENVPOOL, dict[Setup, float](), list[Setup]()
    alive = [count for factor in (2, 3, 4, 6) if (count := factor * bench.count / 2) % 1 == 0]
    threads = range(1, (2 if theirs else 1) * CPUS + 1)
    for num_envs, pinned, count in product(map(int, alive), (False, True)[: 1 + theirs], threads):
        setup = bench.setup(library)._replace(num_envs=num_envs, pinned=pinned, threads=count)
        if count <= max(CPUS, num_envs):
            found[setup] = bench.rate(setup, bench.asked.window, leaders)
            leaders = sorted(found, key=found.__getitem__)[-3:]
    return max(leaders, key=lambda setup: found[setup] + bench.rate(setup, bench.asked.window))


BOTH, SEVEN = "HalfCheetah,Pong", "Pong,Breakout,MsPacman,HalfCheetah,Ant,Swimmer,Humanoid"
# By command: rows, columns; then the defaults: tasks, sizes, repeats, seconds of a window.
COMMANDS = {
    "beside": (beside, "busy,rows/s,to EnvPool,to SyncVectorEnv", BOTH, "1,2,8,64,256", 5, 0.4),
    "best": (best, "make_vec,EnvPool,rows/s,to EnvPool", SEVEN, "1,8,64,256", 10, 0.3),
}


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--env")
    parser.add_argument("--sizes", help="environments of a batch")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--window", type=float, help="seconds")
    rows, more, *defaults = COMMANDS[parser.parse_args().command]
    parser.set_defaults(**dict(zip(("env", "sizes", "repeats", "window"), defaults, strict=True)))
    asked, columns = parser.parse_args(), ["task", "environments", *more.split(",")]
    found = []
    for name, count in product(asked.env.split(","), map(int, asked.sizes.split(","))):
        with Bench(asked, name, count) as bench:
            found += [(bench.task.id, count, *row) for row in rows(bench)]
    print(table(columns, found))


if __name__ == "__main__":
    main()
