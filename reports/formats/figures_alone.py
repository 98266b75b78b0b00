"""The figures of runs alone: a row for each task of each run, as SVG, PNG or PDF."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.errors import UsageError
from vebench.reports import plots
from vebench.reports.formats.shared import without_folders

if TYPE_CHECKING:
    from vebench.reports.document import Chart, Page

_NO_CURVE = "no figure: none of the runs has two numbers of workers: vebench run --workers 1..8 measures a curve"


def svg_of(page: Page) -> str:
    """Return all figures of ``page`` as SVG. Raises UsageError if it has none, or matplotlib is missing."""
    return plots.svg(_charts(page))


def png_of(page: Page) -> bytes:
    """Return all figures of ``page`` as PNG. Raises UsageError as ``svg`` does."""
    return plots.png(_charts(page))


def pdf_of(page: Page) -> bytes:
    """Return all figures of ``page`` as PDF. Raises UsageError as ``svg`` does."""
    return plots.pdf(_charts(page))


def _charts(page: Page) -> list[Chart]:
    """Return the charts of all documents; those of several get the document's name, which keeps their rows apart."""
    documents = page.documents
    plain = without_folders(document.title for document in documents)
    charts = [
        replace(chart, group=f"{number} {chart.group}", title=plain(f"{document.title}: {chart.title}"))
        if len(documents) > 1
        else replace(chart, title=plain(chart.title))
        for number, document in enumerate(documents)
        for chart in document.charts
    ]
    if not charts:
        raise UsageError(_NO_CURVE)
    return charts
