"""``vebench compare``: measure the same cells in two interpreters, interleaved on the same CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from vebench.analysis.cell import CellSummary
from vebench.analysis.comparison import COMPARE
from vebench.analysis.summary import next_repeats
from vebench.backends.interface import Task
from vebench.backends.registry import ENTRIES
from vebench.commands import planning
from vebench.commands.session import World, session
from vebench.errors import NotComparableError, UsageError, shown
from vebench.gates import gate
from vebench.gates.check_page import CheckPage
from vebench.gates.gate import Budget, Criteria
from vebench.interpreters.interpreter import Interpreter
from vebench.plan.cells import CellKey, Plan, in_groups, next_pass
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.results import records, store
from vebench.results.records import RunRecord
from vebench.results.store import RunWriter

_SIDES = (COMPARE.baseline, COMPARE.candidate)
# The default. No verdict needs reference rows, and they would be measured on both sides.
CONTESTANTS = tuple(BackendChoice(entry.name) for entry in ENTRIES if entry.by_default and not entry.reference_row)


@dataclass(frozen=True)
class _Side:
    """One side of a comparison, and its run file."""

    name: str
    python: str
    plan: Plan  # its cells are in the order of the other side's
    head: RunRecord
    path: Path

    def __str__(self) -> str:
        return f"{self.path} ({self.python})"


def compared(
    pythons: tuple[str, str],
    spec: RunSpec,
    output: Path | None,
    world: World,
    *,
    tolerance: float,
    budget: float | None,
    quiet: bool = False,
    instead: RunSpec | None = None,
) -> CheckPage:
    """Measure ``spec`` in both Pythons, and return the verdicts on the second.

    Both run files have the name ``output``, by default a new one in ``.vebench/``, with the sides added. Within
    ``budget`` seconds, passes are added until every backend has a verdict; None: the passes of ``spec`` are measured.
    ``quiet``: no progress is shown. ``instead``: the first Python measures this spec. It has the same number of
    environments and backends, and each is compared with the one in its place in ``spec``.

    Raises UsageError for a Python or a plan that cannot be used, NotComparableError if no cell can run on both sides,
    InterruptedRunError if the user interrupts it.
    """
    gate.check_tolerance(tolerance)
    base = output or store.default_path(world.now(), spec.envs)
    files = [base.with_name(f"{base.stem}-{name.lower()}{base.suffix}") for name in _SIDES]
    for path in files:
        if path.exists():
            raise UsageError(f"{path} exists and would be overwritten: name another file with -o")
    passes = spec.passes if budget is None else min(spec.passes, gate.FEWEST_PASSES)
    specs = [
        replace(one, backends=one.backends or CONTESTANTS, interleave=one.replicas == 1, passes=passes)
        for one in (instead or spec, spec)
    ]
    if named := next((choice.label for one in specs for choice in one.backends if choice.python), None):
        raise UsageError(f"--backend {shown(named)}: its Python is one of the two compared: leave out what follows @")
    sides = _sides(pythons, specs, files, world)
    return _judged(sides, Criteria("fps", tolerance, in_turn=True, names=COMPARE), budget, spec.passes, world, quiet)


def both_in_turn(plans: Sequence[Plan], memory_available: int | None) -> Plan:
    """Return the plans of both sides as one, in which each cell is interleaved with the same cell of the other side.

    The first side alternates pass by pass. Two cells that do not fit into ``memory_available``, in bytes, together are
    measured one after the other.
    """
    pairs = zip(*(plan.cells for plan in plans), strict=True)
    ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in pairs]
    return Plan(plans[0].spec, in_groups(ordered, memory_available))


def _judged(
    sides: tuple[_Side, _Side], criteria: Criteria, seconds: float | None, first: int, world: World, quiet: bool
) -> CheckPage:
    budget = None if seconds is None else Budget(seconds, world.clock)
    one, other = sides
    files = {side.name: RunWriter.create(side.path, side.head) for side in sides}
    pythons = {side.name: side.python for side in sides}
    # The second side's key by the first side's.
    keys = {
        cell.key.without_repeat: same.key.without_repeat
        for cell, same in zip(one.plan.cells, other.plan.cells, strict=True)
    }
    with session(files, world, quiet=quiet, pythons=pythons) as measuring:

        def measured() -> tuple[Sequence[CellSummary], Sequence[CellSummary]]:
            before, after = (gate.cells_of(measuring.runs[side.name], side.path) for side in sides)
            return [replace(cell, key=keys[cell.key]) for cell in before], after

        def add_pass(wanted: frozenset[CellKey]) -> bool:
            ours, theirs = (next_repeats(measuring.runs[side.name]) for side in sides)
            # Cells whose last pass went well on both sides.
            both = {key: max(number, theirs[keys[key]]) for key, number in ours.items() if keys[key] in theirs}
            again = {key for key in both if keys[key] in wanted}
            more = next_pass(one.plan, again, both)
            same = next_pass(other.plan, wanted, {keys[key]: number for key, number in both.items()})
            if more.cells:
                measuring.one_pass(both_in_turn([more, same], world.memory_available()))
            return bool(more.cells)

        measuring.one_pass(both_in_turn([side.plan for side in sides], world.memory_available()))
        if budget is None:
            found = criteria.compare(*measured())
        else:
            found = gate.decide(measured, add_pass, criteria, frozenset(keys.values()), first, budget)
    cells = measured()
    differences = (*records.what_differs(one.head, other.head), *gate.classes_that_differ(*cells))
    unusable = [gate.unusable_run(side.path, its) for side, its in zip(sides, cells, strict=True)]
    why = "; ".join(filter(None, unusable))
    return CheckPage(str(one), str(other), found, differences, gate.exit_status(found), why)


def _sides(
    pythons: Sequence[str], specs: Sequence[RunSpec], files: Sequence[Path], world: World
) -> tuple[_Side, _Side]:
    """Return both sides, ready to measure.

    Raises UsageError if they have different numbers of cells, NotComparableError if no cell can run on both.
    """
    interpreters = [world.examine(f"Python {name}", python) for name, python in zip(_SIDES, pythons, strict=True)]
    before, after = specs
    old = world.resolve(before.envs, before.backends, python=interpreters[0].path)
    new = old if after == before else world.resolve(after.envs, after.backends, python=interpreters[1].path)
    rows = [[choice.entry.reference_row for choice in spec.backends] for spec in specs]
    if rows[0] != rows[1] or len(old) != len(new):
        raise UsageError("nothing to compare: A and B differ in the number of environments, backends or reference rows")
    first = _side(0, interpreters[0], before, old, files[0], world)
    second = _side(1, interpreters[1], after, new, files[1], world)
    # The same order of cells, and one time, which marks both runs as one comparison.
    envs = {task.id: same.id for task, same in zip(old, new, strict=True)}
    labels = {choice.label: same.label for choice, same in zip(before.backends, after.backends, strict=True)}
    cells = {cell.key: cell for cell in second.plan.cells}
    order = [cell.key for cell in first.plan.cells]
    same = [cells[key._replace(env=envs[key.env], backend=labels[key.backend])] for key in order]
    head = structs.replace(second.head, started=first.head.started)
    second = replace(second, plan=replace(second.plan, cells=tuple(same)), head=head)
    _refuse_nothing_to_compare(first, second)
    return first, second


def _side(
    number: int, interpreter: Interpreter, spec: RunSpec, tasks: Sequence[Task], path: Path, world: World
) -> _Side:
    plan, head = planning.planned(spec, tasks, world, interpreter)
    name = _SIDES[number]
    cells = tuple(replace(cell, interpreter=cell.interpreter._replace(side=name)) for cell in plan.cells)
    return _Side(name, interpreter.path, replace(plan, cells=cells), head, path)


def _refuse_nothing_to_compare(*sides: _Side) -> None:
    """Raise NotComparableError unless a cell of a backend can run on both sides."""
    asked = [planning.contestants(side.plan) for side in sides]
    pairs = list(zip(*asked, strict=True))
    if not pairs:
        rows = " and ".join(sorted({cell.backend.name for cell in sides[0].plan.cells}))
        raise NotComparableError(f"nothing to compare: {rows} alone say nothing about a backend: name others with -b")
    if all(any(cell.skip for cell in pair) for pair in pairs):
        missing = [
            f"{side.name} ({side.python}): {planning.reasons(cells)}"
            for side, cells in zip(sides, asked, strict=True)
            if any(cell.skip for cell in cells)
        ]
        raise NotComparableError(f"nothing to compare: no cell can run on both sides: {'; '.join(missing)}")
