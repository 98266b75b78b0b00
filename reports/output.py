"""Where pages go: to standard output or to files, in any format."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.errors import UsageError
from vebench.reports import console
from vebench.reports.formats.registry import TERMINAL
from vebench.results import store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from vebench.reports.document import Page
    from vebench.reports.formats.registry import Content, Format

_NO_ORDINARY_FILES = ("/dev", "/proc")  # what lies here is written into, and never replaced


def show(page: Page, form: Format = TERMINAL) -> None:
    """Write ``page`` to standard output.

    A reader who goes away early, as ``head`` does, is no error: what the command found stays the same. Raises
    UsageError for what no terminal can show.
    """
    if form.binary and sys.stdout.isatty():
        raise UsageError(f"-f {form.name}: no terminal can show it: -o report{form.suffixes[0]} writes it to a file")
    rendered = form.render(page)
    try:
        if isinstance(rendered, bytes):
            sys.stdout.buffer.write(rendered)
            sys.stdout.flush()
        else:
            _write(rendered, console.for_data())
    except BrokenPipeError:
        console.discard(sys.stdout)


def save(page: Page, form: Format, path: Path, option: str = "-o", *, append: bool = False) -> None:
    """Write ``page`` to the file ``path`` and to those that belong beside it; or append it with an empty line after it.

    A file gets its name once it is whole: what had the name before is intact until then. What is no ordinary file, such
    as a pipe, is written into, and gets no others beside it. Raises UsageError if a file cannot be written, or if one
    beside ``path`` would overwrite a run file; ``option`` is what named it.
    """
    try:
        if append:
            with path.open("a", encoding="utf-8") as file:
                _write(form.render(page), console.for_file(file))
                file.write("\n")
            return
        special = any(map(path.is_relative_to, _NO_ORDINARY_FILES))
        if path.exists() and (special or not path.is_file()):
            _write_file(path, form.render(page), "w")
            return
        files = {path.parent / name: content for name, content in form.files(page, path.name).items()}
        for beside in files.keys() - {path}:
            store.refuse_to_overwrite(beside, (), option)
        _replace(files)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}: name another file") from None


def _replace(files: Mapping[Path, Content]) -> None:
    """Write all files under other names first. The first of them, which refers to the others, gets its name last."""
    drafts: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            target = Path(os.path.realpath(path))
            draft = target.with_name(f".{secrets.token_hex(8)}.tmp")
            drafts[draft] = target
            _write_file(draft, content, "x")
            with suppress(FileNotFoundError):
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
        for draft, target in reversed([*drafts.items()]):
            draft.replace(target)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def _write_file(path: Path, content: Content, mode: str) -> None:
    if isinstance(content, bytes):
        with path.open(f"{mode}b") as file:
            file.write(content)
    else:
        with path.open(mode, encoding="utf-8") as file:
            _write(content, console.for_file(file))


def _write(content: Content, target: Console) -> None:
    """Write a text as it is, and let the console lay out everything else."""
    if not isinstance(content, str):
        target.print(content, crop=False)  # only what is to be pasted is wider
        return
    target.file.write(content)
    target.file.flush()
