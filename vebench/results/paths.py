"""Paths of run files: the default path of a new run, and the files that a report reads."""

from __future__ import annotations

import re
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.backends.environments.suites import short_name
from vebench.errors import UsageError
from vebench.results import logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

DEFAULT_FOLDER = Path(".vebench")
SUFFIX = ".jsonl"
LOG_OF_COMPARISONS = DEFAULT_FOLDER / f"verify{logs.SUFFIX}"
_NAME_LENGTH = 60  # of the tasks in a default name, in characters: short enough for every file system


def default_path(now: datetime, envs: Iterable[str]) -> Path:
    """Return the path of a run without ``-o``, named by UTC time and tasks. It is never a file that exists."""
    slug = re.sub(r"[^a-z0-9]+", "-", "-".join(map(short_name, envs)).lower())[:_NAME_LENGTH].strip("-")
    stem = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}{'-' if slug else ''}{slug}"
    path = DEFAULT_FOLDER / f"{stem}{SUFFIX}"
    attempt = 1
    while path.exists():
        attempt += 1
        path = DEFAULT_FOLDER / f"{stem}-{attempt}{SUFFIX}"
    return path


def output(text: str) -> Path:
    """Return the file that ``-o`` names. Raises UsageError if it is empty, a folder or standard output (``-``)."""
    if text in ("", "-"):
        raise UsageError(f"-o {text or repr(text)}: name a file")
    if Path(text).is_dir():
        raise UsageError(f"-o {text}: is a folder: name a file in it")
    return Path(text)


def newest(folder: Path = DEFAULT_FOLDER) -> Path:
    """Return the run file in ``folder`` that was modified last. Raises UsageError if there is none."""
    return runs_in(folder)[-1]


def named(paths: Sequence[Path]) -> list[Path]:
    """Return the run files that ``paths`` mean, in that order.

    A folder means all runs in it. Logs beside run files are left out unless nothing else is given, so a shell's
    ``.vebench/*`` works. Raises UsageError for a folder without runs.
    """
    files = [file for path in paths for file in (runs_in(path) if path.is_dir() else [path])]
    return [file for file in files if not file.name.endswith(SUFFIX + logs.SUFFIX)] or files


def runs_in(folder: Path) -> list[Path]:
    """Return the run files in ``folder``, the last modified at the end. Raises UsageError if there is none."""
    try:
        files = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file()]
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from None
    if not files:
        raise UsageError(f"no run in {folder}/: measure first (vebench run --env Pong), or name where your runs are")
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))
