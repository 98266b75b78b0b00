"""Runs in Bencher Metric Format: the throughput of each cell, with its interval as bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.reports.formats.json import dump
from vebench.reports.formats.named_rates import named_rates

if TYPE_CHECKING:
    from vebench.analysis.statistics import Estimate
    from vebench.reports.pages.run import RunPage


def render(page: RunPage) -> str:
    """Return ``{cell: {"throughput": {"value", "lower_value", "upper_value"}}}``, in frames a second."""
    return dump({cell.name: {"throughput": _metric(cell.rate)} for cell in named_rates(page)})


def _metric(rate: Estimate) -> dict[str, float]:
    bounds = {"lower_value": rate.low, "upper_value": rate.high}
    return {"value": rate.median, **{name: bound for name, bound in bounds.items() if bound is not None}}
