"""``vebench compare``: measure the same cells in two interpreters, in turn on the same CPUs."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.analysis.comparison import compare
from vebench.analysis.names import COMPARE
from vebench.analysis.precision import next_repeats
from vebench.backends.registry import ENTRIES
from vebench.commands import gating, measuring, planning
from vebench.commands.deciding import until_decided
from vebench.errors import InterruptedRunError, NotComparableError, StorageError, UsageError, shown
from vebench.interpreters.interrupts import Interrupts
from vebench.plan.cells import Plan
from vebench.plan.interleaving import in_groups
from vebench.plan.passes import next_pass
from vebench.plan.spec import BackendChoice
from vebench.reports.pages.check import CheckPage
from vebench.results import header, paths, store
from vebench.results.store import RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, Levels
    from vebench.commands.world import World
    from vebench.engine.conversation import Conversation, Launch
    from vebench.interpreters.interpreter import Interpreter
    from vebench.plan.cells import Cell, CellKey
    from vebench.plan.spec import RunSpec
    from vebench.reports.formats.registry import Format
    from vebench.results.records import CellRecord, Run, RunRecord

SIDES = (COMPARE.baseline, COMPARE.candidate)
# What is compared by default: nothing is judged by the reference rows, and measuring them takes time on both sides.
CONTESTANTS = tuple(BackendChoice(entry.name) for entry in ENTRIES if entry.by_default and not entry.reference_row)


@dataclass(frozen=True)
class Side:
    """One side of the comparison: its name, interpreter and cells, and the header and path of its run file."""

    name: str
    interpreter: Interpreter
    plan: Plan
    head: RunRecord
    path: Path


@dataclass(frozen=True)
class Gate:
    """How strict to be, and where verdicts go: they are printed in ``form``, and written to ``junit`` unless None.

    With a ``budget``, passes are added until every backend has its verdict, for at most so many seconds in all.
    """

    form: Format
    junit: Path | None = None
    tolerance: float = 0.05
    budget: float | None = None


class LaunchBySide:
    """Starts each cell in the interpreter of its side."""

    def __init__(self, launches: Mapping[str, Launch]) -> None:
        self._launches = launches

    def __call__(self, cell: Cell) -> AbstractContextManager[Conversation]:
        """Return the running cell."""
        return self._launches[cell.side](cell)


def start(pythons: tuple[str, str], spec: RunSpec, output: Path | None, gate: Gate, world: World) -> int:
    """Measure ``spec`` in both Pythons, and print the verdicts on the second. Returns the exit status.

    The name ``output``, by default a new one in ``.vebench/``, is that of both run files, with the sides added. Raises
    UsageError for an interpreter that cannot be used or a plan that is not possible, NotComparableError if no cell can
    run on both sides, InterruptedRunError if the user interrupts it.
    """
    files = _files(output or paths.default_path(world.now(), spec.envs))
    for path in files:
        if path.exists():
            raise UsageError(f"{path} exists and would be overwritten: name another file with -o")
    _check_gate(gate, files)
    if named := next((choice.label for choice in spec.backends if choice.python), None):
        raise UsageError(
            f"--backend {shown(named)}: its Python is one of the two that are compared: leave out what follows @"
        )
    spec = replace(spec, backends=spec.backends or CONTESTANTS, interleave=spec.replicas == 1)
    interpreters = [world.examine(f"Python {name}", python) for name, python in zip(SIDES, pythons, strict=True)]
    sides = _sides(interpreters, spec, files, world)
    return _compare(sides, gate, world)


def in_turn(one: Plan, other: Plan, memory_available: int | None) -> Plan:
    """Return both plans as one: each cell of one side takes turns with the same cell of the other, window by window.

    The sides take turns at being first, pass by pass. If memory does not suffice for both cells at the same time, they
    are measured one after the other. ``memory_available`` is in bytes, None if unknown.
    """
    pairs = zip(one.cells, other.cells, strict=True)
    ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in pairs]
    return Plan(one.spec, in_groups(ordered, memory_available))


def _compare(sides: Sequence[Side], gate: Gate, world: World) -> int:
    """Measure all cells into the files of both sides, and judge. Returns the exit status."""
    started = world.clock()
    with _measuring(sides, world) as measure:
        measure([side.plan for side in sides], 0)

        def look(levels: Levels | None = None) -> Comparison:
            return _judged(sides, gate, levels)

        def one_pass(wanted: frozenset[CellKey]) -> bool:
            runs = [store.read(side.path) for side in sides]
            plans = _next_passes(sides, runs, wanted)
            if plans[0].cells:
                measure(plans, sum(len(run.cells) for run in runs))
            return bool(plans[0].cells)

        if gate.budget is not None:
            passes = max(next_repeats(store.read(sides[0].path)).values(), default=1)
            found = until_decided(look, one_pass, passes, started, gate.budget, world.clock)
        else:
            found = look()
    reasons = (gating.unusable_run(side.path, _cells(side)) for side in sides)
    notice = next(filter(None, reasons), "")
    if notice:
        found = gating.without_verdicts(found, notice)
    status = gating.exit_status(found)
    differences = [
        *header.what_differs(*(side.head for side in sides)),
        *gating.classes_that_differ(*map(_cells, sides)),
    ]
    one, other = (f"{side.path} ({side.interpreter.path})" for side in sides)
    page = CheckPage(one, other, found, tuple(differences), status, notice)
    gating.publish(page, gate.form, gate.junit)
    return status


def _judged(sides: Sequence[Side], gate: Gate, levels: Levels | None) -> Comparison:
    before, after = map(_cells, sides)
    return compare(before, after, metric="fps", tolerance=gate.tolerance, in_turn=True, names=COMPARE, levels=levels)


def _cells(side: Side) -> tuple[CellSummary, ...]:
    return gating.cells_of(store.read(side.path), side.path)


def _next_passes(sides: Sequence[Side], runs: Sequence[Run], wanted: Container[CellKey]) -> list[Plan]:
    """Return one more pass over those ``wanted`` cells that went well on both sides so far."""
    one, other = map(next_repeats, runs)
    both = {key: max(number, other[key]) for key, number in one.items() if key in other}
    return [next_pass(side.plan, wanted, both) for side in sides]


@contextmanager
def _measuring(sides: Sequence[Side], world: World) -> Iterator[Callable[[Sequence[Plan], int], None]]:
    """Open the files of both sides, and yield what measures a plan of each in turn, after so many cells as are done.

    Raises InterruptedRunError if the user interrupts it.
    """
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        writers = {
            side.name: stack.enter_context(measuring.kept(RunWriter.create(side.path, side.head))) for side in sides
        }
        launch = LaunchBySide(
            {
                side.name: stack.enter_context(world.start(side.plan.spec, interrupts, side.interpreter.path))
                for side in sides
            }
        )

        measured: list[CellRecord] = []

        def measure(plans: Sequence[Plan], done: int) -> None:
            one, other = plans
            both = in_turn(one, other, world.memory_available())
            cells = measuring.follow(both, launch, lambda cell: writers[cell.side], world, done=done, quiet=False)
            for cell in cells:
                measured.append(cell)  # noqa: PERF402 - what came before an interrupt is to be there
            for writer in writers.values():
                writer.secure()
                if writer.moved:
                    raise StorageError(f"no verdict: {writer.path} is not beside the other side's file")

        try:
            yield measure
        except KeyboardInterrupt:
            files = " and ".join(str(side.path) for side in sides)
            lost = measuring.without_proof(measured)
            raise InterruptedRunError(f"interrupted: what was measured is in {files}{lost}") from None


def _sides(interpreters: Sequence[Interpreter], spec: RunSpec, files: Sequence[Path], world: World) -> tuple[Side, ...]:
    """Return both sides, ready to measure. Raises NotComparableError if no cell can run on both."""
    tasks = world.resolve(spec.envs, spec.backends, python=interpreters[0].path)
    sides = []
    for name, interpreter, path in zip(SIDES, interpreters, files, strict=True):
        plan, head = planning.planned(spec, tasks, world, interpreter)
        plan = replace(plan, cells=tuple(replace(cell, side=name) for cell in plan.cells))
        sides.append(Side(name, interpreter, plan, head, path))
    _check_pairs(sides)
    return tuple(sides)


def _check_gate(gate: Gate, files: Sequence[Path]) -> None:
    """Raise UsageError, before anything is measured, if the tolerance or ``--junit`` is not possible."""
    gating.check_tolerance(gate.tolerance)
    if gate.junit is not None:
        gating.check_target(gate.junit, files)


def _check_pairs(sides: Sequence[Side]) -> None:
    """Raise NotComparableError, which says what is missing, if no cell that is compared can run on both sides."""
    planned = [planning.contestants(side.plan) for side in sides]
    pairs = list(zip(*planned, strict=True))
    if not pairs:
        rows = " and ".join(sorted({cell.backend.name for cell in sides[0].plan.cells}))
        raise NotComparableError(f"nothing to compare: {rows} alone say nothing about a backend: name others with -b")
    if all(any(cell.skip for cell in pair) for pair in pairs):
        missing = [
            f"{side.name} ({side.interpreter.path}): {planning.reasons(cells)}"
            for side, cells in zip(sides, planned, strict=True)
            if any(cell.skip for cell in cells)
        ]
        raise NotComparableError(f"nothing to compare: no cell can run on both sides: {'; '.join(missing)}")


def _files(path: Path) -> list[Path]:
    """Return the run files of both sides, whose names have that of ``path`` in common."""
    return [path.with_name(f"{path.stem}-{name.lower()}{path.suffix}") for name in SIDES]
