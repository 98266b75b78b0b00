"""A format that nobody needs: the points of each table, a line for each, as a chart would draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate

if TYPE_CHECKING:
    from vebench.reports.page import Page


def render(page: Page) -> str:
    """Return the row, the number of workers and the median of each place with an estimate."""
    return "".join(
        f"{row.label} {at} {text.value.median:g}\n"
        for document in page.documents
        for table in document.tables
        for row in table.rows
        for at, text in zip(table.axis, row.texts, strict=True)
        if isinstance(text.value, Estimate)
    )
