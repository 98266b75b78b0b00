"""Pages as HTML: one file that needs nothing else, to be read with or without JavaScript, and to be printed.

Jinja2 escapes what comes from outside. The page's own policy runs no script but its own.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vebench import __version__
from vebench.analysis.findings import Gravity
from vebench.analysis.statistics import Estimate
from vebench.reports import figures
from vebench.reports.columns import all_cells
from vebench.reports.document import COMMANDS
from vebench.reports.formats import data
from vebench.reports.plots import svg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jinja2 import Environment

    from vebench.reports.answer import Section
    from vebench.reports.document import Chart, DataPage, Document, Page, Table
    from vebench.reports.run import RunPage

    Plain = Callable[[str], str]

_TEMPLATES = Path(__file__).with_name("templates")


def html_page(page: Page) -> str:
    """Return all documents as one HTML page."""
    sections: Sequence[Section] = ()
    if page.kind == "run":  # there is room for all findings, and notes are folded
        run = cast("RunPage", page)
        page = run = replace(run, view=replace(run.view, every_finding=True))
        sections = run.sections
    documents = page.documents
    plain = figures.without_folders(document.file for document in documents)
    raw: tuple[str, str] | None = None  # the name of its format, and the data for other programs
    if page.kind == "run":
        raw = "CSV", data.csv_of(cast("RunPage", page), plain)
    elif getattr(page, "data", None) is not None:
        raw = "JSON", data.json_of(cast("DataPage", page))
    template = templates(plain).get_template("report.html.jinja")
    return template.render(page=page, shown=[*_shown(documents, sections, plain)], raw=raw)


def templates(plain: Plain, *folders: Path) -> Environment:
    """Return an environment that renders our templates and those in ``folders``. ``plain`` changes file names."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=partial(_printable, plain=plain),
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


def _printable(value: object, plain: Plain) -> object:
    """Return a text as ``plain`` has its lines, without characters that act on other text."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    text = "\n".join(map(plain, value.split("\n")))
    if text.isprintable():  # mostly
        return text
    return "".join(letter if letter == "\n" or letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


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


def _shown(documents: Sequence[Document], sections: Sequence[Section], plain: Plain) -> Iterator[dict[str, object]]:
    """Yield the documents, each in groups, such as tasks. Those of runs are in the order of their ``sections``."""
    left = iter(sections)
    every = [_with_plain_names(chart, plain) for document in documents for chart in document.charts]
    for number, document in enumerate(documents):
        section = next(left) if document.file else None
        drawn: dict[str, list[dict[str, Any]]] = {}
        for index, own in enumerate(document.charts):
            chart = _with_plain_names(own, plain)
            picture = svg((chart,), among=every, part=f"d{number}-{index}")
            drawn.setdefault(chart.group, []).append({"chart": chart, "svg": picture})
        names = dict.fromkeys([*(one.group for one in document.tables), *drawn])
        found = figures.by_key((finding.gravity, finding) for finding in document.findings)
        groups = []
        for name in names:
            tables = [table for table in document.tables if table.group == name]
            groups.append({"name": name, "figures": drawn.get(name, []), "tables": tables})
        yield {
            "document": document,
            "groups": groups,
            "findings": [(gravity, found[gravity]) for gravity in Gravity if gravity in found],
            "cells": all_cells(section.cells) if section and section.cells else None,
        }


def _with_plain_names(chart: Chart, plain: Plain) -> Chart:
    lines = tuple(replace(line, name=plain(line.name)) for line in chart.series)
    return replace(chart, title=plain(chart.title), series=lines)
