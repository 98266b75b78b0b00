"""Two interpreters beside each other, from beginning to end: the same cells in both, in turn, on the same CPUs."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vebench.analysis.comparison import compare
from vebench.commands import gate, measuring
from vebench.engine.interrupts import Interrupts
from vebench.engine.launcher import Launcher
from vebench.errors import InterruptedRunError, UsageError
from vebench.interpreters.interpreter import examine
from vebench.machine.host import memory_available, read_host
from vebench.plan.cells import Plan, expand, informed, placement_of
from vebench.plan.interleaving import in_groups
from vebench.plan.known_work import Knowledge
from vebench.plan.tasks import resolve
from vebench.reports.pages.check import CheckPage
from vebench.results import header, paths, store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from vebench.backends.interface import Task
    from vebench.commands.gate import Inconclusive
    from vebench.engine.conversation import Conversation
    from vebench.interpreters.interpreter import Interpreter
    from vebench.machine.host import Host
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec
    from vebench.reports.formats.table import Format
    from vebench.results.records import RunRecord


@dataclass(frozen=True)
class Side:
    """One of the two: its name, its interpreter, its cells, the header and the path of its run file."""

    name: str
    interpreter: Interpreter
    plan: Plan
    head: RunRecord
    path: Path


@dataclass(frozen=True)
class Request:
    """Which two Pythons are compared, by what, and how strictly."""

    pythons: tuple[str, str]
    spec: RunSpec
    output: Path | None = None
    tolerance: float = 0.05
    inconclusive: Inconclusive = "default"


class Launchers:
    """Starts each cell in the interpreter of its side."""

    def __init__(self, launchers: dict[str, Launcher]) -> None:
        self._launchers = launchers

    def __call__(self, cell: Cell) -> AbstractContextManager[Conversation]:
        """Return the running cell."""
        return self._launchers[cell.side](cell)


def run(request: Request, *, form: Format, junit: Path | None, quiet: bool) -> int:
    """Measure in both, compare, and print the verdicts on B beside A in ``form``. Returns the exit status.

    Raises UsageError for an interpreter or a plan that cannot be, InterruptedRunError if the user ends it.
    """
    gate.check_tolerance(request.tolerance)
    sides = _sides(request)
    for side in sides:
        if side.path.exists():
            raise UsageError(f"{side.path} exists and would be overwritten: name another file with -o")
    if junit is not None:
        gate.check_target(junit, [side.path for side in sides])
    measure(sides, quiet=quiet)
    before, after = (gate.cells_of(store.read(side.path), side.path) for side in sides)
    found = compare(before, after, metric="fps", tolerance=request.tolerance, in_turn=True)
    status = gate.exit_status(found, request.inconclusive)
    differences = header.what_differs(*(side.head for side in sides))
    one, other = (f"{side.path} ({side.interpreter.path})" for side in sides)
    gate.publish(CheckPage(one, other, found, tuple(differences), status), form, junit)
    return status


def measure(sides: Sequence[Side], *, quiet: bool) -> None:
    """Measure the cells of both sides in turn, each into the file of its side."""
    one, other = (side.plan for side in sides)
    plan = in_turn(one, other, memory_available())
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        writers = {side.name: stack.enter_context(store.RunWriter.create(side.path, side.head)) for side in sides}
        launchers = Launchers(
            {side.name: stack.enter_context(Launcher(plan.spec, interrupts, side.interpreter.path)) for side in sides}
        )
        try:
            for _ in measuring.follow(plan, launchers, lambda cell: writers[cell.side], done=0, quiet=quiet):
                pass
        except KeyboardInterrupt:
            files = " and ".join(str(side.path) for side in sides)
            message = f"interrupted: what was measured is in {files}; vebench compare measures both sides anew"
            raise InterruptedRunError(message) from None


def in_turn(one: Plan, other: Plan, memory_available: int | None) -> Plan:
    """Return both plans as one: each cell in both interpreters, which take turns, window by window.

    One is first in one pass, the other in the next. Where there is no room for both at the same time, they are measured
    one after the other. ``memory_available`` is in bytes, None if unknown.
    """
    pairs = zip(one.cells, other.cells, strict=True)
    ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in pairs]
    return Plan(one.spec, in_groups(ordered, memory_available))


def _sides(request: Request) -> tuple[Side, Side]:
    """Return both sides, ready to be measured."""
    host = read_host()
    first, second = (examine(option, path) for option, path in zip(("--a", "--b"), request.pythons, strict=True))
    spec = replace(request.spec, interleave=request.spec.replicas == "1")
    request = replace(request, spec=spec)
    tasks = resolve(spec.envs, spec.backends, python=first.path)
    path = request.output or paths.default_path(datetime.now(UTC), spec.envs)
    return (
        _side("A", first, request, tasks=tasks, host=host, path=path),
        _side("B", second, request, tasks=tasks, host=host, path=path),
    )


def _side(  # noqa: PLR0913 - what a side is made of
    name: str, interpreter: Interpreter, request: Request, *, tasks: Sequence[Task], host: Host, path: Path
) -> Side:
    """Return one side. Raises UsageError if nothing can run there."""
    placement = placement_of(request.spec, host)
    plan = expand(request.spec, tasks, placement, memory_available(), interpreter.has)
    plan = informed(plan, Knowledge.load(), interpreter.packages)
    if all(cell.skip for cell in plan.cells):
        raise UsageError(f"--{name.lower()} {interpreter.path}: nothing of this can run there: {plan.cells[0].skip}")
    plan = replace(plan, cells=tuple(replace(cell, side=name) for cell in plan.cells))
    command = shlex.join(["vebench", *sys.argv[1:]])
    head = header.gather(plan, host, placement, command, datetime.now(UTC), interpreter=interpreter)
    return Side(name, interpreter, plan, head, path.with_name(f"{path.stem}-{name.lower()}{path.suffix}"))
