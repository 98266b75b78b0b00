"""``vebench check``: compare a candidate with a baseline. Without a candidate, measure the baseline's plan again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from vebench.analysis.comparison import Metric, compare
from vebench.analysis.findings.run import incomplete
from vebench.backends.registry import REFERENCE
from vebench.commands import choosing, gating, measuring, planning
from vebench.errors import NotComparableError, UsageError, one_line
from vebench.plan.spec import BackendChoice
from vebench.plan.tasks import short_name
from vebench.reports.pages.check import CheckPage
from vebench.results import header, paths, store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.commands.world import World
    from vebench.plan.spec import RunSpec
    from vebench.reports.formats.registry import Format
    from vebench.results.records import Run, RunRecord


@dataclass(frozen=True)
class CheckRequest:
    """What to check, and how strictly. Empty ``envs`` or ``backends`` mean all that the baseline has."""

    baseline: Path
    candidate: Path | None
    output: Path | None = None
    tolerance: float = 0.05
    metric: Metric = "fps"
    envs: tuple[str, ...] = ()
    backends: tuple[BackendChoice, ...] = ()
    allow_different_host: bool = False
    inconclusive: gating.Inconclusive = "default"

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
    candidate = request.candidate
    if candidate is None:
        candidate = _measure(request, before, old, world, quiet=quiet)
    elif _same_file(request.baseline, candidate):
        raise UsageError(f"{candidate} is the baseline itself: name another run")
    after, new = _read(candidate, "ok", "failed")
    differences = _check_comparable(request, before.header, after.header, str(candidate))
    chosen = _chosen(request, old)
    found = compare(chosen, new, metric=request.metric, tolerance=request.tolerance)
    found = replace(found, new=() if request.envs or request.backends else found.new)
    if not found.cells:
        raise NotComparableError(f"{request.baseline}: nothing to compare: all its cells are skipped or reference rows")
    status = gating.exit_status(found, request.inconclusive)
    gating.publish(CheckPage(str(request.baseline), str(candidate), found, differences, status), form, junit)
    return status


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
    wanted = set(choosing.chosen(keys, request.envs, request.backends, str(request.baseline)))
    envs = {key.env for key in choosing.chosen(keys, request.envs, (), str(request.baseline))}
    chosen = [cell for cell in cells if cell.key in wanted]
    relative = [cell for cell in cells if cell.env in envs and cell not in chosen and _is_base(cell)]
    return [*chosen, *(relative if request.metric == "speedup" else ())]


def _is_base(cell: CellSummary) -> bool:
    return cell.label == REFERENCE and cell.workers == 1


def _measure(request: CheckRequest, before: Run, old: Sequence[CellSummary], world: World, *, quiet: bool) -> Path:
    """Measure the requested part of the baseline's plan here, without reference rows. Returns the run file."""
    header.refuse_foreign(before.header, request.baseline, "measure both sides again with it")
    cells = _chosen(request, old)
    if request.metric == "speedup" and not any(map(_is_base, cells)):
        raise NotComparableError(
            f"{request.baseline}: {REFERENCE} with one worker is not in it, and speedups are relative to that: "
            "measure a baseline without --no-base"
        )
    spec = _spec(before.header.spec, [cell for cell in cells if not cell.reference_row])
    plan, head = planning.plan_again(spec, request.baseline, world)
    planning.refuse_idle(plan, f"{request.baseline}: ")
    _check_comparable(request, before.header, head, "this machine")
    path = request.output or paths.default_path(world.now(), spec.envs)
    measuring.measure_into(path, plan, head, world, quiet=quiet)
    return path


def _spec(spec: RunSpec, cells: Sequence[CellSummary]) -> RunSpec:
    """Return the part of ``spec`` that measures ``cells``."""
    names = {short_name(cell.env) for cell in cells}
    envs = tuple(env for env in spec.envs if short_name(env) in names)
    # Cells that the spec does not name are there because of its ``base``, unless they are all that is wanted.
    named = [cell for cell in cells if spec.asks_for(cell.label, cell.workers)] or cells
    return replace(
        spec,
        envs=envs,
        workers=tuple(sorted({cell.workers for cell in named})),
        backends=tuple({cell.label: BackendChoice(cell.backend, dict(cell.options)) for cell in named}.values()),
        base=len(named) < len(cells),
    )
