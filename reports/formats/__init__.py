"""The table of formats. A new format is one module in this folder and one line in ``FORMATS``.

The module has a function that takes a page of the kinds named here. It returns a text, bytes or, for a terminal,
an object that Rich lays out. The choices of ``-f``, the suffixes of ``-o``, help and error messages use this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.backends.environments.suites import load_target
from vebench.backends.packages import JINJA2, MATPLOTLIB, Package, how_to_install, importable
from vebench.errors import UsageError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import RenderableType

    from vebench.reports.document import Page, PageKind

    Content = RenderableType | bytes


_WITH_DATA: tuple[PageKind, ...] = ("run", "check", "bisect", "history", "verify", "tune", "machine", "submission")
_EVERY: tuple[PageKind, ...] = (*_WITH_DATA, "plan", "list", "cite")


@dataclass(frozen=True)
class Format:
    """An output format."""

    name: str
    target: str  # the ``module:function`` that renders a page; the module is imported on use
    kinds: tuple[PageKind, ...] = ("run",)  # the kinds of pages that the format can render
    suffixes: tuple[str, ...] = ()  # the suffixes of files that are written in this format
    reader: str = ""  # the program that reads the format, or its content, unless the name tells it
    beside: str = ""  # the ``module:function`` that returns several files by name, given a page and a file name
    binary: bool = False  # the output is bytes, which a terminal cannot show
    needs: tuple[Package, ...] = ()
    draws: bool = False  # pages of runs have charts, which need matplotlib

    def render(self, page: Page) -> Content:
        """Return ``page`` in this format."""
        rendered: Content = load_target(self.target)(page)
        return rendered

    def files(self, page: Page, name: str) -> Mapping[str, Content]:
        """Return the contents of files by name, to write ``page`` to the file ``name``."""
        if not self.beside:
            return {name: self.render(page)}
        files: Mapping[str, Content] = load_target(self.beside)(page, name)
        return files


TERMINAL = Format("terminal", "vebench.reports.formats.terminal:OnTerminal", _EVERY, (".txt",))
MARKDOWN = Format(
    "markdown",
    "vebench.reports.formats.markdown:markdown_text",
    _EVERY,
    (".md", ".markdown"),
    beside="vebench.reports.formats.markdown:with_figures",
)
FORMATS: tuple[Format, ...] = (
    TERMINAL,
    MARKDOWN,
    Format("html", "vebench.reports.formats.html:html_page", _EVERY, (".html", ".htm"), needs=(JINJA2,), draws=True),
    Format("csv", "vebench.reports.formats.data:csv_of", suffixes=(".csv",)),
    Format("json", "vebench.reports.formats.data:json_of", _WITH_DATA, (".json",)),
    Format("github", "vebench.reports.formats.data:github", reader="github-action-benchmark"),
    Format("bmf", "vebench.reports.formats.data:bmf", reader="Bencher"),
    Format("junit", "vebench.reports.formats.data:junit", ("check",), (".xml",)),
    Format("bibtex", "vebench.reports.formats.data:bibtex", ("cite",), (".bib",)),
    Format("latex", "vebench.reports.formats.data:latex_tables", suffixes=(".tex",)),
    Format("transcript", "vebench.reports.formats.transcript:transcript_svg", reader="the terminal's page as SVG"),
    Format("svg", "vebench.reports.charts:svg_of", suffixes=(".svg",), draws=True),
    Format("png", "vebench.reports.charts:png_of", suffixes=(".png",), binary=True, draws=True),
    Format("pdf", "vebench.reports.charts:pdf_of", suffixes=(".pdf",), binary=True, draws=True),
)


def of(kind: PageKind) -> list[Format]:
    """Return the formats for pages of this kind."""
    return [known for known in FORMATS if kind in known.kinds]


def choices(kind: PageKind) -> str:
    """Return the names of the formats for help: ``terminal, markdown or json``."""
    *first, last = (f"{known.name} ({known.reader})" if known.reader else known.name for known in of(kind))
    return f"{', '.join(first)} or {last}"


def suffixes(kind: PageKind) -> tuple[str, ...]:
    """Return the suffixes of the formats for pages of this kind."""
    return tuple(suffix for known in of(kind) for suffix in known.suffixes)


def format_for(name: str | None, path: Path | None, kind: PageKind) -> Format:
    """Return the named format; without a name, the format for the file; without a file, the terminal's format.

    Raises UsageError for an unknown name or suffix, or if a required package is not installed.
    """
    by_name = {known.name: known for known in of(kind)}
    if name is not None:
        if name not in by_name:
            raise UsageError(f"-f {shown(name)}: no such format; there are {', '.join(by_name)}")
        return _usable(by_name[name], kind, f"-f {name}")
    if path is None:
        return TERMINAL
    for known in by_name.values():
        if path.suffix.lower() in known.suffixes:
            return _usable(known, kind, f"-o {path}")
    names = ", ".join(by_name)
    raise UsageError(f"-o {path}: the suffix is none of {', '.join(suffixes(kind))}; choose a format with -f: {names}")


def _usable(form: Format, kind: PageKind, named: str) -> Format:
    needed = (*form.needs, MATPLOTLIB) if form.draws and kind == "run" else form.needs
    if missing := [package for package in needed if not importable(package.module)]:
        names = " and ".join(package.name for package in missing)
        raise UsageError(f"{named}: needs {names} ({how_to_install(missing)})")
    return form
