"""Which windows of a cell count: those that show the backend, where enough of them remain. Pure functions.

A window is calm if neither a CPU quota nor others kept the cell from its CPUs. Where too few are calm, the windows that
no quota held back count, and only if there are none, all of them do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.child.schedule import MOST_TRIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.window import Window
    from vebench.results.records import CellRecord

# As one process does not show how much processes differ, a cell that has several keeps at least two.
_FEWEST_PROCESSES = 2

Counting = list[tuple["CellRecord", "Sequence[Window]"]]


def that_count(records: Sequence[CellRecord]) -> Counting:
    """Return the repeats of a cell that went well, each with its windows that count.

    If only calm windows count, repeats without any are left out.
    """
    well = [record for record in records if record.status == "ok"]
    calm = [[window for window in record.windows if window.calm(len(record.cpus))] for record in well]
    if enough([len(windows) for windows in calm], [len(record.windows) for record in well]):
        return [(record, windows) for record, windows in zip(well, calm, strict=True) if windows]
    free = [[window for window in record.windows if not window.held_back] for record in well]
    return list(zip(well, free if any(free) else [record.windows for record in well], strict=True))


def enough(calm: Sequence[int], windows: Sequence[int]) -> bool:
    """Return whether the calm windows of a cell suffice, given how many each of its processes has, and how many in all.

    Of several processes, each is one observation: at least two, and half of them, need a calm window. Of one process,
    a third of the windows need to be calm: so many are, if each was calm when it was tried for the last time.
    """
    if len(calm) == 1:
        return 0 < MOST_TRIES * calm[0] >= windows[0]
    some = sum(count > 0 for count in calm)
    return some >= _FEWEST_PROCESSES and 2 * some >= len(calm)
