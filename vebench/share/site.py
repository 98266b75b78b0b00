"""``vebench share site``: a static site from a folder of submissions."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

from vebench.backends.packages import JINJA2, how_to_install, importable
from vebench.errors import RunFileError, UsageError, one_line
from vebench.reports import console
from vebench.reports.figures import counted
from vebench.share import folder as submission
from vebench.share import site_pages as site

if TYPE_CHECKING:
    from pathlib import Path

_MARKER = ".vebench-site"
_OURS = {_MARKER, "index.html", "site.json", *site.FOLDERS}


def build(folder: Path, target: Path) -> int:
    """Write the site of the submissions in ``folder`` to ``target``, and return the exit status.

    It is written beside it first, and then replaces a site that was there. Raises UsageError if there is no submission,
    or if ``target`` is no place for a site. Standard error says which folders are left out.
    """
    if not importable(JINJA2.module):
        raise UsageError(f"a site needs {JINJA2.name} ({how_to_install([JINJA2])})")
    place = target.resolve()
    _refuse(folder, target, place)
    draft, old = (place.with_name(f".{place.name}.{state}") for state in ("new", "old"))
    # A request to end (SIGTERM) is an interrupt as well, so that nothing unfinished is left.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _remove(draft, old)  # of a command that was killed
        draft.mkdir()
        (draft / _MARKER).touch()
        for name in site.FOLDERS:
            (draft / name).mkdir()
        entries, left_out = _gather(folder, draft)
        for path, text in site.pages(entries, left_out):
            (draft / path).write_text(text, encoding="utf-8")
        if (place / _MARKER).exists():  # an empty folder is replaced as it is
            place.rename(old)
        draft.rename(place)
    except OSError as error:
        raise UsageError(f"-o {target}: {error.strerror}: {error.filename or place}") from None
    finally:
        if old.exists() and not place.exists():
            old.rename(place)
        _remove(draft, old)
        signal.signal(signal.SIGTERM, before)
    console.note(f"{counted(len(entries), 'submission')}: {target / 'index.html'}")
    return 0


def _remove(*sites: Path) -> None:
    for one in sites:
        if (one / _MARKER).exists():
            shutil.rmtree(one)


def _refuse(folder: Path, target: Path, place: Path) -> None:
    """Raise UsageError if a site in ``place`` would replace what is none, or hold what it is made from."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: name a folder of submissions")
    source = folder.resolve()
    if source.is_relative_to(place) or place.is_relative_to(source):
        raise UsageError(f"-o {target}: name a folder outside of {folder}")
    if not place.parent.is_dir():
        raise UsageError(f"-o {target}: name a folder in one that exists")
    there = {path.name for path in place.iterdir()} if place.is_dir() else {place.name} if place.exists() else set()
    if there and (_MARKER not in there or there - _OURS):
        other = one_line(min(there - _OURS, default=place.name))
        raise UsageError(f"-o {target}: there is {other}, which is no part of a site: name a new folder")


def _gather(folder: Path, draft: Path) -> tuple[list[site.Entry], list[tuple[str, str]]]:
    """Copy submissions into the draft; return what to show of them, and the folders left out with their reasons."""
    entries: list[site.Entry] = []
    left_out: list[tuple[str, str]] = []
    runs: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_dir():  # such as .git and README.md
            continue
        name = one_line(path.name)
        try:
            found = submission.read(path)
            entry = site.Entry.of(found)
        except RunFileError as error:
            left_out.append((name, str(error).replace(one_line(str(path)), name).removeprefix(f"{name}: ")))
            continue
        run = entry.manifest.files[submission.RUN]
        if run in runs:
            left_out.append((name, f"has the run of {runs[run]}"))
            continue
        runs[run] = name
        entries.append(entry)
        copy = draft / "submissions" / entry.slug
        copy.mkdir()
        for file, content in found.contents.items():
            (copy / file).write_bytes(content)
    for name, reason in left_out:
        console.note(f"left out: {name}: {reason}")
    if not entries:
        raise UsageError(f"{folder}: no submission in it")
    return entries, left_out
