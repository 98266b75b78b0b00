"""``vebench share make`` and ``share check``: a run as a submission, and whether submissions are accepted.

The checks find mistakes: lines of two runs, another plan, work that was not compared. A run that was forged
consistently passes. Only measuring again finds it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from math import isclose
from pathlib import Path
from typing import TypeAlias

import msgspec

from vebench.analysis import rules
from vebench.analysis.cell import Code, is_base
from vebench.analysis.summary import why_not_same
from vebench.backends.registry import REFERENCE, YARDSTICK
from vebench.errors import RunFileError, UsageError, VebenchError, one_line, shown
from vebench.files import with_texts
from vebench.plan.cells import CellKey
from vebench.plan.spec import PASSES_OF_ALL, SUBMISSION_SUITES
from vebench.plan.tasks import TASKS
from vebench.plan.verdicts import SAME
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.reports.document import Document, Remark, SimplePage, Table, TableRow, Text
from vebench.reports.figures import grouped
from vebench.results import store
from vebench.results.records import Run
from vebench.share.folder import CellResult, Manifest, Submission, command_of, read_submission, submission_of

_MOST_DISTURBED = 0.1  # the largest share of disturbed cells
_RATES_AGREE = 0.01  # the relative tolerance of rates, which releases of vebench may compute differently
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
_AS_WRITTEN = "submit the folder as vebench share make wrote it"
_ON_AN_IDLE_MACHINE = "measure on an idle machine"
_Faults: TypeAlias = Iterator[tuple[str, str]]  # a fault, and its cell; the cell is empty for the whole run


@dataclass(frozen=True)
class CheckFailure:
    """A reason to refuse a submission."""

    check: str
    reason: str
    remedy: str
    places: tuple[str, ...] = ()


_CheckResult: TypeAlias = tuple[Submission | None, tuple[CheckFailure, ...]]  # None: the folder cannot be read


def make_submission(file: Path, folder: Path | None) -> int:
    """Show the submission of a run, write it to ``folder`` if it would be accepted, and return the exit status.

    Raises UsageError for a run without a suite, or if the folder exists.
    """
    run = store.read(file)
    option = f"-o {one_line(str(folder))}"
    if folder is not None and folder.exists():
        raise UsageError(f"{option}: exists already: name a new folder")
    submission = submission_of(folder.name if folder else file.stem, _without_private_names(run))
    found = failures(submission)
    console.show(checked_page({submission.name: (submission, found)}))
    if found:
        return 1
    if folder is None:
        console.note("not written: name a folder with -o")
        return 0
    try:
        folder.mkdir(parents=True)
        with ExitStack() as unless_whole:
            unless_whole.callback(shutil.rmtree, folder)
            for name, content in submission.contents.items():
                (folder / name).write_bytes(content)
            unless_whole.pop_all()
    except OSError as error:
        raise UsageError(f"{option}: {error.strerror}") from None
    console.note(f"written to {folder}")
    return 0


def _without_private_names(run: Run) -> Run:
    """Return the run with a neutral command, and with paths of this machine cut to their last parts."""
    head = run.header
    for choice in head.spec.backends:
        if os.sep in choice.python:
            raise UsageError(f"{choice.label}: names a folder of this machine: measure it by a name on the search path")
    plain_head = msgspec.structs.replace(
        head,
        command=command_of(head.spec),
        host=msgspec.structs.replace(head.host, quota_source=None),
        interpreters={name: msgspec.structs.replace(one, path="") for name, one in head.interpreters.items()},
    )
    shorten = figures.without_folders((str(Path.home()),))
    renamed = msgspec.structs.replace(run, header=plain_head)
    plain = msgspec.convert(with_texts(msgspec.to_builtins(renamed), shorten), Run)
    # Each line has the digest of its run's header. The header has changed, and lines of other runs must not match it.
    cells = tuple(replace(cell, run=plain.header.digest if cell.run == head.digest else "") for cell in plain.cells)
    return msgspec.structs.replace(plain, cells=cells)


def check_submissions(paths: Sequence[Path], outlet: Outlet) -> int:
    """Check submissions and show the result. Return 1 if a submission is refused, else 0."""
    found: dict[str, _CheckResult] = {}
    for path in paths:
        try:
            submission = read_submission(path)
            found[one_line(str(path))] = submission, failures(submission)
        except RunFileError as error:
            found[one_line(str(path))] = None, (CheckFailure("files", str(error), _AS_WRITTEN),)
    outlet.publish(checked_page(found))
    return 1 if any(reasons for _, reasons in found.values()) else 0


def failures(submission: Submission) -> tuple[CheckFailure, ...]:
    """Return the reasons to refuse a submission; empty if it is accepted."""
    found: list[CheckFailure] = []
    try:
        for check, remedy, faults in _CHECKS:
            for reason, named in figures.by_key(faults(submission)).items():
                found.append(CheckFailure(check, reason, remedy, tuple(place for place in named if place)))
            if found and check == "plan":  # further checks rely on the plan
                break
    except (VebenchError, ValueError, KeyError, IndexError, ArithmeticError) as error:
        found.append(CheckFailure("files", f"cannot be checked: {one_line(str(error))}", _AS_WRITTEN))
    return tuple(found)


def _place(key: CellKey) -> str:
    return one_line(f"{key.env}, {key.backend}, {key.size}")


def _release(submission: Submission) -> _Faults:
    version = submission.manifest.vebench
    if not re.fullmatch(r"\d+\.\d+\.\d+", version, re.ASCII):
        yield f"vebench {version} is not a release", ""


def _plan(submission: Submission) -> _Faults:
    head, stated = submission.run.header, submission.manifest.suite
    spec, suite = head.spec, SUBMISSION_SUITES.get(stated)
    if suite is None or spec.suite != stated:
        yield f"{shown(stated)} is unknown, or not the suite of the run: {shown(spec.suite)}", ""
        return
    if submission.manifest.plan != suite.digest:
        yield f"the plan of {suite.id} is {suite.digest}, not {submission.manifest.plan}", ""
    planned = suite.spec(head.host.usable_cpus, spec.backends)
    for item in fields(planned):
        measured, fixed = getattr(spec, item.name), getattr(planned, item.name)
        if measured != fixed:
            yield f"{item.name} is {shown(str(measured))}, not {shown(str(fixed))}", ""
    for cell in submission.run.cells:
        if cell.status == "ok" and not cell.entry.reference_row and cell.env in TASKS:
            shape = cell.entry.shape_of(cell.workers, cell.envs_per_worker, len(cell.cpus), cell.options)
            planned_built = (TASKS[cell.env].frame_skip, shape.num_envs, shape.batch_size)
            if (built := (cell.frame_skip, cell.num_envs, cell.batch_size)) != planned_built:
                yield f"frames per step, environments and rows are {built}, not {planned_built}", _place(cell.key)


def _stated(submission: Submission) -> _Faults:
    manifest, expected = submission.manifest, submission_of(submission.name, submission.run)
    for name in ("vebench", "division", "started", "command"):
        stated, measured = getattr(manifest, name), getattr(expected.manifest, name)
        if stated != measured:
            yield f"{name} is {shown(stated)}, but {shown(measured)} in the run", ""
    if (submission.machine, submission.packages) != (expected.machine, expected.packages):
        yield "machine.json or packages.json differs from the run", ""
    results, of_run = _by_cell(manifest), _by_cell(expected.manifest)
    for key in sorted(results.keys() | of_run.keys()):
        one, other = results.get(key), of_run.get(key)
        if one and other and one.verdict == other.verdict and isclose(one.rate, other.rate, rel_tol=_RATES_AGREE):
            continue
        yield "rates or work status differ from the run", _place(key)


def _by_cell(manifest: Manifest) -> dict[CellKey, CellResult]:
    return {CellKey(one.env, one.backend, one.workers, 1): one for one in manifest.results}


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
            yield "cells of the plan are missing", _place(key)


def _one_run(submission: Submission) -> _Faults:
    for cell in submission.run.cells:
        if cell.run != submission.run.header.digest:
            yield "lines are from another run, machine or plan", _place(cell.key)


def _work(submission: Submission) -> _Faults:
    for cell in submission.run.cells:
        if cell.status != "ok" or cell.entry.reference_row or cell.label == REFERENCE:
            continue
        proof = cell.proof
        if proof is None:
            if cell.repeat < PASSES_OF_ALL:
                yield "rows were not compared with a plain loop's rows", _place(cell.key)
        elif proof.verdict not in SAME and not proof.impossible:
            yield f"its work is not proven: {why_not_same(proof)}", _place(cell.key)


def _findings(submission: Submission) -> _Faults:
    for finding in rules.of_run(submission.run, submission.cells):
        if finding.code in _REFUSED_CODES:
            yield f"{finding.code}: {finding.message}", ""
    for finding, places in grouped([cell for cell in submission.cells if not cell.reference_row]).items():
        if finding.code in _REFUSED_CODES:
            for place in places:
                yield f"{finding.code}: {finding.message}", place


def _undisturbed(submission: Submission) -> _Faults:
    disturbed, cells = sum(cell.conditions.disturbed for cell in submission.cells), len(submission.cells)
    if disturbed > _MOST_DISTURBED * cells:
        yield f"other processes disturbed {disturbed} of {cells} cells", ""


def _intervals(submission: Submission) -> _Faults:
    widest = SUBMISSION_SUITES[submission.manifest.suite].widest
    for cell in submission.cells:
        if cell.status != "ok" or cell.reference_row or is_base(cell.key):
            continue
        half = cell.speedup.half_width if cell.speedup else None
        if half is None or half > widest:
            yield f"speedups have intervals wider than ±{widest:.0%}", _place(cell.key)


_CHECKS: tuple[tuple[str, str, Callable[[Submission], _Faults]], ...] = (
    ("release", "measure with a released version", _release),
    ("plan", "measure with vebench run --suite, without changing its plan", _plan),
    ("stated", _AS_WRITTEN, _stated),
    ("complete", "finish the run with vebench run --resume, or measure again", _complete),
    ("one-run", "measure again with vebench run --suite", _one_run),
    ("work", "leave the backend out with -b, or measure again", _work),
    ("findings", "see vebench report, do what it says, or leave the backend out with -b", _findings),
    ("undisturbed", _ON_AN_IDLE_MACHINE, _undisturbed),
    ("intervals", _ON_AN_IDLE_MACHINE, _intervals),
)


def checked_page(found: Mapping[str, _CheckResult]) -> SimplePage:
    """Return the page of checked submissions: a row for each folder, and the failures."""
    rows: list[TableRow] = []
    explanations: list[Remark] = []
    data = []
    for name, (submission, reasons) in found.items():
        about = (figures.DASH,) * 3
        if submission is not None:
            host = submission.machine.host
            machine = one_line(f"{figures.counted(host.usable_cpus, 'CPU')}, {host.cpu_model}")
            about = submission.manifest.suite, submission.manifest.division, machine
        verdict = Text(("refused",), "struck") if reasons else Text(("accepted",))
        rows.append(TableRow(name, (verdict, *(Text((text,)) for text in about))))
        where = (name,) if len(found) > 1 else ()
        explanations += [Remark(one.check, one_line(one.reason), (*where, *one.places), one.remedy) for one in reasons]
        data.append({"folder": name, "accepted": not reasons, "refusals": [asdict(one) for one in reasons]})
    columns = ("verdict", "suite", "division", "machine")
    table = Table("Submissions", columns, tuple(rows), corner="folder", numbers=False)
    refused = sum(bool(reasons) for _, reasons in found.values())
    title = f"{figures.counted(len(rows), 'submission')}, {refused or 'none'} refused"
    return SimplePage("submission", Document(title, (), (table,), explanations=tuple(explanations)), data)
