"""``vebench compare``: measure the same cells in two interpreters, in turn on the same CPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from vebench.analysis.comparison import compare
from vebench.analysis.names import COMPARE
from vebench.analysis.precision import next_repeats
from vebench.backends.registry import ENTRIES
from vebench.commands import gating, planning
from vebench.commands.deciding import until_decided
from vebench.commands.session import session
from vebench.errors import NotComparableError, RunFileError, UsageError, shown
from vebench.plan.cells import Plan, without
from vebench.plan.interleaving import in_groups
from vebench.plan.passes import next_pass
from vebench.plan.spec import BackendChoice
from vebench.reports.pages.check import CheckPage
from vebench.results import header, paths, store
from vebench.results.store import RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, Levels
    from vebench.commands.gating import Inconclusive
    from vebench.commands.world import World
    from vebench.interpreters.interpreter import Interpreter
    from vebench.plan.cells import CellKey
    from vebench.plan.spec import RunSpec
    from vebench.reports.formats.registry import Format
    from vebench.results.records import Run, RunRecord

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

    ``until_decided``: passes are added for at most ``budget`` seconds, until every backend has its verdict.
    """

    form: Format
    junit: Path | None = None
    tolerance: float = 0.05
    inconclusive: Inconclusive = "default"
    until_decided: bool = False
    budget: float = 600.0


def start(  # noqa: PLR0913 - one parameter for each decision
    pythons: tuple[str, str], spec: RunSpec, output: Path | None, gate: Gate, world: World, *, quiet: bool
) -> int:
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
        raise UsageError(f"--backend {shown(named)}: its Python is that of --a or --b: leave out what follows @")
    spec = replace(spec, backends=spec.backends or CONTESTANTS, interleave=spec.replicas == "1")
    interpreters = [world.examine(_option(name), python) for name, python in zip(SIDES, pythons, strict=True)]
    sides = _sides(interpreters, spec, files, world)
    return _compare(sides, (), lambda side: RunWriter.create(side.path, side.head), gate, world, quiet=quiet)


def resume(path: Path, gate: Gate, world: World, *, allowed: bool, quiet: bool) -> int:
    """Measure what is missing on either side of a comparison, and judge it as a whole. Returns the exit status.

    ``path`` is a run file of the comparison, or the name that both have in common. A cell is measured again on both
    sides unless it went well on both. ``allowed``: see ``planning.asked_in``, also for what it raises. Raises
    UsageError and RunFileError if there are no two files of one comparison, and NotComparableError if this machine or
    the packages differ from theirs.
    """
    files = _files_of_one(path)
    _check_gate(gate, files)
    runs = [store.read(file) for file in files]
    spec = _spec_of_both(files, runs)
    interpreters = []
    for name, file, run in zip(SIDES, files, runs, strict=True):
        python = str(run.header.interpreter)
        with planning.asked_in(file, spec, allowed=allowed, interpreter=python):
            interpreters.append(world.examine(_option(name), python))
    with planning.asked_in(files[0], spec, allowed=allowed):
        sides = _sides(interpreters, spec, files, world)
    for side, run in zip(sides, runs, strict=True):
        if differences := header.what_differs(run.header, side.head):
            what = f"{side.path} was measured elsewhere ({'; '.join(differences)})"
            raise NotComparableError(f"{what}: start a new comparison here")
    one, other = (planning.measured(side.plan, run) for side, run in zip(sides, runs, strict=True))
    return _compare(sides, one & other, lambda side: RunWriter.resume(side.path), gate, world, quiet=quiet)


def in_turn(plans: Sequence[Plan], memory_available: int | None) -> Plan:
    """Return the plans of both sides as one, in which a cell takes turns with the same cell of the other side.

    The sides take turns at being first, pass by pass. If memory does not suffice for both cells at the same time, they
    are measured one after the other. ``memory_available`` is in bytes, None if unknown.
    """
    pairs = zip(*(plan.cells for plan in plans), strict=True)
    ordered = [pair if pair[0].repeat % 2 == 0 else pair[::-1] for pair in pairs]
    return Plan(plans[0].spec, in_groups(ordered, memory_available))


def _compare(  # noqa: PLR0913 - a comparison needs all of these
    sides: Sequence[Side],
    done: Collection[CellKey],
    opened: Callable[[Side], RunWriter],
    gate: Gate,
    world: World,
    *,
    quiet: bool,
) -> int:
    """Measure the cells that are not ``done`` into the files of both sides, and judge. Returns the exit status."""
    started = world.clock()
    files = {side.name: opened(side) for side in sides}
    pythons = {side.name: side.interpreter.path for side in sides}
    go_on = sides[0].head.resume_command(str(sides[0].path))
    with session(files, world, quiet=quiet, go_on=go_on, pythons=pythons) as measuring:
        left = [without(side.plan, done) for side in sides]
        measuring.one_pass(in_turn(left, world.memory_available()))

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

        if gate.until_decided:
            passes = max(next_repeats(measuring.run).values(), default=1)
            found = until_decided(look, one_pass, passes, started, gate.budget, world.clock)
        else:
            found = look()
    measured = cells()
    reasons = (gating.unusable_run(side.path, its) for side, its in zip(sides, measured, strict=True))
    notice = next(filter(None, reasons), "")
    if notice:
        found = gating.without_verdicts(found, notice)
    status = gating.exit_status(found, gate.inconclusive)
    differences = [
        *header.what_differs(*(side.head for side in sides)),
        *gating.classes_that_differ(*measured),
    ]
    one, other = (f"{side.path} ({side.interpreter.path})" for side in sides)
    page = CheckPage(one, other, found, tuple(differences), status, notice, gate.inconclusive == "pass")
    gating.publish(page, gate.form, gate.junit)
    return status


def _sides(interpreters: Sequence[Interpreter], spec: RunSpec, files: Sequence[Path], world: World) -> tuple[Side, ...]:
    """Return both sides, ready to measure. Raises NotComparableError if no cell can run on both."""
    tasks = world.resolve(spec.envs, spec.backends, python=interpreters[0].path)
    sides: list[Side] = []
    for name, interpreter, path in zip(SIDES, interpreters, files, strict=True):
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


def _option(name: str) -> str:
    """Return the option that names the interpreter of a side."""
    return f"--{name.lower()}"


def _files(path: Path) -> list[Path]:
    """Return the run files of both sides, whose names have that of ``path`` in common."""
    return [path.with_name(f"{path.stem}-{name.lower()}{path.suffix}") for name in SIDES]


def _files_of_one(path: Path) -> list[Path]:
    """Return the run files of both sides, given one of them or the name that they have in common.

    Raises UsageError if they are not there.
    """
    if path.is_dir():
        raise UsageError(f"--resume {path}: is a folder: name a run file of a comparison")
    endings = tuple(f"-{name.lower()}" for name in SIDES)
    common, ending = path.stem[:-2], path.stem[-2:]
    files = _files(path.with_name(common + path.suffix) if path.exists() and common and ending in endings else path)
    for file in files:
        if not file.exists():
            raise UsageError(f"--resume {path}: {file} is missing: a comparison has a run file for each side")
    return files


def _spec_of_both(files: Sequence[Path], runs: Sequence[Run]) -> RunSpec:
    """Return what both runs measured. Raises RunFileError unless they are the sides of one comparison."""
    for file, run in zip(files, runs, strict=True):
        if run.header.interpreter is None:
            command = run.header.resume_command(str(file))
            raise RunFileError(f"{file} is no side of a comparison: {command} finishes it")
    one, other = (run.header.spec for run in runs)
    if one != other:
        raise RunFileError(f"{files[0]} and {files[1]} have different plans: they are not of one comparison")
    return runs[0].header.spec
