"""Where a command's answer goes: to standard output, or into a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from vebench.reports.formats import registry
from vebench.reports.output import save, show
from vebench.results import paths, store

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.reports.formats.registry import Format
    from vebench.reports.page import Kind, Page


@dataclass(frozen=True)
class Target:
    """Where the answer goes: in ``form`` to standard output, or to ``file``."""

    form: Format
    file: Path | None = None

    @classmethod
    def of(cls, form: str | None, output: str | None, kind: Kind) -> Self:
        """Return what ``-f`` and ``-o`` name. Raises UsageError for an unknown format or a run file."""
        file = None if output is None else paths.output(output)
        if file is not None:
            store.refuse_to_overwrite(file, ())
        return cls(registry.chosen(form, file, kind), file)

    def give(self, page: Page) -> None:
        """Show a page, or write it into the file."""
        if self.file is None:
            show(page, self.form)
        else:
            save(page, self.form, self.file)
