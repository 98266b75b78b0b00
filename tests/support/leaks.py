"""What is left on the whole machine: processes by their command line, and named segments of shared memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is only listed
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
