"""The table of formats. A new format is one file beside this one and one line in ``FORMATS``.

The file has a function that takes a page of the kinds named here. It returns a text or, as for a terminal, something
that Rich lays out at the width that there is. What commands accept for ``-f``, the suffixes of ``-o``, the help and the
error messages follow from the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, get_args

from vebench.errors import UsageError, shown
from vebench.reports.page import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from vebench.reports.page import Page

EVERY: frozenset[Kind] = frozenset(get_args(Kind))
WITH_DATA: frozenset[Kind] = frozenset({"run", "check", "history", "verify", "machine"})
RUN: frozenset[Kind] = frozenset({"run"})
CHECK: frozenset[Kind] = frozenset({"check"})


@dataclass(frozen=True)
class Format:
    """A format by name. ``kinds`` are the pages that it can render, ``target`` is its ``module:function``.

    A file with one of ``suffixes`` is written in it. ``reader`` is the program that reads it, where the name does not
    say so.
    """

    name: str
    target: str
    kinds: frozenset[Kind]
    suffixes: tuple[str, ...] = ()
    reader: str = ""

    def render(self, page: Page) -> RenderableType:
        """Return ``page`` in this format; its module is imported on use."""
        module, _, function = self.target.partition(":")
        rendered: RenderableType = getattr(import_module(module), function)(page)
        return rendered


TERMINAL = Format("terminal", "vebench.reports.formats.terminal:render", EVERY, (".txt",))
MARKDOWN = Format("markdown", "vebench.reports.formats.markdown:render", EVERY, (".md", ".markdown"))
JSON = Format("json", "vebench.reports.formats.json:render", WITH_DATA, (".json",))
HTML = Format("html", "vebench.reports.formats.html:render", EVERY, (".html", ".htm"))
JUNIT = Format("junit", "vebench.reports.formats.junit:render", CHECK)

FORMATS: tuple[Format, ...] = (
    TERMINAL,
    MARKDOWN,
    HTML,
    Format("csv", "vebench.reports.formats.csv:render", RUN, (".csv",)),
    JSON,
    Format("github", "vebench.reports.formats.github:render", RUN, reader="github-action-benchmark"),
    Format("bmf", "vebench.reports.formats.bmf:render", RUN, reader="Bencher"),
    JUNIT,
)


def named(name: str, kind: Kind) -> Format:
    """Return the format that ``-f`` names for pages of this kind. Raises UsageError if there is none."""
    for known in _of(kind):
        if known.name == name:
            return known
    raise UsageError(f"-f {shown(name)}: no such format; there are {_names(kind)}")


def by_suffix(path: Path, kind: Kind) -> Format:
    """Return the format that the suffix of ``path`` means. Raises UsageError if it means none."""
    for known in _of(kind):
        if path.suffix.lower() in known.suffixes:
            return known
    raise UsageError(
        f"-o {path}: the suffix is none of {', '.join(suffixes(kind))}; choose a format with -f: {_names(kind)}"
    )


def _names(kind: Kind) -> str:
    return ", ".join(known.name for known in _of(kind))


def chosen(name: str | None, path: Path | None, kind: Kind) -> Format:
    """Return the format that was named, else that of the file to be written, else the terminal's."""
    if name is not None:
        return named(name, kind)
    return TERMINAL if path is None else by_suffix(path, kind)


def suffixes(kind: Kind) -> tuple[str, ...]:
    """Return the suffixes that mean a format for pages of this kind."""
    return tuple(suffix for known in _of(kind) for suffix in known.suffixes)


def choices(kind: Kind) -> str:
    """Return the names of the formats for help: ``terminal, markdown or json``."""
    *first, last = (f"{known.name} ({known.reader})" if known.reader else known.name for known in _of(kind))
    return f"{', '.join(first)} or {last}"


def _of(kind: Kind) -> list[Format]:
    return [known for known in FORMATS if kind in known.kinds]
