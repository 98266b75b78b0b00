"""Runs as comma-separated values, one line for each cell, with every column.

Spreadsheets run what looks like a formula, and names come from outside: a text that begins like one gets a quotation
mark before it (https://owasp.org/www-community/attacks/CSV_Injection). Numbers are as they are.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.reports import columns
from vebench.reports.columns import Figure, Items, with_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.reports.columns import Column, Plain
    from vebench.reports.pages.run import RunPage

_FORMULA = tuple(
    "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
_IDENTITY = ("file", "env", "backend", "workers", "envs_per_worker")


def render(page: RunPage, plain: Callable[[str], str] = str) -> str:
    """Return a head line, and a line for each cell of every section. What does not apply is empty.

    Texts are on one line, as ``plain`` has them.
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_harmless(value, plain) for value in line] for line in _cells(page))
    return out.getvalue()


def _cells(page: RunPage) -> Iterator[Sequence[Plain]]:
    yield (*_IDENTITY, *(name for column in columns.COLUMNS for name in _names(column)))
    for section in page.sections:
        for cell in section.cells:
            yield _line(section.name, with_findings(cell, section.findings))


def _line(file: str, cell: CellSummary) -> list[Plain]:
    identity = (file, cell.env, cell.label, cell.workers, cell.envs_per_worker)
    return [*identity, *(value for column in columns.COLUMNS for value in _values(column, cell))]


def _harmless(value: Plain, plain: Callable[[str], str]) -> Plain:
    return _no_formula(plain(one_line(value))) if isinstance(value, str) else value


def _no_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _names(column: Column) -> list[str]:
    return [column.name, f"{column.name}_low", f"{column.name}_high"] if isinstance(column, Figure) else [column.name]


def _values(column: Column, cell: CellSummary) -> list[Plain]:
    """Return what stands below the names of ``column``."""
    if isinstance(column, Figure):
        estimate = column.value(cell)
        return [None] * 3 if estimate is None else [estimate.median, estimate.low, estimate.high]
    return [column.text(cell) if isinstance(column, Items) else column.value(cell)]
