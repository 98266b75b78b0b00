"""A check from beginning to end: a baseline, a candidate or a run of the same plan here, the verdicts, who is told."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from vebench import session
from vebench.analysis.comparison import Metric, compare
from vebench.analysis.findings import incomplete
from vebench.errors import NotComparableError, RunFileError, UsageError, did_you_mean, one_line, shown
from vebench.plan.grammar import check_choices
from vebench.plan.spec import BackendChoice, check
from vebench.plan.tasks import short_name
from vebench.plan.verdicts import REFERENCE
from vebench.reports import as_github, as_junit, as_markdown, as_terminal, console
from vebench.reports.comparisons import Check, comparison_document, comparison_json
from vebench.reports.tables import Report
from vebench.results import header, paths, store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.analysis.comparison import Comparison, Verdict
    from vebench.analysis.scaling import CellSummary
    from vebench.plan.spec import RunSpec
    from vebench.results.records import Run, RunRecord

DONE, SLOWER, UNDECIDED = 0, 1, 3
MOST_TOLERANCE = 0.9
# What the measured work is made of; vebench's own version is told, not refused.
OUR_PACKAGES = frozenset({"vebench", "torch"})
NO_ANSWER: tuple[Verdict, ...] = ("missing", "not comparable")

Inconclusive = Literal["default", "pass", "fail"]


@dataclass(frozen=True)
class Request:
    """What is to be checked, and how strictly. No ``envs`` and no ``backends`` mean all of the baseline's."""

    baseline: Path
    candidate: Path | None
    output: Path | None = None
    tolerance: float = 0.05
    metric: Metric = "fps"
    envs: tuple[str, ...] = ()
    backends: tuple[BackendChoice, ...] = ()
    allow_different_host: bool = False
    inconclusive: Inconclusive = "default"

    @property
    def anywhere(self) -> bool:
        """Whether runs of different machines may be compared."""
        return self.allow_different_host or self.metric == "speedup"


def run(request: Request, *, form: str, junit: Path | None, quiet: bool) -> int:
    """Compare, print the verdicts as ``form`` says and to where a CI service looks. Returns the exit status.

    Raises NotComparableError if the runs cannot be put beside each other, RunFileError and UsageError for bad input.
    """
    check_tolerance(request.tolerance)
    if junit is not None:
        check_target(junit, [path for path in (request.baseline, request.candidate, request.output) if path])
    before = _read(request.baseline)
    candidate = request.candidate
    if candidate is None:
        candidate = _measure(request, before, quiet=quiet)
    elif _same_file(request.baseline, candidate):
        raise UsageError(f"{candidate} is the baseline itself: name another run")
    after = _read(candidate)
    differences = _admit(request, before.header, after.header, str(candidate))
    chosen = _chosen(request, cells_of(before, request.baseline))
    found = compare(chosen, cells_of(after, candidate), metric=request.metric, tolerance=request.tolerance)
    found = replace(found, new=() if request.envs or request.backends else found.new)
    if not found.cells:
        raise NotComparableError(f"{request.baseline}: nothing to compare: its cells are skipped, or reference rows")
    status = exit_status(found, request.inconclusive)
    tell(Check(str(request.baseline), str(candidate), found, differences, status), form, junit)
    return status


def check_tolerance(share: float) -> None:
    """Raise UsageError for a tolerance that lets nothing pass, or everything."""
    if not 0 < share <= MOST_TOLERANCE:
        raise UsageError(f"--tolerance {share:.4g}: must be above 0 and at most {MOST_TOLERANCE:.0%}")


def check_target(junit: Path, files: Sequence[Path]) -> None:
    """Raise UsageError if ``junit`` cannot be written, or holds or will hold a run, before minutes of measuring.

    ``files`` are the run files, those that are still to be written among them.
    """
    store.refuse_to_overwrite(junit, files)
    if junit in files:
        raise UsageError(f"--junit {junit}: is the run file, too: name another file")
    if junit.is_dir() or not junit.parent.is_dir():
        raise UsageError(f"--junit {junit}: name a file in a folder that exists")


def exit_status(found: Comparison, inconclusive: Inconclusive) -> int:
    """Return 1 for a regression, 3 where somebody ought to know and nobody does, 0 if no cell is slower."""
    verdicts = {cell.verdict for cell in found.cells}
    if "slower" in verdicts:
        return SLOWER
    if verdicts & set(NO_ANSWER):
        return UNDECIDED
    if "inconclusive" in verdicts:
        return {"pass": DONE, "fail": SLOWER, "default": UNDECIDED}[inconclusive]
    return DONE


def _read(path: Path) -> Run:
    """Return a whole run. Raises NotComparableError if it is not whole: what is not in it would never be gated."""
    run = store.read(path)
    again = f"vebench run --resume {shlex.quote(str(path))} finishes it"
    if run.header.interpreter is not None:
        again = "vebench compare measures both sides anew"
    if run.notes:
        raise NotComparableError(f"{run.notes[0]}: the run is not whole; {again}")
    lacking = incomplete(run, str(path))
    if lacking is not None:
        raise NotComparableError(f"{path}: {lacking.message}: the run is not whole; {again}")
    if not any(cell.status == "ok" for cell in run.cells):
        raise NotComparableError(f"{path}: no cell was measured: nothing to compare")
    return run


def cells_of(run: Run, path: Path) -> tuple[CellSummary, ...]:
    """Return a run's cells in the order of reports."""
    return Report.of([(str(path), run)]).sections[0].cells


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _admit(request: Request, before: RunRecord, after: RunRecord, candidate: str) -> tuple[str, ...]:
    """Return what differs between the runs, told with the verdicts. Raises NotComparableError if that matters."""
    pinning = [(run.spec.pin == "none" or not run.host.pinning) for run in (before, after)]
    if pinning[0] != pinning[1]:
        raise NotComparableError(
            f"{request.baseline} and {candidate}: one was measured with cells pinned to CPUs, the other without: "
            "measure both with the same --pin"
        )
    differences = [*_placed_unlike(before, after), *header.what_differs(_simulators(before), _simulators(after))]
    if differences and not request.anywhere:
        raise NotComparableError(
            f"{request.baseline} and {candidate} were measured under different conditions ({'; '.join(differences)}): "
            "measure a baseline here, or compare with --metric speedup or --allow-different-host"
        )
    if before.spec.interleave != after.spec.interleave:
        differences.append("cells in turn (--interleave) in one of them only")
    ours = [
        f"{name} {before.packages[name]} against {after.packages[name]}"
        for name in sorted(OUR_PACKAGES & before.packages.keys() & after.packages.keys())
        if before.packages[name] != after.packages[name]
    ]
    return tuple(map(one_line, (*differences, *ours)))


def _placed_unlike(before: RunRecord, after: RunRecord) -> list[str]:
    """Return the options by which cells got other CPUs or other memory, in words."""
    values = [(name, getattr(before.spec, name), getattr(after.spec, name)) for name in ("pin", "smt", "membind")]
    return [f"--{name} {one} against {other}" for name, one, other in values if one != other]


def _simulators(head: RunRecord) -> RunRecord:
    packages = {name: version for name, version in head.packages.items() if name not in OUR_PACKAGES}
    return msgspec.structs.replace(head, packages=packages)


def _chosen(request: Request, cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Return the cells that the request is about, and the reference. Raises UsageError for names that no cell has."""
    envs = {cell.env: {cell.env.casefold(), short_name(cell.env).casefold()} for cell in cells}
    for name in request.envs:
        if not any(name.casefold() in names for names in envs.values()):
            known = [short_name(env) for env in envs]
            raise UsageError(f"--env {shown(name)}: not in {request.baseline}{did_you_mean(name, known)}")
    for choice in request.backends:
        if not any(_is(cell, choice) for cell in cells):
            known = list(dict.fromkeys(cell.label for cell in cells))
            near = did_you_mean(choice.label, known)
            raise UsageError(f"--backend {shown(choice.label)}: not in {request.baseline}{near}")
    wanted = {name.casefold() for name in request.envs}
    here = [cell for cell in cells if not wanted or envs[cell.env] & wanted]
    asked = [cell for cell in here if not request.backends or any(_is(cell, choice) for choice in request.backends)]
    base = [cell for cell in here if cell not in asked and request.metric == "speedup" and _is_base(cell)]
    return [*asked, *base]


def _is(cell: CellSummary, choice: BackendChoice) -> bool:
    return cell.label == choice.label or (not choice.options and cell.backend == choice.name)


def _is_base(cell: CellSummary) -> bool:
    return cell.label == REFERENCE and cell.workers == 1


def _measure(request: Request, before: Run, *, quiet: bool) -> Path:
    """Measure the baseline's plan here, without reference rows and what is not asked for. Returns the run file."""
    header.refuse_foreign(before.header, request.baseline)
    cells = _chosen(request, cells_of(before, request.baseline))
    if request.metric == "speedup" and not any(map(_is_base, cells)):
        raise NotComparableError(
            f"{request.baseline}: {REFERENCE} with one worker, to which speedups are relative, is not in it: "
            f"measure a baseline with -b {REFERENCE} and 1 among the --workers, too"
        )
    spec = _spec(before.header.spec, [cell for cell in cells if not cell.reference])
    try:
        check(spec)
        check_choices(spec.backends)
        plan, head = session.prepare(spec)
    except UsageError as error:
        raise RunFileError(f"{request.baseline}, line 1: {error}") from None
    _admit(request, before.header, head, "this machine")
    path = request.output or paths.default_path(datetime.now(UTC), spec.envs)
    session.into(path, plan, head, quiet=quiet)
    return path


def _spec(spec: RunSpec, cells: Sequence[CellSummary]) -> RunSpec:
    """Return the part of ``spec`` that measures ``cells``."""
    names = {short_name(cell.env) for cell in cells}
    envs = tuple(env for env in spec.envs if short_name(env) in names)
    backends = {cell.label: BackendChoice(cell.backend, dict(cell.options)) for cell in cells}
    return replace(spec, envs=envs, backends=tuple(backends.values()))


def tell(check: Check, form: str, junit: Path | None) -> None:
    """Leave the verdicts where a CI service looks for them, and print them."""
    document = comparison_document(check)
    if junit is not None:
        _write(junit, as_junit.render(check), "w", "--junit")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        _write(paths.output(summary), as_markdown.render_document(document) + "\n", "a", "$GITHUB_STEP_SUMMARY")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        sys.stderr.write(as_github.workflow_commands(check))
    try:
        if form == "json":
            sys.stdout.write(comparison_json(check))
        elif form == "markdown":
            sys.stdout.write(as_markdown.render_document(document))
        else:
            as_terminal.write_document(document, console.for_data())
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads it: the answer is the same
        console.forsake(sys.stdout)


def _write(path: Path, text: str, mode: str, option: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from None
