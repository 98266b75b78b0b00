"""The compiled part: files of C in a library that knows no Python, called by ctypes.

It is built when vebench is installed, if there is a C compiler then. Without it Gymnasium's classes step.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

# Counted up when a function of the library changes, so that a library from before is not called.
_INTERFACE = 12
NOT_BUILT = "not compiled: when vebench was installed, there was no C compiler, or other source"
REMEDY = "install a C compiler, then reinstall vebench from its clone: pip install --force-reinstall --no-deps ."


@cache
def library() -> ctypes.CDLL | None:
    """Return the library, or None if it was not built, or not for this machine, or from other sources than these."""
    for path in sorted(Path(__file__).parent.glob("_native*.so")):
        if (found := _opened(path)) is not None:
            return found
    return None


def needed() -> ctypes.CDLL:
    """Return the library, for what is only called where there is one."""
    found = library()
    assert found is not None  # noqa: S101 - as said
    return found


def _opened(path: Path) -> ctypes.CDLL | None:
    try:
        found = ctypes.CDLL(str(path))
        return found if found.vebench_interface() == _INTERFACE else None
    except (OSError, AttributeError):
        return None
