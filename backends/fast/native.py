"""The compiled part: files of C in a library that knows no Python, called by ctypes.

It is built when vebench is installed, if there is a C compiler then. Without it Gymnasium's classes step.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

# The value of ``vebench_interface`` in pool.c. Both are counted up when a function changes, so that Python never calls
# a library that was built from older sources.
_INTERFACE = 13
NOT_BUILT = "not compiled: when vebench was installed, there was no C compiler, or other source"
REMEDY = "install a C compiler, then reinstall vebench from its clone: pip install --force-reinstall --no-deps ."


@cache
def library() -> ctypes.CDLL | None:
    """Return the library, or None if it was not built, or for another machine, or from older sources."""
    paths = sorted(Path(__file__).parent.glob("_native*.so"))
    return next((found for path in paths if (found := _opened(path)) is not None), None)


def _opened(path: Path) -> ctypes.CDLL | None:
    try:
        found = ctypes.CDLL(str(path))
        return found if found.vebench_interface() == _INTERFACE else None
    except (OSError, AttributeError):
        return None


def needed() -> ctypes.CDLL:
    """Return the library, for code that runs only where there is one."""
    found = library()
    assert found is not None  # noqa: S101 - as said
    return found


def address(function: Any) -> int:
    """Return the address of a function of a library."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
