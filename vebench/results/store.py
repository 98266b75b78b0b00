"""Run files: JSON Lines that are only appended to, synced to the disk after each line, and checked when read.

Every line is written with a checksum. Files of earlier versions have none, or only in lines that were appended since.
However a run ends, even with a full disk, the lines that were written before stay intact; and whatever becomes of the
file meanwhile, what was measured is kept (``keeping.py``).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import msgspec

from vebench.errors import RunFileError, StorageError, UsageError, one_line, shown
from vebench.results import checksums
from vebench.results.checksums import RUN_BEGINS, claimed, sealed
from vebench.results.keeping import is_copied, is_kept, write_anew
from vebench.results.paths import DEFAULT_FOLDER
from vebench.results.records import SCHEMA, CellRecord, ProofRecord, Run, RunRecord, decode_run, encode, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from vebench.plan.cells import CellKey

LINES: dict[str, type[CellRecord | ProofRecord]] = {"cell": CellRecord, "proof": ProofRecord}
LONGEST_HEADER = 1 << 24
FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class RunWriter:
    """A run file that is open for appending cells. ``create`` or ``resume`` opens it; a ``with`` statement closes it.

    ``run`` is the content of the file when it was opened. ``path`` is where it is now: at another place if somebody put
    another file at its own, or if nothing more could be written there; ``moved`` then says so. ``note`` says that it
    had to be written again.
    """

    def __init__(self, path: Path, fd: int, run: Run) -> None:
        self.path = path
        self.run = run
        self._fd = fd
        self._content = bytearray(os.pread(fd, os.fstat(fd).st_size, 0))
        self._cells = len(run.cells)
        self.moved = self.note = ""
        self._expected: dict[CellKey, int] = {}

    @classmethod
    def create(cls, path: Path, header: RunRecord) -> Self:
        """Start a new run file. Its folder must exist, except the default folder, which is created.

        Raises UsageError if ``path`` exists or cannot be created, StorageError if the header cannot be written.
        """
        header = msgspec.structs.replace(header, command=one_line(header.command))
        try:
            line = encode(header)
        except ValueError as error:
            raise UsageError(f"a run file cannot hold what was asked for: {one_line(str(error))}") from None
        try:
            if path.parent == DEFAULT_FOLDER:
                path.parent.mkdir(exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise UsageError(
                f"{path} exists and would be overwritten: name another file with -o, "
                f"or finish it with {header.resume_command(str(path))}"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}: name another file with -o") from None
        try:
            _lock(fd, path)
            _write_line(fd, line)
            _sync_folder(path)
        except OSError as error:
            os.close(fd)
            path.unlink()
            raise StorageError(
                f"cannot write {path}: {error.strerror}: free some space, or name another file with -o"
            ) from None
        return cls(path, fd, Run(header, ()))

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Open a run file to append to it. A cut-off last line is removed, a lost last newline written again.

        Raises RunFileError if it is not a valid run file, UsageError if it cannot be written.
        """
        read(path)  # before it is opened for writing: a foreign file must not be changed
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        try:
            _lock(fd, path)
            data = path.read_bytes()
            run, whole = _parse(data, str(path))
            if whole < len(data):
                os.ftruncate(fd, whole)
            if run.mended:
                os.write(fd, b"\n")
        except OSError as error:
            os.close(fd)
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd, run)

    @property
    def expects(self) -> bool:
        """Whether an expected cell has not been appended yet."""
        return bool(self._expected)

    def expect(self, key: CellKey, size: int) -> None:
        """Reserve ``size`` bytes on the disk for the line of a cell that starts, so that its result can be stored.

        Raises StorageError if there is not enough room for all expected cells. Does nothing if the file system cannot
        reserve space.
        """
        self._expected[key] = size
        self.secure()
        try:
            _allocate(self._fd, os.fstat(self._fd).st_size, sum(self._expected.values()))
        except OSError as error:
            if error.errno in NO_SPACE:
                self._cannot_write(error)

    def append(self, cell: CellRecord) -> CellRecord:
        """Write one cell, sync it to the disk, and return it as it was written.

        A cell that could not be read again is written as failed instead, because one such line makes the whole file
        unreadable. Raises StorageError if it cannot be written; the file is then as it was before.
        """
        self._expected.pop(cell.key, None)
        try:
            line = encode(cell)
        except ValueError as error:
            cell = unreadable(cell, f"the adapter reported {error}")
            line = encode(cell)
        self._add(line)
        self._cells += 1
        return cell

    def append_proof(self, proof: ProofRecord) -> None:
        """Write the proof of a cell that has been appended, and sync it to the disk. Raises StorageError as above."""
        self._expected.pop(proof.key, None)
        self._add(encode(proof))

    def _add(self, line: bytes) -> None:
        """Write a line, elsewhere if that is not possible here, and remember what is in the file now."""
        self.secure()
        try:
            _write_line(self._fd, line)
        except OSError as error:
            self._write_elsewhere(error, lambda descriptor: _write_line(descriptor, line))
        self._content += os.pread(self._fd, os.fstat(self._fd).st_size, len(self._content))

    def secure(self) -> None:
        """See that the file is where its user will look for it, with all that was written, or write it again.

        Raises StorageError if that is not possible.
        """
        if is_kept(self._fd, self.path, self._content):
            return
        if is_copied(self.path, self._content):
            with contextlib.suppress(OSError, UsageError):  # it cannot be written, or somebody else does
                descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                _lock(descriptor, self.path)
                self._fd = _exchanged(self._fd, descriptor)
                return
        self._write_elsewhere(None, lambda _: None)

    def close(self) -> None:
        """Release the unused part of the reserved space, and the lock. A second call does nothing."""
        if self._fd < 0:
            return
        with contextlib.suppress(StorageError):  # said already, or nothing more can be done
            self.secure()
        fd, self._fd = self._fd, -1
        with contextlib.suppress(OSError):  # every line is on the disk already
            os.ftruncate(fd, os.fstat(fd).st_size)  # frees the space reserved beyond the end
        os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_elsewhere(self, error: OSError | None, finish: Callable[[int], None]) -> None:
        """Go on in a new file with all that was written; ``error`` is why nothing could be written to this one."""
        before = self.path
        try:
            descriptor, self.path = write_anew(before, bytes(self._content), finish)
        except OSError as problem:
            self._cannot_write(error or problem)
        self._fd = _exchanged(self._fd, descriptor)
        _lock(self._fd, self.path)
        if self.path == before:
            self.note = f"{before} was deleted while cells were measured: it was written again, with all of them"
            return
        why = "was replaced while cells were measured" if error is None else f"cannot be written: {error.strerror}"
        again = self.run.header.resume_command(str(self.path))
        self.moved = f"{before} {why}: what was measured is in {self.path}; to go on: {again}"

    def _cannot_write(self, error: OSError) -> NoReturn:
        whole = "its 1 cell is whole" if self._cells == 1 else f"its {self._cells} cells are whole"
        remedy = "free some space" if error.errno in NO_SPACE else "fix that"
        raise StorageError(
            f"cannot write {self.path}: {error.strerror}; {whole}: "
            f"{remedy}, then {self.run.header.resume_command(str(self.path))}"
        ) from None


def read(path: Path) -> Run:
    """Return the run in a file. If a cell was measured again, its last measurement counts.

    A cut-off last line is dropped and noted, but kept if its checksum says that only its newline is lost. Raises
    RunFileError, with the number of the line, for any other damage.
    """
    try:
        if not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISFIFO(mode)):
            what = "a folder" if stat.S_ISDIR(mode) else "a device"
            raise RunFileError(f"{path} is {what}, not a run file: name a file that vebench run has written")
        data = path.read_bytes()
    except FileNotFoundError:
        raise RunFileError(f"{path}: no such file: name a file that vebench run has written") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RunFileError(f"cannot read {one_line(str(path))}: {reason}") from None
    return _parse(data, str(path))[0]


def refuse_to_overwrite(target: Path, sources: Iterable[Path], option: str = "-o") -> None:
    """Raise UsageError if the file ``target`` is one of ``sources``, or any run file: they are never overwritten.

    ``option`` is the one that names the target.
    """
    itself = any(target.exists() and source.exists() and target.samefile(source) for source in sources)
    if itself or holds_run(target):
        raise UsageError(f"{option} {target}: is a run file, and would be overwritten: name another file")


def holds_run(path: Path) -> bool:
    """Return whether ``path`` is a file that begins like a run file, even if it is damaged."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            line = file.readline(LONGEST_HEADER)
    except (OSError, ValueError):
        return False
    try:
        head = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _begins_a_run(line)
    return _begins_a_run(line) or (isinstance(head, dict) and head.get("type") == "run")


def _begins_a_run(line: bytes) -> bool:
    """Return whether a line begins as the first one of a run file does, or ends so."""
    return line.startswith(RUN_BEGINS) or claimed(line.removesuffix(b"\n"))


def _parse(data: bytes, name: str) -> tuple[Run, int]:
    """Return the run in ``data``, and the length of its complete lines in bytes, without a newline that is lost."""
    if not data:
        raise RunFileError(f"{name}: empty: not a run file of vebench")
    lines = data.split(b"\n")
    tail = lines.pop()
    if not lines:
        if not tail.startswith(RUN_BEGINS):
            _header(tail, name)
        raise RunFileError(f"{name}, line 1: cut off: no cell was measured, so start the run again")
    header = _header(lines[0], name)
    notes, mended = [], []
    if (last := _unended(tail)) is not None:
        mended.append(f"{name}, line {len(lines) + 1}: has lost its newline, but is whole: kept")
        lines.append(last)
    elif tail:
        notes.append(f"{name}, line {len(lines) + 1}: cut off, left out")
    cells = {}
    checked = claimed(lines[0])
    for number, line in enumerate(lines[1:], start=2):
        checked = checked or claimed(line)
        if checked:
            _check(line, name, number)
        found = _decode(line, name, number)
        if isinstance(found, CellRecord):
            cells[found.key] = found
        elif found.key in cells:
            cells[found.key] = replace(cells[found.key], proof=found.proof)
    whole = len(data) - len(tail) + len(last or b"")
    return Run(header, tuple(cells.values()), tuple(notes), tuple(mended)), whole


def _unended(tail: bytes) -> bytes | None:
    """Return the line in what follows the last newline, None if it is none.

    It is if nothing but its own newline is lost, or another byte stands in its place.
    """
    for line in (tail, tail[:-1]):
        if claimed(line):
            with contextlib.suppress(ValueError):
                checksums.check(line)
                return line
    return None


class _Kind(msgspec.Struct):
    """The type of a line, as the line names it."""

    type: str


def _decode(line: bytes, name: str, number: int) -> CellRecord | ProofRecord:
    try:
        kind = msgspec.json.decode(line, type=_Kind).type
        if kind == "run":
            raise RunFileError(f"{name}, line {number}: a second run begins here; a run file holds one run")
        if kind not in LINES:
            what = f"a line of type {shown(kind)}, which schema {SCHEMA} does not have"
            raise RunFileError(f"{name}, line {number}: {what}: damaged, or written by a later version of vebench")
        return msgspec.json.decode(line, type=LINES[kind])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunFileError(_at(name, number, error)) from None


def _header(line: bytes, name: str) -> RunRecord:
    foreign = RunFileError(f"{name}, line 1: not a run file of vebench: the first line of one describes the run")
    if claimed(line):
        _check(line, name, 1)
    try:
        head = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise foreign from None
    if not isinstance(head, dict) or head.get("type") != "run":
        raise foreign
    schema = head.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise RunFileError(
            f"{name}, line 1: written by a later version of vebench (schema {schema}; this one reads up to {SCHEMA})"
        )
    if type(schema) is int and schema < 1:
        raise RunFileError(
            f"{name}, line 1: no version of vebench writes schema {schema} (this one reads 1 to {SCHEMA})"
        )
    try:
        return decode_run(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunFileError(_at(name, 1, error)) from None


def _check(line: bytes, name: str, number: int) -> None:
    """Raise RunFileError if the checksum of a line does not fit or is missing."""
    try:
        checksums.check(line)
    except ValueError as error:
        raise RunFileError(_at(name, number, error)) from None


def _at(name: str, number: int, error: Exception) -> str:
    return f"{name}, line {number}: {one_line(str(error).replace('`', ''))}"


def _write_line(fd: int, line: bytes) -> None:
    end = os.fstat(fd).st_size
    rest = memoryview(sealed(line) + b"\n")
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, end)
        raise


def _exchanged(old: int, new: int) -> int:
    os.close(old)
    return new


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{path} is being written by another run: wait for it, or name another file") from None
    except OSError:
        return  # a file system without locks: the user must not write two runs into one file


def _sync_folder(path: Path) -> None:
    """Sync the folder, and so the file's name, to the disk, if the file system supports that."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(folder)


def _allocate(fd: int, start: int, size: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(fd, FALLOC_FL_KEEP_SIZE, start, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
