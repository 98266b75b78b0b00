"""A child as the process that starts it has it: the launcher on its own machine, a relay on another host."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from typing import IO, TYPE_CHECKING, Any

from vebench.machine import guardian, pinning
from vebench.machine.host import MEBIBYTE, memory_available

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# A cell that leaves the machine less than this is ended before the kernel ends something else.
LEAST_MEMORY = 256 * MEBIBYTE
CHECK_S = 0.5  # seconds between two looks at the memory and at a log
# After it has closed the pipe for its answers, or was killed, a process may take this long to exit.
EXIT_S = 1.0
# A library that prints endlessly must not fill the disk. Only the end of a log is worth reading.
MOST_LOG = 64 * MEBIBYTE
LOG_TAIL = 16 * 1024
_CHUNK = 1 << 16


class Lines:
    """The lines that come over a pipe, of which ``descriptor`` is the reading end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._rest = b""
        self._lines: deque[bytes] = deque()

    def read(self) -> list[bytes] | None:
        """Return the lines that one read completes, None at the end. Waits if nothing can be read."""
        chunk = os.read(self.descriptor, _CHUNK)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines if chunk else None

    def wait(self, timeout: float) -> bool:
        """Return whether something has come, or the end has, within ``timeout`` seconds."""
        poll = select.poll()  # not select(), which knows only the first 1,024 descriptors
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(1000 * timeout))

    def take(self) -> bytes | None:
        """Return the next line, None if it has not come yet. Raises EOFError at the end."""
        while not self._lines:
            if not self.wait(0):
                return None
            if (lines := self.read()) is None:
                raise EOFError
            self._lines.extend(lines)
        return self._lines.popleft()


def write_all(descriptor: int, what: bytes) -> None:
    """Write all of ``what``. Whether the other end still reads is noticed when it is read from."""
    with contextlib.suppress(BrokenPipeError):
        while what:
            what = what[os.write(descriptor, what) :]


class Log:
    """The file that a cell's processes print to, opened for appending."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def end(self) -> str:
        """Return the end of what was printed."""
        log = self._file.fileno()
        return os.pread(log, LOG_TAIL, max(0, os.fstat(log).st_size - LOG_TAIL)).decode(errors="replace")

    def last_line(self) -> str:
        """Return the last line that was printed, or its beginning."""
        return self.end().strip().rpartition("\n")[2][:300]

    def keep_short(self) -> None:
        """Keep only the end of a log that is too long."""
        log = self._file.fileno()
        if os.fstat(log).st_size > MOST_LOG:
            end = self.end()
            os.ftruncate(log, 0)
            os.write(log, end.encode())


class Zygote:
    """A process that has imported ``modules``, from which cells are forked; see ``vebench.child.zygote``.

    ``env`` has its environment, in which the mark of cells has as many characters as theirs. It is in ``folder``.
    """

    def __init__(
        self, python: str, modules: Sequence[str], folder: Path, env: Mapping[str, str], lifeline: int
    ) -> None:
        folder.mkdir()
        self._folder = folder
        self._asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [python, "-X", "faulthandler", "-m", "vebench.child.zygote", str(theirs.fileno()), str(lifeline)]
            self.process = subprocess.Popen(
                [*command, *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={**env, "TMPDIR": str(folder)},
                pass_fds=[theirs.fileno(), lifeline],
                start_new_session=True,
            )

    def fork(self, request: Path, mark: str, descriptors: Sequence[int], wait: Callable[[int], None]) -> Forked | None:
        """Return a cell that is forked, None if none can be: its log, pipes and lifeline are in ``descriptors``.

        ``wait`` waits until a descriptor can be read, but only as long as the cell may take.
        """
        cell = {"request": str(request), "folder": str(request.parent), "mark": mark, "cpus": pinning.allowed() or ()}
        status, told = os.pipe()
        forked = Forked(Lines(status))
        with contextlib.suppress(OSError, EOFError):  # it has ended
            with os.fdopen(told, "wb"):
                socket.send_fds(self._asks, [json.dumps(cell).encode()], [*descriptors, told])
            wait(status)  # for its imports, too
            forked.pid = int(forked.lines.take() or 0)
        if forked.pid:
            return forked
        os.close(status)
        self.process.kill()
        return None

    def end(self) -> None:
        """End it, and so the cells that are forked from it."""
        self._asks.close()
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(EXIT_S)
        guardian.remove(str(self._folder))


class Forked:
    """A process whose end a zygote reports in ``lines``. It has what is used of ``subprocess.Popen``."""

    def __init__(self, lines: Lines) -> None:
        self.pid, self.lines, self.ended_with_zygote = 0, lines, False
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, None while it runs, as ``Popen`` does."""
        if self._status is None:
            try:
                line = self.lines.take()
            except EOFError:
                line, self.ended_with_zygote = b"-9", True
            self._status = None if line is None else int(line)
        return self._status

    def wait(self, timeout: float) -> int:
        """Return its exit status. Raises TimeoutExpired."""
        if self.poll() is None:
            self.lines.wait(timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return status

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class ChildProcess:
    """A child in a session of its own: its process, the lines of its answers, and its log.

    ``folder`` is made for it, and removed at its end; the files of recordings lie beside it. ``request`` is that of
    ``vebench.child.request`` as JSON. ``env`` is its environment: ``environment``. ``fork`` is given the file with the
    request, the cell's mark and its descriptors, and returns None if the cell needs a fresh interpreter. Raises OSError
    if it cannot be started.
    """

    process: subprocess.Popen[bytes] | Forked

    def __init__(
        self,
        python: str,
        request: Mapping[str, Any],
        folder: Path,
        env: Mapping[str, str],
        fork: Callable[[Path, str, Sequence[int]], Forked | None] = lambda *_: None,
    ) -> None:
        folder.mkdir()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            ours.callback(guardian.remove, str(folder))
            printed = ours.enter_context((folder / "log").open("a+b"))
            results, answers = os.pipe()
            ours.callback(os.close, results)
            theirs.callback(os.close, answers)
            child_end, self._go_ahead = os.pipe()
            theirs.callback(os.close, child_end)
            ours.callback(os.close, self._go_ahead)
            asks = folder / "request.json"
            job = request["job"]
            if job is not None and "path" in job[1]:
                job = job[0], {**job[1], "path": str(folder.parent / job[1]["path"])}
            asks.write_text(json.dumps({**request, "job": job, "go_ahead": child_end}))
            given = [answers, child_end, request["lifeline"]]
            mark = env.get(guardian.CELL_VARIABLE, "")
            if (forked := fork(asks, mark, [printed.fileno(), *given])) is not None:
                ours.callback(os.close, forked.lines.descriptor)
            self.process = forked or subprocess.Popen(
                [python, "-X", "faulthandler", "-m", "vebench.child.main", str(asks), str(answers)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                cwd=folder,
                # What libraries leave in the temporary folder is removed with the child's folder.
                env={**env, "TMPDIR": str(folder)},
                pass_fds=given,
                start_new_session=True,
            )
            self._close: Callable[[], None] = ours.pop_all().close
        self.lines, self.log = Lines(results), Log(printed)
        self._look_at = 0.0

    def say(self, line: str) -> None:
        """Write a line to the child."""
        write_all(self._go_ahead, line.encode() + b"\n")

    def how_it_ended(self) -> str:
        """Return in words how it has ended, once it has closed the pipe for its answers."""
        try:
            status = self.process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            return "its process is still running, but has closed the pipe for its answers"
        if status >= 0:
            last = self.log.last_line()
            return f"its process ended with status {status}" + (f": {last}" if last else "")
        name = signal.Signals(-status).name
        cause = " (out of memory, or killed from outside)" if name == "SIGKILL" else ""
        who = "its process"
        if isinstance(self.process, Forked) and self.process.ended_with_zygote:
            who = "the process from which cells are forked"
        return f"{who} was ended by {name}{cause}"

    def fault(self) -> str | None:
        """Return in words why it must end now, None if it may go on. Its log is kept short. Both every ``CHECK_S``."""
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + CHECK_S
        self.log.keep_short()
        left = memory_available()
        if left is None or left >= LEAST_MEMORY:
            return None
        return f"out of memory: {left // MEBIBYTE} MiB were left"

    def end(self, mark: str, variable: str = guardian.TOKEN_VARIABLE) -> None:
        """End it with all processes that have the mark in this environment variable, and remove its folder."""
        guardian.end(mark, frozenset({self.process.pid}), variable)
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it is in an uninterruptible system call
            self.process.wait(EXIT_S)
        self._close()


def environment(path: str, marks: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: ``path`` is its ``PYTHONPATH``, by ``marks`` its processes are found."""
    return {**os.environ, **pinning.ONE_THREAD_EACH, **marks, "PYTHONPATH": path}


def start_guardian(token: str, scratch: Path, *kept_open: int) -> subprocess.Popen[bytes]:
    """Start what cleans up if this process is killed; see ``vebench.machine.guardian``."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__, token, str(scratch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=kept_open,
        start_new_session=True,  # so Ctrl-C in the terminal does not reach it
        cwd="/",
    )
