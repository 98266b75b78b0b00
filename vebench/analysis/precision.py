"""Which cells are not precise enough yet, and which can be measured once more. Pure functions."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from vebench.analysis.summary import by_cell, summarise

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.plan.cells import CellKey
    from vebench.results.records import Run

# To stop as soon as an interval looks narrow favours those that are narrow by chance. After so many processes that
# costs little: docs/method.md has how much.
FEWEST_PROCESSES = 5


def wide_cells(run: Run, until: float) -> frozenset[CellKey]:
    """Return the keys, without repeats, of all cells whose interval is not within ``until`` of its level yet."""
    return frozenset(cell.key for cell in summarise(run) if not _narrow(cell, until))


def next_repeats(run: Run) -> dict[CellKey, int]:
    """Return the number of the next repeat of every cell whose last one went well, by its key without a repeat.

    A last repeat that the user ended is itself the next.
    """
    last = [max(records, key=attrgetter("repeat")) for records in by_cell(run).values()]
    again = {record.key.without_repeat: record.repeat for record in last if record.interrupted}
    return again | {record.key.without_repeat: record.repeat + 1 for record in last if record.status == "ok"}


def _narrow(cell: CellSummary, until: float) -> bool:
    """Return whether a cell has enough repeats and its interval lies within ``until``."""
    half = cell.half_width
    return cell.sample.processes >= FEWEST_PROCESSES and half is not None and half <= until
