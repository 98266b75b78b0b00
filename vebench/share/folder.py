"""A submission: a folder with a run file, its machine, its packages, and a manifest with rates and checksums.

A submission comes from a stranger. It is read with limits, and nothing that it names is imported, opened or run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from vebench.analysis.cell import CellSummary
from vebench.analysis.statistics import Estimate
from vebench.analysis.summary import summarise
from vebench.backends.registry import BY_NAME
from vebench.errors import RunFileError, UsageError, one_line
from vebench.files import contents, decoded
from vebench.plan.spec import SUBMISSION_SUITES, RunSpec
from vebench.results import store
from vebench.results.records import HostRecord, Run, machine_fingerprint

T = TypeVar("T")
SCHEMA = 1
RUN, MACHINE, PACKAGES, MANIFEST = FILES = ("run.jsonl", "machine.json", "packages.json", "submission.json")
_LONGEST_NOTE = 500
_Name = Annotated[str, Meta(max_length=200)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{12,64}$")]

Division = Literal["reference", "tuned", "open"]


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """One cell over all passes."""

    env: _Name
    backend: _Name
    workers: int
    num_envs: int
    frames_per_second: Estimate | None
    speedup: Estimate | None
    verdict: _Name | None  # the work status, None for a reference row
    reference_row: bool = False
    note: Annotated[str, Meta(max_length=_LONGEST_NOTE)] = ""  # why the cell has no rate, or is excluded


class InstalledPackage(Struct, frozen=True):
    """A package that affects rates."""

    version: _Name


class MachineRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """The machine, with an id that all runs on it share."""

    id: _Digest
    host: HostRecord


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a submission: ``submission.json``."""

    schema: int
    vebench: _Name
    suite: _Name
    plan: _Digest
    division: Division
    started: _Name
    command: Annotated[str, Meta(max_length=2000)]
    results: tuple[Result, ...]
    files: dict[str, str]  # the SHA-256 of the other files


@dataclass(frozen=True, eq=False)
class Submission:
    """A submission, decoded except for its run."""

    name: str
    contents: Mapping[str, bytes]  # by the name of the file
    manifest: Manifest
    machine: MachineRecord
    packages: dict[str, InstalledPackage]

    @cached_property
    def run(self) -> Run:
        """The run. Raises RunFileError."""
        return store.parse(self.contents[RUN], f"{self.name}/{RUN}")[0]

    @cached_property
    def cells(self) -> tuple[CellSummary, ...]:
        """The cells of the run, over all passes."""
        return summarise(self.run, self.name)


def read(folder: Path) -> Submission:
    """Return the submission in a folder.

    Raises UsageError if the folder does not exist. Raises RunFileError, whose message does not name the folder, if a
    file is missing, unknown, a link, damaged or changed.
    """
    if not folder.is_dir():
        raise UsageError(f"{one_line(str(folder))}: not a folder")
    try:
        files = _files_of(folder)
    except OSError as error:
        raise RunFileError(f"cannot be read: {error.strerror}") from None
    manifest = _decoded(files, MANIFEST, Manifest)
    if manifest.schema != SCHEMA:
        raise RunFileError(f"schema {manifest.schema} is unknown to this vebench")
    changed = [name for name in FILES if name != MANIFEST and manifest.files.get(name) != _sha256(files[name])]
    if changed:
        raise RunFileError(f"changed since it was submitted: {', '.join(changed)}")
    machine = _decoded(files, MACHINE, MachineRecord)
    packages = _decoded(files, PACKAGES, dict[str, InstalledPackage])
    return Submission(one_line(folder.name), files, manifest, machine, packages)


def _files_of(folder: Path) -> dict[str, bytes]:
    there = {path.name: path for path in folder.iterdir()}
    unknown = sorted(there.keys() - {*FILES})
    if unknown:
        raise RunFileError(f"{one_line(unknown[0])} is not a file of a submission")
    for name in FILES:
        if name not in there or there[name].is_symlink() or not there[name].is_file():
            raise RunFileError(f"{name} is missing, or not a regular file")
    return {name: contents(there[name]) for name in FILES}


def _decoded(files: Mapping[str, bytes], name: str, kind: type[T]) -> T:
    try:
        return decoded(files[name], kind)
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"{name}: {one_line(str(error).replace('`', ''))}") from None


def submission_of(name: str, run: Run) -> Submission:
    """Return the submission of a run. Raises UsageError if the run has no suite."""
    head = run.header
    suite = SUBMISSION_SUITES.get(head.spec.suite)
    if suite is None:
        names = ", ".join(dict.fromkeys(one.name for one in SUBMISSION_SUITES.values()))
        raise UsageError(f"the run has no fixed plan: measure with vebench run --suite NAME, one of {names}")
    machine = MachineRecord(machine_fingerprint(head), head.host)
    packages = {package: InstalledPackage(version) for package, version in head.packages.items()}
    files = {RUN: store.written(run), MACHINE: _json(machine), PACKAGES: _json(packages)}
    manifest = Manifest(
        schema=SCHEMA,
        vebench=head.packages.get("vebench", ""),
        suite=suite.id,
        plan=suite.digest,
        division=_division_of(head.spec),
        started=head.started,
        command=command_of(head.spec),
        results=_results_of(summarise(run)),
        files={path: _sha256(content) for path, content in files.items()},
    )
    return Submission(name, {**files, MANIFEST: _json(manifest)}, manifest, machine, packages)


def command_of(spec: RunSpec) -> str:
    """Return the command that measures the suite of ``spec`` with its backends."""
    words = ["vebench", "run", "--suite", spec.suite.partition("/")[0]]
    if spec.backends:
        words += ["-b", ",".join(one.label for one in spec.backends)]
    return shlex.join(words)


def _division_of(spec: RunSpec) -> Division:
    """Return the group of runs that ``spec`` is compared with."""
    if any(choice.python or choice.name not in BY_NAME for choice in spec.backends):
        return "open"
    if any(choice.options for choice in spec.backends):
        return "tuned"
    return "reference"


def _results_of(cells: Sequence[CellSummary]) -> tuple[Result, ...]:
    return tuple(
        Result(
            env=cell.env,
            backend=cell.label,
            workers=cell.workers,
            num_envs=cell.built.num_envs,
            frames_per_second=cell.frames_per_second,
            speedup=cell.speedup,
            verdict=cell.verdict,
            reference_row=cell.reference_row,
            note=one_line(cell.reason or cell.exclusion or "")[:_LONGEST_NOTE],
        )
        for cell in sorted(cells, key=lambda cell: cell.key[:-1])
    )


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _sha256(content: bytes) -> str:
    return sha256(content).hexdigest()
