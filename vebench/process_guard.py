"""A scratch folder and processes that end with this process, however it ends. Also clocks, waiting and signals.

If this process is killed, its guardian cleans up. If the guardian is killed, too, the kernel kills the cells' process
groups (``child/main.py``), and the next vebench process removes the folder. The folder has links to the part of vebench
that processes in any Python import. So cells and lookups run the same code.
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
from vebench.errors import StorageError
from vebench.machine import guardian

CHILD_SIDE = ("__init__.py", "errors.py", "child", "machine")  # the modules that a child may import, like adapters
PREFIX = "vebench-"
LOCK = "lock"  # a file with the token and the name of the machine, locked by this process and its guardian


class ProcessGuard:
    """A context with the folder ``scratch``. When it ends, its processes are ended, and the folder is removed."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)

    def __enter__(self) -> Self:
        sweep()
        with ExitStack() as undo:
            try:
                self.scratch = Path(tempfile.mkdtemp(prefix=PREFIX))
                undo.callback(guardian.remove, str(self.scratch))
                link_packages(self.scratch / "packages")
                # The lock is held while this process or its guardian has the descriptor open.
                draft = self.scratch / f"new-{LOCK}"
                draft.write_text(f"{self.token} {os.uname().nodename}", encoding="utf-8")
                self._lock = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
                undo.callback(os.close, self._lock)
                with suppress(OSError):  # the file system has no locks; then ``sweep`` ignores the folder
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    draft.rename(self.scratch / LOCK)  # only now can ``sweep`` find the file
                self._guardian = Guardian(self.token, self.scratch, self._lock)
            except OSError as error:
                where = tempfile.gettempdir()
                raise StorageError(f"cannot prepare a scratch folder in {where}: {error.strerror}") from None
            undo.pop_all()
        self.lifeline = self._guardian.lifeline
        self.add, self.discard = self._guardian.add, self._guardian.discard
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)  # the guardian still holds the lock
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
        """Start a ``Process``, and end it after the context. Raises OSError if it cannot be started.

        If it is ``marked`` with the token, processes that it has started are ended with this guard.
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
                # Another machine may share the folder without sharing its locks.
                if re.fullmatch("[0-9a-f]{16}", token) and machine == os.uname().nodename:
                    guardian.end(token)
                    guardian.remove(str(lock.parent))


def link_packages(folder: Path) -> None:
    """Make a package in ``folder`` of links to the code that children import. Children get ``folder`` on their path."""
    package = folder / "vebench"
    package.mkdir(parents=True)
    ours = Path(vebench.__path__[0])
    for source in (*(ours / name for name in CHILD_SIDE), Path(vebench.backends.__path__[0])):
        (package / source.name).symlink_to(source.absolute())


def python_path(scratch: Path) -> str:
    """Return the ``PYTHONPATH`` of a process: the packages in ``scratch`` come before any other vebench."""
    # The process may run in another folder, so relative paths must become absolute.
    theirs = [str(Path(part).absolute()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([str(scratch / "packages"), *theirs])


class Wakeful:
    """A clock of seconds that excludes the time for which this process was stopped, for example by Ctrl-Z."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stopped = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._clock() - self._stopped

    def wait(self, descriptors: Iterable[int], seconds: float = CHECK_S) -> set[int]:
        """Wait until a descriptor can be read or is closed, at most ``seconds``. Return all such descriptors."""
        poll = select.poll()  # not select(), which knows only the first 1,024 descriptors
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        before = self._clock()
        found = {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}
        late = self._clock() - before - seconds
        if late > 1.0:  # this process was stopped meanwhile
            self._stopped += late
        return found


wakeful = Wakeful()


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, so that nothing unfinished is left."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interrupts:
    """A context in which the first interrupt only sets ``requested``, and makes ``fileno()`` readable.

    So the run can store its measurements before it ends. A second interrupt raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)
        self._before = {}
        if threading.current_thread() is threading.main_thread():  # Python handles signals only there
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # Signals that the parent ignores on purpose stay ignored, as with nohup and a shell's ``&``.
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
