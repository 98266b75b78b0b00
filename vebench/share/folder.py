"""Submissions: a folder with a run file, the machine, the packages, and a manifest that says what they are.

Everything in it is data. It is read with limits, and nothing that it names is imported, opened or run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from vebench.errors import RunFileError, UsageError, one_line
from vebench.files import contents, decoded
from vebench.results import store
from vebench.results.header import machine_fingerprint
from vebench.results.records import HostRecord  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vebench.results.records import Run, RunRecord

T = TypeVar("T")

SUBMISSION_SCHEMA = 1
RUN, MACHINE, PACKAGES, MANIFEST = FILES = ("run.jsonl", "machine.json", "packages.json", "submission.json")
_Rate = Annotated[float, Meta(ge=0)]
_Name = Annotated[str, Meta(max_length=200)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{12,64}$")]

Division = Literal["reference", "tuned", "open"]


class Interval(Struct, frozen=True, forbid_unknown_fields=True):
    """A level with its 95 % interval, None where there is none."""

    median: _Rate
    low: _Rate | None
    high: _Rate | None


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """One cell over all its repeats, as ``vebench report -f json`` has it. ``note`` is why it has no rate, or a doubt.

    ``verdict``: whether it did the same work as a plain loop; None for a reference row.
    """

    env: _Name
    backend: _Name
    workers: int
    num_envs: int
    frames_per_second: Interval | None
    speedup: Interval | None
    verdict: _Name | None
    reference_row: bool = False
    note: Annotated[str, Meta(max_length=500)] = ""


class InstalledPackage(Struct, frozen=True, forbid_unknown_fields=True):
    """A package that affects figures: its version, and the SHA-256 of what its RECORD says of its files."""

    version: _Name
    sha256: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")]


class MachineRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """The machine, apart from the run. ``id``: the same for all runs on one machine, see ``machine_fingerprint``."""

    id: _Digest
    host: HostRecord


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a submission is. ``plan`` is the digest of its suite, ``files`` has the SHA-256 of the other files."""

    schema: int
    vebench: _Name
    suite: _Name
    plan: _Digest
    division: Division
    started: _Name
    command: Annotated[str, Meta(max_length=2000)]
    results: tuple[Result, ...]
    files: dict[str, str]


@dataclass(frozen=True)
class Submission:
    """A submission as it is in a folder, by the contents of its files.

    Parts raise RunFileError if they cannot be read.
    """

    name: str
    contents: Mapping[str, bytes]

    @cached_property
    def manifest(self) -> Manifest:
        """What it says that it is."""
        return self._decoded(MANIFEST, Manifest)

    @cached_property
    def machine(self) -> MachineRecord:
        """The machine."""
        return self._decoded(MACHINE, MachineRecord)

    @cached_property
    def packages(self) -> dict[str, InstalledPackage]:
        """The packages by name."""
        return self._decoded(PACKAGES, dict[str, InstalledPackage])

    @cached_property
    def run(self) -> Run:
        """The run, checked line by line."""
        return store.parse(self.contents[RUN], f"{self.name}/{RUN}")[0]

    @property
    def damaged(self) -> list[str]:
        """The names of files that are not those that the manifest was written for."""
        return [name for name in FILES[:-1] if self.manifest.files.get(name) != _sha256(self.contents[name])]

    def _decoded(self, name: str, kind: type[T]) -> T:
        try:
            return decoded(self.contents[name], kind)
        except (ValueError, RecursionError) as error:
            raise RunFileError(f"{self.name}/{name}: {one_line(str(error).replace('`', ''))}") from None


def read(folder: Path) -> Submission:
    """Return the submission in a folder.

    Raises UsageError if there is no such folder, RunFileError for one that lacks a file, or has others, or links.
    """
    shown = one_line(str(folder))
    if not folder.is_dir():
        raise UsageError(f"{shown}: is no folder")
    try:
        there = {path.name: path for path in folder.iterdir() if not folder.is_symlink()}
        if others := sorted(there.keys() - {*FILES}):
            raise RunFileError(f"{shown}: {one_line(others[0])} is no part of a submission")
        for name in FILES:
            path = there.get(name)
            if path is None or path.is_symlink() or not path.is_file():
                raise RunFileError(f"{shown}: {name} is missing, or no file")
        return Submission(folder.name, {name: contents(there[name]) for name in FILES})
    except OSError as error:
        raise RunFileError(f"cannot read {shown}: {error.strerror}") from None


def made(name: str, run: Run, manifest: Mapping[str, Any]) -> Submission:
    """Return the submission of a run, with these fields of its manifest. Raises UsageError, as ``installed`` does."""
    contents = {
        RUN: store.written(run),
        MACHINE: _json(MachineRecord(machine_fingerprint(run.header), run.header.host)),
        PACKAGES: _json(installed(run.header)),
    }
    files = {name: _sha256(content) for name, content in contents.items()}
    contents[MANIFEST] = _json(Manifest(schema=SUBMISSION_SCHEMA, files=files, **manifest))
    return Submission(name, contents)


def installed(header: RunRecord) -> dict[str, InstalledPackage]:
    """Return the packages of a run with what identifies their files.

    Raises UsageError if this Python has other versions: then it is not the one that measured.
    """
    return {name: InstalledPackage(version, _record(name, version)) for name, version in header.packages.items()}


def _record(name: str, version: str) -> str:
    try:
        found = distribution("vebench-rl" if name == "vebench" else name)
    except PackageNotFoundError:
        raise UsageError(f"{name} {version} is not installed here: submit where the run was measured") from None
    if found.version != version:
        raise UsageError(
            f"the run was measured with {name} {version}, and {found.version} is installed: submit before an upgrade"
        )
    # What an installer adds differs: scripts have the path of their Python in them, compiled files the time.
    own = [line for line in (found.read_text("RECORD") or "").splitlines() if "sha256=" in line and ".pyc," not in line]
    lines = sorted(line for line in own if not line.startswith("..") and ".dist-info/" not in line)
    return _sha256("\n".join(lines).encode()) if lines else ""


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _sha256(content: bytes) -> str:
    return sha256(content).hexdigest()
