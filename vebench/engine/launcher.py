"""Starts a cell in a fresh interpreter, reads its answers, and ends it with everything that it started.

This is the interface to the operating system: the runner knows only ``conversation.Launch``, and its tests pass a fake.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from vebench.backends.setup import Setup
from vebench.child.answers import Begins, Done, Ends, Failure, Ready
from vebench.child.request import Judging, Proving, Recording, Replaying, Request, Settings, Timing
from vebench.engine.conversation import CellError, InterruptedCellError, decode
from vebench.engine.far import started
from vebench.engine.pace import Pace
from vebench.engine.replicas import FAR_LEAD_NS, LEAD_NS, Replicas
from vebench.hosts.site import reached
from vebench.interpreters.guarded import Guarded, python_path, restore_scratch
from vebench.interpreters.waiting import readable, wakeful
from vebench.machine import guardian, pinning
from vebench.machine.outside import EXIT_S, Log, how_it_ended, short_of_memory
from vebench.plan.trust import not_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from vebench.child.answers import Answer
    from vebench.engine.conversation import Conversation
    from vebench.engine.replicas import RunningReplica
    from vebench.hosts.site import Site
    from vebench.interpreters.waiting import Interrupts
    from vebench.plan.cells import Cell, Replica
    from vebench.plan.spec import RunSpec

# After its last window, a backend may take this long to close before it is ended.
CLOSE_S = 10.0
_CLOSE_CHECK_S = 0.01
_WHERE_S = 1.0  # a cell that hangs may take this long to say where
_CHILD = "vebench.child.main"


class Starter(Protocol):
    """Starts one replica of a cell: here, or where it is to run."""

    def __call__(self, cell: Cell, replica: Replica) -> AbstractContextManager[RunningReplica]:
        """Return the running replica. When the context is left, all its processes have ended."""


class Launcher:
    """Launches the cells of one run, with a scratch folder and guardians that outlive the runner.

    ``python`` is the interpreter that cells run in, unless their backend has one of its own. It needs numpy and the
    simulators, but not vebench.
    """

    def __init__(self, spec: RunSpec, interrupts: Interrupts, python: str = sys.executable) -> None:
        self._spec = spec
        self._interrupts = interrupts
        self._python = python
        self._guarded = Guarded()
        self._token = self._guarded.token
        self._started = count()
        self._home = pinning.allowed()
        self._reached = contextlib.ExitStack()
        self._sites: Mapping[str, Site] = {}

    def __enter__(self) -> Self:
        self._guarded.__enter__()
        self._scratch = self._guarded.scratch
        try:
            self._sites = self._reached.enter_context(reached(self._spec, self._guarded, self._interrupts))
        except BaseException:
            self._guarded.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._keep_off(())
        self._reached.close()
        self._guarded.__exit__(kind, error, at)

    @contextlib.contextmanager
    def __call__(self, cell: Cell) -> Iterator[Conversation]:
        """Start all replicas of ``cell``, and return its conversation."""
        self._keep_off(_owned(cell))
        with contextlib.ExitStack() as stack:
            if not cell.replicas:
                yield stack.enter_context(self._start(cell, cell.all_replicas[0]))
                return
            names = [one.host or f"replica {number}" for number, one in enumerate(cell.replicas)]
            lead = FAR_LEAD_NS if any(one.host for one in cell.replicas) else LEAD_NS
            running: list[RunningReplica] = []
            try:
                running.extend(stack.enter_context(self._starter(one)(cell, one)) for one in cell.replicas)
                yield Replicas(running, self._spec.rounds, names=names, lead_ns=lead)
            finally:
                for replica in running:  # all are told before one is waited for
                    replica.tell_to_end()

    def _starter(self, replica: Replica) -> Starter:
        return self._start_far if replica.host else self._start

    def _start_far(self, cell: Cell, replica: Replica) -> AbstractContextManager[RunningReplica]:
        request = self._request(cell, replica, -1)
        return started(self._sites[replica.host], request, self._spec.timeout, self._interrupts)

    @contextlib.contextmanager
    def _start(self, cell: Cell, replica: Replica) -> Iterator[RunningCell]:
        restore_scratch(self._scratch)
        with contextlib.ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(dir=self._scratch, ignore_cleanup_errors=True))
            )
            log = stack.enter_context((folder / "log").open("a+b"))
            mark = f"{self._token}.{next(self._started)}"
            results, answers = os.pipe()
            stack.callback(os.close, results)
            child_end, go_ahead = os.pipe()
            stack.callback(os.close, go_ahead)
            try:
                request = folder / "request.json"
                request.write_text(self._request(cell, replica, child_end).written(), encoding="utf-8")
                process = subprocess.Popen(
                    [
                        self._python if isinstance(cell.job, Replaying | Judging) else cell.python or self._python,
                        "-X",
                        "faulthandler",
                        "-m",
                        _CHILD,
                        str(request),
                        str(answers),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    env=self._environment(folder, mark),
                    pass_fds=[answers, child_end, self._guarded.lifeline],
                    start_new_session=True,
                )
            finally:
                os.close(answers)
                os.close(child_end)
            stack.callback(self._end, process, mark)
            self._guarded.add(process.pid)
            keep_off = partial(self._keep_off, _owned(cell))
            watch = self._guarded.renew
            running = RunningCell(
                process,
                mark,
                results,
                go_ahead,
                Log(log),
                self._interrupts,
                self._spec.timeout,
                keep_off,
                watch,
                cell.patience,
                not isinstance(cell.job, Proving | Judging),
            )
            stack.callback(running.wait_for_close)
            yield running

    @property
    def _pinned(self) -> bool:
        return self._spec.pin.pins

    def _request(self, cell: Cell, replica: Replica, go_ahead: int) -> Request:
        env = cell.task.id if cell.task.module is None else f"{cell.task.module}:{cell.task.id}"
        named = replace(self._spec, envs=(env,), backends=(cell.backend,))
        job = cell.job
        if isinstance(job, Recording) and (replica.host or cell.all_replicas[job.replica] != replica):
            job = None
        if job is not None and not isinstance(job, Timing):
            job = replace(job, path=str(self._scratch / job.path))
        return Request(
            setup=Setup(
                cell.task,
                replica.workers,
                cell.envs_per_worker,
                replica.cpus,
                self._spec.seed + replica.first_env,
                self._pinned and _is_timed(cell),
            ),
            backend=cell.backend.name,
            target=cell.entry.target,
            options=cell.backend.options,
            settings=settings_of(self._spec),
            folder=str(Path.cwd() if any(not_ours(named)) else self._scratch),
            nodes=replica.nodes,
            mode=cell.mode,
            go_ahead=go_ahead,
            lifeline=self._guarded.lifeline,
            job=job,
        )

    def _environment(self, folder: Path, mark: str) -> dict[str, str]:
        marks = {guardian.TOKEN_VARIABLE: self._token, guardian.CELL_VARIABLE: mark}
        # What libraries leave in the temporary folder is removed with the cell's folder.
        path = {"PYTHONPATH": python_path(self._scratch)}
        return {**os.environ, **marks, "TMPDIR": str(folder), **pinning.ONE_THREAD_EACH, **path}

    def _keep_off(self, cpus: tuple[int, ...]) -> None:
        """Keep this process off the CPUs of the working cell, unless it would have none left."""
        if self._pinned:
            pinning.keep_off(cpus, self._home)

    def _end(self, process: subprocess.Popen[bytes], mark: str) -> None:
        guardian.end(mark, frozenset({process.pid}), guardian.CELL_VARIABLE)
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it is in an uninterruptible system call
            process.wait(EXIT_S)
        self._guarded.discard(process.pid)


def settings_of(spec: RunSpec) -> Settings:
    """Return the part of a spec that children use."""
    return Settings(
        duration=spec.duration,
        rounds=spec.rounds,
        warmup=spec.warmup,
        longest_warmup=spec.longest_warmup,
        timeout=spec.timeout,
        memory=spec.pin.memory,
        policy=spec.policy,
        deliver=spec.hosts is not None and spec.hosts.deliver,
    )


def _send(number: signal.Signals, to: Callable[[int], None]) -> None:
    # An ended process is noticed when its answers are read. macOS forbids signals to processes not waited for.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        to(number)


def _group_of(pid: int) -> int | None:
    """Return the process group of a process, None if it has ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _owned(cell: Cell) -> tuple[int, ...]:
    """Return the CPUs of this machine that a cell has for itself. What is not timed uses all that are free."""
    here = not any(one.host for one in cell.replicas)
    return cell.cpus if here and _is_timed(cell) else ()


def _is_timed(cell: Cell) -> bool:
    return cell.job is None or isinstance(cell.job, Recording | Timing)


@dataclass
class RunningCell:
    """A cell's process, the pipe for its answers (``results``), and the pipe that lets it go on (``go_ahead``).

    ``mark`` is the token that all its processes have in their environment. ``timeout`` is in seconds, without rests.
    ``keep_off`` takes this process off the cell's CPUs; ``watch`` sees
    that the guardians are alive. ``patience`` is that of the cell. ``tells_where``: a cell that hangs is asked how far
    it is.
    """

    process: subprocess.Popen[bytes]
    mark: str
    results: int
    go_ahead: int
    output: Log
    interrupts: Interrupts
    timeout: float
    keep_off: Callable[[], None]
    watch: Callable[[], None]
    patience: float | None = None
    tells_where: bool = True

    def __post_init__(self) -> None:
        self._pace = Pace(time.perf_counter_ns)
        self._whole = self.timeout if self.patience is None else min(self.timeout, self.patience)
        self._deadline = wakeful() + self._whole
        self._resting_since = 0.0
        self._may_close_until = 0.0
        self._is_ready = False
        self._strays: list[int] = []
        self._lines: deque[bytes] = deque()
        self._rest = b""

    def start(self, at_ns: int) -> None:
        """Tell a replica when its first window begins, in nanoseconds of the clock that all replicas share."""
        self._write(b"%d\n" % at_ns)

    def take_turn(self) -> None:
        """Let the cell run until the end of its next window."""
        self._deadline += wakeful() - self._resting_since
        self.keep_off()
        for pid in self._strays:
            _send(signal.SIGCONT, partial(os.kill, pid))
        _send(signal.SIGCONT, partial(os.killpg, self.process.pid))
        self._write(b"\n")

    def rest(self) -> None:
        """Stop the cell's processes: otherwise they might keep working, uncounted, during another cell's turn.

        Those that have left its process group are stopped, too, where they can be found: Ray's, for instance.
        """
        _send(signal.SIGSTOP, partial(os.killpg, self.process.pid))
        with contextlib.suppress(OSError):  # no /proc
            members = guardian.members(self.mark, variable=guardian.CELL_VARIABLE)
            self._strays = [pid for pid in members if _group_of(pid) not in {self.process.pid, None}]
        for pid in self._strays:
            _send(signal.SIGSTOP, partial(os.kill, pid))
        self._resting_since = wakeful()

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died, which is noticed when its answers are read
            os.write(self.go_ahead, line)

    def messages(self) -> Iterator[Answer]:
        """Yield the cell's answers; see ``Conversation``."""
        while True:
            while (answer := self.look()) is None:
                wakeful.wait(self.news)
            yield answer

    def look(self) -> Answer | None:
        """Return the next answer if it has come, None if it has not, without waiting. Raises CellError if none will."""
        if self.interrupts.requested:
            raise InterruptedCellError("interrupted")
        while True:
            if not self._lines and not self._receive():
                return None
            try:
                answer = decode(self._lines.popleft())
            except ValueError as error:
                raise CellError(f"its answer cannot be read: {error}") from None
            self._pace.heard(answer)
            if isinstance(answer, Begins | Ends):
                continue
            self._is_ready |= isinstance(answer, Ready)
            if isinstance(answer, Done):
                self._may_close_until = wakeful() + CLOSE_S
            return answer

    def _receive(self) -> bool:
        """Return whether a line has come, without waiting. Raises CellError if none will."""
        while not self._lines:
            ended = self.process.poll() is not None
            if not readable(self.results):
                if ended:
                    raise CellError(how_it_ended(self.process, self.output))
                self._check_limits()
                return False
            self._check_limits()
            chunk = os.read(self.results, 1 << 16)
            if not chunk:
                raise CellError(how_it_ended(self.process, self.output))
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._lines.extend(lines)
        return True

    @property
    def news(self) -> tuple[int, ...]:
        """Descriptors of which one can be read when an answer has come, or its end, or a signal."""
        return self.results, self.interrupts.fileno()

    def tell_to_end(self) -> None:
        """Do nothing: its processes are ended at once when that is due."""

    def log(self) -> str:
        """Return the end of what the cell's processes printed."""
        return self.output.end()

    def _check_limits(self) -> None:
        """Raise CellError if the cell took too much time or memory. Keep only the end of a log that is too long."""
        self.watch()
        if wakeful() > self._deadline:
            option = "--timeout" if self._whole == self.timeout else "--budget"
            raise CellError(f"no end after {self._whole:.3g} s ({option}){self._how_far() if self.tells_where else ''}")
        self.output.keep_short()
        if fault := short_of_memory():
            raise CellError(fault)

    def _how_far(self) -> str:
        """Return in words how far a process is that hangs. It says so itself, unless it hangs outside of Python."""
        _send(signal.SIGUSR2, partial(os.kill, self.process.pid))
        until, rest = wakeful() + _WHERE_S, self._rest
        while (left := until - wakeful()) > 0 and wakeful.wait([self.results], left):
            *lines, rest = (rest + os.read(self.results, 1 << 16)).split(b"\n")
            if not lines:  # it has ended
                break
            with contextlib.suppress(ValueError):
                answer = decode(lines[-1])
                if isinstance(answer, Failure):
                    return f", {answer.reason}" if answer.reason else ""
        return ", in a step" if self._is_ready else ", while it was built or reset"

    def wait_for_close(self) -> None:
        """Give a cell that is done ``CLOSE_S`` from then to close its backend and to exit, unless a signal comes."""
        while self.process.poll() is None and wakeful() < self._may_close_until:
            if self.interrupts.requested:
                return
            wakeful.wait([self.interrupts.fileno()], _CLOSE_CHECK_S)
