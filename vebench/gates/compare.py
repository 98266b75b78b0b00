"""``vebench compare``: measure the same cells in two interpreters, in turn on the same CPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from vebench.analysis.comparison import compare_runs
from vebench.analysis.pairing import COMPARE
from vebench.analysis.summary import next_repeats
from vebench.backends.registry import ENTRIES
from vebench.commands import planning
from vebench.commands.session import session
from vebench.errors import NotComparableError, UsageError, shown
from vebench.gates import gate
from vebench.gates.check_page import CheckPage
from vebench.plan.cells import Plan, in_groups, next_pass
from vebench.plan.grammar import BackendChoice
from vebench.results import header, paths
from vebench.results.store import RunWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison
    from vebench.commands.session import World
    from vebench.plan.cells import CellKey
    from vebench.plan.spec import RunSpec
    from vebench.reports.console import Outlet
    from vebench.results.records import RunRecord

_SIDES = (COMPARE.baseline, COMPARE.candidate)
# What is compared by default: nothing is judged by the reference rows, and measuring them takes time on both sides.
CONTESTANTS = tuple(BackendChoice(entry.name) for entry in ENTRIES if entry.by_default and not entry.reference_row)


@dataclass(frozen=True)
class _Measured:
    """One side of the comparison: its name, its Python and cells, and the header and path of its run file."""

    name: str
    python: str
    plan: Plan
    head: RunRecord
    path: Path


def start(  # noqa: PLR0913 - one parameter for each option
    pythons: tuple[str, str],
    spec: RunSpec,
    output: Path | None,
    world: World,
    *,
    tolerance: float,
    budget: float | None,
    outlet: Outlet,
) -> int:
    """Measure ``spec`` in both Pythons, and print the verdicts on the second. Returns the exit status.

    The name ``output``, by default a new one in ``.vebench/``, is that of both run files, with the sides added. Raises
    UsageError for a Python or a plan that cannot be used, NotComparableError if no cell can run on both sides.
    """
    gate.check_tolerance(tolerance)
    base = output or paths.default_path(world.now(), spec.envs)
    page = compared(pythons, spec, base, world, tolerance=tolerance, budget=budget)
    gate.publish(page, outlet)
    return page.status


def compared(  # noqa: PLR0913 - how to compare
    pythons: tuple[str, str],
    spec: RunSpec,
    base: Path,
    world: World,
    *,
    tolerance: float,
    budget: float | None,
    quiet: bool = False,
    instead: RunSpec | None = None,
) -> CheckPage:
    """Measure ``spec`` in both Pythons, and return the verdicts on the second. Run files are named after ``base``.

    ``quiet``: without progress. ``instead`` is the spec of the first Python, if that is another: of as many
    environments and backends, each in the place of one that it is compared with, whose name it has in the verdicts.
    Raises what ``start`` does, and InterruptedRunError if the user interrupts it.
    """
    passes = spec.passes if budget is None else min(spec.passes, gate.FEWEST_PASSES)
    specs = [
        replace(one, backends=one.backends or CONTESTANTS, interleave=one.replicas == 1, passes=passes)
        for one in (instead or spec, spec)
    ]
    files = [base.with_name(f"{base.stem}-{name.lower()}{base.suffix}") for name in _SIDES]
    for path in files:
        if path.exists():
            raise UsageError(f"{path} exists and would be overwritten: name another file with -o")
    if named := next((choice.label for one in specs for choice in one.backends if choice.python), None):
        raise UsageError(f"--backend {shown(named)}: its Python is one of the two compared: leave out what follows @")
    return _judged(_sides(pythons, specs, files, world), tolerance, budget, spec.passes, world, quiet=quiet)


def both_in_turn(plans: Sequence[Plan], memory_available: int | None) -> Plan:
    """Return the plans of both sides as one, in which a cell takes turns with the same cell of the other side.

    The sides take turns at being first, pass by pass. If memory does not suffice for both cells at the same time, they
    are measured one after the other. ``memory_available`` is in bytes, None if unknown.
    """
    pairs = zip(*(plan.cells for plan in plans), strict=True)
    ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in pairs]
    return Plan(plans[0].spec, in_groups(ordered, memory_available))


def _judged(  # noqa: PLR0913 - how to judge
    sides: Sequence[_Measured], tolerance: float, budget: float | None, first: int, world: World, *, quiet: bool
) -> CheckPage:
    started = world.clock()
    files = {side.name: RunWriter.create(side.path, side.head) for side in sides}
    pythons = {side.name: side.python for side in sides}
    keys = dict(zip(*([cell.key.without_repeat for cell in side.plan.cells] for side in sides), strict=True))
    with session(files, world, quiet=quiet, pythons=pythons) as measuring:
        measuring.one_pass(both_in_turn([side.plan for side in sides], world.memory_available()))

        def cells() -> list[tuple[CellSummary, ...]]:
            one, other = (gate.cells_of(measuring.runs[side.name], side.path) for side in sides)
            return [tuple(cell.having(key=keys[cell.key]) for cell in one), other]

        def look(part: float = 1.0) -> Comparison:
            return compare_runs(*cells(), metric="fps", tolerance=tolerance, in_turn=True, names=COMPARE, part=part)

        def one_pass(wanted: frozenset[CellKey]) -> bool:
            # Of cells that went well on both sides so far.
            one, other = (next_repeats(measuring.runs[side.name]) for side in sides)
            both = {key: max(number, other[keys[key]]) for key, number in one.items() if keys[key] in other}
            more = [
                next_pass(sides[0].plan, {key for key in both if keys[key] in wanted}, both),
                next_pass(sides[1].plan, wanted, {keys[key]: number for key, number in both.items()}),
            ]
            if more[0].cells:
                measuring.one_pass(both_in_turn(more, world.memory_available()))
            return bool(more[0].cells)

        if budget is None:
            found = look()
        else:
            every = frozenset(keys.values())
            found = gate.until_decided(look, one_pass, first, every, started, budget, world.clock)
    measured = cells()
    differences = (*header.what_differs(*(side.head for side in sides)), *gate.classes_that_differ(*measured))
    unusable = (gate.unusable_run(side.path, cells) for side, cells in zip(sides, measured, strict=True))
    one, other = (f"{side.path} ({side.python})" for side in sides)
    return CheckPage(one, other, found, differences, gate.exit_status(found), "; ".join(filter(None, unusable)))


def _sides(
    pythons: Sequence[str], specs: Sequence[RunSpec], files: Sequence[Path], world: World
) -> tuple[_Measured, ...]:
    """Return both sides, ready to measure, their cells in the same order.

    Raises UsageError if they have not as many cells, NotComparableError if no cell can run on both.
    """
    interpreters = [world.examine(f"Python {name}", python) for name, python in zip(_SIDES, pythons, strict=True)]
    one, other = specs
    tasks = [world.resolve(one.envs, one.backends, python=interpreters[0].path)] * 2
    if other != one:
        tasks[1] = world.resolve(other.envs, other.backends, python=interpreters[1].path)
    reference_rows = [[choice.entry.reference_row for choice in spec.backends] for spec in specs]
    if reference_rows[0] != reference_rows[1] or len(tasks[0]) != len(tasks[1]):
        raise UsageError("nothing to compare: A and B need as many environments, backends and reference rows")
    envs = {task.id: its.id for task, its in zip(*tasks, strict=True)}
    labels = {choice.label: its.label for choice, its in zip(one.backends, other.backends, strict=True)}
    sides: list[_Measured] = []
    for name, interpreter, path, spec, known in zip(_SIDES, interpreters, files, specs, tasks, strict=True):
        plan, head = planning.planned(spec, known, world, interpreter)
        cells = {cell.key: replace(cell, side=name) for cell in plan.cells}
        if sides:
            first = (cell.key for cell in sides[0].plan.cells)
            keys = [key._replace(env=envs[key.env], backend=labels[key.backend]) for key in first]
            cells = {key: cells[key] for key in keys}
        plan = replace(plan, cells=tuple(cells.values()))
        started = sides[0].head.started if sides else head.started  # the same time marks them as one comparison
        sides.append(_Measured(name, interpreter.path, plan, structs.replace(head, started=started), path))
    compared = [planning.contestants(side.plan) for side in sides]
    pairs = list(zip(*compared, strict=True))
    if not pairs:
        rows = " and ".join(sorted({cell.backend.name for cell in sides[0].plan.cells}))
        raise NotComparableError(f"nothing to compare: {rows} alone say nothing about a backend: name others with -b")
    if all(any(cell.skip for cell in pair) for pair in pairs):
        missing = [
            f"{side.name} ({side.python}): {planning.reasons(cells)}"
            for side, cells in zip(sides, compared, strict=True)
            if any(cell.skip for cell in cells)
        ]
        raise NotComparableError(f"nothing to compare: no cell can run on both sides: {'; '.join(missing)}")
    return tuple(sides)
