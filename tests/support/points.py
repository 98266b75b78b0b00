"""A format that nobody needs: the value of each place of a table, a line for each."""

from vebench.analysis.statistics import Estimate
from vebench.reports.document import Page


def render(page: Page) -> str:
    """Return the row, the column and the ends of each estimate that a place has."""
    return "".join(
        f"{row.label}, {column}: {_ends(text.value)}\n"
        for document in page.documents
        for table in document.tables
        for row in table.rows
        for column, text in zip(table.columns, row.texts, strict=True)
        if isinstance(text.value, Estimate)
    )


def _ends(value: Estimate) -> str:
    return " ".join(f"{end:g}" for end in (value.low, value.median, value.high) if end is not None)
