"""All cells of a run in one table, a row for each, with the columns of the data that have a head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.reports import columns, figures
from vebench.reports.document import Table, TableRow, Text
from vebench.reports.pages.column_places import of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.reports.columns import Column

    Place = Callable[[CellSummary], Text]

RATIOS = ("times", "ratio")


def all_cells(cells: Sequence[CellSummary]) -> Table:
    """Return the table. Of what identifies a cell, it leaves out what is the same in all, such as the task.

    Findings, which take most room, come last.
    """
    identity = [*_identity(cells)]
    values = sorted((column for column in columns.COLUMNS if column.head), key=lambda column: column.name == "findings")
    return Table(
        title="All cells",
        corner="backend",
        columns=(*(name for name, _ in identity), *(column.head for column in values)),
        rows=tuple(
            TableRow(
                one_line(cell.label),
                (*(place(cell) for _, place in identity), *(_value(column, cell) for column in values)),
                cell.reference_row,
            )
            for cell in cells
        ),
        notes=(" ".join(f"{column.head}: {column.meaning}." for column in values if column.unit),),
    )


def _identity(cells: Sequence[CellSummary]) -> Iterator[tuple[str, Place]]:
    if len({cell.env for cell in cells}) > 1:
        yield "task", lambda cell: Text((name := one_line(cell.env),), value=name)
    yield "workers", lambda cell: _counted(cell.workers)
    if len({cell.envs_per_worker for cell in cells}) > 1:
        yield "envs per worker", lambda cell: _counted(cell.envs_per_worker)


def _counted(count: int) -> Text:
    return Text((str(count),), value=count)


def _value(column: Column, cell: CellSummary) -> Text:
    if column.name == "frames_per_second":
        return _rate(cell)
    # No backend can beat a reference row: its ratios would read as those of a backend. The loop alone has no frames.
    if (cell.reference_row and column.unit in RATIOS) or (cell.loop_ns_per_batch and column.unit == "frames/s"):
        return Text((figures.NOTHING,))
    return replace(of_column(column, cell), tone="plain")  # the whole row of a reference row is set apart


def _rate(cell: CellSummary) -> Text:
    rate = cell.frames_per_second
    if rate is None:
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if (loop := cell.loop_ns_per_batch) is not None:  # it has no frames: this is what the measuring loop costs
        return Text((figures.microseconds(loop), "a batch"), "reference_row")
    return Text((figures.rate(rate),), "struck" if cell.struck else "plain", rate)
