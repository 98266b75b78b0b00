"""Pages as HTML: one file that needs nothing else, to be read with or without JavaScript, and to be printed.

Jinja2 escapes what comes from outside. The page's own policy runs no script but its own.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vebench import __version__
from vebench.analysis.findings import Gravity
from vebench.analysis.statistics import Estimate
from vebench.reports import figures
from vebench.reports.columns import all_cells
from vebench.reports.document import COMMANDS, Document, Page, Table
from vebench.reports.plots import svg
from vebench.reports.run import RunPage

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).with_name("templates")


def html_page(page: Page) -> str:
    """Return all documents as one HTML page."""
    every: list[Table] = []
    if isinstance(page, RunPage):  # there is room for all findings, and notes are folded
        page = replace(page, view=replace(page.view, every_finding=True))
        every = [all_cells(section.cells) for section in page.sections]
    shortened = figures.without_folders(document.file for document in page.documents)
    shown = _shown(shortened(page.documents), shortened(tuple(every)))
    return templates().get_template("report.html.jinja").render(page=page, shown=[*shown])


def templates(*folders: Path) -> Environment:
    """Return an environment that renders our templates and those in ``folders``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
    )
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    made.filters.update(counted=figures.counted, sort_key=_sort_key, number_columns=_number_columns)
    made.globals.update(
        css=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=script,
        hash=b64encode(sha256(script.encode()).digest()).decode(),
        version=__version__,
        commands=COMMANDS,
    )
    return made


def _printable(value: object) -> object:
    """Return a text without characters that act on other text."""
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isprintable():
        return value
    return "".join(one if one == "\n" or one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value)


def _sort_key(value: object) -> float | str:
    """Return the number to sort a place of a column of numbers by, an empty text if it has none."""
    number = value.median if isinstance(value, Estimate) else value
    return number if isinstance(number, int | float) else ""


def _number_columns(table: Table) -> list[bool]:
    """Return for each column whether its places have numbers as values, or would have, had they been measured."""
    found = []
    for index in range(len(table.columns)):
        values = [row.texts[index].value for row in table.rows]
        numbers = any(isinstance(value, Estimate | int | float) for value in values)
        found.append(numbers or (table.numbers and not any(isinstance(value, str) for value in values)))
    return found


def _shown(documents: Sequence[Document], every: Sequence[Table]) -> Iterator[dict[str, object]]:
    """Yield the documents, each in groups, such as tasks. Each of a run has one of the tables of ``every`` cell."""
    left = iter(every)
    charts = [chart for document in documents for chart in document.charts]
    for number, document in enumerate(documents):
        drawn: dict[str, list[dict[str, Any]]] = {}
        for index, chart in enumerate(document.charts):
            picture = svg((chart,), among=charts, part=f"d{number}-{index}")
            drawn.setdefault(chart.group, []).append({"title": chart.title, "svg": picture})
        groups = []
        for name in dict.fromkeys([*(one.group for one in document.tables), *drawn]):
            tables = [table for table in document.tables if table.group == name]
            groups.append({"name": name, "figures": drawn.get(name, []), "tables": tables})
        found = figures.by_key((finding.gravity, finding) for finding in document.findings)
        yield {
            "document": document,
            "groups": groups,
            "findings": [(gravity, found[gravity]) for gravity in Gravity if gravity in found],
            "cells": next(left) if document.file else None,
        }
