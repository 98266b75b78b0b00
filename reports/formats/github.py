"""Runs as github-action-benchmark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.reports import figures
from vebench.reports.formats.json import dump
from vebench.reports.formats.named_rates import named_rates

if TYPE_CHECKING:
    from vebench.reports.pages.run import RunPage


def render(page: RunPage) -> str:
    """Return rates as that program's ``customBiggerIsBetter``, in frames a second."""
    return dump(
        [
            {
                "name": cell.name,
                "unit": "frames/s",
                "value": cell.rate.median,
                "range": figures.spread(cell.rate),
                "extra": cell.note,
            }
            for cell in named_rates(page)
        ]
    )
