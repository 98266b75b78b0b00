"""Processes, the pipes to them, and the relay that starts cells on another host.

This module runs on other hosts, too: it imports no adapters, and no packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

from vebench.child import probe
from vebench.machine import guardian, host, kernel
from vebench.machine.host import MEBIBYTE, memory_available

# A cell is ended if less memory than this is available, before the kernel kills some other process.
LEAST_MEMORY = 256 * MEBIBYTE
CHECK_S = 0.5  # seconds between two checks of the free memory and of the log
EXIT_S = 1.0  # time limit for a process to exit after it was killed, or has closed the pipe for its answers
# A library that prints endlessly must not fill the disk.
MOST_LOG = 64 * MEBIBYTE
LONGEST_QUOTE = 300  # characters of a log's last line
_CHILD = ("-X", "faulthandler", "-m", "vebench.child.main")


class Lines:
    """The lines that arrive through a pipe. ``descriptor`` is the reading end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._rest = b""
        self._lines: deque[bytes] = deque()

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds. Return whether something can be read, or the pipe is closed."""
        poll = select.poll()  # not select(), which knows only the first 1,024 descriptors
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(1000 * timeout))

    def take(self) -> bytes | None:
        """Return the next line, None if no whole line has arrived. Raises EOFError when the pipe is closed."""
        while not self._lines:
            if not self.wait(0):
                return None
            chunk = os.read(self.descriptor, 1 << 16)
            if not chunk:
                raise EOFError
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._lines.extend(lines)
        return self._lines.popleft()


def write_all(descriptor: int, data: bytes) -> None:
    """Write ``data``. Ignores a closed pipe: the caller notices when it reads the next answer."""
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(descriptor, data) :]


class Log:
    """A file that processes print to, opened for appending and reading."""

    def __init__(self, file: IO[bytes]) -> None:
        self._log = file.fileno()

    def end(self) -> str:
        """Return the last 16 KiB."""
        most = 1 << 14
        return os.pread(self._log, most, max(0, os.fstat(self._log).st_size - most)).decode(errors="replace")

    def last_line(self) -> str:
        """Return the last line, shortened."""
        return self.end().strip().rpartition("\n")[2][:LONGEST_QUOTE]

    def keep_short(self) -> None:
        """Cut a log that is longer than ``MOST_LOG`` to its end."""
        if os.fstat(self._log).st_size > MOST_LOG:
            end = self.end()
            os.ftruncate(self._log, 0)
            os.write(self._log, end.encode())


class Process:
    """A process in a separate session. Raises OSError if it cannot be started. ``popen``: arguments of ``Popen``.

    ``log`` gets its standard error, and its standard output unless ``stdout`` is given. By default they are discarded.
    """

    def __init__(self, command: Sequence[str], log: IO[bytes] | None = None, **popen: Any) -> None:
        printed: IO[bytes] | int = subprocess.DEVNULL if log is None else log
        pipes = {"stdin": popen.pop("stdin", subprocess.DEVNULL), "stdout": popen.pop("stdout", None) or printed}
        self._popen = subprocess.Popen(command, stderr=printed, start_new_session=True, **pipes, **popen)
        self.pid = self._popen.pid
        self.stdin, self.stdout = self._popen.stdin, self._popen.stdout
        self.log = None if log is None else Log(log)

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self._popen.poll()

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit status, None if it still runs after ``timeout`` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._popen.wait(timeout)
        return None

    def how_it_ended(self) -> str:
        """Return a predicate for messages: ``exited with status 3: LAST LINE OF ITS LOG``."""
        status = self.wait(EXIT_S)
        if status is None:
            return "is still running, but has closed the pipe for its answers"
        if status == -signal.SIGKILL:
            return "was ended by SIGKILL (out of memory, or killed from outside)"
        how = f"exited with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
        last = "" if self.log is None else self.log.last_line()
        return f"{how}: {last}" if last else how

    def end(self, patience: float = 0.0) -> None:
        """Close the pipes, wait ``patience`` seconds for the process to exit, then kill its process group."""
        for pipe in (self.stdin, self.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # the process has not read all of its input
                    pipe.close()
        if patience:
            self.wait(patience)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS forbids signals to a group of zombies
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(EXIT_S)  # it may still be in an uninterruptible system call


class ForkedProcess(Process):
    """A process that was forked from a zygote. The zygote reports its exit status in ``statuses``."""

    def __init__(self, pid: int, statuses: Lines, log: IO[bytes]) -> None:  # not started by Popen
        self.pid, self.log, self.stdin, self.stdout = pid, Log(log), None, None
        self._statuses = statuses
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, None while it runs. If the zygote has ended, the process was killed with it."""
        if self._status is None:
            try:
                line = self._statuses.take()
            except EOFError:
                line = b"%d" % -signal.SIGKILL
            self._status = None if line is None else int(line)
        return self._status

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit status, None if it still runs after ``timeout`` seconds."""
        if self.poll() is None and timeout is not None:
            self._statuses.wait(timeout)
        return self.poll()

    def end(self, patience: float = 0.0) -> None:
        """Kill it and its process group, unless it has exited."""
        if self.poll() is None:
            super().end(patience)
        os.close(self._statuses.descriptor)


class Zygote(Process):
    """A process that has imported ``modules`` and forks cells (``fork_cells`` in ``child/main.py``).

    ``folder`` is made here, and removed by ``end``. Cells overwrite the mark in ``env`` with one of the same length.
    """

    def __init__(
        self, python: str, modules: Sequence[str], folder: Path, env: Mapping[str, str], lifeline: int
    ) -> None:
        folder.mkdir()
        self._folder = folder
        self._asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [python, *_CHILD, "fork", str(theirs.fileno()), str(lifeline), *modules]
            env = {**env, "TMPDIR": str(folder)}
            super().__init__(words, env=env, cwd=folder, pass_fds=[theirs.fileno(), lifeline])

    def fork(
        self, wait: Callable[[int], None], request: Path, log: IO[bytes], mark: str, descriptors: Sequence[int]
    ) -> ForkedProcess | None:
        """Return a cell's process, None if it cannot be forked. ``mark``: a text in the cell's environment.

        ``descriptors``: the pipes for answers and for the go-ahead, and the lifeline. ``wait`` waits until a descriptor
        can be read, or the cell's time is over: the zygote may still import modules.
        """
        cell = {"request": str(request), "folder": str(request.parent), "mark": mark, "cpus": kernel.allowed() or ()}
        reading, writing = os.pipe()
        statuses, pid = Lines(reading), 0
        with contextlib.suppress(OSError, EOFError):  # the zygote has ended
            with os.fdopen(writing, "wb"):
                socket.send_fds(self._asks, [json.dumps(cell).encode()], [log.fileno(), *descriptors, writing])
            wait(reading)
            pid = int(statuses.take() or 0)
        if pid:
            return ForkedProcess(pid, statuses, log)
        os.close(reading)
        return None

    def end(self, patience: float = 0.0) -> None:
        """End the zygote. The kernel then ends the cells that were forked from it."""
        self._asks.close()
        super().end(patience)
        guardian.remove(str(self._folder))


class Guardian(Process):
    """A process that cleans up if this process is killed: it kills processes, and removes the folder ``scratch``.

    It kills the processes with ``token`` in ``guardian.TOKEN_VARIABLE``, and the watched groups. It inherits the
    descriptors ``kept_open``. ``lifeline`` is the reading end of a pipe that closes when this process ends.
    """

    def __init__(self, token: str, scratch: Path, *kept_open: int) -> None:
        self._token, self._scratch = token, scratch
        self._groups: frozenset[int] = frozenset()
        self.lifeline, self._writing = os.pipe()
        words = [sys.executable, "-I", "-S", guardian.__file__, token, str(scratch)]
        super().__init__(words, stdin=subprocess.PIPE, cwd="/", pass_fds=kept_open)
        self._groups_to = cast("IO[bytes]", self.stdin).fileno()
        os.set_blocking(self._groups_to, False)  # a stopped guardian reads nothing

    def add(self, group: int) -> None:
        """Watch a process group. Its processes need not have the token."""
        self._groups |= {group}
        self._announce(group)

    def discard(self, group: int) -> None:
        """Forget a process group that has ended, because a new group may get the same number."""
        self._groups -= {group}
        self._announce(-group)

    def _announce(self, group: int) -> None:
        with contextlib.suppress(OSError):  # the guardian was killed or stopped: then the kernel ends the cells
            os.write(self._groups_to, b"%d\n" % group)

    def end(self, patience: float = EXIT_S) -> None:
        """End the processes of the token and the watched groups, remove the folder, and end the guardian."""
        os.close(self._writing)  # first: the kernel ends the cells, and descriptors become free
        os.close(self.lifeline)
        guardian.end(self._token, self._groups)
        guardian.remove(str(self._scratch))
        # If this process has no descriptors left to remove the folder, the guardian removes it.
        super().end(patience if self._scratch.exists() else 0.0)


class ChildProcess:
    """A child that measures or compares a cell, with a pipe in each direction. Raises OSError if it cannot be started.

    ``folder`` is made here, and removed by ``end``. If ``fork`` returns no process, a fresh interpreter is started.
    """

    def __init__(
        self,
        python: str,
        request: Mapping[str, Any],
        folder: Path,
        env: Mapping[str, str],
        fork: Callable[[Path, IO[bytes], str, Sequence[int]], ForkedProcess | None] = lambda *_: None,
    ) -> None:
        folder.mkdir()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            ours.callback(guardian.remove, str(folder))
            printed = ours.enter_context((folder / "log").open("a+b"))
            reading, answers = os.pipe()
            go_ahead, self._go_ahead = os.pipe()
            for stack, end in ((ours, reading), (ours, self._go_ahead), (theirs, answers), (theirs, go_ahead)):
                stack.callback(os.close, end)
            job = request["job"]
            if job is not None and "path" in job[1]:
                job = job[0], {**job[1], "path": str(folder.parent / job[1]["path"])}
            file = folder / "request.json"
            file.write_text(json.dumps({**request, "job": job, "go_ahead": go_ahead}))
            given = [answers, go_ahead, request["lifeline"]]
            self.process = fork(file, printed, env.get(guardian.CELL_VARIABLE, ""), given) or Process(
                [python, *_CHILD, str(file), str(answers)],
                printed,
                cwd=folder,
                env={**env, "TMPDIR": str(folder)},  # so that libraries' temporary files are removed with the folder
                pass_fds=given,
            )
            self._close: Callable[[], None] = ours.pop_all().close
        self.lines, self.log = Lines(reading), Log(printed)
        self._check_at = 0.0

    def say(self, line: str) -> None:
        """Write a line to the child."""
        write_all(self._go_ahead, line.encode() + b"\n")

    def fault(self) -> str | None:
        """Return why the child must be ended, None if it may go on. Checks memory and log every ``CHECK_S`` seconds."""
        if time.monotonic() < self._check_at:
            return None
        self._check_at = time.monotonic() + CHECK_S
        self.log.keep_short()
        left = memory_available()
        return f"out of memory: {left // MEBIBYTE} MiB were left" if left is not None and left < LEAST_MEMORY else None

    def end(self, mark: str, variable: str = guardian.TOKEN_VARIABLE) -> None:
        """End the child and all processes that have ``mark`` in the environment ``variable``, and remove its folder."""
        guardian.end(mark, frozenset({self.process.pid}), variable)
        self.process.end()
        self._close()


def environment(path: str, marks: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a child. ``path`` is its ``PYTHONPATH``. ``marks`` identify its processes."""
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # other cells need memory of the same device
    return {**shared, **os.environ, **kernel.ONE_THREAD_EACH, **marks, "PYTHONPATH": path}


class _Relay:
    """Relays messages between the runner and one child at a time, on another host.

    ``scratch`` is the folder with the payload. ``writing`` is the pipe to the runner. A message is a line with a JSON
    object, so any program that connects two pipes can carry them: ssh, srun, or a Ray actor. When standard input
    closes, the relay kills every process of the cell, and removes the folder. If it is killed, its guardian does that.

    | from the runner | answer |
    | --- | --- |
    | (at the beginning) | ``{"hello": facts}`` |
    | ``{"clock": 2}`` | ``{"cell": 2, "clock": NANOSECONDS}`` |
    | ``{"start": request, "cell": 2}`` | ``{"cell": 2, "line": "..."}`` for each line of the child |
    | ``{"say": "..."}`` | none: the line is written to the child |
    | ``{"end": 2}`` | ``{"cell": 2, "ended": "why", "log": "..."}``, also sent if the child ends by itself |
    """

    def __init__(self, scratch: Path, writing: int) -> None:
        self._scratch, self._writing = scratch, writing
        self._asked = Lines(0)
        self._child: ChildProcess | None = None
        self._cell = 0  # the child's number
        self._home = kernel.allowed()
        self._token = secrets.token_hex(8)
        self._guardian = Guardian(self._token, scratch)

    def run(self, names: list[str], modules: list[str]) -> None:
        """Report the facts about this host, then relay messages until the runner has ended."""
        self._tell(hello=facts(names, modules))
        try:
            while True:
                child = self._child
                heard = [0] if child is None else [0, child.lines.descriptor]
                ready, _, _ = select.select(heard, [], [], None if child is None else CHECK_S)
                if child is not None:
                    self._pass_on(child)
                while 0 in ready and (line := self._asked.take()) is not None:
                    asked = json.loads(line)
                    if "clock" in asked:
                        self._tell(cell=asked["clock"], clock=time.perf_counter_ns())
                    elif "start" in asked:
                        self._cell = int(asked["cell"])
                        self._start(asked["start"])
                    elif self._child is not None and "say" in asked:
                        self._child.say(asked["say"])
                    elif "end" in asked:
                        self._cell = int(asked["end"])  # this cell may never have been started
                        self._over("it was stopped")
        except EOFError:  # the runner has ended
            return
        finally:
            for number in (signal.SIGHUP, signal.SIGTERM):  # the cleanup must not be interrupted
                signal.signal(number, signal.SIG_IGN)
            self._end_child()
            self._guardian.end()

    def _pass_on(self, child: ChildProcess) -> None:
        """Pass the child's answers on. End the child if memory runs out."""
        try:
            # Stop for a message of the runner: the child may never stop answering.
            while not self._asked.wait(0) and (line := child.lines.take()) is not None:
                self._tell(cell=self._cell, line=line.decode(errors="replace"))
            fault = child.fault()
        except EOFError:
            fault = f"its process {child.process.how_it_ended()}"
        if fault is not None:
            self._over(fault)

    def _start(self, request: dict[str, Any]) -> None:
        setup = request["setup"]
        kernel.keep_off(setup["cpus"] if setup["pinned"] else (), self._home)
        # The payload's packages come before the host's PYTHONPATH, as they do on the runner's machine.
        path = os.pathsep.join(filter(None, (str(self._scratch / "packages"), os.environ.get("PYTHONPATH", ""))))
        request = {**request, "lifeline": self._guardian.lifeline, "folder": str(Path.home())}
        env = environment(path, {guardian.TOKEN_VARIABLE: self._token})
        try:
            self._child = ChildProcess(sys.executable, request, self._scratch / f"cell-{self._cell}", env)
        except OSError as error:  # only this cell fails
            self._over(f"its process could not be started: {error}")
        else:
            self._guardian.add(self._child.process.pid)

    def _over(self, how: str) -> None:
        log = "" if self._child is None else self._child.log.end()
        self._end_child()
        self._tell(cell=self._cell, ended=how, log=log)

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end(self._token)
            self._guardian.discard(self._child.process.pid)
            self._child = None

    def _tell(self, **message: Any) -> None:
        write_all(self._writing, json.dumps(message).encode() + b"\n")


def facts(names: list[str], modules: list[str]) -> dict[str, Any]:
    """Return the facts about this host that plans and reports need, as JSON."""
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "path": sys.executable,
        "packages": probe.versions(names),
        "modules": [name for name in modules if find_spec(name) is not None],
        "host": asdict(host.read_host()),
        "memory_available": host.memory_available(),
    }


def relay(scratch: str, asked: str) -> None:
    """Serve the runner, on another host. ``asked`` is JSON with the names of packages and modules to report on."""
    answers = os.dup(1)
    os.dup2(2, 1)  # libraries print to standard output, which is reserved for messages
    # A login program may send these signals when the connection closes: clean up, then exit.
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    _Relay(Path(scratch), answers).run(**json.loads(asked))
