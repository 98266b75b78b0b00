"""Pages as JSON, and runs as comma-separated values, for other programs. All JSON that users get is written here.

Spreadsheets run what looks like a formula, and names come from outside: in CSV, a text that begins like one gets a
quotation mark before it (https://owasp.org/www-community/attacks/CSV_Injection). Numbers are as they are.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

from vebench.analysis.findings import Finding
from vebench.analysis.statistics import Estimate
from vebench.errors import one_line
from vebench.reports import columns
from vebench.reports.columns import EstimateColumn, ItemsColumn, with_findings

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.analysis.cell import CellSummary
    from vebench.reports.columns import DataColumn, Plain
    from vebench.reports.document import DataPage
    from vebench.reports.pages.run import RunPage


def json_of(page: DataPage) -> str:
    """Return the data of ``page``; what does not apply is null."""
    return dump(page.data)


def dump(data: object) -> str:
    """Return ``data`` as JSON, estimates and findings as objects. Raises ValueError for a number that is not finite."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
    return "".join(f"{_escaped(line)}\n" for line in text.split("\n"))


def _escaped(line: str) -> str:
    """Return the line with all escaped that a terminal or the log of a CI service could act on.

    Half of a surrogate pair, as in a file name that is no UTF-8, is, too: it cannot be encoded.
    """
    if not line.isprintable():
        line = "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in line)
    return line.replace("##", "#\\u0023")


def _plain(value: object) -> dict[str, float | str | None]:
    # Key by key: a field that they may get in the program is not yet part of the format.
    if isinstance(value, Estimate):
        return {"median": value.median, "low": value.low, "high": value.high}
    if isinstance(value, Finding):
        return {"code": value.code, "message": value.message, "remedy": value.remedy}
    raise TypeError(f"no JSON for {value!r}")


_FORMULA = tuple(
    "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
_IDENTITY = ("file", "env", "backend", "workers", "envs_per_worker")


def csv_of(page: RunPage, plain: Callable[[str], str] = str) -> str:
    """Return a head line, and a line for each cell of every section. What does not apply is empty.

    Texts are on one line, as ``plain`` has them.
    """
    lines: list[list[Plain]] = [list(_IDENTITY)]
    for column in columns.COLUMNS:
        bounds = ("", "_low", "_high") if isinstance(column, EstimateColumn) else ("",)
        lines[0] += [f"{column.name}{bound}" for bound in bounds]
    for section in page.sections:
        for cell in section.cells:
            reported = with_findings(cell, section.findings)
            identity = (section.name, cell.env, cell.label, cell.workers, cell.envs_per_worker)
            lines.append([*identity, *(value for column in columns.COLUMNS for value in _values(column, reported))])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_harmless(value, plain) for value in line] for line in lines)
    return out.getvalue()


def _harmless(value: Plain, plain: Callable[[str], str]) -> Plain:
    if not isinstance(value, str):
        return value
    text = plain(one_line(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def _values(column: DataColumn, cell: CellSummary) -> list[Plain]:
    """Return what stands below the names of ``column``."""
    if isinstance(column, EstimateColumn):
        estimate = column.value(cell)
        return [None] * 3 if estimate is None else [estimate.median, estimate.low, estimate.high]
    return [column.text(cell) if isinstance(column, ItemsColumn) else column.value(cell)]
