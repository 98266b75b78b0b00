"""What is seen of a cell from outside its process: what it prints, how it ends, and what it leaves of the memory.

The runner looks at cells of this machine, a relay at those of another host; both see the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import IO

from vebench.machine.host import MEBIBYTE, memory_available

# A cell that leaves the machine less than this is ended before the kernel ends something else.
LEAST_MEMORY = 256 * MEBIBYTE
# After it has closed the pipe for its answers, or was killed, a process may take this long to exit.
EXIT_S = 1.0
# A library that prints endlessly must not fill the disk. Only the end of a log is worth reading.
MOST_LOG = 64 * MEBIBYTE
LOG_TAIL = 16 * 1024
_LONGEST_QUOTE = 300  # characters of the last line that was printed


class Log:
    """The file that a cell's processes print to, opened for appending."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def end(self) -> str:
        """Return the end of what was printed."""
        return self._end().decode(errors="replace")

    def keep_short(self) -> None:
        """Keep only the end of a log that is too long."""
        log = self._file.fileno()
        if os.fstat(log).st_size > MOST_LOG:
            end = self._end()
            os.ftruncate(log, 0)
            os.write(log, end)

    def _end(self) -> bytes:
        log = self._file.fileno()
        return os.pread(log, LOG_TAIL, max(0, os.fstat(log).st_size - LOG_TAIL))


def how_it_ended(process: subprocess.Popen[bytes], log: Log) -> str:
    """Return in words how a process has ended that has closed the pipe for its answers."""
    try:
        status = process.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        return "its process is still running, but has closed the pipe for its answers"
    if status >= 0:
        last = log.end().strip().rpartition("\n")[2][:_LONGEST_QUOTE]
        return f"its process ended with status {status}" + (f": {last}" if last else "")
    name = signal.Signals(-status).name
    cause = " (out of memory, or killed from outside)" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{cause}"


def short_of_memory() -> str | None:
    """Return in words that the machine has too little memory left, None if it has enough, or does not tell."""
    left = memory_available()
    if left is None or left >= LEAST_MEMORY:
        return None
    return f"memory ran out: {left // MEBIBYTE} MiB were left"
