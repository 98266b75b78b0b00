"""Asks the interpreter in which cells will run what it knows, so that this process imports no simulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vebench
from vebench.errors import UsageError, one_line, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

PROBE = Path(vebench.__path__[0]) / "child" / "probe.py"


def ask(
    envs: Sequence[str], adapters: Sequence[tuple[str, Sequence[str]]], python: str, timeout: float
) -> dict[str, Any]:
    """Return what ``probe.py`` answers about these environments and adapters, as its docstring says.

    An adapter is ``module:Class`` with the names of the options given to it. ``timeout`` is in seconds. Raises
    UsageError if there is no answer: the interpreter does not start, or something that it imports crashes or hangs.
    """
    asked = shown(", ".join([*envs, *(target for target, _ in adapters)]))
    with tempfile.TemporaryDirectory(prefix="vebench-") as scratch:
        request = json.dumps({"envs": [*envs], "adapters": [*adapters], "scratch": scratch})
        try:
            status, answer, printed = _run([python, str(PROBE)], request, timeout)
        except OSError as error:
            raise UsageError(f"looking up {asked}: {python} does not start: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise UsageError(f"looking up {asked}: importing and making it took more than {timeout:g} s") from None
    try:
        facts: dict[str, Any] = json.loads(answer)
    except ValueError:
        last = one_line(printed.strip().rpartition("\n")[2])[:300]
        ended = f"status {status}" if status >= 0 else f"signal {-status}"
        raise UsageError(f"looking up {asked}: Python ended with {ended}: {last or 'no word of why'}") from None
    return facts


def _run(command: list[str], stdin: str, timeout: float) -> tuple[int, str, str]:
    """Return status, standard output and standard error. Whatever the command started is ended with it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            output, printed = process.communicate(stdin, timeout)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output, printed
