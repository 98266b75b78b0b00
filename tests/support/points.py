"""A format that nobody needs: the points of each table, a line for each, as a chart would draw them."""

from __future__ import annotations

from vebench.analysis.statistics import Estimate
from vebench.reports.document import Page


def render(page: Page) -> str:
    """Return the row, the number of workers, the name and the ends of each estimate that a place has."""
    return "".join(
        f"{row.label} {at} {name} {_ends(value)}\n"
        for document in page.documents
        for table in document.tables
        for row in table.rows
        for at, text in zip(table.axis, row.texts, strict=True)
        for name, value in text.values.items()
        if isinstance(value, Estimate)
    )


def _ends(value: Estimate) -> str:
    return " ".join(f"{end:g}" for end in (value.low, value.median, value.high) if end is not None)
