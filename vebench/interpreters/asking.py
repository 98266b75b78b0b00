"""Asks an interpreter for facts in a separate process, so that this process imports no simulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import vebench
from vebench.errors import UsageError, one_line, shown
from vebench.interpreters import guardian
from vebench.interpreters.guarded import Guarded
from vebench.interpreters.scratch import python_path

PROBE = Path(vebench.__path__[0]) / "child" / "probe.py"
LONGEST_QUOTE = 300  # characters of the last line that it printed


def ask(
    about: str, python: str, request: dict[str, object], timeout: float, *, examined: bool = True
) -> dict[str, Any]:
    """Return the answer of ``child/probe.py`` in ``python``. Requests and answers are described there.

    What it imports, it finds where a cell would find it. It works in a scratch folder, so that nothing is written into
    the user's. ``about`` says what the question is about; every error begins with it. ``timeout`` is in seconds.
    ``examined`` is whether ``python`` is known to be a Python that runs. Processes that the interpreter has started are
    ended, too. Raises UsageError if there is no answer, because the interpreter does not start, or because an import
    crashes or hangs, and StorageError if there is no room for the scratch folder.
    """
    with Guarded() as guarded:
        process = _start(about, python, guarded)
        guarded.add(process.pid)
        with process:
            try:
                answer, printed = process.communicate(json.dumps({**request, "scratch": str(guarded.scratch)}), timeout)
            except subprocess.TimeoutExpired:
                raise UsageError(f"{about}: no answer within {timeout:g} s") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    try:
        facts: dict[str, Any] = json.loads(answer)
    except ValueError:
        ended = f"status {process.returncode}" if process.returncode >= 0 else f"signal {-process.returncode}"
        last = one_line(printed.strip().rpartition("\n")[2])[:LONGEST_QUOTE]
        why = f": {last}" if last else ", without an answer"
        which = "Python" if examined else "is no Python that runs: it"
        raise UsageError(f"{about}: {which} ended with {ended}{why}") from None
    return facts


def _start(about: str, python: str, guarded: Guarded) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            [python, str(PROBE)],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
            env={**os.environ, guardian.TOKEN_VARIABLE: guarded.token, "PYTHONPATH": python_path(guarded.scratch)},
            start_new_session=True,
        )
    except OSError as error:
        name, example = shown(python), "name a Python, such as venv/bin/python"
        which = "" if about.endswith(f" {name}") else f"{name} "  # as the user typed it, it is named already
        raise UsageError(f"{about}: {which}does not start: {error.strerror}: {example}") from None
