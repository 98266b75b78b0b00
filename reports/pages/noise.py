"""The noise of a run: every window relative to the level of its cell, in the order of measurement."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Literal

from vebench.reports import figures
from vebench.reports.document import Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.child.window import Window
    from vebench.plan.cells import CellKey
    from vebench.results.records import CellRecord, Run

    State = Literal["calm", "disturbed", "throttled"]


@dataclass(frozen=True)
class NoisyWindow:
    """One window: its cell, without a repeat, its pass, and its rate divided by the cell's level.

    The level is the median of all windows of the cell. ``disturbed``: other processes used its CPUs. ``throttled``: a
    CPU quota throttled it.
    """

    key: CellKey
    pass_number: int
    ratio: float
    state: State


def noise(run: Run) -> tuple[NoisyWindow, ...]:
    """Return the windows of all successful cells of ``run``, in the order of measurement.

    The file has cells in the order in which they ended. Where cells take turns, the first windows of all cells of a
    pass on a task come before the second ones; windows that were measured again make this order a little wrong. Cells
    without a step have no level, and are left out.
    """
    windows = [*_in_order(run)]
    speeds: dict[CellKey, list[float]] = {}
    for record, window in windows:
        speeds.setdefault(record.key.without_repeat, []).append(_speed(window))
    levels = {key: median(values) for key, values in speeds.items()}
    return tuple(
        NoisyWindow(record.key.without_repeat, record.repeat, _speed(window) / level, _state(window, len(record.cpus)))
        for record, window in windows
        if (level := levels[record.key.without_repeat])
    )


def _in_order(run: Run) -> Iterator[tuple[CellRecord, Window]]:
    well = [record for record in run.cells if record.status == "ok"]
    if not run.header.spec.takes_turns:
        yield from ((record, window) for record in well for window in record.windows)
        return
    for _, group in groupby(well, key=lambda record: (record.repeat, record.env)):
        turns = [(turn, record, window) for record in group for turn, window in enumerate(record.windows)]
        yield from ((record, window) for _, record, window in sorted(turns, key=lambda item: item[0]))


def _speed(window: Window) -> float:
    """Return transitions per nanosecond; only ratios of it are used."""
    return window.transitions / window.ns


def _state(window: Window, cpus: int) -> State:
    return "throttled" if window.held_back else "disturbed" if window.disturbed(cpus) else "calm"


def noise_by_cell(windows: Sequence[NoisyWindow]) -> Table:
    """Return the windows as a table with a row for each cell, in the order in which the cells were first measured."""
    by_key: dict[CellKey, list[NoisyWindow]] = {}
    for window in windows:
        by_key.setdefault(window.key, []).append(window)
    return Table(
        title="Windows relative to the level of their cell",
        corner="cell",
        columns=("windows", "lowest", "highest", "disturbed", "throttled", "in order"),
        rows=tuple(TableRow(figures.cell_name(key), tuple(_places(members))) for key, members in by_key.items()),
    )


def _places(members: Sequence[NoisyWindow]) -> Iterator[Text]:
    ratios = [window.ratio for window in members]
    yield Text((str(len(members)),), value=len(members))
    for extreme in (min(ratios), max(ratios)):
        yield Text((figures.change(extreme),), value=extreme)
    for state in ("disturbed", "throttled"):
        count = sum(window.state == state for window in members)
        yield Text((str(count),), value=count)
    yield Text((" ".join(figures.change(ratio) for ratio in ratios),))
