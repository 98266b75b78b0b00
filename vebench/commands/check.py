"""``vebench check``: compare a candidate with a baseline. Without a candidate, measure the baseline's plan again."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from vebench.analysis.cell import base_of, is_base
from vebench.analysis.comparison import POWER, compare, decidable, prior_run_spread, resolution
from vebench.analysis.findings.run import incomplete
from vebench.analysis.history import FEWEST_FOR_SPREAD, spread_of_runs
from vebench.analysis.precision import next_repeats
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.commands import choosing, gating, measuring, planning
from vebench.commands.deciding import until_decided
from vebench.errors import InterruptedRunError, NotComparableError, UsageError, one_line
from vebench.plan.passes import next_pass
from vebench.plan.tasks import asked_as
from vebench.reports import console
from vebench.reports.pages.check import CheckPage
from vebench.results import header, paths, store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, Levels
    from vebench.analysis.pairing import Metric
    from vebench.analysis.statistics import Error
    from vebench.commands.world import World
    from vebench.plan.cells import CellKey
    from vebench.plan.spec import BackendChoice, RunSpec
    from vebench.reports.formats.registry import Format
    from vebench.results.records import Run, RunRecord


@dataclass(frozen=True)
class CheckRequest:
    """What to check, and how strictly. Empty ``envs`` or ``backends`` mean all that the baseline has.

    ``history`` is a folder of earlier runs, which show by how much runs differ. ``until_decided``: passes are added to
    a new candidate for at most ``budget`` seconds, until every backend has its verdict. ``allowed`` is whether the
    baseline may name code by itself, besides ``envs`` and ``backends``; see ``planning.asked_in``.
    """

    baseline: Path
    candidate: Path | None
    output: Path | None = None
    tolerance: float = 0.05
    metric: Metric = "fps"
    envs: tuple[str, ...] = ()
    backends: tuple[BackendChoice, ...] = ()
    allow_different_host: bool = False
    inconclusive: gating.Inconclusive = "default"
    history: Path | None = None
    until_decided: bool = False
    budget: float = 600.0
    allowed: bool = False

    @property
    def anywhere(self) -> bool:
        """Whether runs of different machines may be compared."""
        return self.allow_different_host or self.metric == "speedup"


def run(request: CheckRequest, world: World, *, form: Format, junit: Path | None, quiet: bool) -> int:
    """Compare, print the verdicts in ``form`` and publish them for CI services. Returns the exit status.

    Raises NotComparableError if the runs cannot be compared, RunFileError and UsageError for bad input.
    """
    gating.check_tolerance(request.tolerance)
    if junit is not None:
        gating.check_target(junit, [path for path in (request.baseline, request.candidate, request.output) if path])
    before, old = _read(request.baseline, "ok")
    spread = _run_spread(request, before.header)
    if request.until_decided:
        _refuse_in_vain(request, spread)
    if request.candidate is None:
        candidate, found = _measure(request, before, old, spread, world, quiet=quiet)
    elif _same_file(request.baseline, request.candidate):
        raise UsageError(f"{request.candidate} is the baseline itself: name another run")
    else:
        candidate, found = request.candidate, None
    after, new = _read(candidate, "ok", "failed")
    differences = _check_comparable(request, before.header, after.header, str(candidate))
    differences += tuple(map(one_line, gating.classes_that_differ(old, new)))
    found = found or _judged(request, old, new, spread)
    found = replace(found, new=() if request.envs or request.backends else found.new)
    if not found.cells:
        raise NotComparableError(f"{request.baseline}: nothing to compare: all its cells are skipped or reference rows")
    status = gating.exit_status(found, request.inconclusive)
    passes = request.inconclusive == "pass"
    page = CheckPage(str(request.baseline), str(candidate), found, differences, status, passes_inconclusive=passes)
    gating.publish(page, form, junit)
    return status


def _run_spread(request: CheckRequest, head: RunRecord) -> Error | None:
    """Return by how much runs like the baseline differ as a whole, None if nobody knows.

    Raises UsageError if ``--history`` names a folder that has too few such runs.
    """
    if request.history is None:
        return None
    runs = choosing.runs_in(request.history)
    spread = spread_of_runs(((str(path), run) for path, run in runs), head)
    if spread is None:
        raise UsageError(
            f"--history {request.history}: fewer than {FEWEST_FOR_SPREAD} runs of the baseline's machine and packages: "
            "leave it out, and a documented spread is taken"
        )
    return spread


def _refuse_in_vain(request: CheckRequest, spread: Error | None) -> None:
    """Raise UsageError if no number of passes could decide, because two runs as a whole differ by too much."""
    if request.metric == "fps" and not decidable(spread or prior_run_spread(), request.tolerance):
        raise UsageError(
            f"--until-decided: two runs as a whole may differ by more than --tolerance {request.tolerance:.3g}, and no "
            "number of passes tells by how much: use --metric speedup, vebench compare or --history"
        )


def _judged(
    request: CheckRequest,
    old: Sequence[CellSummary],
    new: Sequence[CellSummary],
    spread: Error | None,
    levels: Levels | None = None,
) -> Comparison:
    return compare(
        _chosen(request, old),
        new,
        metric=request.metric,
        tolerance=request.tolerance,
        run_spread=spread,
        levels=levels,
    )


def _read(path: Path, *useful: str) -> tuple[Run, tuple[CellSummary, ...]]:
    """Return a complete run, in which a cell has one of the ``useful`` statuses, and its cells.

    Raises NotComparableError if it is incomplete, because missing cells would never be checked, or unusable.
    """
    run = store.read(path)
    remedy = f"{run.header.resume_command(str(path))} finishes it"
    if run.notes:
        raise NotComparableError(f"{run.notes[0]}: the run is incomplete; {remedy}")
    missing = incomplete(run, str(path))
    if missing is not None:
        raise NotComparableError(f"{path}: {missing.message}: the run is incomplete; {remedy}")
    _refuse_empty(run, path, *useful)
    cells = gating.cells_of(run, path)
    if why := gating.unusable_run(path, cells):
        raise NotComparableError(why)
    return run, cells


def _refuse_empty(run: Run, path: Path, *useful: str) -> None:
    """Raise NotComparableError if no cell has one of the ``useful`` statuses.

    Without a rate there is no baseline; but a candidate in which every cell failed is worse than one with rates.
    """
    if not any(cell.status in useful for cell in run.cells):
        raise NotComparableError(f"{path}: no cell was measured: nothing to compare")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _check_comparable(request: CheckRequest, before: RunRecord, after: RunRecord, candidate: str) -> tuple[str, ...]:
    """Return the differences between the runs to report. Raises NotComparableError if they forbid a comparison."""
    pinning = [(run.spec.pin == "none" or not run.host.pinning) for run in (before, after)]
    if pinning[0] != pinning[1]:
        raise NotComparableError(
            f"{request.baseline} and {candidate}: one was measured with cells pinned to CPUs, the other without: "
            "measure both with the same --pin"
        )
    differences = [
        *_placement_differences(before, after),
        *header.what_differs(_simulators(before), _simulators(after)),
    ]
    if differences and not request.anywhere:
        raise NotComparableError(
            f"{request.baseline} and {candidate} were measured under different conditions ({'; '.join(differences)}): "
            "measure a baseline here, or compare with --metric speedup or --allow-different-host"
        )
    if before.spec.takes_turns != after.spec.takes_turns:
        differences.append("cells took turns (--interleave) in only one of them")
    # Different versions of these are reported, but not refused.
    ours = [
        f"{name} {before.packages[name]} against {after.packages[name]}"
        for name in sorted(header.OUR_PACKAGES & before.packages.keys() & after.packages.keys())
        if before.packages[name] != after.packages[name]
    ]
    return tuple(map(one_line, (*differences, *ours)))


def _placement_differences(before: RunRecord, after: RunRecord) -> list[str]:
    """Return the options that differ and decide which CPUs and memory cells got, in words."""
    values = [(name, getattr(before.spec, name), getattr(after.spec, name)) for name in ("pin", "smt", "membind")]
    return [f"--{name} {one} against {other}" for name, one, other in values if one != other]


def _simulators(head: RunRecord) -> RunRecord:
    packages = {name: version for name, version in head.packages.items() if name not in header.OUR_PACKAGES}
    return msgspec.structs.replace(head, packages=packages)


def _chosen(request: CheckRequest, cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Return the requested cells and, for speedups, the cells that they are relative to.

    Raises UsageError for names that no cell has.
    """
    keys = [cell.key for cell in cells]
    # With its module, as it was asked for, or by the id alone.
    asked = [next((key.env for key in keys if asked_as(key.env, [env]) == env), env) for env in request.envs]
    wanted = set(choosing.chosen(keys, asked, request.backends, str(request.baseline)))
    envs = {key.env for key in choosing.chosen(keys, asked, (), str(request.baseline))}
    chosen = [cell for cell in cells if cell.key in wanted]
    relative = [cell for cell in cells if cell.env in envs and cell not in chosen and is_base(cell.key)]
    return [*chosen, *(relative if request.metric == "speedup" else ())]


def _measure(  # noqa: PLR0913 - a measurement needs all of these
    request: CheckRequest,
    before: Run,
    old: Sequence[CellSummary],
    spread: Error | None,
    world: World,
    *,
    quiet: bool,
) -> tuple[Path, Comparison | None]:
    """Measure the requested part of the baseline's plan here, without reference rows.

    Returns the run file, and the verdicts if passes were added until they were known.
    """
    header.refuse_foreign(before.header, request.baseline, "measure both sides again with it")
    cells = _chosen(request, old)
    if request.metric == "speedup" and not any(is_base(cell.key) for cell in cells):
        raise NotComparableError(
            f"{request.baseline}: {REFERENCE} with one worker is not in it, and speedups are relative to that: "
            "measure a baseline without --no-base"
        )
    spec = _spec(before.header.spec, [cell for cell in cells if not cell.reference_row])
    named = {*(f"--env {env}" for env in request.envs), *(f"--backend {one.label}" for one in request.backends)}
    with planning.asked_in(request.baseline, spec, allowed=request.allowed, named=named):
        plan, head = planning.plan_here(spec, world)
    planning.refuse_idle(plan, f"{request.baseline}: ")
    _check_comparable(request, before.header, head, "this machine")
    if not quiet:
        _foresee(request, cells, spread)
    path = request.output or paths.default_path(world.now(), spec.envs)
    started = world.clock()
    with _said_how_to_judge(request.baseline, path):
        measuring.measure_into(path, plan, head, world, quiet=quiet)
    if not request.until_decided:
        return path, None

    def look(levels: Levels) -> Comparison:
        return _judged(request, old, gating.cells_of(store.read(path), path), spread, levels)

    def one_pass(wanted: frozenset[CellKey]) -> bool:
        run = store.read(path)
        bases = {base_of(key) for key in wanted} if request.metric == "speedup" else frozenset()
        more = next_pass(plan, wanted | bases, next_repeats(run))
        if any(cell.key.without_repeat in wanted for cell in more.cells):
            with measuring.kept(store.RunWriter.resume(path)) as writer:
                measuring.measure_pass(more, writer, world, done=len(run.cells), quiet=quiet)
            return True
        return False

    with _said_how_to_judge(request.baseline, path):
        return path, until_decided(look, one_pass, spec.repeats, started, request.budget, world.clock)


@contextmanager
def _said_how_to_judge(baseline: Path, path: Path) -> Iterator[None]:
    """Say, if the user interrupts what measures ``path``, which command then compares it with the baseline."""
    try:
        yield
    except InterruptedRunError as error:
        again = shlex.join(["vebench", "check", str(baseline), str(path)])
        raise InterruptedRunError(f"{error}, then {again} with the same options") from None


def _foresee(request: CheckRequest, cells: Sequence[CellSummary], spread: Error | None) -> None:
    """Say what a run like the baseline can find, if that is known."""
    groups = resolution(cells, metric=request.metric, tolerance=request.tolerance, run_spread=spread)
    known = [group for group in groups if group.resolves is not None]
    if not known:
        return
    resolves = max(group.resolves for group in known if group.resolves is not None)
    line = f"such a check finds a backend that is {resolves:.0%} slower in {POWER:.0%} of cases"
    if all(group.passes for group in known) or request.until_decided:
        console.note(line)
        return
    alone = request.metric == "speedup" or decidable(spread or prior_run_spread(), request.tolerance)
    remedy = "use --until-decided or vebench compare" if alone else "use --metric speedup, vebench compare or --history"
    console.note(f"{line}, but passes unchanged code less often, at a tolerance of {request.tolerance:.3g}: {remedy}")


def _spec(spec: RunSpec, cells: Sequence[CellSummary]) -> RunSpec:
    """Return the part of ``spec`` that measures ``cells``."""
    if spec.on_hosts:
        raise UsageError(
            "the baseline was measured on other hosts, which check does not repeat: measure again with its command, "
            "and compare with vebench report BASELINE NEW"
        )
    names = {short_name(cell.env) for cell in cells}
    envs = tuple(env for env in spec.envs if short_name(env) in names)
    # Cells that the spec does not name are there because of its ``base``, unless they are all that is wanted.
    named = [cell for cell in cells if spec.asks_for(cell.label, cell.workers)] or cells
    return replace(
        spec,
        envs=envs,
        workers=tuple(sorted({cell.workers for cell in named})),
        backends=tuple({cell.label: cell.choice for cell in named}.values()),
        base=len(named) < len(cells),
    )
