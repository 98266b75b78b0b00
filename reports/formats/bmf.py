"""Reports in Bencher Metric Format: the throughput of each cell, with its interval as bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vebench.reports.formats.series import entries

if TYPE_CHECKING:
    from vebench.analysis.statistics import Estimate
    from vebench.reports.pages.run import Report


def render(report: Report) -> str:
    """Return ``{cell: {"throughput": {"value", "lower_value", "upper_value"}}}``, in frames a second."""
    return (
        json.dumps(
            {entry.name: {"throughput": _metric(entry.rate)} for entry in entries(report)},
            indent=2,
            ensure_ascii=False,
            allow_nan=False,
        )
        + "\n"
    )


def _metric(rate: Estimate) -> dict[str, float]:
    bounds = {"lower_value": rate.low, "upper_value": rate.high}
    return {"value": rate.median, **{name: bound for name, bound in bounds.items() if bound is not None}}
