"""Pages on a terminal. They can be read without colour.

People read a terminal from its end, so the conclusion of a run comes last, right below its table. Commands and code
have lines of their own. Only the terminal wraps these lines, so that they can be pasted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich import box
from rich.console import Console, ConsoleOptions, NewLine, RenderableType
from rich.table import Table as Grid
from rich.text import Text as Line

from vebench.analysis.cell import Gravity
from vebench.reports.document import COMMANDS, Document, Page, Remark, Table, Text

Block = list[RenderableType]
Places = list[list[list[str]]]  # the lines of each place, by row and column

_GRAVITIES = {Gravity.FAULT: "bold red", Gravity.WARNING: "yellow", Gravity.NOTE: "dim"}
_STYLES = {"plain": "", "best": "bold green", "reference_row": "cyan", "missing": "yellow", "struck": "strike yellow"}
_BEST = "*"
_GAP = 2  # the number of spaces between two columns
_LABEL_SHARE = 3  # a label takes at most one third of the width


@dataclass(frozen=True)
class OnTerminal:
    """The documents of a page, one after another. Rich lays them out at the width of the terminal."""

    page: Page

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for number, document in enumerate(self.page.documents):
            if number:
                yield NewLine()
            sections = _sections(document, options.max_width, of_run=self.page.kind == "run")
            for place, section in enumerate(section for section in sections if section):
                if place:
                    yield NewLine()
                yield from section


def _sections(document: Document, width: int, *, of_run: bool) -> list[Block]:
    """Return the parts of a document, which empty lines will separate. In a run, the most important part is last."""
    brief = bool(document.all_notes)
    legend = [*document.legend, f"{_BEST} {document.best}."] if document.best else [*document.legend]
    explained: Block = [Line(" ".join(legend), style="dim")] if legend else []
    remarks: Block = [*_remarks(document.remarks)]
    if brief:
        remarks.append(_pasted(f"All notes: {document.all_notes}", "dim"))
    tables: list[Block] = []
    further: list[Block] = []
    for table in document.tables:
        notes = table.notes if brief else (*table.notes, *table.details)
        parts = [*_table(table, width, brief=brief), *(Line(note, style="dim") for note in notes)]
        (further if table.further else tables).append(parts)
    answers: list[Block] = []
    code: list[Block] = []
    for answer in document.answers:
        line = Line(" ".join(answer.sentences))
        line.stylize("bold", 0, len(answer.sentences[0]))
        answers.append([line, _pasted(answer.command)] if answer.command else [line])
        if answer.code:
            head = [Line(f"{answer.group}: the winner in Python", style="bold")] if of_run else []
            code.append([*head, *map(_pasted, answer.code)])
    if of_run:
        return [[*_head(document)], remarks, *further, *code, explained, *tables, *answers]
    return [[*_head(document)], *further, *tables, explained, remarks, *answers, *code]


def _head(document: Document) -> Iterator[RenderableType]:
    yield Line(document.title, style="bold")
    if document.notice:
        yield Line(document.notice, style="bold red")
    names = max((len(name) for name, _ in document.facts), default=0)
    for name, value in document.facts:
        if name in COMMANDS or " " not in value:
            yield _pasted(f"{name:{names + _GAP}}", "dim").append(value, "not dim")
        else:
            yield _side_by_side(names, Line(name, style="dim"), value)


def _remarks(remarks: Sequence[Remark]) -> Iterator[RenderableType]:
    """Yield findings and explanations. If consecutive remarks share a remedy, it follows the last of them."""
    width = max((len(one.gravity or one.label) for one in remarks), default=0)
    for one, after in zip_longest(remarks, remarks[1:]):
        text = one.text if one.gravity is None else f"{one.label}: {one.text}"
        if one.places:
            text += f" ({'; '.join(one.places)})"
        shared = after is not None and after.label == one.label and after.remedy == one.remedy
        if one.remedy and not shared:
            text += f" -> {one.remedy}"
        left = Line(one.gravity or one.label, style=_GRAVITIES[one.gravity] if one.gravity else "yellow")
        yield _side_by_side(width, left, text)
        if one.command and not shared:
            yield _pasted(one.command)


def _table(table: Table, width: int, *, brief: bool) -> Iterator[RenderableType]:
    """Yield a table with one line for each row if it fits. Otherwise, yield all lines, in several blocks if necessary.

    With ``brief``, the words after a number are shortened if they do not fit. Words wrap, and numbers do not.
    """
    yield Line(table.title, style="bold")
    stacked = [[_marked(text) for text in row.texts] for row in table.rows]
    if not table.numbers:
        yield _grid(table, stacked, range(len(table.columns)), [])
        return
    label = min(max(map(len, (table.corner, *(row.label for row in table.rows)))), width // _LABEL_SHARE)
    for short in (False, True) if brief else (False,):
        joined = _joined(table, stacked, short=short)
        widths = _widths(table, joined)
        if label + sum(_GAP + wide for wide in widths) <= width:
            yield _grid(table, joined, range(len(widths)), [label, *widths])
            return
    widths = _widths(table, stacked)
    for number, block in enumerate(_blocks(widths, width - label)):
        if number:
            yield NewLine()
        yield _grid(table, stacked, block, [label, *(widths[index] for index in block)])


def _marked(text: Text) -> list[str]:
    first, *others = text.lines
    return [f"{_BEST}{first}" if text.tone == "best" else first, *others]


def _joined(table: Table, stacked: Places, *, short: bool) -> Places:
    """Return the lines of each place. In columns with ``short`` forms, the second line is put after the first.

    All texts of such a column have the same length, so that numbers are aligned.
    """
    rows = [list(row) for row in stacked]
    for index in range(len(table.columns)):
        texts = [row.texts[index] for row in table.rows]
        if not any(text.short for text in texts):
            continue
        seconds = [text.short if short else "".join(text.lines[1:]) for text in texts]
        first, second = max(len(row[index][0]) for row in rows), max(map(len, seconds))
        for row, after in zip(rows, seconds, strict=True):
            row[index] = [f"{row[index][0]:>{first}} {after:{second}}"]
    return rows


def _widths(table: Table, lines: Places) -> list[int]:
    columns = []
    for index, head in enumerate(table.columns):
        columns.append(max(map(len, [head, *(line for row in lines for line in row[index])])))
    return columns


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Yield blocks of column indices. The columns of a block fit next to the labels."""
    block: list[int] = []
    for index, wide in enumerate(widths):
        if block and sum(_GAP + widths[one] for one in block) + _GAP + wide > room:
            yield block
            block = []
        block.append(index)
    yield block


def _grid(table: Table, lines: Places, block: Iterable[int], widths: Sequence[int]) -> Grid:
    """Return the columns of ``block``. An empty line separates reference rows, unless rows have several lines."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, _GAP - 1, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column(table.corner, overflow="fold", width=widths[0] if widths else None)
    for place, index in enumerate(block, 1):
        head = Line(table.columns[index])
        if widths:
            grid.add_column(head, justify="right", no_wrap=True, width=widths[place])
        else:
            words = [word for row in lines for line in row[index] for word in line.split()]
            grid.add_column(head, overflow="fold", min_width=max(map(len, words), default=0))
    apart = any(len(place) > 1 for row in lines for place in row)
    for row, own in zip(table.rows, lines, strict=True):
        if row.reference_row and not apart:
            grid.add_section()
            apart = True
        places = []
        for index in block:
            first, *others = own[index]
            places.append(Line(first, style=_STYLES[row.texts[index].tone]))
            for other in others:
                places[-1].append(f"\n{other}", style="not bold not strike dim")
        grid.add_row(Line(row.label), *places)
    return grid


def _side_by_side(width: int, left: Line, text: str) -> Grid:
    """Return ``left``, at least ``width`` columns wide, with ``text`` to the right of it."""
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(min_width=width)
    grid.add_row(left, Line(text, overflow="fold"))
    return grid


def _pasted(text: str, style: str = "cyan") -> Line:
    """Return a line that only the terminal wraps."""
    return Line(text, style=style, no_wrap=True, overflow="ignore")
