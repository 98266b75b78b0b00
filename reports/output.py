"""Where pages go: to standard output or to a file, in any format."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vebench.errors import UsageError
from vebench.reports import console
from vebench.reports.formats.registry import TERMINAL

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from vebench.reports.formats.registry import Format
    from vebench.reports.page import Page


def show(page: Page, form: Format = TERMINAL) -> None:
    """Write ``page`` to standard output.

    A reader who goes away early, as ``head`` does, is no error: what the command found stays the same.
    """
    try:
        _write(form.render(page), console.for_data())
    except BrokenPipeError:
        console.discard(sys.stdout)


def save(page: Page, form: Format, path: Path, option: str = "-o", *, append: bool = False) -> None:
    """Write ``page`` to the file ``path``, or append it with an empty line after it.

    Raises UsageError if the file cannot be written; ``option`` is what named it.
    """
    rendered = form.render(page)
    try:
        with path.open("a" if append else "w", encoding="utf-8") as file:
            _write(rendered, console.for_file(file))
            if append:
                file.write("\n")
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}: name another file") from None


def _write(rendered: RenderableType, target: Console) -> None:
    """Write a text as it is, and let the console lay out everything else."""
    if not isinstance(rendered, str):
        target.print(rendered)
        return
    target.file.write(rendered)
    target.file.flush()
