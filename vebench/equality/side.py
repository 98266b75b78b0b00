"""One side of ``vebench verify A B``: a process in its own Python, which steps cases."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import vebench
from vebench.backends import bracketed
from vebench.child.equality import subject
from vebench.child.process import Process
from vebench.errors import UsageError, one_line, shown
from vebench.interpreters.interpreter import PLUGINS
from vebench.interpreters.process_guard import ProcessGuard, python_path

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRIPT = Path(vebench.__path__[0]) / "child" / "equality" / "subject.py"


class LostError(Exception):
    """The process has died or does not answer; the text says which."""


class Subject:
    """A side that is stepped in ``python``. ``about`` is its answer about itself (``child/equality/subject.py``)."""

    def __init__(self, text: str, python: str, process: Process, timeout: float) -> None:
        self.text, self.python = text, python
        self._process, self._timeout = process, timeout
        self.about: dict[str, Any] = {}

    def ask(self, request: object) -> None:
        """Send a request. What is wrong with a process that does not take it, ``answer`` says."""
        with suppress(BrokenPipeError):
            subject.write(self._process.stdin, request)

    def answer(self) -> dict[str, Any]:
        """Return the answer to the last request. Raises LostError, UsageError if the subject cannot be stepped."""
        assert self._process.stdout is not None  # noqa: S101 - it was started with a pipe
        try:
            answer = subject.read(_Timely(self._process.stdout, time.monotonic() + self._timeout))
        except TimeoutError:
            raise LostError(f"{shown(self.text)} gives no answer within {self._timeout:g} s") from None
        except (ValueError, EOFError, TypeError):
            answer = None
        if answer is None:
            raise LostError(f"the process of {shown(self.text)} {one_line(self._process.how_it_ended())}")
        if "error" in answer:
            raise UsageError(f"{shown(self.text)}: {one_line(answer['error'])}")
        found: dict[str, Any] = answer
        return found


class _Timely:
    """A file that is read until a deadline."""

    def __init__(self, file: IO[bytes], deadline: float) -> None:
        self._descriptor, self._deadline = file.fileno(), deadline

    def read(self, count: int) -> bytes:
        """Return so many bytes, fewer at the end of the file. Raises TimeoutError."""
        parts, left = list[bytes](), count
        while left:
            if not select.select([self._descriptor], [], [], max(0.0, self._deadline - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(self._descriptor, min(left, 1 << 20))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def _close(pipe: IO[bytes] | None) -> None:
    with suppress(BrokenPipeError):  # what a process that has died did not take
        if pipe is not None:
            pipe.close()


@contextmanager
def started(text: str, python: str, timeout: float, guarded: ProcessGuard) -> Iterator[Subject]:
    """Start a subject, ``NAME[KEY=VALUE,...]``, in a Python. Raises UsageError if it cannot be stepped."""
    name, values = bracketed.name_and_values(text)
    env = {**os.environ, "PYTHONPATH": python_path(guarded.scratch)}
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile(dir=guarded.scratch))
        command = [python, str(_SCRIPT)]
        try:
            process = stack.enter_context(
                guarded.process(command, errors, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
        except OSError as error:
            raise UsageError(f"{shown(text)}: {shown(python)} does not start: {error.strerror}") from None
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - it was started with pipes
        stack.enter_context(process.stdout)
        stack.push(lambda *_: _close(process.stdin))
        side = Subject(text, python, process, timeout)
        side.ask({"name": name, "values": values, "plugins": list(PLUGINS), "scratch": str(guarded.scratch)})
        try:
            side.about = side.answer()
        except LostError as error:
            raise UsageError(str(error)) from None
        yield side
