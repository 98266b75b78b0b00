"""Reports on a terminal. Colour only adds to what the characters say; tables too wide are split into blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Line

from vebench.reports.pages.run import DIFFERENCES, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from vebench.reports.pages.run import Document, Remark, Report, Table, Text

STYLES = {"plain": "", "best": "bold green", "reference": "cyan", "missing": "yellow", "struck": "strike yellow"}
BEST = "* "
PADDING = 2  # a blank on either side of a column
DIVIDER = 1
NARROW = 100
INDENT = 2
LABEL_SHARE = 3  # a label takes a third of the width at most; longer ones are folded


def write(report: Report, console: Console) -> None:
    """Print every section of ``report``."""
    for section in report.sections:
        write_document(document(section), console)


def write_document(page: Document, console: Console) -> None:
    """Print one document: its facts, its tables, how to read them, and its remarks."""
    console.print(Line(page.title, style="bold"))
    facts = Grid.grid(padding=(0, 2, 0, 0))
    for name, value in page.facts:
        facts.add_row(Line(name, style="dim"), Line(value, overflow="fold"))
    console.print(facts)
    for table in page.tables:
        _write_table(table, console)
    for line in page.legend:
        console.print(Line(line, style="dim"))
    if any(text.tone == "best" for table in page.tables for row in table.rows for text in row.texts):
        console.print(Line(f"{BEST}highest median", style="dim"))
    if page.remarks:
        console.print()
        console.print(Line("Findings", style="bold"))
        _write_remarks(page.remarks, console)
    console.print()


def _write_remarks(remarks: Sequence[Remark], console: Console) -> None:
    """Print remarks with their codes beside them, or above them where the terminal is narrow."""
    if console.width < NARROW:
        for remark in remarks:
            console.print(Line(remark.code, style="yellow"))
            console.print(Padding(_remark(remark), (0, 0, 0, INDENT)))
        return
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for remark in remarks:
        grid.add_row(Line(remark.code, style="yellow"), _remark(remark))
    console.print(grid)


def _remark(remark: Remark) -> Group:
    """Return what is so, where, and what to do, each on lines of its own that go on indented."""
    places = (Padding(Line(place), (0, 0, 0, INDENT)) for place in remark.places)
    remedy = Grid.grid(padding=(0, 1, 0, 0))
    remedy.add_row(Line("->"), Line(remark.remedy, overflow="fold"))
    return Group(Line(remark.text), *places, remedy)


def _write_table(table: Table, console: Console) -> None:
    console.print()
    console.print(Line(table.title, style="bold"))
    for number, block in enumerate(_blocks(table, console.width)):
        if number:
            console.print()
        grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1), header_style="bold")
        grid.add_column(table.corner, overflow="fold", max_width=max(len(table.corner), console.width // LABEL_SHARE))
        for index in block:
            grid.add_column(Line(table.columns[index]), justify="right" if table.numbers else "left", overflow="fold")
        apart = False
        for row in table.rows:
            if row.reference and not apart:
                grid.add_section()
            apart = row.reference
            grid.add_row(Line(row.label), *(_lines(row.texts[index]) for index in block))
        console.print(grid)
    for note in table.notes:
        console.print(Line(note, style="dim"))
    if table.differences:
        console.print(Line(DIFFERENCES, style="dim"))
    for difference in table.differences:
        console.print(Padding(Line(difference, style="dim"), (0, 0, 0, INDENT)))


def _blocks(table: Table, width: int) -> Iterator[Sequence[int]]:
    """Yield the columns' indices, as many at a time as fit beside the labels; prose is never split but folded."""
    if not table.numbers:
        yield range(len(table.columns))
        return
    labels = max(len(text) for text in (table.corner, *(row.label for row in table.rows)))
    left = start = min(labels, width // LABEL_SHARE) + PADDING
    block: list[int] = []
    for index, column in enumerate(table.columns):
        needed = max(len(column), *(_width(row.texts[index]) for row in table.rows)) + PADDING + DIVIDER
        if block and left + needed > width:
            yield block
            left, block = start, []
        left += needed
        block.append(index)
    yield block


def _width(text: Text) -> int:
    return max(len(line) for line in _marked(text))


def _marked(text: Text) -> tuple[str, ...]:
    return (BEST + text.lines[0], *text.lines[1:]) if text.tone == "best" else text.lines


def _lines(text: Text) -> Line:
    first, *others = _marked(text)
    line = Line(first, style=STYLES[text.tone])
    for other in others:
        line.append(f"\n{other}", style="not bold dim")
    return line
