"""Ends what a run leaves behind, however the run ends: even if the runner itself is killed.

Run as a script beside the runner, in a session of its own: it waits for the end of its standard input, which comes when
the runner closes it or dies, then ends every process of the run and removes the run's scratch folder. A process
belongs to the run if it carries the run's token in its environment, which children inherit through any fork, exec or
``setsid``; where there is no /proc, the process groups that the runner announced are ended instead.

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
PATIENCE_S = 2.0


def bearers(token: str) -> list[int]:
    """Return the processes that carry the token in their environment."""
    mark = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:  # it ended in the meantime, or is not ours
            continue
    return found


def end(token: str, group: int | None = None) -> None:
    """Kill the process group, and every process that carries the token; return when they are gone."""
    deadline = time.monotonic() + PATIENCE_S
    if group is not None and not Path("/proc/self").exists():
        _kill_group(group)
    while alive := [pid for pid in bearers(token) if not _is_zombie(pid)]:
        # multiprocessing's resource tracker unlinks the shared memory of those that cannot do it any more, and then
        # ends by itself: it is killed last, and only if it takes too long.
        trackers = [pid for pid in alive if _is_tracker(pid)]
        for pid in alive if time.monotonic() > deadline else [pid for pid in alive if pid not in trackers]:
            _kill(pid)
        if time.monotonic() > deadline + PATIENCE_S:
            return  # in an uninterruptible system call: nothing that we could do
        time.sleep(0.005)


def _is_tracker(pid: int) -> bool:
    return b"multiprocessing.resource_tracker" in _read(pid, "cmdline")


def _is_zombie(pid: int) -> bool:
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] in ([b"Z"], [])


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def main(token: str, scratch: str) -> None:
    """Wait for the end of standard input; then end the run's processes and remove its scratch folder."""
    group: int | None = None
    for line in sys.stdin:
        group = int(line) or None
    end(token, group)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
