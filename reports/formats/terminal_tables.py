"""Tables that fit the width of a terminal.

A row has one line if all columns fit beside each other, else a line for each figure. If columns that are no points on
an axis are too much, what they say is put into words. Columns that still do not fit go into a further block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table as Grid
from rich.text import Text as Line

from vebench.reports.figures import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import JustifyMethod

    from vebench.reports.document import Table, Text

STYLES = {"plain": "", "best": "bold green", "reference_row": "cyan", "missing": "yellow", "struck": "strike yellow"}
BEST = "*"
GAP = 2  # between two columns, and between two figures on a line
WIDE_GAP = 4  # between two columns of several figures each
LABEL_SHARE = 3  # a label takes a third of the width at most, or what short words leave; longer ones are folded


@dataclass(frozen=True)
class Fitted:
    """A table as it is drawn: blocks of columns, one below the other; ``aside`` says what was left out of them."""

    table: Table
    blocks: tuple[Grid, ...]
    aside: tuple[str, ...] = ()


def fitted(table: Table, width: int) -> Fitted:
    """Return ``table`` as it fits ``width`` best."""
    if not table.numbers:
        return Fitted(table, (_grid(table, range(len(table.columns)), width, GAP),))
    slim, aside = _without_asides(table)
    several = any(len(text.lines) > 1 for row in table.rows for text in row.texts)
    beside = (_on_one_line(table), WIDE_GAP if several else GAP, ())
    for choice, gap, words in (beside, (table, GAP, ()), (slim, GAP, aside)):
        if len(blocks := list(_blocks(choice, width, gap))) == 1:
            return Fitted(choice, (_grid(choice, blocks[0], width, gap),), words)
    return Fitted(table, tuple(_grid(table, block, width, GAP) for block in _blocks(table, width, GAP)))


def _on_one_line(table: Table) -> Table:
    """Return the table with all figures of a place on one line, aligned with those above and below."""
    places = [[row.texts[index] for row in table.rows] for index in range(len(table.columns))]
    widths = [_line_widths(texts) for texts in places]
    rows = (
        replace(row, texts=tuple(_joined(text, widths[index]) for index, text in enumerate(row.texts)))
        for row in table.rows
    )
    return replace(table, rows=tuple(rows))


def _line_widths(texts: Sequence[Text]) -> list[int]:
    """Return the width of each line of the places of a column."""
    marked = [_marked(text) for text in texts]
    depth = max(map(len, marked), default=0)
    return [max((len(lines[line]) for lines in marked if line < len(lines)), default=0) for line in range(depth)]


def _joined(text: Text, widths: Sequence[int]) -> Text:
    lines = (*text.lines, *[""] * (len(widths) - len(text.lines)))
    return replace(
        text, lines=((" " * GAP).join(line.rjust(width) for line, width in zip(lines, widths, strict=True)),)
    )


def _without_asides(table: Table) -> tuple[Table, tuple[str, ...]]:
    """Return the table without columns that are no points on its axis, and a line for each of them."""
    kept = [index for index in range(len(table.columns)) if not table.axis or table.axis[index] is not None]
    if not kept:
        return table, ()
    rows = tuple(replace(row, texts=tuple(row.texts[index] for index in kept)) for row in table.rows)
    slim = replace(
        table,
        columns=tuple(table.columns[index] for index in kept),
        axis=tuple(table.axis[index] for index in kept) if table.axis else (),
        rows=rows,
    )
    return slim, tuple(_words(table, index) for index in range(len(table.columns)) if index not in kept)


def _words(table: Table, index: int) -> str:
    """Return what a column says: ``same work: identical: gym-sync, gym-async; equal: envpool-sync``."""
    labels: dict[str, list[str]] = {}
    for row in table.rows:
        if (text := " ".join(row.texts[index].lines)) != NOTHING:
            labels.setdefault(text, []).append(row.label)
    if len(labels) == 1:
        return f"{table.columns[index]}: {next(iter(labels))}"
    parts = [f"{text}: {', '.join(names)}" for text, names in labels.items()]
    return f"{table.columns[index]}: {'; '.join(parts)}"


def _grid(table: Table, block: Sequence[int], width: int, gap: int) -> Grid:
    """Return the columns of ``block``. An empty line sets reference rows apart, unless rows have several lines."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, gap - 1, 0, 0), pad_edge=False, header_style="bold")
    left = 0 if table.numbers else width - sum(_needed(table, index, gap) for index in block)
    grid.add_column(table.corner, overflow="fold", max_width=max(len(table.corner), width // LABEL_SHARE, left))
    side: JustifyMethod = "right" if table.numbers else "left"
    for index in block:
        grid.add_column(Line(table.columns[index], justify=side), justify=side, overflow="fold")
    apart = any(len(text.lines) > 1 for row in table.rows for text in row.texts)
    for row in table.rows:
        if row.reference_row and not apart:
            grid.add_section()
        apart = apart or row.reference_row
        grid.add_row(Line(row.label), *(_lines(row.texts[index]) for index in block))
    return grid


def _blocks(table: Table, width: int, gap: int) -> Iterator[Sequence[int]]:
    """Yield the columns' indices, as many at a time as fit beside the labels."""
    labels = max(len(text) for text in (table.corner, *(row.label for row in table.rows)))
    left = start = min(labels, width // LABEL_SHARE)
    block: list[int] = []
    for index in range(len(table.columns)):
        needed = _needed(table, index, gap)
        if block and left + needed > width:
            yield block
            left, block = start, []
        left += needed
        block.append(index)
    yield block


def _needed(table: Table, index: int, gap: int) -> int:
    """Return how wide a column is, with the gap before it."""
    return gap + max([len(table.columns[index]), *(_width(row.texts[index]) for row in table.rows)])


def _width(text: Text) -> int:
    return max(len(line) for line in _marked(text))


def _marked(text: Text) -> tuple[str, ...]:
    """Return the lines with the mark of the best right before the figure; leading blanks only align it."""
    first, *others = text.lines
    if text.tone == "best":
        figure = first.lstrip()
        first = " " * max(0, len(first) - len(figure) - len(BEST)) + BEST + figure
    return (first, *others)


def _lines(text: Text) -> Line:
    first, *others = _marked(text)
    # Rich would cut off blanks that align a figure with those above it.
    line = Line(first, style=STYLES[text.tone], justify="left" if first.endswith(" ") else None)
    for other in others:
        line.append(f"\n{other}", style="not bold dim")
    return line
