"""A column of the data as places of a table. Each is written by its unit, the same wherever it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.columns import Items
from vebench.reports.document import Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.analysis.cell import CellSummary
    from vebench.reports.columns import Column, Plain
    from vebench.reports.document import Tone

# How estimates with these units are written; others are rates.
ESTIMATES: dict[str, Callable[[Estimate], str]] = {
    "times": figures.times,
    "ratio": figures.ratio,
    "ns": figures.microseconds,
}


def of_column(column: Column, cell: CellSummary) -> Text:
    """Return the place of ``cell`` in a table with values of ``column``, a dash where it does not apply."""
    tone: Tone = "reference_row" if cell.reference_row else "plain"
    if isinstance(column, Items):
        text = ", ".join(dict.fromkeys(one_line(column.text(cell)).split()))
        return Text((text or figures.NOTHING,), tone, text or None)
    value = column.value(cell)
    if value is None or value == "":
        return Text((figures.NOTHING,), tone)
    text = _estimate(value, column.unit) if isinstance(value, Estimate) else _plain(value, column.unit)
    return Text((text,), tone, value, {column.name: value})


def _estimate(value: Estimate, unit: str) -> str:
    return ESTIMATES.get(unit, figures.rate)(value)


def _plain(value: Plain, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return figures.size(value) if unit == "bytes" else f"{value:,}"
    if isinstance(value, float):
        return f"{figures.number(value)}{f' {unit}' if unit else ''}"
    return one_line(str(value))
