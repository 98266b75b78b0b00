"""A submission: a folder with a run file, its machine, its packages, and a manifest with rates and checksums.

A submission comes from a stranger. Reading it has limits, and nothing that it names is imported, opened or run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

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
from vebench.results.records import HostRecord, Run, fingerprint

_SCHEMA = 1
RUN, MACHINE, PACKAGES_FILE, MANIFEST = FILES = ("run.jsonl", "machine.json", "packages.json", "submission.json")
_LONGEST_NOTE = 500
_Name = Annotated[str, Meta(max_length=200)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{12,64}$")]


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
    note: Annotated[str, Meta(max_length=_LONGEST_NOTE)] = ""  # why the cell has no rate, or is excluded

    @property
    def rate(self) -> float:
        """Frames per second; 0 if there is no rate."""
        return self.frames_per_second.median if self.frames_per_second else 0.0


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
    division: Literal["reference", "tuned", "open"]
    started: _Name
    command: Annotated[str, Meta(max_length=2000)]
    results: tuple[CellResult, ...]
    files: dict[str, str]  # the SHA-256 of the other files, by name


@dataclass(frozen=True, eq=False)
class Submission:
    """A submission, decoded except for its run."""

    name: str
    contents: Mapping[str, bytes]  # the bytes of each file, by name
    manifest: Manifest
    machine: MachineRecord
    packages: dict[str, dict[str, str]]  # for each package, ``{"version": "1.0"}``

    @cached_property
    def run(self) -> Run:
        """The run. Raises RunFileError."""
        return store.parse(self.contents[RUN], f"{self.name}/{RUN}")[0]

    @cached_property
    def cells(self) -> tuple[CellSummary, ...]:
        """The cells of the run, over all passes."""
        return summarise(self.run, self.name)


def read_submission(folder: Path) -> Submission:
    """Return the submission in a folder. Raises UsageError or RunFileError; the latter does not name the folder."""
    if not folder.is_dir():
        raise UsageError(f"{one_line(str(folder))}: not a folder")
    try:
        there = {path.name: path for path in folder.iterdir()}
        if unknown := sorted(there.keys() - {*FILES}):
            raise RunFileError(f"{one_line(unknown[0])} is not a file of a submission")
        for name in FILES:
            if name not in there or there[name].is_symlink() or not there[name].is_file():
                raise RunFileError(f"{name} is missing, or not a regular file")
        files = {name: contents(there[name]) for name in FILES}
    except OSError as error:
        raise RunFileError(f"cannot be read: {error.strerror}") from None
    kinds = {MANIFEST: Manifest, MACHINE: MachineRecord, PACKAGES_FILE: dict[str, dict[str, _Name]]}
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        try:
            found[name] = decoded(files[name], kind)
        except (ValueError, RecursionError) as error:
            raise RunFileError(f"{name}: {one_line(str(error).replace('`', ''))}") from None
    manifest = found[MANIFEST]
    if manifest.schema != _SCHEMA:
        raise RunFileError(f"schema {manifest.schema} is unknown to this vebench")
    if changed := [name for name in FILES[:-1] if manifest.files.get(name) != sha256(files[name]).hexdigest()]:
        raise RunFileError(f"changed since it was submitted: {', '.join(changed)}")
    return Submission(one_line(folder.name), files, manifest, found[MACHINE], found[PACKAGES_FILE])


def submission_of(name: str, run: Run) -> Submission:
    """Return the submission of a run. Raises UsageError if the run has no suite."""
    head, spec = run.header, run.header.spec
    suite = SUBMISSION_SUITES.get(spec.suite)
    if suite is None:
        names = ", ".join(dict.fromkeys(one.name for one in SUBMISSION_SUITES.values()))
        raise UsageError(f"the run has no fixed plan: measure with vebench run --suite NAME, one of {names}")
    own = any(choice.python or choice.name not in BY_NAME for choice in spec.backends)
    tuned = any(choice.options for choice in spec.backends)
    machine = MachineRecord(fingerprint(head, "machine"), head.host)
    packages = {package: {"version": version} for package, version in head.packages.items()}
    files = {RUN: store.file_of(run), MACHINE: _json(machine), PACKAGES_FILE: _json(packages)}
    results = tuple(
        CellResult(
            cell.env,
            cell.label,
            cell.workers,
            cell.built.num_envs,
            cell.frames_per_second,
            cell.speedup,
            cell.verdict,
            cell.reference_row,
            one_line(cell.reason or cell.exclusion or "")[:_LONGEST_NOTE],
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
        command_of(spec),
        results,
        {path: sha256(content).hexdigest() for path, content in files.items()},
    )
    return Submission(name, {**files, MANIFEST: _json(manifest)}, manifest, machine, packages)


def command_of(spec: RunSpec) -> str:
    """Return the command that measures the suite of ``spec`` with its backends."""
    backends = ["-b", ",".join(one.label for one in spec.backends)] if spec.backends else []
    return shlex.join(["vebench", "run", "--suite", spec.suite.partition("/")[0], *backends])


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
