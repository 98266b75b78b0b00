"""Pages as HTML: one file that needs nothing else, to be read with or without JavaScript, and to be printed.

Jinja2 escapes what comes from outside. The page's own policy runs no script but its own.
"""

from __future__ import annotations

import re
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
from vebench.reports.document import Table, TableRow, Text
from vebench.reports.formats import data
from vebench.reports.plots import PREDICTED, svg, with_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from vebench.reports.document import Chart, DataPage, Document, Page
    from vebench.reports.run import RunPage
    from vebench.reports.side_by_side import Section

    Plain = Callable[[str], str]

TEMPLATES = Path(__file__).with_name("templates")
_SPACES = re.compile(r"(\s+)")


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
    content = {
        "page": page,
        "shown": [*_shown(documents, sections, plain)],
        "raw": raw,
        **{name: (TEMPLATES / f"report.{name}").read_text(encoding="utf-8") for name in ("css", "js")},
        "version": __version__,
    }
    template = environment(plain).get_template("report.html.jinja")
    # A script in the content would need to know the hash of the page that contains it.
    nonce = b64encode(sha256(template.render(content, nonce="").encode()).digest()).decode()
    return template.render(content, nonce=nonce)


def environment(plain: Plain, *folders: Path) -> Environment:
    """Return an environment that renders our templates and those in ``folders``. ``plain`` changes file names."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=partial(_printable, plain=plain),
    )
    made.filters.update(
        counted=figures.counted,
        sort_key=_sort_key,
        number_columns=_number_columns,
        whole_words=partial(_whole_words, plain=plain),
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


def _whole_words(text: str, plain: Plain) -> Markup:
    """Return a text whose words with a hyphen, such as options, are not broken at the end of a line."""
    from markupsafe import Markup  # it comes with Jinja2

    parts = _SPACES.split(str(_printable(text, plain)))
    whole = Markup('<span class="whole">{}</span>')
    return Markup().join(whole.format(part) if "-" in part else part for part in parts)


def _sort_key(value: object) -> float | str:
    """Return the number to sort a place of a column of numbers by, an empty text if it has none."""
    number = value.median if isinstance(value, Estimate) else value
    return number if isinstance(number, int | float) else ""


def _number_columns(table: Table) -> list[bool]:
    """Return for each column whether its places have numbers as values, or would have, had they been measured."""
    columns = [[row.texts[index].value for row in table.rows] for index in range(len(table.columns))]
    return [
        any(isinstance(value, Estimate | int | float) for value in values)
        or (table.numbers and not any(isinstance(value, str) for value in values))
        for values in columns
    ]


def _shown(documents: Sequence[Document], sections: Sequence[Section], plain: Plain) -> Iterator[dict[str, object]]:
    """Yield the documents, each in groups, such as tasks. Those of runs are in the order of their ``sections``."""
    left = iter(sections)
    charts: dict[Chart, Chart] = {}
    for chart in (one for document in documents for one in document.charts):
        lines = tuple(replace(line, name=plain(line.name)) for line in chart.series)
        charts[chart] = replace(chart, title=plain(chart.title), series=lines)
    for number, document in enumerate(documents):
        section = next(left) if document.file else None
        drawn: dict[str, list[dict[str, Any]]] = {}
        for index, own in enumerate(document.charts):
            chart = charts[own]
            picture = svg((chart,), among=[*charts.values()], part=f"d{number}-{index}")
            drawn.setdefault(chart.group, []).append({"chart": chart, "svg": picture, "numbers": numbers_of(chart)})
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


def numbers_of(chart: Chart) -> Table:
    """Return the points of a chart as a table: a row for each place on the axis, a column for each series."""
    series = with_points(chart)
    places = sorted({x for one in series for x, _ in one.points})
    by_series = [dict(one.points) for one in series]
    return Table(
        title=f"{chart.title}, by {chart.x_label}",
        corner=chart.x_label,
        columns=tuple(f"{one.name}, {PREDICTED}" if one.role == "forecast" else one.name for one in series),
        rows=tuple(TableRow(f"{x:g}", tuple(_number(points.get(x)) for points in by_series)) for x in places),
    )


def _number(estimate: Estimate | None) -> Text:
    if estimate is None:
        return Text((figures.DASH,))
    alone = estimate.low is None and estimate.high is None
    return Text((figures.number(estimate.median) if alone else figures.rate(estimate),), value=estimate)
