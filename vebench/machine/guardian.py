"""Cleans up after a run whose runner was killed. The runner itself cleans up with the same functions.

This script runs next to the runner, in a session of its own, until its standard input closes: then the runner is gone.
It ends every process of the run and removes the run's scratch folder. A process belongs to the run if its environment
has the run's token, which children inherit through any fork, exec or ``setsid``, or if the runner has announced its
process group. It uses the standard library only, since it runs without site-packages.
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
CELL_VARIABLE = "VEBENCH_CELL"  # the mark of a cell: several may run at the same time
_PATIENCE_S = 2.0


def processes() -> Iterator[tuple[int, int, int]]:
    """Yield the id, the parent and the group of each living process. Raises OSError without /proc or descriptors."""
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):  # noqa: PTH208 - in half the time, between windows
        # The command name is in parentheses and may contain anything: proc(5).
        state, parent, group, *_ = _read(pid, "stat").rpartition(b")")[2].split() or (b"Z", b"0", b"0")
        if state != b"Z":
            yield pid, int(parent), int(group)


def members(token: str, groups: frozenset[int] = frozenset(), variable: str = TOKEN_VARIABLE) -> list[int]:
    """Return the living processes that have the token in their environment or belong to one of the groups.

    Their descendants are included, even if they have replaced their environment and left their group, as Ray's do.
    """
    mark = f"{variable}={token}".encode()
    found = []
    children: dict[int, list[int]] = {}
    for pid, parent, group in processes():
        children.setdefault(parent, []).append(pid)
        if group in groups or mark in _read(pid, "environ").split(b"\0"):
            found.append(pid)
    for pid in found:  # it grows meanwhile
        found += [child for child in children.get(pid, ()) if child not in found]
    return found


def end(token: str, groups: frozenset[int] = frozenset(), variable: str = TOKEN_VARIABLE) -> None:
    """Kill every process that has the token or belongs to one of the groups, and return when they are gone."""
    deadline = time.monotonic() + _PATIENCE_S
    with contextlib.suppress(OSError):  # no /proc, or no more descriptors to read it
        while alive := members(token, groups, variable):
            overdue = time.monotonic() > deadline
            for pid in alive:
                # multiprocessing's resource tracker unlinks the shared memory of killed processes, then exits. It is
                # killed only if it takes too long. It may have been stopped during another cell's turn.
                spared = not overdue and b"multiprocessing.resource_tracker" in _read(pid, "cmdline")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT if spared else signal.SIGKILL)
            if time.monotonic() > deadline + _PATIENCE_S:
                break  # it is in an uninterruptible system call: nothing can be done
            time.sleep(0.005)
    for group in groups:  # its processes may fork and exit faster than they can be found
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS forbids it for a group of zombies
            os.killpg(group, signal.SIGKILL)


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - a third of the time of Path, between windows
            return file.read()
    except OSError:
        return b""


def remove(folder: str) -> None:
    """Remove a folder and its contents."""
    import shutil  # cells that start do without it

    with contextlib.suppress(OSError):
        for inner in Path(folder).iterdir():  # folders first: the lock, by which leftovers are found, is a file
            shutil.rmtree(inner, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def main(token: str, scratch: str) -> None:
    """Wait until standard input ends, then end the run's processes and remove its scratch folder."""
    groups: frozenset[int] = frozenset()
    for line in sys.stdin:
        group = int(line)  # negative if the cell has ended
        groups = groups | {group} if group > 0 else groups - {-group}
    end(token, groups)
    remove(scratch)


if __name__ == "__main__":
    main(*sys.argv[1:])
