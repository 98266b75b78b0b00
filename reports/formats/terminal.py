"""Pages on a terminal. Colour only adds to what the characters say.

A terminal is read from its end. So the conclusion of a run comes last, right below its table, and what explains the
table comes before it. Commands and code have lines of their own, which only the terminal wraps: they can be pasted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, NewLine
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Line

from vebench.analysis.findings import Gravity
from vebench.reports.figures import by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType

    from vebench.reports.document import AnswerText, Document, Page, Remark, Table, Text

    Section = list[RenderableType]

_GRAVITIES = {Gravity.FAULT: "bold red", Gravity.WARNING: "yellow", Gravity.NOTE: "dim"}
_STYLES = {"plain": "", "best": "bold green", "reference_row": "cyan", "missing": "yellow", "struck": "strike yellow"}
_BEST = "*"
_GAP = 2  # between two columns
_LABEL_SHARE = 3  # a label takes a third of the width at most


def on_terminal(page: Page) -> RenderableType:
    """Return the documents, one after another. Rich lays them out at the width of the terminal."""
    return _Documents(page.documents, tables_last=page.kind == "run")


@dataclass(frozen=True)
class _Documents:
    documents: tuple[Document, ...]
    tables_last: bool

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        sections = _tables_last if self.tables_last else _tables_first
        for number, document in enumerate(self.documents):
            if number:
                yield NewLine()
            yield from _apart(sections(document, options.max_width))
        if not self.tables_last:
            yield NewLine()


def _apart(sections: Iterable[Section]) -> Iterator[RenderableType]:
    """Yield the parts of all sections, with an empty line between sections."""
    for number, section in enumerate(section for section in sections if section):
        if number:
            yield NewLine()
        yield from section


def _tables_first(document: Document, width: int) -> Iterator[Section]:
    yield [*_head(document)]
    *tables, last = [_with_notes(table, width) for table in document.tables] or [[]]
    yield from tables
    yield [*last, *map(_dim, _legend(document))]
    if document.remarks:
        yield [Line("Findings", style="bold"), *_findings(document), *_explanations(document.explanations)]
    for answer in document.answers:
        yield [*_answer(answer), *map(_pasted, answer.code)]


def _tables_last(document: Document, width: int) -> Iterator[Section]:
    brief = bool(document.all_notes)
    tables = [table for table in document.tables if not table.further]
    hint = [_pasted(f"All notes: {document.all_notes}", "dim")] if brief else []
    yield [*_head(document)]
    yield [*_findings(document), *hint, *_explanations(document.explanations)]
    for table in document.tables:
        if table.further:
            yield _with_notes(table, width)
    for answer in document.answers:
        if answer.code:
            yield [Line(f"{answer.group}: the winner in Python", style="bold"), *map(_pasted, answer.code)]
    notes = [*_legend(document), *_shared_notes(tables, brief=brief)]
    if brief:  # one paragraph, to leave room for the table
        notes = [" ".join(note if note.endswith(".") else f"{note}." for note in notes)]
    yield [*map(_dim, notes)]
    for table in tables:
        yield [*_table(table, width, brief=brief)]
    for answer in document.answers:
        yield [*_answer(answer)]


def _head(document: Document) -> Iterator[RenderableType]:
    yield Line(document.title, style="bold")
    if document.notice:
        yield Line(document.notice, style="bold red")
    names = max((len(name) for name, _ in document.facts), default=0)
    for name, value in document.facts:
        if " " not in value or value.startswith("vebench "):
            yield _pasted(f"{name:{names + _GAP}}", "dim").append(value, "not dim")
        else:
            yield _side_by_side(names, Line(name, style="dim"), Line(value, overflow="fold"))


def _legend(document: Document) -> list[str]:
    best = [f"{_BEST} {document.best}"] if document.best else []
    return [*document.legend, *best]


def _with_notes(table: Table, width: int) -> Section:
    return [*_table(table, width), *map(_dim, (*table.notes, *table.details))]


def _shared_notes(tables: Sequence[Table], *, brief: bool) -> Iterator[str]:
    """Yield the notes of several tables, each once. A note that is not about all groups names its own."""
    every = {table.group for table in tables}
    pairs = ((note, table.group) for table in tables for note in (*table.notes, *(() if brief else table.details)))
    for note, groups in by_key(pairs).items():
        yield note if len(groups) == len(every) else f"{', '.join(groups)}: {note}"


def _table(table: Table, width: int, *, brief: bool = False) -> Iterator[RenderableType]:
    """Yield a table with one line for each row if it fits, else with all lines, in several blocks if necessary.

    Second lines are shortened if ``brief`` is set and they do not fit otherwise.
    """
    yield Line(table.title, style="bold")
    for shortened in (False, True) if brief else (False,):
        joined = _joined(table, brief=shortened)
        if len([*_blocks(joined, width)]) == 1:
            table = joined
            break
    for number, block in enumerate(_blocks(table, width)):
        if number:
            yield NewLine()
        yield _grid(table, block, width)


def _joined(table: Table, *, brief: bool) -> Table:
    """Return ``table`` with second lines next to the first in columns that have short forms of them.

    If ``brief``, the short forms are used. All texts of such a column have the same length, so numbers are aligned.
    """
    rows = [list(row.texts) for row in table.rows]
    for index, head in enumerate(table.columns):
        texts = [row[index] for row in rows]
        if not any(text.short for text in texts):
            continue
        seconds = [text.short if brief else "".join(text.lines[1:]) for text in texts]
        second = max(map(len, seconds))
        first = 1 + max(len(text.lines[0]) for text in texts)  # with room for the mark of the best
        first = max(first, len(head) - 1 - second)
        for row, text, after in zip(rows, texts, seconds, strict=True):
            row[index] = replace(text, lines=(f"{text.lines[0]:>{first}} {after:{second}}",))
    changed = (replace(row, texts=tuple(texts)) for row, texts in zip(table.rows, rows, strict=True))
    return replace(table, rows=tuple(changed))


def _blocks(table: Table, width: int) -> Iterator[list[int]]:
    """Yield the indices of columns that fit next to the labels without breaking a word.

    If labels are not unique, the first column tells rows apart and is in each block.
    """
    labels = [row.label for row in table.rows]
    first = [0] if len(set(labels)) < len(labels) else []
    block = first
    for index in range(len(first), len(table.columns)):
        if len(block) > len(first) and _label_width(table, width) + _width(table, [*block, index]) > width:
            yield block
            block = first
        block = [*block, index]
    yield block


def _grid(table: Table, block: Sequence[int], width: int) -> Grid:
    """Return the columns of ``block``. An empty line sets reference rows apart, unless rows have several lines."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, _GAP - 1, 0, 0), pad_edge=False, header_style="bold")
    side: JustifyMethod = "right" if table.numbers else "left"
    labels, *widths = _widths(table, block, width)
    grid.add_column(table.corner, overflow="fold", width=labels)
    for index, wide in zip(block, widths, strict=True):
        aligned = len({len(line) for row in table.rows for line in row.texts[index].lines}) == 1
        head = Line(table.columns[index], justify=side)
        grid.add_column(head, justify="left" if aligned else side, overflow="fold", width=wide)
    apart = any(len(text.lines) > 1 for row in table.rows for text in row.texts)
    for row in table.rows:
        if row.reference_row and not apart:
            grid.add_section()
            apart = True
        grid.add_row(Line(row.label), *(_lines(row.texts[index]) for index in block))
    return grid


def _widths(table: Table, block: Sequence[int], width: int) -> list[int]:
    """Return the widths of the labels and of columns: enough for each word, and as much more as there is room."""
    columns = [_labels(table), *(_column(table, index) for index in block)]
    widths = [_label_width(table, width), *(_width(table, [index]) - _GAP for index in block)]
    spare = width - sum(widths) - _GAP * len(block)
    lacks = [max(map(len, texts)) - wide for texts, wide in zip(columns, widths, strict=True)]
    for place in sorted(range(len(lacks)), key=lacks.__getitem__):
        more = max(0, min(spare, lacks[place]))
        widths[place] += more
        spare -= more
    return widths


def _width(table: Table, block: Sequence[int]) -> int:
    """Return how wide these columns are at least, each with the gap before it."""
    return sum(_GAP + _widest(table, _column(table, index)) for index in block)


def _label_width(table: Table, width: int) -> int:
    return min(_widest(table, _labels(table)), width // _LABEL_SHARE)


def _widest(table: Table, texts: Iterable[str]) -> int:
    """Return the length of the longest number, or of the longest word in prose."""
    return max(len(piece) for text in texts for piece in ([text] if table.numbers else text.split() or [""]))


def _column(table: Table, index: int) -> list[str]:
    return [table.columns[index], *(line for row in table.rows for line in _marked(row.texts[index]))]


def _labels(table: Table) -> list[str]:
    return [table.corner, *(row.label for row in table.rows)]


def _marked(text: Text) -> tuple[str, ...]:
    """Return the lines with the mark of the best right before the number."""
    if text.tone != "best":
        return text.lines
    first, *others = text.lines
    number = first.lstrip()
    return (f"{first[: -len(number) - 1]}{_BEST}{number}", *others)


def _lines(text: Text) -> Line:
    first, *others = _marked(text)
    line = Line(first, style=_STYLES[text.tone])
    for other in others:
        line.append(f"\n{other}", style="not bold dim")
    return line


def _findings(document: Document) -> Iterator[RenderableType]:
    """Yield the findings, those with the same code together, with their gravity on the left."""
    width = max(len(one.value) for one in Gravity)
    for alike in by_key((finding.label, finding) for finding in document.findings).values():
        gravity = alike[0].gravity or Gravity.NOTE
        yield _side_by_side(width, Line(gravity.value, style=_GRAVITIES[gravity]), _kind(alike))
        commands = [_split(finding.remedy)[1] for finding in alike]
        yield from map(_pasted, dict.fromkeys(command for command in commands if command))


def _kind(alike: Sequence[Remark]) -> RenderableType:
    """Return findings with the same code: where and what, and the remedy once if it is the same."""
    texts = [f"{one.text} ({'; '.join(one.places)})" if one.places else one.text for one in alike]
    remedies = [_split(one.remedy)[0] for one in alike]
    label = alike[0].label
    if len(alike) == 1:
        return Line(f"{label}: {texts[0]} -> {remedies[0]}", overflow="fold")
    if len(set(remedies)) == 1:
        lines = [*texts, f"-> {remedies[0]}"]
    else:
        lines = [f"{text} -> {remedy}" for text, remedy in zip(texts, remedies, strict=True)]
    return Group(Line(f"{label}:"), *map(_indented, lines))


def _explanations(items: Sequence[Remark]) -> Iterator[RenderableType]:
    before = ""
    for item in items:
        if item.label != before:
            yield Line(item.label, style="yellow")
        before = item.label
        yield _indented(item.text)
        for place in item.places:
            yield _indented(place, 4)
        if item.remedy or item.command:
            yield _indented(f"-> {item.remedy}")
        if item.command:
            yield _pasted(item.command)


def _answer(answer: AnswerText) -> Iterator[Line]:
    words, command = _split(" ".join(answer.sentences))
    line = Line(words)
    line.stylize("bold", 0, len(answer.sentences[0]))
    yield line
    if command:
        yield _pasted(command)


def _split(text: str) -> tuple[str, str]:
    """Return a text without the command that it ends with, and the command, empty if there is none."""
    words, found, command = text.rpartition(": vebench ")
    return (f"{words}:", f"vebench {command}") if found else (text, "")


def _side_by_side(width: int, *parts: RenderableType) -> Grid:
    """Return two parts side by side, the first at least ``width`` wide."""
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(min_width=width)
    grid.add_row(*parts)
    return grid


def _dim(text: str) -> Line:
    return Line(text, style="dim")


def _indented(text: str, by: int = 2) -> Padding:
    return Padding(Line(text, overflow="fold"), (0, 0, 0, by))


def _pasted(text: str, style: str = "cyan") -> Line:
    """Return a line that only the terminal wraps."""
    return Line(text, style=style, no_wrap=True, overflow="ignore")
