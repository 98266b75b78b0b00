"""A cell as a row of a table: all cells of a run in one, and a column of the data as places of any."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate
from vebench.errors import one_line
from vebench.reports import columns, figures
from vebench.reports.columns import Items
from vebench.reports.document import Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.reports.columns import Column, Plain
    from vebench.reports.document import Tone

    Place = Callable[[CellSummary], Text]

_RATIOS = ("times", "ratio")


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
    if (cell.reference_row and column.unit in _RATIOS) or (cell.loop_ns_per_batch and column.unit == "frames/s"):
        return Text((figures.NOTHING,))
    return replace(of_column(column, cell), tone="plain")  # the whole row of a reference row is set apart


def _rate(cell: CellSummary) -> Text:
    rate = cell.frames_per_second
    if rate is None:
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if (loop := cell.loop_ns_per_batch) is not None:  # it has no frames: this is what the measuring loop costs
        return Text((figures.microseconds(loop), "a batch"), "reference_row")
    return Text((figures.rate(rate),), "struck" if cell.struck else "plain", rate)


# How estimates with these units are written; others are rates.
_ESTIMATES: dict[str, Callable[[Estimate], str]] = {
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
    return _ESTIMATES.get(unit, figures.rate)(value)


def _plain(value: Plain, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return figures.size(value) if unit == "bytes" else f"{value:,}"
    if isinstance(value, float):
        return f"{figures.number(value)}{f' {unit}' if unit else ''}"
    return one_line(str(value))
