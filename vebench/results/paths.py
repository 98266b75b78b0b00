"""Paths of run files and of logs: the default path of a new run, the files that a report reads, what cells printed."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.backends.environments.suites import short_name
from vebench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

DEFAULT_FOLDER = Path(".vebench")
SUFFIX = ".jsonl"
LOG_SUFFIX = ".log"  # of the output of failed cells' libraries, next to the run file
LOG_OF_COMPARISONS = DEFAULT_FOLDER / f"verify{LOG_SUFFIX}"
_NAME_LENGTH = 60  # of the tasks in a default name, in characters: short enough for every file system


def default_path(now: datetime, envs: Iterable[str]) -> Path:
    """Return the path of a run without ``-o``, named by UTC time and tasks. It is never a file that exists."""
    slug = re.sub(r"[^a-z0-9]+", "-", "-".join(map(short_name, envs)).lower())[:_NAME_LENGTH].strip("-")
    stem = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}{'-' if slug else ''}{slug}"
    names = (stem if attempt == 1 else f"{stem}-{attempt}" for attempt in count(1))
    return next(path for name in names if not (path := DEFAULT_FOLDER / f"{name}{SUFFIX}").exists())


def output(text: str) -> Path:
    """Return the file that ``-o`` names. Raises UsageError if it is empty, a folder or standard output (``-``)."""
    if text in ("", "-"):
        raise UsageError(f"-o {text or repr(text)}: name a file")
    if Path(text).is_dir():
        raise UsageError(f"-o {text}: is a folder: name a file in it")
    return Path(text)


def newest(folder: Path = DEFAULT_FOLDER) -> Path:
    """Return the run file in ``folder`` that was modified last. Raises UsageError if there is none."""
    return run_files_in(folder)[-1]


def run_files(paths: Sequence[Path]) -> list[Path]:
    """Return the run files that ``paths`` mean; a folder means all runs in it. Raises UsageError if it has none.

    Logs next to run files are left out unless nothing else is given, so a shell's ``.vebench/*`` works.
    """
    files = [file for path in paths for file in (run_files_in(path) if path.is_dir() else [path])]
    return [file for file in files if not file.name.endswith(SUFFIX + LOG_SUFFIX)] or files


def run_files_in(folder: Path) -> list[Path]:
    """Return the run files in ``folder``, the last modified at the end. Raises UsageError if there is none."""
    try:
        files = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file()]
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from None
    if not files:
        raise UsageError(f"no run in {folder}/: measure first (vebench run --env Pong), or name a run file or folder")
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))


def keep_log(path: Path, heading: str, printed: str) -> bool:
    """Append what a cell printed, if anything, to a log, under a heading. Returns whether it is there."""
    if printed.strip():
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as log:
                log.write(f"== {heading}\n{printed.rstrip()}\n\n")
            return True
    return False
