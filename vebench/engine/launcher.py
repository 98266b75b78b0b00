"""Starts a cell in a fresh interpreter, reads its answers, and ends it with everything that it started.

This is the seam to the operating system: the runner knows only ``conversation.Launch``, and its tests give it another.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import vebench
import vebench.backends
from vebench.backends.setup import Setup
from vebench.child.answers import Done
from vebench.child.request import Request, Settings
from vebench.engine import guardian
from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.messages import decode
from vebench.engine.replicas import Replicas
from vebench.errors import StorageError
from vebench.machine import pinning
from vebench.machine.host import MEBIBYTE, memory_available

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from vebench.child.answers import Answer
    from vebench.engine.conversation import Conversation
    from vebench.engine.interrupts import Interrupts
    from vebench.plan.cells import Cell, Replica
    from vebench.plan.spec import RunSpec

# How often the wait for a message looks at the cell's process and at the memory left. It costs under a millisecond.
LOOK_S = 0.5
# A cell that leaves the machine less than this is ended before the kernel ends something else.
LEAST_MEMORY = 256 * MEBIBYTE
# After its last window a backend may take this long to close before it is ended.
CLOSE_S = 10.0
CLOSE_LOOK_S = 0.01
LEAVE_S = 1.0  # between the end of a cell's answers and that of its process
CHILD = "vebench.child.main"
# What the child may import, besides the adapters.
CHILD_SIDE = ("__init__.py", "errors.py", "child", "machine")
# A library that prints without end must not fill the disk; what it printed last is what is worth reading.
MOST_LOG = 64 * MEBIBYTE
LOG_TAIL = 16 * 1024


class Launcher:
    """Launches the cells of one run, with a scratch folder and a guardian that outlives the runner.

    ``python`` is the interpreter that cells run in: it needs numpy and the simulators, not vebench.
    """

    def __init__(self, spec: RunSpec, interrupts: Interrupts, python: str = sys.executable) -> None:
        self._spec = spec
        self._interrupts = interrupts
        self._python = python
        self._token = secrets.token_hex(8)
        self._started = count()
        self._home = pinning.allowed()

    def __enter__(self) -> Self:
        try:
            self._scratch = Path(tempfile.mkdtemp(prefix="vebench-"))
        except OSError as error:
            raise StorageError(f"no scratch folder in {tempfile.gettempdir()}: {error.strerror}") from None
        try:
            self._lay_packages()
        except OSError as error:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise StorageError(f"no links in {self._scratch}: {error.strerror}") from None
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, self._token, str(self._scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is not meant for it
            cwd="/",
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._keep_off(())
        self._guardian.communicate()

    @contextlib.contextmanager
    def __call__(self, cell: Cell) -> Iterator[Conversation]:
        """Start ``cell``, all of its replicas, and return its conversation."""
        self._keep_off(cell.cpus)
        with contextlib.ExitStack() as stack:
            running = [stack.enter_context(self._start(cell, replica)) for replica in cell.all_replicas]
            yield Replicas(running, self._spec.rounds) if cell.replicas else running[0]

    @contextlib.contextmanager
    def _start(self, cell: Cell, replica: Replica) -> Iterator[RunningCell]:
        with contextlib.ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(dir=self._scratch, ignore_cleanup_errors=True))
            )
            log = stack.enter_context((folder / "log").open("a+b"))
            mark = f"{self._token}.{next(self._started)}"
            results, answers = os.pipe()
            stack.callback(os.close, results)
            heard, words = os.pipe()
            stack.callback(os.close, words)
            try:
                request = folder / "request.json"
                request.write_text(self._request(cell, replica, heard).written(), encoding="utf-8")
                process = subprocess.Popen(
                    [self._python, "-X", "faulthandler", "-m", CHILD, str(request), str(answers)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    env=self._environment(folder, mark),
                    pass_fds=[answers, heard],
                    start_new_session=True,
                )
            finally:
                os.close(answers)
                os.close(heard)
            stack.callback(self._end, process, mark)
            self._announce(process.pid)
            keep_off = partial(self._keep_off, cell.cpus)
            yield RunningCell(process, results, words, log, self._interrupts, self._spec.timeout, keep_off)

    def _lay_packages(self) -> None:
        """Lay out what the child loads as packages of links, as they would be installed.

        So every interpreter finds them, and only them, whether or not it has vebench; also the interpreters that a
        backend spawns.
        """
        package = self._packages / "vebench"
        package.mkdir(parents=True)
        ours = Path(vebench.__path__[0])
        backends = Path(vebench.backends.__path__[0])
        for source in (*(ours / name for name in CHILD_SIDE), backends):
            (package / source.name).symlink_to(source.absolute())

    @property
    def _packages(self) -> Path:
        return self._scratch / "packages"

    @property
    def _pinned(self) -> bool:
        return self._spec.pin != "none"

    def _request(self, cell: Cell, replica: Replica, words: int) -> Request:
        return Request(
            setup=Setup(
                cell.task,
                replica.workers,
                cell.envs_per_worker,
                replica.cpus,
                self._spec.seed + replica.first_env,
                self._pinned,
            ),
            backend=cell.backend.name,
            target=cell.target,
            options=cell.backend.options,
            settings=Settings(**{setting.name: getattr(self._spec, setting.name) for setting in fields(Settings)}),
            folder=str(Path.cwd()),
            nodes=replica.nodes,
            mode=cell.mode,
            words=words,
            proving=cell.proving,
        )

    def _environment(self, folder: Path, mark: str) -> dict[str, str]:
        marks = {guardian.TOKEN_VARIABLE: self._token, guardian.CELL_VARIABLE: mark}
        # What libraries put into the temporary folder goes with the cell's.
        ours = {**marks, "TMPDIR": str(folder), **pinning.ONE_THREAD_EACH}
        # The cell works in another folder, so what was relative to this one must not be any more.
        theirs = [str(Path(part).absolute()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
        ours["PYTHONPATH"] = os.pathsep.join([str(self._packages), *theirs])
        return {**os.environ, **ours}

    def _keep_off(self, cpus: tuple[int, ...]) -> None:
        """Keep this process off the CPUs of the cell that is at work, if that leaves it any."""
        if self._home is not None and self._pinned:
            elsewhere = set(self._home).difference(cpus)
            pinning.restrict(tuple(sorted(elsewhere or self._home)))

    def _announce(self, group: int) -> None:
        with contextlib.suppress(OSError):  # a killed guardian is missed only if the runner is killed too
            stdin = self._guardian.stdin
            if stdin is not None:
                stdin.write(b"%d\n" % group)
                stdin.flush()

    def _end(self, process: subprocess.Popen[bytes], mark: str) -> None:
        guardian.end(mark, frozenset({process.pid}), guardian.CELL_VARIABLE)
        process.kill()
        process.wait()
        self._announce(-process.pid)


@dataclass
class RunningCell:
    """A cell's process, the pipe on which it answers, and the one on which it is given the word to go on.

    ``timeout`` is in seconds; rests do not count. ``keep_off`` takes this process off the cell's CPUs.
    """

    process: subprocess.Popen[bytes]
    results: int
    words: int
    output: IO[bytes]
    interrupts: Interrupts
    timeout: float
    keep_off: Callable[[], None]

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.timeout
        self._resting_since = 0.0

    def start(self, at_ns: int) -> None:
        """Say when a replica's first window begins."""
        self._write(b"%d\n" % at_ns)

    def take_turn(self) -> None:
        """Let it go on to the end of its next window."""
        self._deadline += time.monotonic() - self._resting_since
        self.keep_off()
        self._signal(signal.SIGCONT)
        self._write(b"\n")

    def rest(self) -> None:
        """Stop its processes: they might work on, unasked and uncounted, while it is another's turn."""
        self._signal(signal.SIGSTOP)
        self._resting_since = time.monotonic()

    def _signal(self, number: signal.Signals) -> None:
        # One that has ended will be noticed when its answers are read. macOS forbids signals to those not waited for.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died: its answers will show it
            os.write(self.words, line)

    def messages(self) -> Iterator[Answer]:
        """Yield the cell's answers; see ``Conversation``."""
        buffer = b""
        while True:
            chunk = self._read()
            if not chunk:
                raise CellError(self._death())
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                try:
                    answer = decode(line)
                except ValueError as error:
                    raise CellError(f"its answer cannot be read: {error}") from None
                if isinstance(answer, Done):
                    self._let_close()
                yield answer

    def log(self) -> str:
        """Return the end of what the cell's processes printed."""
        size = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, size - LOG_TAIL))
        return self.output.read().decode(errors="replace")

    def _read(self) -> bytes:
        """Wait for bytes from the cell; empty if there will be none."""
        while True:
            ended = self.process.poll() is not None
            readable, _, _ = select.select([self.results, self.interrupts.fileno()], [], [], 0 if ended else LOOK_S)
            if self.interrupts.requested:
                raise InterruptedCellError("interrupted")
            if self.results in readable:
                self._look()
                return os.read(self.results, 1 << 16)
            if ended:
                return b""
            self._look()

    def _look(self) -> None:
        """Raise CellError if the cell has taken too long or too much; keep its log from filling the disk."""
        if time.monotonic() > self._deadline:
            raise CellError(f"no end after {self.timeout:g} s (--timeout)")
        if os.fstat(self.output.fileno()).st_size > MOST_LOG:
            os.ftruncate(self.output.fileno(), 0)
        left = memory_available()
        if left is not None and left < LEAST_MEMORY:
            raise CellError(f"memory ran out: {left // MEBIBYTE} MiB were left")

    def _let_close(self) -> None:
        """Wait until the process has closed its backend and ended, for a while, and not for an impatient user."""
        patience = time.monotonic() + CLOSE_S
        while self.process.poll() is None and time.monotonic() < patience and not self.interrupts.requested:
            select.select([self.interrupts.fileno()], [], [], CLOSE_LOOK_S)

    def _death(self) -> str:
        try:
            status = self.process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            return "its process runs on, but has closed the pipe for its answers"
        if status >= 0:
            last = self.log().strip().rpartition("\n")[2][:300]
            return f"its process ended with status {status}" + (f": {last}" if last else "")
        name = signal.Signals(-status).name
        cause = " (out of memory, or killed from outside)" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{cause}"
