"""The table of all cells: which columns it has, and what stands in them."""

import pytest
from support.records import make_sweep

from vebench.analysis.cell import CellSummary
from vebench.reports import columns
from vebench.reports.columns import all_cells, of_column
from vebench.reports.document import Table
from vebench.reports.run import RunPage


@pytest.fixture(scope="module")
def cells() -> tuple[CellSummary, ...]:
    return RunPage.of([("a.jsonl", make_sweep())]).sections[0].cells


@pytest.fixture(scope="module")
def table(cells: tuple[CellSummary, ...]) -> Table:
    return all_cells(cells)


def lines_below(table: Table, head: str) -> list[tuple[str, ...]]:
    return [row.texts[table.columns.index(head)].lines for row in table.rows]


@pytest.mark.parametrize(
    "name", ["efficiency", "of_ceiling", "peak_rss_bytes", "startup_seconds", "verdict", "findings"]
)
def test_a_value_is_written_as_in_its_columns_table(table: Table, cells: tuple[CellSummary, ...], name: str) -> None:
    column = columns.column_named(name)
    below = lines_below(table, column.head)
    choices = [index for index, cell in enumerate(cells) if not cell.reference_row]
    assert [below[index] for index in choices] == [of_column(column, cells[index]).lines for index in choices]


def test_an_exact_ratio_and_a_reference_row_have_no_interval(table: Table, cells: tuple[CellSummary, ...]) -> None:
    labels = [cell.label for cell in cells]
    ratios = [(lines_below(table, head)) for head in ("speedup", "efficiency", "of ceiling")]
    assert [below[0] for below in ratios[:2]] == [("1.00x",), ("1.00",)]
    assert [below[labels.index("ceiling")] for below in ratios] == [("-",)] * 3
    assert lines_below(table, "frames/CPU s")[labels.index("null")] == ("-",)
    assert lines_below(table, "memory")[labels.index("ceiling")] == ("100 MiB",)


def test_a_new_column_with_a_head_is_in_it(cells: tuple[CellSummary, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    steps = columns.Column(
        "transitions", "rows that are steps", "rows", "steps", of=lambda cell: cell.figures.rows - cell.figures.resets
    )
    hidden = columns.Column("hidden", "rows", of=lambda cell: cell.figures.rows)
    before = all_cells(cells).columns
    monkeypatch.setattr(columns, "COLUMNS", (*columns.COLUMNS, steps, hidden))
    table = all_cells(cells)
    assert table.columns == (*before[:-1], "steps", "findings")
    assert lines_below(table, "steps") == [(f"{cell.figures.rows - cell.figures.resets:,}",) for cell in cells]
    assert "steps: rows that are steps." in table.notes[0]
