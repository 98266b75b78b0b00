"""``vebench compare``: measure the same cells in two interpreters, in turn on the same CPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from vebench.analysis.comparison import compare
from vebench.analysis.pairing import COMPARE
from vebench.analysis.summary import next_repeats
from vebench.backends.registry import ENTRIES
from vebench.commands import gating, planning
from vebench.commands.deciding import until_decided
from vebench.commands.session import session
from vebench.errors import NotComparableError, UsageError, shown
from vebench.plan.cells import Plan, in_groups, next_pass
from vebench.plan.spec import BackendChoice
from vebench.reports.pages.check import CheckPage
from vebench.results import header, paths
from vebench.results.store import RunWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, Levels
    from vebench.commands.world import World
    from vebench.interpreters.interpreter import Interpreter
    from vebench.plan.cells import CellKey
    from vebench.plan.spec import RunSpec
    from vebench.reports.formats.registry import Format
    from vebench.results.records import RunRecord

_SIDES = (COMPARE.baseline, COMPARE.candidate)
# What is compared by default: nothing is judged by the reference rows, and measuring them takes time on both sides.
_CONTESTANTS = tuple(BackendChoice(entry.name) for entry in ENTRIES if entry.by_default and not entry.reference_row)


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
    spec = replace(spec, backends=spec.backends or _CONTESTANTS, interleave=spec.replicas == 1)
    interpreters = [world.examine(f"Python {name}", python) for name, python in zip(_SIDES, pythons, strict=True)]
    sides = _sides(interpreters, spec, files, world)
    return _compare(sides, gate, world)


def in_turn(plans: Sequence[Plan], memory_available: int | None) -> Plan:
    """Return the plans of both sides as one, in which a cell takes turns with the same cell of the other side.

    The sides take turns at being first, pass by pass. If memory does not suffice for both cells at the same time, they
    are measured one after the other. ``memory_available`` is in bytes, None if unknown.
    """
    pairs = zip(*(plan.cells for plan in plans), strict=True)
    ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in pairs]
    return Plan(plans[0].spec, in_groups(ordered, memory_available))


def _compare(sides: Sequence[Side], gate: Gate, world: World) -> int:
    """Measure all cells into the files of both sides, and judge. Returns the exit status."""
    started = world.clock()
    files = {side.name: RunWriter.create(side.path, side.head) for side in sides}
    pythons = {side.name: side.interpreter.path for side in sides}
    with session(files, world, quiet=False, pythons=pythons) as measuring:
        measuring.one_pass(in_turn([side.plan for side in sides], world.memory_available()))

        def cells() -> list[tuple[CellSummary, ...]]:
            return [gating.cells_of(measuring.runs[side.name], side.path) for side in sides]

        def look(levels: Levels | None = None) -> Comparison:
            return compare(*cells(), metric="fps", tolerance=gate.tolerance, in_turn=True, names=COMPARE, levels=levels)

        def one_pass(wanted: frozenset[CellKey]) -> bool:
            # Of cells that went well on both sides so far.
            one, other = (next_repeats(measuring.runs[side.name]) for side in sides)
            both = {key: max(number, other[key]) for key, number in one.items() if key in other}
            more = [next_pass(side.plan, wanted, both) for side in sides]
            if more[0].cells:
                measuring.one_pass(in_turn(more, world.memory_available()))
            return bool(more[0].cells)

        if gate.budget is not None:
            passes = max(next_repeats(measuring.run).values(), default=1)
            found = until_decided(look, one_pass, passes, started, gate.budget, world.clock)
        else:
            found = look()
    measured = cells()
    reasons = (gating.unusable_run(side.path, its) for side, its in zip(sides, measured, strict=True))
    notice = next(filter(None, reasons), "")
    if notice:
        found = gating.without_verdicts(found, notice)
    status = gating.exit_status(found)
    differences = [
        *header.what_differs(*(side.head for side in sides)),
        *gating.classes_that_differ(*measured),
    ]
    one, other = (f"{side.path} ({side.interpreter.path})" for side in sides)
    page = CheckPage(one, other, found, tuple(differences), status, notice)
    gating.publish(page, gate.form, gate.junit)
    return status


def _sides(interpreters: Sequence[Interpreter], spec: RunSpec, files: Sequence[Path], world: World) -> tuple[Side, ...]:
    """Return both sides, ready to measure. Raises NotComparableError if no cell can run on both."""
    tasks = world.resolve(spec.envs, spec.backends, python=interpreters[0].path)
    sides: list[Side] = []
    for name, interpreter, path in zip(_SIDES, interpreters, files, strict=True):
        plan, head = planning.planned(spec, tasks, world, interpreter)
        plan = replace(plan, cells=tuple(replace(cell, side=name) for cell in plan.cells))
        started = sides[0].head.started if sides else head.started  # the same tells that they are of one comparison
        sides.append(Side(name, interpreter, plan, structs.replace(head, started=started), path))
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
    return [path.with_name(f"{path.stem}-{name.lower()}{path.suffix}") for name in _SIDES]
