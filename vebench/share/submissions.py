"""``vebench share make`` and ``share check``: a run as a submission, and whether submissions are accepted.

A submission is a folder with a run file, and a manifest with the machine, the packages and the rates. It comes from a
stranger. Reading it has limits, and nothing that it names is imported, opened or run.

The checks find mistakes: lines of two runs, another plan, work that was not compared. A run that was forged
consistently passes. Only measuring again finds it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from itertools import product
from math import isclose
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from vebench.analysis import rules
from vebench.analysis.cell import Code, Gravity, base_of
from vebench.analysis.statistics import Estimate
from vebench.analysis.summary import summarise, why_not_same
from vebench.backends.registry import BY_NAME, REFERENCE, YARDSTICK
from vebench.errors import RunFileError, UsageError, VebenchError, one_line, shown
from vebench.files import contents, decoded, with_texts
from vebench.plan.cells import CellKey
from vebench.plan.spec import PASSES_OF_ALL, SUBMISSION_SUITES, RunSpec
from vebench.plan.tasks import TASKS
from vebench.plan.verdicts import SAME
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.reports.document import Document, Remark, SimplePage, Table, TableRow, Text
from vebench.results import store
from vebench.results.records import HostRecord, Run, fingerprint

RUN, MANIFEST = FILES = ("run.jsonl", "submission.json")
_SCHEMA = 1
_MOST_DISTURBED = 0.1  # the largest share of disturbed cells
_RATES_AGREE = 0.01  # the relative tolerance of rates, which releases of vebench may compute differently
# Refused like faults.
_REFUSED = (Code.INCOMPLETE, Code.OTHER_PACKAGES, Code.FALLBACK, Code.UNPINNED, Code.PRIORITY)
_REMEDIES = {
    "files": "submit the folder as vebench share make wrote it",
    "release": "measure with a released version",
    "plan": "measure with vebench run --suite, without changing its plan",
    "stated": "submit the folder as vebench share make wrote it",
    "complete": "finish the run with vebench run --resume, or measure again",
    "one-run": "measure again with vebench run --suite",
    "work": "leave the backend out with -b, or measure again",
    "findings": "see vebench report and follow its remedies, or leave the backend out with -b",
    "undisturbed": "measure on an idle machine",
    "intervals": "measure on an idle machine",
}
_Name = Annotated[str, Meta(max_length=200)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{12,64}$")]
_Fault = tuple[str, str, str]  # the check, what is wrong, and the cell, which is empty for the whole run


class CellResult(Struct, frozen=True, forbid_unknown_fields=True):
    """One cell over all passes."""

    env: _Name
    backend: _Name
    workers: int
    num_envs: int
    frames_per_second: Estimate | None
    speedup: Estimate | None
    verdict: _Name | None  # the work status; None for a reference row
    reference_row: bool = False
    note: str = ""  # why the cell has no rate, or is excluded

    @property
    def rate(self) -> float:
        """Frames per second; 0 if there is no rate."""
        return self.frames_per_second.median if self.frames_per_second else 0.0


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a submission: ``submission.json``."""

    schema: int
    vebench: _Name
    suite: _Name
    plan: _Digest
    division: Literal["reference", "tuned", "open"]
    started: _Name
    command: str
    machine: _Digest  # an id that all runs on the machine share
    host: HostRecord
    packages: dict[str, _Name]  # versions by name
    results: tuple[CellResult, ...]
    sha256: _Digest  # of the run file


@dataclass(frozen=True, eq=False)
class Submission:
    """A submission, decoded except for its run."""

    name: str
    contents: Mapping[str, bytes]  # the bytes of each file, by name
    manifest: Manifest

    @cached_property
    def run(self) -> Run:
        """The run. Raises RunFileError."""
        return store.parse(self.contents[RUN], f"{self.name}/{RUN}")[0]


def make_submission(file: Path, folder: Path | None) -> int:
    """Show a run's submission, write it to ``folder`` if acceptable, and return the exit status. Raises UsageError."""
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
        for name, content in submission.contents.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
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
        command=_command_of(head.spec),
        host=msgspec.structs.replace(head.host, quota_source=None),
        interpreters={name: msgspec.structs.replace(one, path="") for name, one in head.interpreters.items()},
    )
    shorten = figures.without_folders((str(Path.home()),))
    renamed = msgspec.structs.replace(run, header=plain_head)
    plain = msgspec.convert(with_texts(msgspec.to_builtins(renamed), shorten), Run)
    # Each line has the digest of its run's header. The header has changed, and lines of other runs must not match it.
    cells = tuple(replace(cell, run=plain.header.digest if cell.run == head.digest else "") for cell in plain.cells)
    return msgspec.structs.replace(plain, cells=cells)


def submission_of(name: str, run: Run) -> Submission:
    """Return the submission of a run. Raises UsageError if the run has no suite."""
    head, spec = run.header, run.header.spec
    suite = SUBMISSION_SUITES.get(spec.suite)
    if suite is None:
        names = ", ".join(dict.fromkeys(one.name for one in SUBMISSION_SUITES.values()))
        raise UsageError(f"the run has no fixed plan: measure with vebench run --suite NAME, one of {names}")
    own = any(choice.python or choice.name not in BY_NAME for choice in spec.backends)
    tuned = any(choice.options for choice in spec.backends)
    content = store.file_of(run)
    alike = ("env", "workers", "frames_per_second", "speedup", "verdict", "reference_row")
    results = tuple(
        CellResult(
            backend=cell.label,
            num_envs=cell.built.num_envs,
            note=one_line(cell.reason or cell.exclusion or ""),
            **{name: getattr(cell, name) for name in alike},
        )
        for cell in sorted(summarise(run), key=lambda cell: cell.key[:-1])
    )
    manifest = Manifest(
        _SCHEMA,
        head.packages.get("vebench", ""),
        suite.id,
        suite.digest,
        "open" if own else "tuned" if tuned else "reference",
        head.started,
        _command_of(spec),
        fingerprint(head, "machine"),
        head.host,
        head.packages,
        results,
        sha256(content).hexdigest(),
    )
    described = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    return Submission(name, {RUN: content, MANIFEST: described}, manifest)


def _command_of(spec: RunSpec) -> str:
    """Return the command that measures the suite of ``spec`` with its backends."""
    backends = ["-b", ",".join(one.label for one in spec.backends)] if spec.backends else []
    return shlex.join(["vebench", "run", "--suite", spec.suite.partition("/")[0], *backends])


def check_submissions(paths: Sequence[Path], outlet: Outlet) -> int:
    """Check submissions and show the result. Return 1 if a submission is refused, else 0."""
    found: dict[str, tuple[Submission | None, tuple[Remark, ...]]] = {}
    for path in paths:
        name = one_line(str(path))
        try:
            submission = read_submission(path)
            found[name] = submission, failures(submission)
        except RunFileError as error:
            found[name] = None, (Remark("files", one_line(str(error)), (), _REMEDIES["files"]),)
    outlet.publish(checked_page(found))
    return 1 if any(reasons for _, reasons in found.values()) else 0


def read_submission(folder: Path) -> Submission:
    """Return the submission in a folder. Raises UsageError or RunFileError; the latter does not name the folder."""
    if not folder.is_dir():
        raise UsageError(f"{one_line(str(folder))}: not a folder")
    try:
        if unknown := sorted({path.name for path in folder.iterdir()} - {*FILES}):
            raise RunFileError(f"{one_line(unknown[0])} is not a file of a submission")
        for name in FILES:
            if (folder / name).is_symlink() or not (folder / name).is_file():
                raise RunFileError(f"{name} is missing, or not a regular file")
        files = {name: contents(folder / name) for name in FILES}
    except OSError as error:
        raise RunFileError(f"cannot be read: {error.strerror}") from None
    try:
        manifest = decoded(files[MANIFEST], Manifest)
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"{MANIFEST}: {one_line(str(error).replace('`', ''))}") from None
    if manifest.schema != _SCHEMA:
        raise RunFileError(f"schema {manifest.schema} is unknown to this vebench")
    if manifest.sha256 != sha256(files[RUN]).hexdigest():
        raise RunFileError(f"{RUN} was changed since it was submitted")
    return Submission(one_line(folder.name), files, manifest)


def failures(submission: Submission) -> tuple[Remark, ...]:
    """Return the reasons to refuse a submission; empty if it is accepted."""
    faults: list[_Fault] = []
    try:
        faults += _faults_of_plan(submission)
        if not faults:  # further checks rely on the plan
            faults += _faults_of_manifest(submission)
            faults += _faults_of_run(submission)
            faults += _faults_of_rates(submission)
    except (VebenchError, ValueError, KeyError, IndexError, ArithmeticError) as error:
        faults.append(("files", f"cannot be checked: {one_line(str(error))}", ""))
    by_reason = figures.by_key(((check, reason), place) for check, reason, place in faults)
    return tuple(
        Remark(check, one_line(reason), tuple(filter(None, places)), _REMEDIES[check])
        for (check, reason), places in by_reason.items()
    )


def _faults_of_plan(submission: Submission) -> Iterator[_Fault]:
    """Yield how the version and the plan differ from a release and its suite."""
    head, stated = submission.run.header, submission.manifest.suite
    if not re.fullmatch(r"\d+\.\d+\.\d+", submission.manifest.vebench, re.ASCII):
        yield "release", f"vebench {submission.manifest.vebench} is not a release", ""
    spec, suite = head.spec, SUBMISSION_SUITES.get(stated)
    if suite is None or spec.suite != stated:
        yield "plan", f"{shown(stated)} is unknown, or not the suite of the run: {shown(spec.suite)}", ""
        return
    if submission.manifest.plan != suite.digest:
        yield "plan", f"the plan of {suite.id} is {suite.digest}, not {submission.manifest.plan}", ""
    planned = suite.spec(head.host.usable_cpus, spec.backends)
    for item in fields(planned):
        measured, fixed = getattr(spec, item.name), getattr(planned, item.name)
        if measured != fixed:
            yield "plan", f"{item.name} is {shown(str(measured))}, not {shown(str(fixed))}", ""
    for cell in submission.run.cells:
        if cell.status == "ok" and not cell.entry.reference_row and cell.env in TASKS:
            shape = cell.entry.shape_of(cell.workers, cell.envs_per_worker, len(cell.cpus), cell.options)
            expected = (TASKS[cell.env].frame_skip, shape.num_envs, shape.batch_size)
            if (built := (cell.frame_skip, cell.num_envs, cell.batch_size)) != expected:
                reason = f"frames per step, environments and rows are {built}, not {expected}"
                yield "plan", reason, figures.cell_name(cell.key)


def _faults_of_manifest(submission: Submission) -> Iterator[_Fault]:
    """Yield the facts in which the manifest and the run differ."""
    manifest, expected = submission.manifest, submission_of(submission.name, submission.run)
    for name in ("vebench", "division", "started", "command", "machine", "host", "packages"):
        stated, measured = getattr(manifest, name), getattr(expected.manifest, name)
        if stated != measured:
            yield "stated", f"{name} is {shown(str(stated))}, but {shown(str(measured))} in the run", ""
    results, of_run = (
        {CellKey(cell.env, cell.backend, cell.workers, 1): cell for cell in each.results}
        for each in (manifest, expected.manifest)
    )
    for key in sorted(results.keys() | of_run.keys()):
        one, other = results.get(key), of_run.get(key)
        if one and other and one.verdict == other.verdict and isclose(one.rate, other.rate, rel_tol=_RATES_AGREE):
            continue
        yield "stated", "rates or work status differ from the run", figures.cell_name(key)


def _faults_of_run(submission: Submission) -> Iterator[_Fault]:
    """Yield cells that are missing, of other runs, or not known to do the same work as a plain loop."""
    run, spec = submission.run, submission.run.header.spec
    passes = figures.by_key((cell.key.without_repeat, cell.repeat) for cell in run.cells)
    backends = {one.label for one in spec.backends}
    if not backends:
        backends = {cell.label for cell in run.cells if not cell.entry.reference_row}
    planned = {CellKey(*one, 1) for one in product(spec.envs, backends, spec.workers)}
    planned |= {CellKey(env, name, 1, 1) for env in spec.envs for name in (REFERENCE, YARDSTICK)}
    for key in sorted(planned | passes.keys()):
        if {*passes.get(key, ())} != {*range(spec.passes)}:
            yield "complete", "cells of the plan are missing", figures.cell_name(key)
    for cell in run.cells:
        if cell.run != run.header.digest:
            yield "one-run", "lines are from another run, machine or plan", figures.cell_name(cell.key)
        if cell.status != "ok" or cell.entry.reference_row or cell.label == REFERENCE:
            continue
        proof = cell.proof
        if proof is None:
            if cell.repeat < PASSES_OF_ALL:
                yield "work", "rows were not compared with a plain loop's rows", figures.cell_name(cell.key)
        elif proof.verdict not in SAME and not proof.impossible:
            yield "work", f"it is not known to do the same work: {why_not_same(proof)}", figures.cell_name(cell.key)


def _faults_of_rates(submission: Submission) -> Iterator[_Fault]:
    """Yield findings that make rates unusable, disturbed cells and wide intervals."""
    cells = summarise(submission.run, submission.name)
    of_run = [(finding, ("",)) for finding in rules.of_run(submission.run, cells)]
    for finding, places in (*of_run, *figures.grouped([cell for cell in cells if not cell.reference_row]).items()):
        if finding.code.gravity is Gravity.FAULT or finding.code in _REFUSED:
            for place in places:
                yield "findings", f"{finding.code}: {finding.message}", place
    disturbed = sum(cell.conditions.disturbed for cell in cells)
    if disturbed > _MOST_DISTURBED * len(cells):
        yield "undisturbed", f"other processes disturbed {disturbed} of {len(cells)} cells", ""
    widest = SUBMISSION_SUITES[submission.manifest.suite].widest
    for cell in cells:
        if cell.status != "ok" or cell.reference_row or cell.key == base_of(cell.key):
            continue
        half = cell.speedup.half_width if cell.speedup else None
        if half is None or half > widest:
            yield "intervals", f"speedups have intervals wider than ±{widest:.0%}", figures.cell_name(cell.key)


def checked_page(found: Mapping[str, tuple[Submission | None, tuple[Remark, ...]]]) -> SimplePage:
    """Return the page of checked submissions: a row for each folder, and the failures. None: it cannot be read."""
    rows: list[TableRow] = []
    explanations: list[Remark] = []
    data = []
    for name, (submission, reasons) in found.items():
        about = (figures.DASH,) * 3
        if submission is not None:
            manifest = submission.manifest
            cpus = figures.counted(manifest.host.usable_cpus, "CPU")
            about = manifest.suite, manifest.division, one_line(f"{cpus}, {manifest.host.cpu_model}")
        verdict = Text(("refused",), "struck") if reasons else Text(("accepted",))
        rows.append(TableRow(name, (verdict, *(Text((text,)) for text in about))))
        where = (name,) if len(found) > 1 else ()
        explanations += [replace(one, places=(*where, *one.places)) for one in reasons]
        refusals = [
            {"check": one.label, "reason": one.text, "remedy": one.remedy, "places": one.places} for one in reasons
        ]
        data.append({"folder": name, "accepted": not reasons, "refusals": refusals})
    columns = ("verdict", "suite", "division", "machine")
    table = Table("Submissions", columns, tuple(rows), corner="folder", numbers=False)
    refused = sum(bool(reasons) for _, reasons in found.values())
    title = f"{figures.counted(len(rows), 'submission')}, {refused or 'none'} refused"
    return SimplePage("submission", (Document(title, (), (table,), remarks=tuple(explanations)),), data)
