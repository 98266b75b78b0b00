"""Cleans up after a run whose runner was killed. The runner itself cleans up with the same functions.

This script runs in a session of its own, without site-packages, until its standard input closes. A process belongs to
the run if its environment has the run's token, or if the runner has announced its process group. Children inherit the
token through any fork, exec or ``setsid``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TOKEN_VARIABLE = "VEBENCH_RUN"  # noqa: S105 - a name
CELL_VARIABLE = "VEBENCH_CELL"  # has a cell's mark, because several cells may run at the same time
_PATIENCE_S = 2.0  # seconds until resource trackers are killed, too, and then again until ``end`` gives up


def processes() -> Iterator[tuple[int, int, int]]:
    """Yield the id, the parent and the group of each living process. Raises OSError if /proc cannot be read."""
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):  # noqa: PTH208 - twice as fast as Path.iterdir
        # The command name is in parentheses and may contain anything: proc(5).
        state, parent, group, *_ = _read(pid, "stat").rpartition(b")")[2].split() or (b"Z", b"0", b"0")
        if state != b"Z":
            yield pid, int(parent), int(group)


def members(token: str, groups: frozenset[int] = frozenset(), variable: str = TOKEN_VARIABLE) -> list[int]:
    """Return the living processes with the token in their environment, or in one of the groups, and their descendants.

    Ray's processes, for example, change their environment and their group.
    """
    mark = f"{variable}={token}".encode()
    found = []
    children: dict[int, list[int]] = {}
    for pid, parent, group in processes():
        children.setdefault(parent, []).append(pid)
        if group in groups or mark in _read(pid, "environ").split(b"\0"):
            found.append(pid)
    for pid in found:  # the list grows in the loop
        found += [child for child in children.get(pid, ()) if child not in found]
    return found


def end(token: str, groups: frozenset[int] = frozenset(), variable: str = TOKEN_VARIABLE) -> None:
    """Kill the ``members`` of a run or cell. Return when they are gone, or after twice ``_PATIENCE_S`` seconds."""
    deadline = time.monotonic() + _PATIENCE_S
    with contextlib.suppress(OSError):  # /proc is missing, or this process has no free descriptors
        while alive := members(token, groups, variable):
            overdue = time.monotonic() > deadline
            for pid in alive:
                # multiprocessing's resource tracker unlinks the shared memory of killed processes, then exits. Kill it
                # only if it takes too long. Continue it, since it may be stopped for another cell's turn.
                spared = not overdue and b"multiprocessing.resource_tracker" in _read(pid, "cmdline")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT if spared else signal.SIGKILL)
            if time.monotonic() > deadline + _PATIENCE_S:
                break  # the rest are in uninterruptible system calls, where no signal ends them
            time.sleep(0.005)
    for group in groups:  # processes that fork and exit fast may have been missed above
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS forbids signals to a group of zombies
            os.killpg(group, signal.SIGKILL)


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - three times as fast as Path.open
            return file.read()
    except OSError:
        return b""


def born(pid: int) -> bytes:
    """Return when a process was started, which tells it from a later process with its id. Empty if it has ended."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()  # the first is field 3: proc(5)
    return fields[19] if fields else b""


def remove(folder: str) -> None:
    """Remove a folder and its contents."""
    import shutil  # loaded here, because cells import this module and do not need shutil

    with contextlib.suppress(OSError):
        # Remove folders before files. One file is the lock, by which ``sweep`` finds leftover folders.
        for inner in Path(folder).iterdir():
            shutil.rmtree(inner, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watched: frozenset[int] = frozenset()
    for line in sys.stdin:  # until the runner ends
        announced = int(line)  # positive to watch the group, negative to forget it
        watched = watched | {announced} if announced > 0 else watched - {-announced}
    end(sys.argv[1], watched)
    remove(sys.argv[2])
