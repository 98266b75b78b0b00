"""Pages on a terminal. Colour only adds to what the characters say; tables too wide are split into blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, NewLine
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

    from vebench.reports.document import Answer, Document, Explanation, FindingText, Listing, Table, Text
    from vebench.reports.page import Page

STYLES = {"plain": "", "best": "bold green", "reference_row": "cyan", "missing": "yellow", "struck": "strike yellow"}
BEST = "* "
PADDING = 2  # a blank on either side of a column
DIVIDER = 1
NARROW = 100
INDENT = (0, 0, 0, 2)
GAP = (0, 2, 0, 0)
LABEL_SHARE = 3  # a label takes a third of the width at most; longer ones are folded


def render(page: Page) -> RenderableType:
    """Return what Rich lays out at the width of the terminal: one document after another."""
    return _Documents(page.documents)


@dataclass(frozen=True)
class _Documents:
    """Documents that are laid out once the width is known. Rich looks for the method of that name."""

    documents: tuple[Document, ...]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for document in self.documents:
            yield from _document(document, options.max_width)


def _document(document: Document, width: int) -> Iterator[RenderableType]:
    """Yield the drawing, the notice, the facts, the tables, how to read them, findings, and last the answers."""
    if document.drawing is not None:
        yield document.drawing
        yield NewLine()
    yield Line(document.title, style="bold")
    if document.notice:
        yield Line(document.notice, style="bold red")
    facts = Grid.grid(padding=GAP)
    for name, value in document.facts:
        facts.add_row(Line(name, style="dim"), Line(value, overflow="fold"))
    yield facts
    for table in document.tables:
        yield from _table(table, width)
    for line in document.legend:
        yield Line(line, style="dim")
    if document.best:
        yield Line(f"{BEST}{document.best}", style="dim")
    if document.advice:
        yield NewLine()
        yield Line("Findings", style="bold")
        yield from _advice(document.advice, width)
    for answer in document.answers:
        yield NewLine()
        yield from _answer(answer)
    yield NewLine()


def _answer(answer: Answer) -> Iterator[RenderableType]:
    """Yield the sentences as a paragraph, and what to paste below it."""
    first, *others = answer.sentences
    line = Line(first, style="bold")
    line.append("".join(f" {sentence}" for sentence in others), style="not bold")
    yield line
    yield from (Padding(Line(code), INDENT) for code in answer.code)


def _advice(items: Sequence[FindingText | Explanation], width: int) -> Iterator[RenderableType]:
    """Yield findings and explanations with their labels beside them, or above them where the terminal is narrow."""
    if width < NARROW:
        for item in items:
            yield Line(item.label, style="yellow")
            yield Padding(_item(item), INDENT)
        return
    grid = Grid.grid(padding=GAP)
    for item in items:
        grid.add_row(Line(item.label, style="yellow"), _item(item))
    yield grid


def _item(item: FindingText | Explanation) -> Group:
    """Return what is the case, where, and what to do, each on lines of its own, indented where they go on."""
    places = (Padding(Line(place), INDENT) for place in item.places)
    remedy = Grid.grid(padding=(0, 1, 0, 0))
    remedy.add_row(Line("->"), Line(item.remedy, overflow="fold"))
    return Group(Line(item.text), *places, remedy)


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    yield NewLine()
    yield Line(table.title, style="bold")
    for number, block in enumerate(_blocks(table, width)):
        if number:
            yield NewLine()
        yield _grid(table, block, width)
    for note in table.notes:
        yield Line(note, style="dim")
    if table.listing:
        yield from _listing(table.listing)


def _grid(table: Table, block: Sequence[int], width: int) -> Grid:
    """Return the columns of ``block``, reference rows set apart by a line."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1), header_style="bold")
    grid.add_column(table.corner, overflow="fold", max_width=max(len(table.corner), width // LABEL_SHARE))
    for index in block:
        grid.add_column(Line(table.columns[index]), justify="right" if table.numbers else "left", overflow="fold")
    apart = False
    for row in table.rows:
        if row.reference_row and not apart:
            grid.add_section()
        apart = row.reference_row
        grid.add_row(Line(row.label), *(_lines(row.texts[index]) for index in block))
    return grid


def _listing(listing: Listing) -> Iterator[RenderableType]:
    yield Line(listing.heading, style="dim")
    for line in listing.lines:
        yield Padding(Line(line, style="dim"), INDENT)


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
