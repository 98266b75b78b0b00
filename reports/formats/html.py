"""Pages as HTML: one self-contained file, which can be read without JavaScript and can be printed.

Jinja2 escapes texts from outside. The page's content security policy allows only its own script.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from vebench import __version__
from vebench.analysis.cell import Gravity
from vebench.analysis.statistics import Estimate
from vebench.reports import figures
from vebench.reports.charts import svg
from vebench.reports.columns import all_cells
from vebench.reports.document import COMMANDS, Document, Page, Table
from vebench.reports.run import RunPage

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).with_name("templates")


def html_page(page: Page) -> str:
    """Return all documents as one HTML page."""
    every: list[Table] = []
    if isinstance(page, RunPage):  # HTML has room for all findings, because notes are folded
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
    made.filters.update(counted=figures.counted, number_columns=_number_columns)
    made.globals.update(
        css=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=script,
        hash=b64encode(sha256(script.encode()).digest()).decode(),
        version=__version__,
        commands=COMMANDS,
    )
    return made


def _printable(value: object) -> object:
    """Return a text without control characters and other characters that are not printable."""
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isprintable():
        return value
    return "".join(one if one == "\n" or one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value)


def _number_columns(table: Table) -> list[bool]:
    """Return, for each column, whether its places have numbers, or would have numbers if they were measured."""
    found = []
    for index in range(len(table.columns)):
        values = [row.texts[index].value for row in table.rows]
        numbers = any(isinstance(value, Estimate | int | float) for value in values)
        found.append(numbers or (table.numbers and not any(isinstance(value, str) for value in values)))
    return found


def _shown(documents: Sequence[Document], every: Sequence[Table]) -> Iterator[dict[str, object]]:
    """Yield the documents, divided into groups such as tasks. The document of a run gets its table from ``every``."""
    left = iter(every)
    drawn = [chart for document in documents for chart in document.charts]
    for number, document in enumerate(documents):
        of_group = {chart.group: chart for chart in document.charts}
        groups = []
        for index, name in enumerate(dict.fromkeys([*(one.group for one in document.tables), *of_group])):
            chart = of_group.get(name)
            picture = svg((chart,), among=drawn, part=f"d{number}-{index}") if chart else ""
            tables = [table for table in document.tables if table.group == name]
            groups.append({"name": name, "chart": chart, "svg": picture, "tables": tables})
        remarks = figures.by_key((remark.gravity, remark) for remark in document.remarks)
        yield {
            "document": document,
            "groups": groups,
            "remarks": [(gravity, remarks[gravity]) for gravity in (*Gravity, None) if gravity in remarks],
            "cells": next(left) if document.file else None,
        }
