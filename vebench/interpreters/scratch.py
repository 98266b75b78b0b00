"""A scratch folder for processes in any Python, with the part of vebench that they import.

A cell and a lookup before it must find the same code, or one would succeed where the other fails.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import vebench
import vebench.backends
from vebench.errors import StorageError

# What the child may import, besides the adapters.
CHILD_SIDE = ("__init__.py", "errors.py", "child", "machine")
PREFIX = "vebench-"


def make_scratch() -> Path:
    """Make a scratch folder with the packages for ``python_path``. Raises StorageError if that is not possible."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise StorageError(f"cannot make a scratch folder in {tempfile.gettempdir()}: {error.strerror}") from None
    try:
        link_packages(_packages(scratch))
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise StorageError(f"cannot make links in {scratch}: {error.strerror}") from None
    return scratch


def restore_scratch(scratch: Path) -> None:
    """Make the scratch folder again if somebody has removed it, as cleaners of temporary folders do."""
    if not _packages(scratch).exists():
        scratch.mkdir(mode=0o700, exist_ok=True)
        link_packages(_packages(scratch))


def link_packages(folder: Path) -> None:
    """Make packages in ``folder`` of links to the code that the child loads, so that ``folder`` can be on a path."""
    package = folder / "vebench"
    package.mkdir(parents=True)
    ours = Path(vebench.__path__[0])
    backends = Path(vebench.backends.__path__[0])
    for source in (*(ours / name for name in CHILD_SIDE), backends):
        (package / source.name).symlink_to(source.absolute())


def python_path(scratch: Path) -> str:
    """Return the ``PYTHONPATH`` of a process: the packages in ``scratch``, then what the user has there.

    The packages come first. So every interpreter finds this code, and no other, whether vebench is installed in it or
    not. This includes the interpreters that a backend spawns.
    """
    # The process may run in another folder, so relative paths must become absolute.
    theirs = [str(Path(part).absolute()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([str(_packages(scratch)), *theirs])


def _packages(scratch: Path) -> Path:
    return scratch / "packages"
