"""A scratch folder and processes that end with this process, however it ends; waiting for them, and for signals.

Normally this process cleans up. If it is killed, its guardian does. If the guardian is killed as well, the kernel kills
the cells' process groups (``child/main.py``), and leftover folders are removed by the next vebench process.

The folder has links to the part of vebench that processes in any Python import. So a cell and a lookup before it find
the same code.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import select
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Self

import vebench
import vebench.backends
from vebench.child.process import CHECK_S, Guardian, Process
from vebench.errors import StorageError, UsageError
from vebench.machine import guardian

CHILD_SIDE = ("__init__.py", "errors.py", "child", "machine")  # what the child may import, besides the adapters
PREFIX = "vebench-"
LOCK = "lock"  # a file with the token and the name of the machine, locked by this process and its guardian
_LATE_S = 1.0  # a wait that takes this much longer than asked for means that this process was stopped


class ProcessGuard:
    """A context whose processes, and the folder ``scratch``, end with it; see ``Guardian``."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)

    def __enter__(self) -> Self:
        sweep()
        try:
            self.scratch = Path(tempfile.mkdtemp(prefix=PREFIX))
        except OSError as error:
            where = tempfile.gettempdir()
            raise StorageError(f"cannot make a scratch folder in {where}: {error.strerror}") from None
        with ExitStack() as undo:
            undo.callback(guardian.remove, str(self.scratch))
            try:
                link_packages(self.scratch / "packages")
            except OSError as error:
                raise StorageError(f"cannot make links in {self.scratch}: {error.strerror}") from None
            try:
                self._lock = _locked(self.scratch, self.token)
                undo.callback(os.close, self._lock)
                self._guardian = Guardian(self.token, self.scratch, self._lock)
            except OSError as error:
                raise UsageError(f"cannot start the process that cleans up: {error.strerror}") from None
            undo.pop_all()
        self.lifeline = self._guardian.lifeline
        self.add, self.discard = self._guardian.add, self._guardian.discard
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)  # which the guardian holds, too
        self._guardian.end()

    @contextmanager
    def process(
        self,
        command: Sequence[str],
        log: IO[bytes],
        env: Mapping[str, str] = os.environ,
        patience: float = 0.0,
        *,
        marked: bool = True,
        **settings: Any,
    ) -> Iterator[Process]:
        """Start a process, see ``Process``, and end it with the context. Raises OSError if it does not start.

        In the end it has ``patience`` seconds to exit. Processes that it starts are ended, too, if it is ``marked``.
        """
        process = Process(command, log, env={**env, guardian.TOKEN_VARIABLE: self.token} if marked else env, **settings)
        self.add(process.pid)
        try:
            yield process
        finally:
            process.end(patience)
            self.discard(process.pid)


def sweep() -> None:
    """End processes and remove scratch folders whose owner was killed together with its guardian."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):  # it is in use, or another user's
            folder = lock.parent.lstat()
            if folder.st_uid != os.getuid() or not stat.S_ISDIR(folder.st_mode):
                continue
            with lock.open(encoding="utf-8", errors="replace") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                token, _, machine = file.read(1024).partition(" ")
                # Another machine may share the folder, but not its locks.
                if re.fullmatch("[0-9a-f]{16}", token) and machine == os.uname().nodename:
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


def link_packages(folder: Path) -> None:
    """Make packages in ``folder`` of links to the code that the child loads, so that ``folder`` can be on a path."""
    package = folder / "vebench"
    package.mkdir(parents=True)
    ours = Path(vebench.__path__[0])
    for source in (*(ours / name for name in CHILD_SIDE), Path(vebench.backends.__path__[0])):
        (package / source.name).symlink_to(source.absolute())


def python_path(scratch: Path) -> str:
    """Return the ``PYTHONPATH`` of a process: the packages in ``scratch``, then what the user has there.

    So every interpreter finds this code, and no other, whether vebench is installed in it or not.
    """
    # The process may run in another folder, so relative paths must become absolute.
    theirs = [str(Path(part).absolute()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([str(scratch / "packages"), *theirs])


class Wakeful:
    """A clock that counts seconds, without the time in which this process was stopped, as by Ctrl-Z.

    Cells may have written answers meanwhile, and must not be taken for hanging.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stopped = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._clock() - self._stopped

    def wait(self, descriptors: Iterable[int], seconds: float = CHECK_S) -> set[int]:
        """Return the descriptors that can be read or are closed, as soon as there is one, or after ``seconds``."""
        poll = select.poll()  # not select(), which knows only the first 1,024 descriptors
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        before = self._clock()
        found = {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}
        late = self._clock() - before - seconds
        if late > _LATE_S:
            self._stopped += late
        return found


wakeful = Wakeful()


class Interrupts:
    """Within the context, the first signal only sets ``requested`` and makes ``fileno()`` readable.

    So the run can store its measurements before it ends. A second signal raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)
        self._before = {}
        if threading.current_thread() is threading.main_thread():  # where Python handles all signals
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # Signals that the parent ignores on purpose stay ignored: nohup's, and a shell's SIGINT for ``&``.
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._readable)
        os.close(self._writable)

    def fileno(self) -> int:
        """Return a file descriptor that is readable after the first signal."""
        return self._readable

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        os.write(self._writable, b"!")
