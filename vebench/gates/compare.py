"""``vebench compare``: measure the same cells in two interpreters, interleaved on the same CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from msgspec import structs

from vebench.analysis.comparison import COMPARE, compare_runs
from vebench.analysis.summary import next_repeats
from vebench.backends.registry import ENTRIES
from vebench.commands import planning
from vebench.commands.session import World, session
from vebench.errors import NotComparableError, UsageError, shown
from vebench.gates import gate
from vebench.gates.gate import Cells, PassBudget
from vebench.gates.page import CheckPage
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
        replace(each, backends=each.backends or CONTESTANTS, interleave=each.replicas == 1, passes=passes)
        for each in (instead or spec, spec)
    ]
    if named := next((choice.label for each in specs for choice in each.backends if choice.python), None):
        raise UsageError(f"--backend {shown(named)}: its Python is one of the two compared: leave out what follows @")
    sides = one, other = _sides(pythons, specs, files, world)
    # The second side's key by the first side's.
    pairs = zip(one.plan.cells, other.plan.cells, strict=True)
    keys = {cell.key.without_repeat: same.key.without_repeat for cell, same in pairs}
    compare = partial(compare_runs, metric="fps", tolerance=tolerance, in_turn=True, names=COMPARE)
    time = None if budget is None else PassBudget(budget, world.clock)
    writers = {side.name: RunWriter.create(side.path, side.head) for side in sides}
    with session(writers, world, quiet=quiet, pythons={side.name: side.python for side in sides}) as measuring:

        def measured() -> tuple[Cells, Cells]:
            before, after = (gate.cells_of(measuring.runs[side.name], side.path) for side in sides)
            return [replace(cell, key=keys[cell.key]) for cell in before], after

        def measure(*plans: Plan) -> None:
            """Measure each cell interleaved with its twin. The first side alternates pass by pass."""
            twins = zip(*(plan.cells for plan in plans), strict=True)
            ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in twins]
            measuring.one_pass(Plan(plans[0].spec, in_groups(ordered, world.memory_available())))

        def add_pass(wanted: frozenset[CellKey]) -> bool:
            ours, theirs = (next_repeats(measuring.runs[side.name]) for side in sides)
            # Cells whose last pass went well on both sides.
            both = {key: max(number, theirs[keys[key]]) for key, number in ours.items() if keys[key] in theirs}
            more = next_pass(one.plan, {key for key in both if keys[key] in wanted}, both)
            if more.cells:
                measure(more, next_pass(other.plan, wanted, {keys[key]: number for key, number in both.items()}))
            return bool(more.cells)

        measure(one.plan, other.plan)
        if time is None:
            found = compare(*measured())
        else:
            found = gate.decide(measured, add_pass, compare, frozenset(keys.values()), spec.passes, time)
    cells = measured()
    differences = (*records.what_differs(one.head, other.head), *gate.classes_that_differ(*cells))
    whys = [gate.unusable_run(side.path, its) for side, its in zip(sides, cells, strict=True)]
    return CheckPage(str(one), str(other), found, differences, gate.exit_status(found), "; ".join(filter(None, whys)))


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
    sides = []
    for name, python, spec, tasks, path in zip(_SIDES, interpreters, specs, (old, new), files, strict=True):
        plan, head = planning.planned(spec, tasks, world, python)
        cells = tuple(replace(cell, interpreter=cell.interpreter._replace(side=name)) for cell in plan.cells)
        sides.append(_Side(name, python.path, replace(plan, cells=cells), head, path))
    first, second = sides
    # The same order of cells, and one time, which marks both runs as one comparison.
    envs = {task.id: same.id for task, same in zip(old, new, strict=True)}
    labels = {choice.label: same.label for choice, same in zip(before.backends, after.backends, strict=True)}
    cells_of_second = {cell.key: cell for cell in second.plan.cells}
    order = [key._replace(env=envs[key.env], backend=labels[key.backend]) for key in (c.key for c in first.plan.cells)]
    plan = replace(second.plan, cells=tuple(cells_of_second[key] for key in order))
    second = replace(second, plan=plan, head=structs.replace(second.head, started=first.head.started))
    asked = [planning.contestants(side.plan) for side in (first, second)]
    if not asked[0]:
        names = " and ".join(sorted({cell.backend.name for cell in first.plan.cells}))
        raise NotComparableError(f"nothing to compare: {names} alone say nothing about a backend: name others with -b")
    if all(cell.skip or same.skip for cell, same in zip(*asked, strict=True)):
        missing = "; ".join(
            f"{side.name} ({side.python}): {planning.reasons(its)}"
            for side, its in zip((first, second), asked, strict=True)
            if any(cell.skip for cell in its)
        )
        raise NotComparableError(f"nothing to compare: no cell can run on both sides: {missing}")
    return first, second
