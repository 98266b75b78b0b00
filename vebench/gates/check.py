"""``vebench check`` and ``vebench compare``: measure two sides, and give verdicts.

``check`` compares two runs. Without a candidate, it measures the baseline's plan again. ``compare`` measures the same
cells in two interpreters, interleaved on the same CPUs.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import msgspec

from vebench.analysis import comparison
from vebench.analysis.cell import CellSummary, yardstick_of
from vebench.analysis.comparison import COMPARE, Comparison, Metric, RunSpread, compare_runs, denominator
from vebench.analysis.rules import incomplete
from vebench.analysis.summary import next_repeats
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import ENTRIES
from vebench.commands.session import Session, World, asked_in, contestants, plan_here, planned, reasons, refuse_idle
from vebench.errors import InterruptedRunError, NotComparableError, UsageError, one_line, shown
from vebench.gates import gate
from vebench.gates.gate import Cells, CheckPage, Compare, PassBudget
from vebench.gates.history import FEWEST_FOR_SPREAD, runs_in, spread_of_runs
from vebench.plan.cells import CellKey, Plan, in_groups, next_pass
from vebench.plan.grammar import COSTS, BackendChoice, Tolerance
from vebench.plan.spec import RunSpec
from vebench.plan.tasks import asked_as
from vebench.results import records, store
from vebench.results.records import Run, RunRecord
from vebench.results.store import RunWriter

_SIDES = (COMPARE.baseline, COMPARE.candidate)
_ENDINGS = ("-a", "-b")  # of the run files' names
# The default of compare. It has no reference rows, because no verdict needs them.
CONTESTANTS = tuple(BackendChoice(entry.name) for entry in ENTRIES if entry.by_default and not entry.reference_row)


@dataclass(frozen=True)
class CheckRequest:
    """The options of a check."""

    baseline: Path
    candidate: Path | None  # None: measure the plan of the baseline again
    output: Path | None  # the run file of a new candidate
    tolerance: Tolerance
    metrics: tuple[Metric, ...]
    envs: tuple[str, ...]  # compare only these tasks; empty: all tasks of the baseline
    backends: tuple[BackendChoice, ...]
    history: Path | None  # a folder of earlier runs, which show how much runs differ
    budget: float  # seconds of measuring
    calibrate: bool = False  # the code is unchanged, so find the smallest tolerance that each task holds
    allow_code: bool = False  # the baseline may name code that ``envs`` and ``backends`` do not name


def checked(request: CheckRequest, world: World) -> CheckPage:
    """Return the verdicts. Raises NotComparableError, RunFileError or UsageError if no verdict is possible."""
    budget = PassBudget(request.budget, world.clock)
    before = store.read(request.baseline)
    old = _useful_cells(before, request.baseline, "ok")
    spreads: dict[Metric, RunSpread] = {}
    own = [task for task, _ in request.tolerance.of_tasks]
    gate.chosen([cell.key for cell in old], own, (), str(request.baseline), "--tolerance")
    if request.history is not None:
        earlier = [*runs_in(request.history)]
        for rate in (metric for metric in request.metrics if metric not in COSTS):
            spread = spread_of_runs(earlier, before.header, rate)
            if spread is None:
                few = f"fewer than {FEWEST_FOR_SPREAD} runs of the baseline's machine and packages"
                raise UsageError(f"--history {request.history}: {few}: leave it out, to assume a usual spread")
            spreads[rate] = spread
    compare = partial(compare_runs, metrics=request.metrics, tolerance=request.tolerance, run_spreads=spreads)
    if request.candidate is None:
        candidate, after, found = _measure(request, before, old, compare, world, budget)
    else:
        candidate, after, found = request.candidate, store.read(request.candidate), None
        if candidate.samefile(request.baseline):
            raise UsageError(f"{candidate} is the baseline itself: name another run")
    new = _useful_cells(after, candidate, "ok", "failed")
    differences = _check_comparable(request, before.header, after.header, str(candidate))
    if found is None or request.calibrate:
        found = compare(_chosen(request, old), new, part=gate.LAST_LOOK if request.calibrate else 1.0)
    found = comparison.without_unknown_reference(found)
    if not found.cells:
        raise NotComparableError(f"{request.baseline}: nothing to compare: all its cells are skipped or reference rows")
    page = CheckPage(str(request.baseline), str(candidate), found, tuple(differences), gate.exit_status(found))
    if not request.calibrate:
        return page
    judged = all(group.holds is not None or group.verdict == "advisory" for group in found.groups)
    return replace(page, calibrated=gate.held(found), status=gate.Status.DONE if judged else gate.Status.UNDECIDED)


def _useful_cells(run: Run, path: Path, *useful: str) -> tuple[CellSummary, ...]:
    """Return the cells of a run. Raises NotComparableError if it is incomplete, or without a ``useful`` status."""
    missing = incomplete(run, str(path))
    if lost := next(iter(run.notes), "" if missing is None else f"{path}: {missing.message}"):
        remedy = "compare again" if run.header.interpreter else f"{run.header.resume_command(str(path))} finishes it"
        raise NotComparableError(f"{lost}: the run is incomplete; {remedy}")
    if not any(cell.status in useful for cell in run.cells):
        raise NotComparableError(f"{path}: no cell was measured: nothing to compare")
    cells = gate.cells_of(run, path)
    if why := gate.unusable_run(path, cells):
        raise NotComparableError(why)
    return cells


def _check_comparable(request: CheckRequest, before: RunRecord, after: RunRecord, candidate: str) -> list[str]:
    """Return the differences between the runs, for reports. Raises NotComparableError if they forbid a comparison."""
    both = f"{request.baseline} and {candidate}"
    if len({bool(head.spec.pin.pins and head.host.pinning) for head in (before, after)}) > 1:
        raise NotComparableError(f"{both}: only one was measured with cells pinned: measure both with the same --pin")
    of_plan = records.how_plans_differ(before, after)
    if "policy" in of_plan:
        raise NotComparableError(one_line(f"{both}: {of_plan['policy']}: measure both with the same policy"))
    # Different versions of vebench's own packages can be compared.
    conditions = records.what_differs(before, after, ignoring=records.OUR_PACKAGES)
    if "pin" in of_plan:
        conditions.insert(0, of_plan.pop("pin"))
    instead = "measure a baseline here, compare with another --metric, or see the ratios in vebench report A B"
    if conditions and "fps" in request.metrics:
        raise NotComparableError(f"{both}: conditions differ ({'; '.join(conditions)}): {instead}")
    # The yardstick runs on Python and numpy, so other versions make it another program.
    one, other = (
        f"Python {head.host.python.rpartition('.')[0]} and numpy {head.packages.get('numpy', 'unknown')}"
        for head in (before, after)
    )
    if one != other and {"yardstick", "startup"}.intersection(request.metrics):
        raise NotComparableError(one_line(f"{both}: the yardstick ran on {one} against {other}: {instead}"))
    return [one_line(text) for text in (*conditions, *of_plan.values())]


def _chosen(request: CheckRequest, cells: Cells) -> list[CellSummary]:
    """Return the requested cells, and the cells that divide their rates. Raises UsageError for unknown names."""
    keys = [cell.key for cell in cells]
    # The user may name a task as in the run's command, with its module, or by its id alone.
    asked = [next((key.env for key in keys if asked_as(key.env, [env]) == env), env) for env in request.envs]
    wanted = set(gate.chosen(keys, asked, request.backends, str(request.baseline)))
    return [cell for cell in cells if cell.key in wanted | _bases(wanted, request.metrics)]


def _bases(keys: Collection[CellKey], metrics: Sequence[Metric]) -> set[CellKey]:
    """Return the cells that divide the rates of ``keys``, and the yardsticks that divide the reference's rates."""
    bases = {base for key, metric in product(keys, metrics) if (base := denominator(key, metric)) is not None}
    return bases | {yardstick_of(base) for base in bases}


def _measure(
    request: CheckRequest, before: Run, old: Cells, compare: Compare, world: World, budget: PassBudget
) -> tuple[Path, Run, Comparison]:
    """Measure the requested part of the baseline's plan here. Returns the run file, the run and the verdicts."""
    records.refuse_foreign(before.header, request.baseline, "measure both sides again with it")
    cells = _chosen(request, old)
    gated = [cell for cell in cells if not cell.reference_row]
    keys = frozenset(cell.key for cell in gated)
    needed = _bases(keys, request.metrics)
    spec = _spec(before.header.spec, gated, base=bool(needed))
    named = {*(f"--env {env}" for env in request.envs), *(f"--backend {one.label}" for one in request.backends)}
    with asked_in(request.baseline, spec, allowed=request.allow_code, named=named):
        plan, head = plan_here(spec, world)
    # The budget of the baseline may have left out cells.
    there = {cell.key for cell in old}
    plan = replace(plan, cells=tuple(cell for cell in plan.cells if cell.key.without_repeat in there))
    head = msgspec.structs.replace(head, cells=len(plan.cells))
    refuse_idle(plan, f"{request.baseline}: ")
    for key in needed - {cell.key for cell in cells}:
        lacks = f"{request.baseline}: {key.backend} with one worker is not in it on {key.env}"
        why = f"and --metric {','.join(request.metrics)} needs it: measure a new baseline without --no-base"
        raise NotComparableError(f"{lacks}, {why}")
    _check_comparable(request, before.header, head, "this machine")
    groups, enough = gate.foreseen(cells, compare)
    known = [group for group in groups if group.resolves is not None]
    if known and not request.calibrate and all(group.verdict == "inconclusive" for group in known):
        remedy = "measure a baseline with more --passes, raise --tolerance, or use --history or another --metric"
        raise NotComparableError(f"{request.baseline}: more passes cannot resolve this tolerance: {remedy}")
    path = request.output or store.default_path(world.now(), spec.envs)
    try:
        with Session(RunWriter.create(path, head), world, quiet=False) as measuring:
            measuring.measure(plan, plan)

            def add_pass(wanted: frozenset[CellKey]) -> bool:
                more = next_pass(plan, wanted | _bases(wanted, request.metrics), next_repeats(measuring.run))
                if not any(cell.key.without_repeat in wanted for cell in more.cells):
                    return False
                measuring.one_pass(more)
                return True

            def sides() -> tuple[Cells, Cells]:
                return cells, gate.cells_of(measuring.run, path)

            # If there is time, three passes precede the first look. A calibration has one look.
            first = enough if request.calibrate else min(before.header.spec.passes, 3)
            found = gate.decide(sides, add_pass, compare, keys, first, budget, enough)
    except InterruptedRunError as error:
        again = shlex.join(["vebench", "check", str(request.baseline), str(path)])
        raise InterruptedRunError(f"{error}, then {again} with the same options") from None
    return path, measuring.run, found


def _spec(spec: RunSpec, cells: Cells, *, base: bool) -> RunSpec:
    """Return the part of ``spec`` that measures ``cells`` for a first look, with ``base`` also their divisors."""
    if spec.hosts is not None:
        remedy = "measure again with its command, and compare with vebench report BASELINE NEW"
        raise UsageError(f"the baseline was measured on other hosts, which check does not repeat: {remedy}")
    names = {short_name(asked_as(cell.env, spec.envs)) for cell in cells}
    # Leave out cells that the spec's ``base`` added, unless there are no other cells.
    named = [cell for cell in cells if spec.asks_for(cell.label, cell.workers)] or cells
    return replace(
        spec,
        envs=tuple(env for env in spec.envs if short_name(env) in names),
        workers=tuple(sorted({cell.workers for cell in named})),
        backends=tuple({cell.label: cell.built.choice for cell in named}.values()),
        base=base or len(named) < len(cells),
        passes=min(spec.passes, gate.FEWEST_PASSES),
        race=False,
        until=None,
        budget=0.0,
    )


class _Side(NamedTuple):
    """One side of a comparison."""

    name: str
    plan: Plan  # cells are in the order of the other side's cells
    head: RunRecord
    path: Path


def compared(
    pythons: tuple[str, str],
    specs: tuple[RunSpec, RunSpec],
    output: Path | None,
    world: World,
    *,
    tolerance: Tolerance,
    metrics: Sequence[Metric] = ("fps",),
    budget: float | None,
    quiet: bool = False,
) -> CheckPage:
    """Measure each spec in one Python, and return the verdicts on the second Python.

    The environments and backends of both specs correspond to each other, in the same order. The run files have the name
    ``output`` with the sides added. Passes are added until every backend has a verdict, or ``budget`` seconds are over.
    Without a ``budget``, the passes of the second spec are measured. A cost gets a default budget, because starts
    differ much. ``metrics``: all words for rates mean the same.
    """
    spec = specs[1]
    if budget is None and not set(COSTS).isdisjoint(metrics):
        budget = 600.0  # seconds
    passes = spec.passes if budget is None else min(spec.passes, gate.FEWEST_PASSES)
    planned_here = [
        replace(each, backends=each.backends or CONTESTANTS, interleave=each.replicas == 1, passes=passes)
        for each in specs
    ]
    if named := next((choice.label for each in planned_here for choice in each.backends if choice.python), None):
        raise UsageError(f"--backend {shown(named)}: its Python is one of the two compared: leave out what follows @")
    sides = first, second = _sides(pythons, planned_here, output, world)
    # The second side's key by the first side's.
    pairs = zip(first.plan.cells, second.plan.cells, strict=True)
    keys = {cell.key.without_repeat: same.key.without_repeat for cell, same in pairs}
    gate.chosen([*keys.values()], [task for task, _ in tolerance.of_tasks], (), "this plan", "--tolerance")
    judged = dict.fromkeys(metric if metric in COSTS else "fps" for metric in metrics)
    compare = partial(compare_runs, metrics=tuple(judged), tolerance=tolerance, in_turn=True, names=COMPARE)
    time = None if budget is None else PassBudget(budget, world.clock)
    writers = {side.name: RunWriter.create(side.path, side.head) for side in sides}
    with Session(writers, world, quiet=quiet) as measuring:

        def measured() -> tuple[Cells, Cells]:
            before, after = (gate.cells_of(measuring.runs[side.name], side.path) for side in sides)
            return [replace(cell, key=keys[cell.key]) for cell in before], after

        def measure(*plans: Plan) -> None:
            """Measure each cell interleaved with its twin. The side that is measured first alternates by pass."""
            twins = zip(*(plan.cells for plan in plans), strict=True)
            ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in twins]
            measuring.one_pass(Plan(plans[0].spec, in_groups(ordered, world.memory_available())))

        def add_pass(wanted: frozenset[CellKey]) -> bool:
            ours, theirs = (next_repeats(measuring.runs[side.name]) for side in sides)
            # Only cells whose last pass went well on both sides get another pass.
            both = {key: max(number, theirs[keys[key]]) for key, number in ours.items() if keys[key] in theirs}
            more = next_pass(first.plan, {key for key in both if keys[key] in wanted}, both)
            if more.cells:
                measure(more, next_pass(second.plan, wanted, {keys[key]: number for key, number in both.items()}))
            return bool(more.cells)

        measure(first.plan, second.plan)
        if time is None:
            found = compare(*measured())
        else:
            found = gate.decide(measured, add_pass, compare, frozenset(keys.values()), spec.passes, time)
    cells = measured()
    differences = tuple(records.what_differs(first.head, second.head))
    whys = [gate.unusable_run(side.path, its) for side, its in zip(sides, cells, strict=True)]
    one, other = (f"{side.path} ({side.head.interpreter})" for side in sides)
    return CheckPage(one, other, found, differences, gate.exit_status(found), "; ".join(filter(None, whys)))


def _sides(pythons: Sequence[str], specs: Sequence[RunSpec], output: Path | None, world: World) -> tuple[_Side, _Side]:
    """Return both sides, ready to measure. Raises UsageError or NotComparableError if nothing can be compared."""
    interpreters = [world.examine(f"Python {name}", python) for name, python in zip(_SIDES, pythons, strict=True)]
    before, after = specs
    old = world.resolve(before.envs, before.backends, python=interpreters[0].path)
    new = old if after == before else world.resolve(after.envs, after.backends, python=interpreters[1].path)
    rows = [[choice.entry.reference_row for choice in spec.backends] for spec in specs]
    if rows[0] != rows[1] or len(old) != len(new):
        raise UsageError("nothing to compare: A and B differ in the number of environments, backends or reference rows")
    sides = []
    base = output or store.default_path(world.now(), after.envs, _ENDINGS)
    files = [base.with_stem(f"{base.stem}{ending}") for ending in _ENDINGS]
    for path in files:
        if path.exists():
            raise UsageError(f"{path} exists and would be overwritten: name another file with -o")
    for name, python, spec, tasks, path in zip(_SIDES, interpreters, specs, (old, new), files, strict=True):
        plan, head = planned(spec, tasks, world, python)
        cells = tuple(replace(cell, interpreter=cell.interpreter._replace(side=name)) for cell in plan.cells)
        sides.append(_Side(name, replace(plan, cells=cells), head, path))
    first, second = sides
    # The second side gets the same order of cells, and the same start time, which marks both as one comparison.
    envs = {task.id: same.id for task, same in zip(old, new, strict=True)}
    labels = {choice.label: same.label for choice, same in zip(before.backends, after.backends, strict=True)}
    cells_of_second = {cell.key: cell for cell in second.plan.cells}
    order = [key._replace(env=envs[key.env], backend=labels[key.backend]) for key in (c.key for c in first.plan.cells)]
    plan = replace(second.plan, cells=tuple(cells_of_second[key] for key in order))
    second = second._replace(plan=plan, head=msgspec.structs.replace(second.head, started=first.head.started))
    asked = [contestants(side.plan) for side in (first, second)]
    if not asked[0]:
        names = " and ".join(sorted({cell.backend.name for cell in first.plan.cells}))
        raise NotComparableError(f"nothing to compare: {names} alone say nothing about a backend: name others with -b")
    if all(cell.skip or same.skip for cell, same in zip(*asked, strict=True)):
        missing = "; ".join(
            f"{side.name} ({side.head.interpreter}): {reasons(its)}"
            for side, its in zip((first, second), asked, strict=True)
            if any(cell.skip for cell in its)
        )
        raise NotComparableError(f"nothing to compare: no cell can run on both sides: {missing}")
    return first, second
