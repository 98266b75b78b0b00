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

PROBE = Path(vebench.__path__[0]) / "child" / "probe.py"
LONGEST_QUOTE = 300  # characters of the last line that it printed


def ask(about: str, python: str, request: dict[str, object], timeout: float) -> dict[str, Any]:
    """Return the answer of ``child/probe.py`` in ``python``. Requests and answers are described there.

    ``about`` says what the question is about; every error begins with it. ``timeout`` is in seconds. Processes that the
    interpreter has started are ended, too. Raises UsageError if there is no answer, because the interpreter does not
    start, or because an import crashes or hangs.
    """
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            [python, str(PROBE)],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        example = "name a Python, such as venv/bin/python"
        raise UsageError(f"{about}: {shown(python)} does not start: {error.strerror}: {example}") from None
    with process:
        try:
            answer, printed = process.communicate(json.dumps(request), timeout)
        except subprocess.TimeoutExpired:
            raise UsageError(f"{about}: no answer within {timeout:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    try:
        facts: dict[str, Any] = json.loads(answer)
    except ValueError:
        last = one_line(printed.strip().rpartition("\n")[2])[:LONGEST_QUOTE]
        ended = f"status {process.returncode}" if process.returncode >= 0 else f"signal {-process.returncode}"
        raise UsageError(f"{about}: Python ended with {ended}: {last or 'it did not say why'}") from None
    return facts
