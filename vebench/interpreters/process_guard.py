"""A scratch folder for processes that must not outlive this one, and what ends them however this one ends.

This process cleans up itself. If it is killed, its guardian does. If that is killed, too, the kernel has ended the
process groups of cells (``child/main.py``), and what is left is removed by the next process that needs a scratch
folder.

The folder has links to the part of vebench that processes in any Python import. A cell and a lookup before it must find
the same code, or one would succeed where the other fails.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import vebench
import vebench.backends
from vebench.child.process import start_guardian
from vebench.errors import StorageError, UsageError
from vebench.machine import guardian

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    _File = IO[bytes] | int

# What the child may import, besides the adapters.
CHILD_SIDE = ("__init__.py", "errors.py", "child", "machine")
PREFIX = "vebench-"
_PATIENCE_S = 1.0  # a killed guardian is gone at once, unless the system hangs
LOCK = "lock"  # held by this process and its guardian; it has the token, and the name of the machine
_TOKEN = re.compile("[0-9a-f]{16}")


class ProcessGuard:
    """Processes with the environment variable ``guardian.TOKEN_VARIABLE`` = ``token`` end with this context.

    So does the folder ``scratch``. ``lifeline`` is the end of a pipe that hangs up when this process is gone.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self._groups: frozenset[int] = frozenset()
        self._open: list[int] = []

    def __enter__(self) -> Self:
        sweep()
        self.scratch = _make_scratch()
        try:
            self.lifeline, writing = os.pipe()
            self._open += [self.lifeline, writing]
            lock = _locked(self.scratch, self.token)
            self._open.append(lock)
            self._guardian = start_guardian(self.token, self.scratch, lock)
            os.set_blocking(self._to_guardian(), False)  # one that is stopped reads nothing
        except BaseException as error:
            self._close()
            guardian.remove(str(self.scratch))
            if isinstance(error, OSError):
                raise UsageError(f"cannot start the process that cleans up: {error.strerror}") from None
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()
        guardian.end(self.token, self._groups)
        guardian.remove(str(self.scratch))
        if self.scratch.exists() and self._guardian.stdin is not None:
            # To remove it takes descriptors, of which this process may have no more: the guardian does.
            self._guardian.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._guardian.wait(_PATIENCE_S)
        self._guardian.kill()  # it has nothing to do any more
        with suppress(subprocess.TimeoutExpired):
            self._guardian.wait(_PATIENCE_S)
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()

    @contextmanager
    def process(
        self, command: Sequence[str], env: Mapping[str, str], stdin: _File, stdout: _File, stderr: _File
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process, and end it and its process group with the context. Raises OSError if it does not start."""
        env = {**env, guardian.TOKEN_VARIABLE: self.token}
        process = subprocess.Popen(command, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)
        self.add(process.pid)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.discard(process.pid)

    def add(self, group: int) -> None:
        """Let a process group end with this context, even if its processes have not the token."""
        self._groups |= {group}
        self._tell(group)

    def discard(self, group: int) -> None:
        """Forget a process group that has ended: another may get its number."""
        self._groups -= {group}
        self._tell(-group)

    def _close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def _to_guardian(self) -> int:
        assert self._guardian.stdin is not None  # noqa: S101 - it was started with a pipe
        return self._guardian.stdin.fileno()

    def _tell(self, group: int) -> None:
        with suppress(OSError):  # it was killed or stopped: then the kernel ends the cells
            os.write(self._to_guardian(), b"%d\n" % group)


def sweep() -> None:
    """End processes and remove scratch folders whose owner was killed together with its guardian."""
    with suppress(OSError):
        for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
            with suppress(OSError):  # it is in use, or another user's
                _sweep(lock)


def _sweep(lock: Path) -> None:
    folder = lock.parent.lstat()
    if folder.st_uid != os.getuid() or not stat.S_ISDIR(folder.st_mode):
        return
    with lock.open(encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        token, _, machine = file.read(1024).partition(" ")
        # Another machine may share the folder, but not its locks.
        if _TOKEN.fullmatch(token) and machine == os.uname().nodename:
            guardian.end(token)
            guardian.remove(str(lock.parent))


def _locked(scratch: Path, token: str) -> int:
    """Return the descriptor of a new lock, which is held as long as any process has it open."""
    draft = scratch / f"new-{LOCK}"
    draft.write_text(f"{token} {os.uname().nodename}", encoding="utf-8")
    descriptor = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # a file system without locks: nothing is swept there
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(scratch / LOCK)  # it has its name only once it is held
    return descriptor


def _make_scratch() -> Path:
    """Make a scratch folder with the packages for ``python_path``. Raises StorageError if that is not possible."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise StorageError(f"cannot make a scratch folder in {tempfile.gettempdir()}: {error.strerror}") from None
    try:
        link_packages(_packages(scratch))
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise StorageError(f"cannot make links in {scratch}: {error.strerror}") from None
    return scratch


def restore_scratch(scratch: Path) -> None:
    """Make the scratch folder again if it was removed, as cleaners of temporary folders do."""
    if not _packages(scratch).exists():
        scratch.mkdir(mode=0o700, exist_ok=True)
        link_packages(_packages(scratch))


def link_packages(folder: Path) -> None:
    """Make packages in ``folder`` of links to the code that the child loads, so that ``folder`` can be on a path."""
    package = folder / "vebench"
    package.mkdir(parents=True)
    ours = Path(vebench.__path__[0])
    backends = Path(vebench.backends.__path__[0])
    for source in (*(ours / name for name in CHILD_SIDE), backends):
        (package / source.name).symlink_to(source.absolute())


def python_path(scratch: Path) -> str:
    """Return the ``PYTHONPATH`` of a process: the packages in ``scratch``, then what the user has there.

    The packages come first. So every interpreter finds this code, and no other, whether vebench is installed in it or
    not. This includes the interpreters that a backend spawns.
    """
    # The process may run in another folder, so relative paths must become absolute.
    theirs = [str(Path(part).absolute()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([str(_packages(scratch)), *theirs])


def _packages(scratch: Path) -> Path:
    return scratch / "packages"
