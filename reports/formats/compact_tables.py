"""What formats of documents share that write tables narrow: which columns hold rates, and a place in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate
from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.reports.document import Table, Text


def places_of(table: Table) -> Sequence[int | None]:
    """Return the place of each column on the axis, None for one beside it; any number where there is no axis."""
    return table.axis or [0] * len(table.columns)


def in_few_words(text: Text) -> tuple[str, ...]:
    """Return the lines of a place of a compact table: a rate has its speedup on the same line, without its interval."""
    speedup = text.values.get("speedup")
    if isinstance(speedup, Estimate):
        return (f"{text.lines[0]} {figures.number(speedup.median)}x",)
    return text.lines
