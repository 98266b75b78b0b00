"""What is left on the whole machine: processes, and named segments of shared memory."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from support.waiting import eventually

SHARED_MEMORY = Path("/dev/shm")
# Python's multiprocessing unlinks these as soon as it has made them: whoever looks meanwhile sees no leak.
UNLINKED_AT_ONCE = ("sem.", "pym-")


def segments() -> set[Path]:
    """Return the named segments of shared memory, whoever made them."""
    return {path for path in SHARED_MEMORY.glob("*") if not path.name.startswith(UNLINKED_AT_ONCE)}


def processes_that_name(path: Path) -> list[int]:
    """Return the ids of processes with ``path`` in their command lines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if os.fsencode(path) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def runs(pid: int) -> bool:
    """Return whether a process is there, and more of it than the status with which it ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def are_gone(pids: Iterable[int]) -> bool:
    """Return whether all these processes end soon."""
    return eventually(lambda: not any(map(runs, pids)))
