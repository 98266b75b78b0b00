"""``vebench compare``: measure the same cells in two interpreters, in turn on the same CPUs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.analysis.comparison import compare
from vebench.commands import gating, measuring, planning
from vebench.engine.interrupts import Interrupts
from vebench.errors import InterruptedRunError, UsageError
from vebench.plan.cells import Plan
from vebench.plan.interleaving import in_groups
from vebench.reports.pages.check import CheckPage
from vebench.results import header, paths, store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from vebench.backends.interface import Task
    from vebench.commands.gating import Inconclusive
    from vebench.commands.world import World
    from vebench.engine.conversation import Conversation, Launch
    from vebench.interpreters.interpreter import Interpreter
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec
    from vebench.reports.formats.registry import Format
    from vebench.results.records import RunRecord


@dataclass(frozen=True)
class Side:
    """One side of the comparison: its name, interpreter and cells, and the header and path of its run file."""

    name: str
    interpreter: Interpreter
    plan: Plan
    head: RunRecord
    path: Path


@dataclass(frozen=True)
class CompareRequest:
    """Which two Pythons to compare, what to measure, and how strict to be."""

    pythons: tuple[str, str]
    spec: RunSpec
    output: Path | None = None
    tolerance: float = 0.05
    inconclusive: Inconclusive = "default"


class LaunchBySide:
    """Starts each cell in the interpreter of its side."""

    def __init__(self, launches: Mapping[str, Launch]) -> None:
        self._launches = launches

    def __call__(self, cell: Cell) -> AbstractContextManager[Conversation]:
        """Return the running cell."""
        return self._launches[cell.side](cell)


def run(request: CompareRequest, world: World, *, form: Format, junit: Path | None, quiet: bool) -> int:
    """Measure both sides, compare them, and print the verdicts on B in ``form``. Returns the exit status.

    Raises UsageError for an interpreter that cannot be used or a plan that is not possible, InterruptedRunError if the
    user interrupts it.
    """
    gating.check_tolerance(request.tolerance)
    sides = _sides(request, world)
    for side in sides:
        if side.path.exists():
            raise UsageError(f"{side.path} exists and would be overwritten: name another file with -o")
    if junit is not None:
        gating.check_target(junit, [side.path for side in sides])
    measure(sides, world, quiet=quiet)
    before, after = (gating.cells_of(store.read(side.path), side.path) for side in sides)
    found = compare(before, after, metric="fps", tolerance=request.tolerance, in_turn=True)
    reasons = (gating.unusable_run(side.path, cells) for side, cells in zip(sides, (before, after), strict=True))
    notice = next(filter(None, reasons), "")
    if notice:
        found = gating.without_verdicts(found, notice)
    status = gating.exit_status(found, request.inconclusive)
    differences = header.what_differs(*(side.head for side in sides))
    one, other = (f"{side.path} ({side.interpreter.path})" for side in sides)
    gating.publish(CheckPage(one, other, found, tuple(differences), status, notice), form, junit)
    return status


def measure(sides: Sequence[Side], world: World, *, quiet: bool) -> None:
    """Measure the cells of both sides in turn, each into the file of its side."""
    one, other = sides
    plan = in_turn(one.plan, other.plan, world.memory_available())
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        writers = {side.name: stack.enter_context(store.RunWriter.create(side.path, side.head)) for side in sides}
        launch = LaunchBySide(
            {
                side.name: stack.enter_context(world.start(plan.spec, interrupts, side.interpreter.path))
                for side in sides
            }
        )
        try:
            for _ in measuring.follow(plan, launch, lambda cell: writers[cell.side], world, quiet=quiet):
                pass
        except KeyboardInterrupt:
            files = " and ".join(str(side.path) for side in sides)
            message = f"interrupted: what was measured is in {files}; vebench compare measures both sides again"
            raise InterruptedRunError(message) from None


def in_turn(one: Plan, other: Plan, memory_available: int | None) -> Plan:
    """Return both plans as one: each cell of one side takes turns with the same cell of the other, window by window.

    The sides take turns at being first, pass by pass. If memory does not suffice for both cells at the same time, they
    are measured one after the other. ``memory_available`` is in bytes, None if unknown.
    """
    pairs = zip(one.cells, other.cells, strict=True)
    ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in pairs]
    return Plan(one.spec, in_groups(ordered, memory_available))


def _sides(request: CompareRequest, world: World) -> tuple[Side, Side]:
    """Return both sides, ready to measure."""
    spec = replace(request.spec, interleave=request.spec.replicas == "1")
    first, second = (world.examine(option, path) for option, path in zip(("--a", "--b"), request.pythons, strict=True))
    tasks = world.resolve(spec.envs, spec.backends, python=first.path)
    path = request.output or paths.default_path(world.now(), spec.envs)
    return (_side("A", first, spec, tasks, path, world), _side("B", second, spec, tasks, path, world))


def _side(  # noqa: PLR0913, PLR0917 - a side needs all of these
    name: str, interpreter: Interpreter, spec: RunSpec, tasks: Sequence[Task], path: Path, world: World
) -> Side:
    """Return one side. Raises UsageError if nothing can run there."""
    plan, head = planning.planned(spec, tasks, world, interpreter)
    planning.refuse_useless(plan, f"--{name.lower()} {interpreter.path}: ", "there")
    plan = replace(plan, cells=tuple(replace(cell, side=name) for cell in plan.cells))
    return Side(name, interpreter, plan, head, path.with_name(f"{path.stem}-{name.lower()}{path.suffix}"))
