"""Run files: JSON Lines that are only appended to, synced to the disk after each line, and checked when read.

The last key of every line is ``crc32``. It is the CRC-32 of all bytes before the comma before this key, as eight
hexadecimal digits. It detects every flipped bit, and all damage to four bytes in a row. It misses other damage with a
probability of one in four billion. However a run ends, even with a full disk, earlier lines stay intact.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Self

import msgspec

from vebench.backends.environments.suites import short_name
from vebench.child.answers import CellProof
from vebench.errors import RunFileError, StorageError, UsageError, one_line, shown
from vebench.files import T, contents, decoded
from vebench.plan.cells import CellKey
from vebench.results.records import SCHEMA, CellRecord, ProofRecord, Run, RunRecord, encode, sealed

DEFAULT_FOLDER = Path(".vebench")
SUFFIX = ".jsonl"
LOG_SUFFIX = ".log"  # appended to the run file's name for the log of failed cells' output
LOG_OF_COMPARISONS = DEFAULT_FOLDER / f"verify{LOG_SUFFIX}"
_RUN_BEGINS = re.compile(rb'\{\s*"type"\s*:\s*"run"\s*,')
_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


def default_path(now: datetime, envs: Iterable[str], endings: Sequence[str] = ("",)) -> Path:
    """Return a path for a run without ``-o``, named by UTC time and tasks.

    No file has this path yet, with one of ``endings`` added to its stem.
    """
    # File systems limit the length of names.
    slug = re.sub(r"[^a-z0-9]+", "-", "-".join(map(short_name, envs)).lower())[:60].strip("-")
    stem = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}{'-' if slug else ''}{slug}"
    path = DEFAULT_FOLDER / f"{stem}{SUFFIX}"
    attempts = count(2)
    while any(path.with_stem(f"{path.stem}{ending}").exists() for ending in endings):
        path = DEFAULT_FOLDER / f"{stem}-{next(attempts)}{SUFFIX}"
    return path


def output_path(text: str) -> Path:
    """Return the path that ``-o`` names. Raises UsageError if it is empty, a folder, or ``-``."""
    if text in ("", "-"):
        raise UsageError(f"-o {text or repr(text)}: name a file")
    if Path(text).is_dir():
        raise UsageError(f"-o {text}: is a folder: name a file in it")
    return Path(text)


def run_files(paths: Sequence[Path]) -> list[Path]:
    """Return the run files that ``paths`` mean. A folder means all runs in it. Raises UsageError if it has none.

    Logs next to run files are left out unless only logs are given. So a shell's ``.vebench/*`` works.
    """
    files = [file for path in paths for file in (run_files_in(path) if path.is_dir() else [path])]
    return [file for file in files if not file.name.endswith(SUFFIX + LOG_SUFFIX)] or files


def run_files_in(folder: Path = DEFAULT_FOLDER) -> list[Path]:
    """Return the run files in ``folder``, the last modified file last. Raises UsageError if there is none."""
    try:
        files = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file()]
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from None
    if not files:
        raise UsageError(f"no run in {folder}/: measure first (vebench run --env Pong), or name a run file or folder")
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))


def keep_log(path: Path, heading: str, printed: str) -> bool:
    """Append a cell's output to a log, under a heading. Return whether output was written."""
    with suppress(OSError):
        if printed.strip():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as log:
                log.write(f"== {heading}\n{printed.rstrip()}\n\n")
            return True
    return False


class RunWriter:
    """A run file that is open to append cells. ``create`` and ``resume`` open it, a ``with`` statement closes it."""

    def __init__(self, path: Path, descriptor: int, run: Run) -> None:
        self.path = path
        self.header = run.header
        self._digest = run.header.digest
        self.notes = [*run.notes]
        self._cells = {cell.key: cell for cell in run.cells}
        self._fd = descriptor
        self._size = os.fstat(descriptor).st_size

    @classmethod
    def create(cls, path: Path, header: RunRecord) -> Self:
        """Start a new run file. Its folder must exist, except the default folder, which is created.

        Raises UsageError if ``path`` exists or cannot be created, StorageError if the header cannot be written.
        """
        asked = msgspec.structs.replace(header, command=one_line(header.command))
        try:
            line = encode(asked)
            header = decoded(line, RunRecord)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(f"a run file cannot store this request: {one_line(str(error))}") from None
        if header.spec != asked.spec:
            raise UsageError("a run file cannot store this request: a text in it is not printable")
        remedy = "name another file with -o"
        try:
            if path.parent == DEFAULT_FOLDER:
                path.parent.mkdir(exist_ok=True)
            descriptor = os.open(path, _APPENDING | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            remedy = f"{remedy}, or finish it with {header.resume_command(str(path))}"
            raise UsageError(f"{path} exists and would be overwritten: {remedy}") from None
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}: {remedy}") from None
        try:
            _lock(descriptor, path)
            _write(descriptor, encode(header))
        except OSError as error:
            os.close(descriptor)
            path.unlink()
            raise StorageError(f"cannot write {path}: {error.strerror}: free some space, or {remedy}") from None
        return cls(path, descriptor, Run(header, ()))

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Open a run file to append to it. A cut-off last line is removed, and added to ``notes``.

        Raises RunFileError if the file is not a valid run file, and UsageError if it cannot be written.
        """
        try:
            descriptor = os.open(path, _APPENDING)
            with ExitStack() as unless_open:
                unless_open.callback(os.close, descriptor)
                _lock(descriptor, path)
                run, whole = parse(contents(path), str(path))
                os.ftruncate(descriptor, whole)
                unless_open.pop_all()
                return cls(path, descriptor, run)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None

    @property
    def run(self) -> Run:
        """The run that is in the file now."""
        return Run(self.header, tuple(self._cells.values()))

    def append(self, cell: CellRecord) -> CellRecord:
        """Write one cell, sync it to the disk, and return it. If it raises StorageError, the file is unchanged."""
        cell = replace(cell, run=self._digest)
        self._add(encode(cell))
        self._cells[cell.key] = cell
        return cell

    def append_proof(self, key: CellKey, proof: CellProof) -> CellRecord:
        """Write the proof of an appended cell, as ``append`` does, and return the cell with its proof."""
        cell = replace(self._cells[key], proof=proof)
        self._add(encode(ProofRecord.of(cell)))
        self._cells[key] = cell
        return cell

    def _add(self, line: bytes) -> None:
        self.check_present()
        try:
            _write(self._fd, line)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            remedy = f"{'free some space' if full else 'fix that'}, then {self.header.resume_command(str(self.path))}"
            intact = f"the cells measured before are intact ({len(self._cells)})"
            raise StorageError(f"cannot write {self.path}: {error.strerror}; {intact}: {remedy}") from None
        self._size += len(line)

    def check_present(self) -> None:
        """Raise StorageError if the file was deleted, replaced or cut off, so that cells are lost."""
        size = self.path.stat().st_size if self.path.exists() else 0
        # The file may be larger than expected, if the user interrupted while a line was being written.
        if size < self._size or not os.path.samestat(self.path.stat(), os.fstat(self._fd)):
            raise StorageError(f"{self.path} was deleted or replaced while cells were measured: start the run again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.check_present()
        finally:
            os.close(self._fd)


def _write(descriptor: int, lines: bytes) -> None:
    """Append complete lines, and sync them to the disk. Removes them again before it raises OSError."""
    end = os.fstat(descriptor).st_size
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{path} is being written by another run: wait for it, or name another file") from None
    except OSError:
        return  # the file system has no locks, so nothing prevents two runs from writing to one file


def read(path: Path) -> Run:
    """Return the run in a file. If a cell was measured again, its last measurement counts.

    A cut-off last line is left out, and ``notes`` say so. Raises RunFileError, with the line's number, for any other
    damage.
    """
    try:
        data = contents(path)
    except OSError as error:
        remedy = "name a file that vebench run has written"
        raise RunFileError(f"cannot read {one_line(str(path))}: {error.strerror}: {remedy}") from None
    return parse(data, str(path))[0]


def file_of(run: Run) -> bytes:
    """Return the contents of a run file with ``run``."""
    proofs = [encode(ProofRecord.of(cell)) for cell in run.cells if cell.proof is not None]
    return b"".join([encode(run.header), *map(encode, run.cells), *proofs])


def refuse_to_overwrite(target: Path, option: str = "-o") -> None:
    """Raise UsageError if the file ``target`` is a run file, because run files are never overwritten."""
    if holds_run(target):
        raise UsageError(f"{option} {target}: is a run file, and would be overwritten: name another file")


def holds_run(path: Path) -> bool:
    """Return whether ``path`` is a file that begins like a run file, even if it is damaged."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return _RUN_BEGINS.match(file.read(64)) is not None
    except OSError:
        return False


def parse(data: bytes, name: str) -> tuple[Run, int]:
    """Return the run in ``data``, and the length of its complete lines in bytes. Errors are as of ``read``."""
    if not _RUN_BEGINS.match(data):
        what = "not a vebench run file: the first line must describe the run" if data else "empty: not a run file"
        raise RunFileError(f"{name}, line 1: {what}")
    whole = data.rfind(b"\n") + 1
    if not whole:
        raise RunFileError(f"{name}, line 1: truncated: no cell was measured, so start the run again")
    cells: dict[CellKey, CellRecord] = {}
    others: dict[str, type[CellRecord | ProofRecord]] = {"cell": CellRecord, "proof": ProofRecord}
    lines, number = BytesIO(data), 1
    try:
        header = _decoded(lines.readline(), {"run": RunRecord})
        while lines.tell() < whole:
            number += 1
            found = _decoded(lines.readline(), others)
            if isinstance(found, CellRecord):
                cells[found.key] = found
            elif found.key in cells:
                # Change the record in place: no other code has it yet, and a copy would be checked again.
                object.__setattr__(cells[found.key], "proof", found.proof)
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"{name}, line {number}: {one_line(str(error).replace('`', ''))}") from None
    notes = (f"{name}, line {number + 1}: truncated, ignored",) if whole < len(data) else ()
    return Run(header, tuple(cells.values()), notes), whole


class _Head(msgspec.Struct):
    """The fields that decide how a line is read. Only the first line has a schema."""

    type: str
    schema: int = SCHEMA


def _decoded(line: bytes, kinds: Mapping[str, type[T]]) -> T:
    """Return the record that a line encodes, of one of these kinds. Raises ValueError with the fault of the line."""
    head = msgspec.json.decode(line, type=_Head)
    if head.schema != SCHEMA:
        raise ValueError(f"written by another version of vebench (schema {head.schema}; this one reads {SCHEMA})")
    if head.type not in kinds:
        raise ValueError(f"unexpected type {shown(head.type)} of line in schema {SCHEMA}")
    body, _, _ = line.rpartition(b',"crc32":')
    if line != sealed(body + b"}"):
        raise ValueError("its checksum (crc32) does not match: the line was damaged or edited")
    return decoded(line, kinds[head.type])
