"""A world whose truth is known: how long a batch takes is what a function of its cell says."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp
from random import Random

from support.fakes import FakeStart, Script, fake_resolve, fake_world, steady

from vebench.backends.interface import Task
from vebench.backends.registry import BY_NAME
from vebench.child.answers import Window
from vebench.commands.session import World
from vebench.machine.host import flat, read_host
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec

Seconds = Callable[[Cell], float]
Counts = Callable[[Cell, Window], Mapping[str, int]]


CPUS = 4
TIMED = "timed"


def uncounted(_cell: Cell, _window: Window) -> Mapping[str, int]:
    """Count nothing besides rows."""
    return {}


def paced(seconds: Seconds, noise: float = 0.005, counts: Counts = uncounted) -> Callable[[Cell, RunSpec], Script]:
    """Return the script of cells whose batches take so long, and whose processes differ by this much.

    ``counts`` has more fields of each window.
    """

    def script(cell: Cell, spec: RunSpec) -> Script:
        luck = exp(Random(repr(cell.key)).gauss(0, noise))
        rate = luck * cell.shape.batch_size / seconds(cell) / len(cell.cpus)
        answers = steady(cell, spec, rate)
        return [replace(each, **counts(cell, each)) if isinstance(each, Window) else each for each in answers]

    return script


def resolve(
    names: tuple[str, ...], backends: tuple[BackendChoice, ...], *, python: str = sys.executable
) -> tuple[Task, ...]:
    """Return the tasks of these names. Those that take a stated time are looked up in no other process."""
    return tuple(
        Task(name.removeprefix(f"{TIMED}:"), "gymnasium", 1, module=TIMED)
        if name.startswith(f"{TIMED}:")
        else fake_resolve((name,), backends, python=python)[0]
        for name in names
    )


def world_of(script: Callable[[Cell, RunSpec], Script], cpus: int = CPUS, start: FakeStart | None = None) -> World:
    """Return a world of so many CPUs in which every cell follows ``script``; ``start`` is to remember them."""
    host = replace(read_host(), topology=flat(range(cpus)), cpus_allowed=tuple(range(cpus)), quota_cpus=None)
    start = start or FakeStart()
    start.scripts = dict.fromkeys(BY_NAME, script)
    return fake_world(start, read_host=lambda: host, resolve=resolve, memory_available=lambda: None)
