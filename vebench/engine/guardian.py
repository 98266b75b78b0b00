"""Ends what a run leaves behind, however the run ends: even if the runner itself is killed.

Run as a script beside the runner, in a session of its own: it waits for the end of its standard input, which comes when
the runner closes it or dies, then ends every process of the run and removes the run's scratch folder. A process
belongs to the run if it carries the run's token in its environment, which children inherit through any fork, exec or
``setsid``, or if it is in a process group of a cell that runs, which the runner has announced.

Standard library only: it runs isolated, without site-packages.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

TOKEN_VARIABLE = "VEBENCH_RUN"  # noqa: S105 - a name, no secret
CELL_VARIABLE = "VEBENCH_CELL"  # likewise with a token of the cell, of which several may run at a time
PATIENCE_S = 2.0


def members(token: str, groups: frozenset[int] = frozenset(), variable: str = TOKEN_VARIABLE) -> list[int]:
    """Return the living processes that carry the token in their environment, or belong to one of the groups."""
    mark = f"{variable}={token}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        # The command name stands in parentheses and may hold anything: proc(5).
        state, _parent, own_group, *_ = _read(pid, "stat").rpartition(b")")[2].split() or (b"Z", b"", b"0")
        # A process may have replaced its environment, or left its group; hardly one does both.
        in_group = int(own_group) in groups
        if state != b"Z" and (in_group or mark in _read(pid, "environ").split(b"\0")):
            found.append(pid)
    return found


def end(token: str, groups: frozenset[int] = frozenset(), variable: str = TOKEN_VARIABLE) -> None:
    """Kill every process that carries the token or belongs to one of the groups, and return when they are gone."""
    if not Path("/proc/self").exists():
        for group in groups:
            _kill_group(group)
        return
    deadline = time.monotonic() + PATIENCE_S
    while alive := members(token, groups, variable):
        # multiprocessing's resource tracker unlinks the shared memory of those that cannot do it any more, and then
        # ends by itself: it is killed last, and only if it takes too long.
        overdue = time.monotonic() > deadline
        for pid in alive:
            # It may have been stopped while it was another cell's turn.
            _signal(pid, signal.SIGKILL if overdue or not _is_tracker(pid) else signal.SIGCONT)
        if time.monotonic() > deadline + PATIENCE_S:
            return  # in an uninterruptible system call: nothing that we could do
        time.sleep(0.005)


def _is_tracker(pid: int) -> bool:
    return b"multiprocessing.resource_tracker" in _read(pid, "cmdline")


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def main(token: str, scratch: str) -> None:
    """Wait for the end of standard input; then end the run's processes and remove its scratch folder."""
    groups: frozenset[int] = frozenset()
    for line in sys.stdin:
        group = int(line)  # negative once it has ended
        groups = groups | {group} if group > 0 else groups - {-group}
    end(token, groups)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
