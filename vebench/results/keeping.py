"""Finds a place for what was measured if somebody deletes, empties or replaces its run file, or fills its disk."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_NAMES = 100


def is_kept(descriptor: int, path: Path, content: bytearray) -> bool:
    """Return whether ``path`` still names the file that is open as ``descriptor``, with what was written to it.

    More may follow: a line that was being written when the user interrupted it.
    """
    try:
        there, here = path.stat(), os.fstat(descriptor)
    except OSError:
        return False
    if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
        return False
    size = len(content)
    return here.st_size == size or (here.st_size > size and os.pread(descriptor, size, 0) == content)


def is_copied(path: Path, content: bytearray) -> bool:
    """Return whether ``path`` names a file with this content, as editors leave one that save to a new file.

    On some network file systems it may even be the same file, under another number.
    """
    with suppress(OSError):
        return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
    return False


def write_anew(path: Path, content: bytes, finish: Callable[[int], None]) -> tuple[int, Path]:
    """Write ``content`` to a new file, let ``finish`` write the rest, and return its descriptor and its path.

    That is ``path`` if nothing is in the way, and a name beside it otherwise; if nothing can be written there, as on a
    full disk, one in the current folder or in that for temporary files. Raises OSError if all of them fail.
    """
    problem: OSError | None = None
    for folder in (path.parent, Path(), Path(tempfile.gettempdir())):
        for place in _names(folder, path):
            try:
                return _written(place, content, finish), place
            except FileExistsError:
                continue
            except OSError as error:
                problem = problem or error
                break
    raise problem or OSError(errno.EEXIST, os.strerror(errno.EEXIST))


def _names(folder: Path, path: Path) -> Iterator[Path]:
    yield folder / path.name
    for number in range(2, MOST_NAMES):
        yield folder / f"{path.stem}.{number}{path.suffix}"


def _written(path: Path, content: bytes, finish: Callable[[int], None]) -> int:
    """Return the descriptor of a new file. One that is there but empty, as a shell makes it, is not in the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    empty = path.is_file() and path.stat().st_size == 0
    descriptor = os.open(path, flags if empty else flags | os.O_EXCL, 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        finish(descriptor)
        os.fsync(descriptor)
    except OSError:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return descriptor
