"""``vebench check``: compare a candidate with a baseline. Without a candidate, measure the baseline's plan again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from vebench.analysis.cell import yardstick_of
from vebench.analysis.comparison import POWER, compare_runs, without_unknown_reference
from vebench.analysis.pairing import HOW_TO_HAVE, denominator
from vebench.analysis.rules import incomplete
from vebench.analysis.summary import next_repeats
from vebench.backends.environments.suites import short_name
from vebench.commands import planning
from vebench.commands.session import session
from vebench.errors import InterruptedRunError, NotComparableError, UsageError, one_line
from vebench.gates import gate
from vebench.gates.check_page import CheckPage
from vebench.gates.sequential import enough_passes, resolution
from vebench.gates.series import FEWEST_FOR_SPREAD, spread_of_runs
from vebench.plan.cells import next_pass
from vebench.plan.spec import TOLERANCE
from vebench.plan.tasks import asked_as
from vebench.reports import console
from vebench.results import header, paths, store
from vebench.results.store import RunWriter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison, RunSpread
    from vebench.analysis.pairing import Metric
    from vebench.commands.session import World
    from vebench.plan.cells import CellKey
    from vebench.plan.grammar import BackendChoice
    from vebench.plan.spec import RunSpec
    from vebench.reports.console import Outlet
    from vebench.results.records import Run, RunRecord


# Of a new run, before it is looked at for the first time if there is time; there are more until all is decided.
_FIRST_PASSES = 3


@dataclass(frozen=True)
class CheckRequest:
    """What to check, and how strictly. Empty ``envs`` or ``backends`` mean all that the baseline has.

    ``history`` is a folder of earlier runs, which show by how much runs differ. A new candidate is measured until every
    backend has its verdict, for at most ``budget`` seconds. ``allowed`` is whether the baseline may name code by
    itself, besides ``envs`` and ``backends``; see ``planning.asked_in``.
    """

    baseline: Path
    candidate: Path | None
    output: Path | None = None
    tolerance: float = TOLERANCE
    metric: Metric = "yardstick"
    envs: tuple[str, ...] = ()
    backends: tuple[BackendChoice, ...] = ()
    allow_different_host: bool = False
    history: Path | None = None
    budget: float = 600.0
    allowed: bool = False


def run(request: CheckRequest, world: World, *, outlet: Outlet) -> int:
    """Compare, and publish the verdicts. Returns the exit status."""
    page = judge(request, world)
    gate.publish(page, outlet)
    return page.status


def judge(request: CheckRequest, world: World) -> CheckPage:
    """Compare, and return the verdicts. Raises NotComparableError, and RunFileError and UsageError for bad input."""
    started = world.clock()
    gate.check_tolerance(request.tolerance)
    before = store.read(request.baseline)
    old = _useful_cells(before, request.baseline, "ok")
    strictness: dict[str, Any] = {"metric": request.metric, "tolerance": request.tolerance}
    strictness["run_spread"] = _run_spread(request, before.header)
    if request.candidate is None:
        candidate, after, found = _measure(request, before, old, strictness, world, started)
    else:
        candidate, after, found = request.candidate, store.read(request.candidate), None
        if candidate.samefile(request.baseline):
            raise UsageError(f"{candidate} is the baseline itself: name another run")
    new = _useful_cells(after, candidate, "ok", "failed")
    differences = _check_comparable(request, before.header, after.header, str(candidate))
    differences += tuple(map(one_line, gate.classes_that_differ(old, new)))
    found = without_unknown_reference(found or compare_runs(_chosen(request, old), new, **strictness))
    if request.envs or request.backends:
        found = replace(found, new=())
    if not found.cells:
        raise NotComparableError(f"{request.baseline}: nothing to compare: all its cells are skipped or reference rows")
    return CheckPage(str(request.baseline), str(candidate), found, differences, gate.exit_status(found))


def _run_spread(request: CheckRequest, head: RunRecord) -> RunSpread | None:
    """Return by how much runs like the baseline differ, None if unknown. Raises UsageError for too short a history."""
    if request.history is None:
        return None
    runs = gate.runs_in(request.history)
    spread = spread_of_runs(((str(path), run) for path, run in runs), head, request.metric)
    if spread is None:
        raise UsageError(
            f"--history {request.history}: fewer than {FEWEST_FOR_SPREAD} runs of the baseline's machine and packages: "
            "leave it out, and a documented spread is taken"
        )
    return spread


def _useful_cells(run: Run, path: Path, *useful: str) -> tuple[CellSummary, ...]:
    """Return the cells of a complete run, in which a cell has one of the ``useful`` statuses.

    Without a rate there is no baseline; but a candidate in which every cell failed is worse than one with rates.
    Raises NotComparableError if the run is incomplete, because missing cells would never be checked, or unusable.
    """
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


def _check_comparable(request: CheckRequest, before: RunRecord, after: RunRecord, candidate: str) -> tuple[str, ...]:
    """Return the differences between the runs to report. Raises NotComparableError if they forbid a comparison."""
    pinned, also = (run.spec.pin.pins and run.host.pinning for run in (before, after))
    if pinned != also:
        raise NotComparableError(
            f"{request.baseline} and {candidate}: one was measured with cells pinned to CPUs, the other without: "
            "measure both with the same --pin"
        )
    of_plan = header.how_plans_differ(before, after)
    if "policy" in of_plan:
        both, told = f"{request.baseline} and {candidate}", "; ".join(of_plan.values())
        raise NotComparableError(one_line(f"{both}: {told}: measure both with the same policy"))
    pin = [of_plan.pop("pin")] if "pin" in of_plan else []
    differences = pin + header.what_differs(_simulators(before), _simulators(after))
    if differences and request.metric == "fps" and not request.allow_different_host:
        raise NotComparableError(
            f"{request.baseline} and {candidate} were measured under different conditions ({'; '.join(differences)}): "
            "measure a baseline here, or compare with --metric yardstick or --allow-different-host"
        )
    if request.metric == "yardstick" and not request.allow_different_host:
        _refuse_another_yardstick(before, after)
    # Other plans, and different versions of these, are reported, but not refused.
    differences += of_plan.values()
    differences += [
        f"{name} {before.packages[name]} against {after.packages[name]}"
        for name in sorted(header.OUR_PACKAGES & before.packages.keys() & after.packages.keys())
        if before.packages[name] != after.packages[name]
    ]
    return tuple(map(one_line, differences))


def _refuse_another_yardstick(before: RunRecord, after: RunRecord) -> None:
    """Raise NotComparableError if the yardstick, which is Python and numpy at work, was not the same program."""
    for name, one, other in (
        ("Python", *(".".join(run.host.python.split(".")[:2]) for run in (before, after))),
        ("numpy", *(run.packages.get("numpy", "") for run in (before, after))),
    ):
        if one and other and one != other:
            raise NotComparableError(
                one_line(
                    f"{name} {one} against {other}: the yardstick runs on it, and is another one: measure a baseline "
                    "with the same, compare with --metric fps or speedup, or add --allow-different-host"
                )
            )


def _simulators(head: RunRecord) -> RunRecord:
    packages = {name: version for name, version in head.packages.items() if name not in header.OUR_PACKAGES}
    return msgspec.structs.replace(head, packages=packages)


def _chosen(request: CheckRequest, cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Return the requested cells, and what they are relative to. Raises UsageError for names that no cell has."""
    keys = [cell.key for cell in cells]
    # With its module, as it was asked for, or by the id alone.
    asked = [next((key.env for key in keys if asked_as(key.env, [env]) == env), env) for env in request.envs]
    wanted = set(gate.chosen(keys, asked, request.backends, str(request.baseline)))
    return [cell for cell in cells if cell.key in wanted | _relative_to(wanted, request.metric)]


def _relative_to(keys: Collection[CellKey], metric: Metric) -> set[CellKey]:
    """Return the cells that these are relative to, and what those are judged by themselves."""
    bases = {base for key in keys if (base := denominator(key, metric)) is not None}
    return bases | {yardstick_of(base) for base in bases}


def _measure(  # noqa: PLR0913, PLR0917 - a measurement needs all of these
    request: CheckRequest,
    before: Run,
    old: Sequence[CellSummary],
    strictness: Mapping[str, Any],
    world: World,
    started: float,
) -> tuple[Path, Run, Comparison]:
    """Measure the requested part of the baseline's plan here, until every backend has its verdict.

    Of the reference rows, only what others are relative to is measured. Returns the run file, the run, and the
    verdicts.
    """
    header.refuse_foreign(before.header, request.baseline, "measure both sides again with it")
    cells = _chosen(request, old)
    gated = [cell for cell in cells if not cell.reference_row]
    needed = _relative_to([cell.key for cell in gated], request.metric)
    spec = _spec(before.header.spec, gated, base=bool(needed))
    named = {*(f"--env {env}" for env in request.envs), *(f"--backend {one.label}" for one in request.backends)}
    with planning.asked_in(request.baseline, spec, allowed=request.allowed, named=named):
        plan, head = planning.plan_here(spec, world)
    planning.refuse_idle(plan, f"{request.baseline}: ")
    for key in needed - {cell.key for cell in cells}:
        raise NotComparableError(
            f"{request.baseline}: {key.backend} with one worker is not in it on {key.env}, and --metric "
            f"{request.metric} needs it: measure a new baseline; {HOW_TO_HAVE}"
        )
    _check_comparable(request, before.header, head, "this machine")
    enough = _foresee(request, cells, strictness)
    path = request.output or paths.default_path(world.now(), spec.envs)
    try:
        with session(RunWriter.create(path, head), world, quiet=False) as measuring:
            measuring.measure(plan, plan)

            def look(part: float) -> Comparison:
                return compare_runs(cells, gate.cells_of(measuring.run, path), part=part, **strictness)

            def one_pass(wanted: frozenset[CellKey]) -> bool:
                more = next_pass(plan, wanted | _relative_to(wanted, request.metric), next_repeats(measuring.run))
                if any(cell.key.without_repeat in wanted for cell in more.cells):
                    measuring.one_pass(more)
                    return True
                return False

            first, every = min(before.header.spec.passes, _FIRST_PASSES), frozenset(cell.key for cell in gated)
            found = gate.until_decided(look, one_pass, first, every, started, request.budget, world.clock, enough)
    except InterruptedRunError as error:
        again = shlex.join(["vebench", "check", str(request.baseline), str(path)])
        raise InterruptedRunError(f"{error}, then {again} with the same options") from None
    return path, measuring.run, found


def _foresee(request: CheckRequest, cells: Sequence[CellSummary], strictness: Mapping[str, Any]) -> int:
    """Say what a new run can find however long it goes on. Returns after how many passes it hardly finds more.

    Raises NotComparableError if unchanged code would be inconclusive all the same.
    """
    once, groups = (resolution(cells, forever=forever, **strictness) for forever in (False, True))
    known = [group for group in groups if group.resolves is not None]
    in_vain = [group for group in known if group.verdict == "inconclusive"]
    instead = "use --metric yardstick, vebench compare or --history" if request.metric == "fps" else "give --history"
    tolerance = f"--tolerance {request.tolerance:.3g}"
    remedy = f"measure a baseline with more --passes, allow more than {tolerance}, or {instead}"
    if known and len(in_vain) == len(known):
        raise NotComparableError(f"{request.baseline}: more passes cannot resolve this tolerance: {remedy}")
    if known:
        resolves = max(group.resolves for group in known if group.resolves is not None)
        line = f"such a check finds a backend that is {resolves:.0%} slower in {POWER:.0%} of cases"
        if in_vain:
            names = ", ".join(sorted({group.key.backend for group in in_vain}))
            line += f", but cannot find {names} the same: {remedy}"
        console.note(line)
    return enough_passes(once, groups, max((cell.sample.processes for cell in cells), default=1))


def _spec(spec: RunSpec, cells: Sequence[CellSummary], *, base: bool) -> RunSpec:
    """Return the part of ``spec`` that measures ``cells``, for a first look; ``base``: and what rates need."""
    if spec.hosts is not None:
        raise UsageError(
            "the baseline was measured on other hosts, which check does not repeat: measure again with its command, "
            "and compare with vebench report BASELINE NEW"
        )
    names = {short_name(asked_as(cell.env, spec.envs)) for cell in cells}
    # Cells that the spec does not name are there because of its ``base``, unless they are all that is wanted.
    named = [cell for cell in cells if spec.asks_for(cell.label, cell.workers)] or cells
    return replace(
        spec,
        envs=tuple(env for env in spec.envs if short_name(env) in names),
        workers=tuple(sorted({cell.workers for cell in named})),
        backends=tuple({cell.label: cell.choice for cell in named}.values()),
        base=base or len(named) < len(cells),
        passes=min(spec.passes, gate.FEWEST_PASSES),
        race=False,
        until=None,
    )
