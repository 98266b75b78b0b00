"""Asks an interpreter for facts in a separate process, so that this process imports no simulator."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

import vebench
from vebench.errors import UsageError, one_line, shown
from vebench.interpreters.guarded import Guarded
from vebench.interpreters.scratch import python_path
from vebench.machine import guardian

_PROBE = Path(vebench.__path__[0]) / "child" / "probe.py"
LONGEST_QUOTE = 300  # characters of the last line that it printed
MOST_BYTES = 1 << 24  # of an answer: those that are honest are thousands
_LAST_PRINTED = 1 << 14  # bytes of what it printed that are kept
_CHECK_S = 0.1  # how often to look whether the interpreter has ended, if another process keeps its pipes open

Facts = TypeVar("Facts")


def ask(  # noqa: PLR0913 - a question and how to put it
    about: str, python: str, request: dict[str, object], timeout: float, kind: type[Facts], *, examined: bool = True
) -> Facts:
    """Return the answer of ``child/probe.py`` in ``python``. Requests and answers are described there.

    What it imports, it finds where a cell would find it. It works in a scratch folder, so that nothing is written into
    the user's. ``about`` says what the question is about; every error begins with it. ``timeout`` is in seconds.
    ``kind`` is the type of the answer. ``examined`` is whether ``python`` is known to be a Python that runs. Processes
    that the interpreter has started are ended, too. Raises UsageError if there is no answer, because the interpreter
    does not start, or because an import crashes or hangs, or if the answer is of another type, and StorageError if
    there is no room for the scratch folder.
    """
    which = "Python" if examined else "is no Python that runs: it"
    with Guarded() as guarded:
        process = _start(about, python, guarded, request)
        guarded.add(process.pid)
        with process:
            try:
                answer, printed = _read(process, time.monotonic() + timeout)
            except subprocess.TimeoutExpired:
                raise UsageError(f"{about}: no answer within {timeout:g} s") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if len(answer) > MOST_BYTES:
        raise UsageError(f"{about}: {which} answered more than {MOST_BYTES >> 20} MiB")
    try:
        found = json.loads(answer.decode(errors="replace"))
    except (ValueError, RecursionError):
        ended = f"status {process.returncode}" if process.returncode >= 0 else f"signal {-process.returncode}"
        last = one_line(printed.decode(errors="replace").strip().rpartition("\n")[2])[:LONGEST_QUOTE]
        why = f": {last}" if last else ", without an answer"
        raise UsageError(f"{about}: {which} ended with {ended}{why}") from None
    try:
        return msgspec.convert(found, kind)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{about}: {which} gave a wrong answer: {one_line(str(error).replace('`', ''))}") from None


def _start(about: str, python: str, guarded: Guarded, request: dict[str, object]) -> subprocess.Popen[bytes]:
    asked = guarded.scratch / "request.json"  # a pipe would block if nobody read it
    asked.write_text(json.dumps({**request, "scratch": str(guarded.scratch)}), encoding="utf-8")
    pipe = subprocess.PIPE
    try:
        with asked.open("rb") as file:
            return subprocess.Popen(
                [python, str(_PROBE)],
                stdin=file,
                stdout=pipe,
                stderr=pipe,
                env={**os.environ, guardian.TOKEN_VARIABLE: guarded.token, "PYTHONPATH": python_path(guarded.scratch)},
                start_new_session=True,
            )
    except OSError as error:
        name, example = shown(python), "name a Python, such as venv/bin/python"
        which = "" if about.endswith(f" {name}") else f"{name} "  # as the user typed it, it is named already
        raise UsageError(f"{about}: {which}does not start: {error.strerror}: {example}") from None


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    """Return what a process answers, and the end of what it prints to standard error, once it has ended.

    An answer of more than ``MOST_BYTES`` is not read to its end. Raises TimeoutExpired at the deadline.
    """
    answer, printed = bytearray(), bytearray()
    left = {pipe.fileno(): kept for pipe, kept in ((process.stdout, answer), (process.stderr, printed)) if pipe}
    while left and len(answer) <= MOST_BYTES:
        ended = process.poll() is not None
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(process.args, 0)
        readable, _, _ = select.select([*left], [], [], 0 if ended else _CHECK_S)
        if ended and not readable:  # what it has started keeps its pipes open
            break
        for pipe in readable:
            if chunk := os.read(pipe, 1 << 16):
                left[pipe] += chunk
            else:
                del left[pipe]
        del printed[:-_LAST_PRINTED]
    if len(answer) <= MOST_BYTES:
        process.wait(max(0.0, deadline - time.monotonic()))
    return bytes(answer), bytes(printed)
