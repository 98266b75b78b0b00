"""The checks of a submission. They find mistakes: lines of two runs, another plan, work that was not compared.

A run that was forged consistently passes. Only measuring again finds it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import product
from math import isclose
from typing import NamedTuple, TypeAlias

from vebench.analysis import rules
from vebench.analysis.cell import is_base
from vebench.analysis.findings import Code
from vebench.analysis.summary import why_not_same
from vebench.backends.registry import REFERENCE, YARDSTICK
from vebench.errors import VebenchError, one_line, shown
from vebench.plan.cells import CellKey
from vebench.plan.spec import PASSES_OF_ALL
from vebench.plan.suites import SUITES
from vebench.plan.verdicts import SAME
from vebench.reports import figures
from vebench.reports.figures import grouped
from vebench.share.folder import Manifest, Result, Submission, submission_of

_MOST_PLACES = 3
_MOST_DISTURBED = 0.1  # share of the cells
_RATES_AGREE = 0.01  # releases of vebench may round rates differently
_RELEASE = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
_REFUSED_CODES = (
    Code.FAILED,
    Code.DIFFERENT_WORK,
    Code.ABOVE_CEILING,
    Code.BELOW_SIMULATOR,
    Code.INCOMPLETE,
    Code.OTHER_PACKAGES,
    Code.FALLBACK,
    Code.UNPINNED,
    Code.PRIORITY,
)


@dataclass(frozen=True)
class CheckFailure:
    """A reason to refuse a submission."""

    check: str
    reason: str
    remedy: str
    places: tuple[str, ...] = ()


class _Fault(NamedTuple):
    reason: str
    place: str = ""


_Faults: TypeAlias = Iterator[_Fault]


def failures(submission: Submission) -> tuple[CheckFailure, ...]:
    """Return the reasons to refuse a submission, none if it is accepted."""
    found: list[CheckFailure] = []
    try:
        for check, remedy, faults in _CHECKS:
            for reason, named in figures.by_key(faults(submission)).items():
                places = [place for place in named if place]
                rest = [f"and {len(places) - _MOST_PLACES} more"] if len(places) > _MOST_PLACES else []
                found.append(CheckFailure(check, reason, remedy, (*places[:_MOST_PLACES], *rest)))
            if found and check == "plan":  # further checks rely on the plan
                break
    except (VebenchError, ValueError, KeyError, IndexError, ArithmeticError) as error:
        found.append(CheckFailure("files", f"cannot be checked: {one_line(str(error))}", AS_WRITTEN))
    return tuple(found)


def _place(key: CellKey) -> str:
    return one_line(f"{key.env}, {key.backend}, {key.size}")


def _release(submission: Submission) -> _Faults:
    version = submission.manifest.vebench
    if not _RELEASE.fullmatch(version):
        yield _Fault(f"vebench {version} is not a release")


def _plan(submission: Submission) -> _Faults:
    head, stated = submission.run.header, submission.manifest.suite
    spec, suite = head.spec, SUITES.get(stated)
    if suite is None or spec.suite != stated:
        yield _Fault(f"{shown(stated)} is unknown, or not the suite of the run: {shown(spec.suite)}")
        return
    if submission.manifest.plan != suite.digest:
        yield _Fault(f"the plan of {suite.id} is {suite.digest}, not {submission.manifest.plan}")
    planned = suite.spec(head.host.usable_cpus, spec.backends)
    for item in fields(planned):
        measured, fixed = getattr(spec, item.name), getattr(planned, item.name)
        if measured != fixed:
            yield _Fault(f"{item.name} is {shown(str(measured))}, not {shown(str(fixed))}")


def _stated(submission: Submission) -> _Faults:
    manifest, expected = submission.manifest, submission_of(submission.name, submission.run)
    for name in ("vebench", "division", "started", "command"):
        stated, measured = getattr(manifest, name), getattr(expected.manifest, name)
        if stated != measured:
            yield _Fault(f"{name} is {shown(stated)}, but {shown(measured)} in the run")
    if (submission.machine, submission.packages) != (expected.machine, expected.packages):
        yield _Fault("machine.json or packages.json differs from the run")
    results, measured_results = _by_cell(manifest), _by_cell(expected.manifest)
    for key in sorted(results.keys() | measured_results.keys()):
        if not _agree(results.get(key), measured_results.get(key)):
            yield _Fault("rates or work status differ from the run", _place(key))


def _by_cell(manifest: Manifest) -> dict[CellKey, Result]:
    return {CellKey(one.env, one.backend, one.workers, 1): one for one in manifest.results}


def _agree(one: Result | None, other: Result | None) -> bool:
    if one is None or other is None or one.verdict != other.verdict:
        return False
    first, second = (each.frames_per_second.median if each.frames_per_second else 0.0 for each in (one, other))
    return isclose(first, second, rel_tol=_RATES_AGREE)


def _complete(submission: Submission) -> _Faults:
    spec = submission.run.header.spec
    passes: dict[CellKey, set[int]] = defaultdict(set)
    for cell in submission.run.cells:
        passes[cell.key.without_repeat].add(cell.repeat)
    backends = {one.label for one in spec.backends}
    if not backends:
        backends = {cell.label for cell in submission.run.cells if not cell.entry.reference_row}
    planned = {CellKey(*one, 1) for one in product(spec.envs, backends, spec.workers)}
    planned |= {CellKey(env, name, 1, 1) for env in spec.envs for name in (REFERENCE, YARDSTICK)}
    for key in sorted(planned | passes.keys()):
        if passes[key] != {*range(spec.passes)}:
            yield _Fault("cells of the plan are missing", _place(key))


def _one_run(submission: Submission) -> _Faults:
    for cell in submission.run.cells:
        if cell.run != submission.run.header.digest:
            yield _Fault("lines are from another run, machine or plan", _place(cell.key))


def _work(submission: Submission) -> _Faults:
    for cell in submission.run.cells:
        if cell.status != "ok" or cell.entry.reference_row or cell.label == REFERENCE:
            continue
        proof = cell.proof
        if proof is None:
            if cell.repeat < PASSES_OF_ALL:
                yield _Fault("rows were not compared with a plain loop's rows", _place(cell.key))
        elif proof.verdict not in SAME and not proof.impossible:
            yield _Fault(f"its work is not proven: {why_not_same(proof)}", _place(cell.key))


def _findings(submission: Submission) -> _Faults:
    for finding in rules.of_run(submission.run, submission.cells):
        if finding.code in _REFUSED_CODES:
            yield _Fault(f"{finding.code}: {finding.message}")
    for group in grouped([cell for cell in submission.cells if not cell.reference_row]):
        if group.finding.code in _REFUSED_CODES:
            for place in group.places:
                yield _Fault(f"{group.finding.code}: {group.finding.message}", place)


def _undisturbed(submission: Submission) -> _Faults:
    disturbed, cells = sum(cell.conditions.disturbed for cell in submission.cells), len(submission.cells)
    if disturbed > _MOST_DISTURBED * cells:
        yield _Fault(f"other processes disturbed {disturbed} of {cells} cells")


def _intervals(submission: Submission) -> _Faults:
    widest = SUITES[submission.manifest.suite].widest
    for cell in submission.cells:
        if cell.status != "ok" or cell.reference_row or is_base(cell.key):
            continue
        half = cell.speedup.half_width if cell.speedup else None
        if half is None or half > widest:
            yield _Fault(f"speedups have intervals wider than ±{widest:.0%}", _place(cell.key))


AS_WRITTEN = "submit the folder as vebench share make wrote it"
_ON_AN_IDLE_MACHINE = "measure on an idle machine"
_CHECKS: tuple[tuple[str, str, Callable[[Submission], _Faults]], ...] = (
    ("release", "measure with a released version", _release),
    ("plan", "measure with vebench run --suite, without changing its plan", _plan),
    ("stated", AS_WRITTEN, _stated),
    ("complete", "finish the run with vebench run --resume, or measure again", _complete),
    ("one-run", "measure again with vebench run --suite", _one_run),
    ("work", "leave the backend out with -b, or measure again", _work),
    ("findings", "see vebench report, do what it says, or leave the backend out with -b", _findings),
    ("undisturbed", _ON_AN_IDLE_MACHINE, _undisturbed),
    ("intervals", _ON_AN_IDLE_MACHINE, _intervals),
)
