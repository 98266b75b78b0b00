"""Pages on a terminal. Colour only adds to what the characters say.

A terminal is read from its end. So what a run says comes last, right below its table; the lines of Python and what
explains the table come before. A table has a line for each row, or a few where that is too wide, and as many columns
beside each other as fit; those that do not are in a further block below. Commands and code have lines of their own,
which only the terminal wraps: so they can be pasted.
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
from vebench.reports.figures import DASH, by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType

    from vebench.reports.document import AnswerText, Document, Page, PageKind, Remark, Table, Text

    Section = Sequence[RenderableType]

_GRAVITIES = {Gravity.FAULT: "bold red", Gravity.WARNING: "yellow", Gravity.NOTE: "dim"}
_STYLES = {"plain": "", "best": "bold green", "reference_row": "cyan", "missing": "yellow", "struck": "strike yellow"}
_BEST = "*"
_INDENT = (0, 0, 0, 2)
_GAP = 2  # between two columns
_MOST_NOTES = 3  # lines right above the tables of a run, unless all was asked for
_TABLES_LAST: frozenset[PageKind] = frozenset({"run"})  # what explains the tables of these pages comes before them
_LABEL_SHARE = 3  # a label takes a third of the width at most, or what short words leave; longer ones are folded


def on_terminal(page: Page) -> RenderableType:
    """Return what Rich lays out at the width of the terminal: one document after another."""
    return _Documents(page.documents, tables_last=page.kind in _TABLES_LAST)


@dataclass(frozen=True)
class _Documents:
    """Documents that are laid out once the width is known. Rich looks for the method of that name."""

    documents: tuple[Document, ...]
    tables_last: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for number, document in enumerate(self.documents):
            if number:
                yield NewLine()
            if self.tables_last:
                yield from _apart(_ending_with_tables(document, console, options.max_width))
            else:
                yield from _apart(_beginning_with_tables(document, options.max_width))
        if not self.tables_last:
            yield NewLine()


def _beginning_with_tables(document: Document, width: int) -> Iterator[Section]:
    """Yield the drawing, the facts, the tables, how to read them, and last findings and explanations."""
    yield [*_head(document)]
    *tables, last = [list(_with_notes(table, width)) for table in document.tables] or [[]]
    yield from tables
    yield [*last, *(Line(text, style="dim") for text in _legend(document))]
    if document.remarks:
        yield [Line("Findings", style="bold"), *_findings(document), *_explanations(document.explanations)]
    yield from ([*_answer(answer), *map(_pasted, answer.code)] for answer in document.answers)


def _ending_with_tables(document: Document, console: Console, width: int) -> Iterator[Section]:
    """Yield the facts, what was found, the lines of Python, how to read the tables, the tables, and last what they say.

    Tables that answers are not about come before those, each with what it needs to be read. Of the notes on the others
    there are as many as fit a few lines, if not all were asked for; what columns without room say is always there.
    """
    yield [*_head(document)]
    tables = [table for table in document.tables if table.about == "answer"]
    fitted = [_fitted(table, width, brief=bool(document.all_notes)) for table in tables]
    # As sentences one after another, each once: tables of several tasks share footnotes. What marks mean comes first.
    legend, of_tables = _legend(document), (note for one in fitted for note in one.notes)
    aside = {_words(table, index) for table in tables for index in range(len(table.columns))}
    notes = dict.fromkeys((*legend[:1], *legend[-1:], *of_tables, *legend))
    reading = Line(style="dim")
    for note in notes:
        longer = reading.copy().append(f"{' ' if reading else ''}{note if note.endswith('.') else f'{note}.'}")
        if not document.all_notes or note in aside or len(longer.wrap(console, width)) <= _MOST_NOTES:
            reading = longer
    hint = [_pasted(f"All notes: {document.all_notes}", "dim")] if document.all_notes else []
    yield [*_findings(document), *hint, *_explanations(document.explanations)]
    yield from (list(_with_notes(table, width)) for table in document.tables if table.about != "answer")
    for answer in document.answers:
        if answer.code:
            yield [Line(f"{answer.group}: the winner in Python", style="bold"), *map(_pasted, answer.code)]
    yield [*(() if document.all_notes else _listings(fitted)), *([reading] if reading else ())]
    yield from (list(_table(table, width)) for table in fitted)
    yield from ([*_answer(answer)] for answer in document.answers)


def _apart(sections: Iterable[Section]) -> Iterator[RenderableType]:
    """Yield all parts, with an empty line between sections; those without a part do not count."""
    for number, section in enumerate(filter(None, sections)):
        if number:
            yield NewLine()
        yield from section


def _head(document: Document) -> Iterator[RenderableType]:
    if document.drawing is not None:
        yield document.drawing
        yield NewLine()
    yield Line(document.title, style="bold")
    if document.notice:
        yield Line(document.notice, style="bold red")
    names = max((len(name) for name, _ in document.facts), default=0)
    for name, value in document.facts:
        if " " not in value or value.startswith("vebench "):
            yield _pasted(f"{name:{names + _GAP}}", "dim").append(value, "not dim")
        else:
            yield _beside(names, Line(name, style="dim"), Line(value, overflow="fold"))


def _legend(document: Document) -> tuple[str, ...]:
    return (*document.legend, *((f"{_BEST} {document.best}",) if document.best else ()))


def _with_notes(table: Table, width: int) -> Iterator[RenderableType]:
    table = _fitted(table, width, brief=False)
    yield from _table(table, width)
    yield from (Line(note, style="dim") for note in table.notes)
    yield from _listings([table])


def _fitted(table: Table, width: int, *, brief: bool) -> Table:
    """Return ``table`` with one line for each row if that fits, else with all; if need be without the columns aside.

    A ``brief`` one has the short form of second lines if only that fits beside the first.
    """
    forms = (_in_one_line(table), *((_in_one_line(table, short=True),) if brief else ()), table)
    layouts = [layout for one in forms for layout in (one, _without_aside(one))]
    return next((one for one in layouts if len([*_blocks(one, width)]) == 1), layouts[-1])


def _in_one_line(table: Table, *, short: bool = False) -> Table:
    """Return ``table`` with second lines, or their short forms, beside the first where they may be.

    Places of a column are then of one length: figures below each other, and what follows them.
    """
    columns = []
    for index, head in enumerate(table.columns):
        texts = [row.texts[index] for row in table.rows]
        if any(text.short for text in texts):
            parts = [(text.lines[0], text.short if short else "".join(text.lines[1:])) for text in texts]
            second = max(len(after) for _, after in parts)
            first = max(len(head) - 1 - second, 1 + max(len(figure) for figure, _ in parts))  # with room for the mark
            lines = (f"{figure:>{first}} {after:{second}}" for figure, after in parts)
            texts = [replace(text, lines=(line,)) for text, line in zip(texts, lines, strict=True)]
        columns.append(texts)
    rows = zip(table.rows, zip(*columns, strict=True), strict=True)
    return replace(table, rows=tuple(replace(row, texts=texts) for row, texts in rows))


def _without_aside(table: Table) -> Table:
    """Return ``table`` without the columns aside; notes say what they say, right before the notes on them."""
    kept, notes = len(table.columns) - table.aside, table.notes
    if not (table.aside and kept):
        return table
    for index in range(kept, len(table.columns)):
        on_it = f"{table.columns[index]}: "
        of_it = tuple(note.removeprefix(on_it) for note in notes if note.startswith(on_it))
        notes = (*(note for note in notes if not note.startswith(on_it)), _words(table, index), *of_it)
    rows = tuple(replace(row, texts=row.texts[:kept]) for row in table.rows)
    return replace(table, columns=table.columns[:kept], aside=0, rows=rows, notes=notes)


def _words(table: Table, index: int) -> str:
    """Return what a column says of most rows, and then of the others: ``Same work: identical; envpool-sync: equal``."""
    texts = ((" ".join(row.texts[index].lines), row.label) for row in table.rows)
    labels = by_key((text, label) for text, label in texts if text != DASH)
    most = max(labels, key=lambda text: len(labels[text]), default=DASH)
    others = (f"{', '.join(names)}: {text}" for text, names in labels.items() if text != most)
    return f"{table.columns[index].capitalize()}: {'; '.join((most, *others))}"


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    yield Line(table.title, style="bold")
    for number, block in enumerate(_blocks(table, width)):
        if number:
            yield NewLine()
        yield _grid(table, block, width)


def _grid(table: Table, block: Sequence[int], width: int) -> Grid:
    """Return the columns of ``block``. An empty line sets reference rows apart, unless rows have several lines."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, _GAP - 1, 0, 0), pad_edge=False, header_style="bold")
    side: JustifyMethod = "right" if table.numbers else "left"
    labels, *widths = _widths(table, block, width)
    grid.add_column(table.corner, overflow="fold", max_width=labels, width=None if table.numbers else labels)
    for index, wide in zip(block, widths, strict=True):
        aligned = len({len(line) for row in table.rows for line in row.texts[index].lines}) == 1
        head, justify = Line(table.columns[index], justify=side), "left" if aligned else side
        grid.add_column(head, justify=justify, overflow="fold", width=None if table.numbers else wide)
    apart = any(len(text.lines) > 1 for row in table.rows for text in row.texts)
    for row in table.rows:
        if row.reference_row and not apart:
            grid.add_section()
        apart = apart or row.reference_row
        grid.add_row(Line(row.label), *(_lines(row.texts[index]) for index in block))
    return grid


def _widths(table: Table, block: Sequence[int], width: int) -> list[int]:
    """Return the widths of the labels and of columns: what words need, and as much more as there is for prose."""
    columns = [_labels(table), *(_column(table, index) for index in block)]
    widths = [_label_width(table, width), *(_needed(table, index) - _GAP for index in block)]
    spare = width - sum(widths) - _GAP * len(block)
    lacks = {place: max(map(len, texts)) - widths[place] for place, texts in enumerate(columns)}
    for place in sorted(lacks, key=lacks.__getitem__):  # those first that are soon on one line
        more = max(0, min(spare, lacks[place]))
        widths[place] += more
        spare -= more
    return widths


def _blocks(table: Table, width: int) -> Iterator[Sequence[int]]:
    """Yield the columns' indices, as many at a time as fit beside the labels without breaking a word.

    The first column tells rows with the same label apart, and is then in each block.
    """
    needed, room = [_needed(table, index) for index in range(len(table.columns))], width - _label_width(table, width)
    block = first = [0] * (len({row.label for row in table.rows}) < len(table.rows))
    for index in range(len(first), len(needed)):
        if len(block) > len(first) and sum(needed[before] for before in block) + needed[index] > room:
            yield block
            block = first
        block = [*block, index]
    yield block


def _needed(table: Table, index: int) -> int:
    """Return how wide a column is at least, with the gap before it."""
    return _GAP + _widest(table, _column(table, index))


def _column(table: Table, index: int) -> Sequence[str]:
    return [table.columns[index], *(line for row in table.rows for line in _marked(row.texts[index]))]


def _labels(table: Table) -> Sequence[str]:
    return [table.corner, *(row.label for row in table.rows)]


def _label_width(table: Table, width: int) -> int:
    return min(_widest(table, _labels(table)), width // _LABEL_SHARE)


def _widest(table: Table, texts: Iterable[str]) -> int:
    """Return the length of the longest text, or of the longest word in prose."""
    return max(len(piece) for text in texts for piece in ([text] if table.numbers else text.split() or [""]))


def _marked(text: Text) -> tuple[str, ...]:
    """Return the lines with the mark of the best right before the figure."""
    first, *others = text.lines
    figure = first.lstrip()
    return (f"{first[: -len(figure) - 1]}{_BEST}{figure}" if text.tone == "best" else first, *others)


def _lines(text: Text) -> Line:
    first, *others = _marked(text)
    line = Line(first, style=_STYLES[text.tone])
    for other in others:
        line.append(f"\n{other}", style="not bold dim")
    return line


def _listings(tables: Sequence[Table]) -> Iterator[RenderableType]:
    """Yield the listings of several tables as one for each heading. What does not hold for all says for which."""
    headings: dict[str, dict[str, list[str]]] = {}
    for group, listing in ((table.group, table.listing) for table in tables if table.listing is not None):
        for line in listing.lines:
            headings.setdefault(listing.heading, {}).setdefault(line, []).append(group)
    every = len({table.group for table in tables})
    for heading, groups in headings.items():
        texts = (line if len(of) == every else f"{', '.join(of)}: {line}" for line, of in groups.items())
        yield Line(heading, style="dim")
        yield from (Padding(Line(text, style="dim"), _INDENT) for text in texts)


def _findings(document: Document) -> Iterator[RenderableType]:
    """Yield the findings, those with the same code together, with what they mean for the figures beside them."""
    kinds = by_key((finding.label, finding) for finding in document.findings)
    for alike in kinds.values():
        if (gravity := alike[0].gravity) is not None:
            width = max(len(one.value) for one in Gravity)
            yield _beside(width, Line(gravity.value, style=_GRAVITIES[gravity]), _kind(alike))
            commands = (_split(finding.remedy)[1] for finding in alike)
            yield from map(_pasted, dict.fromkeys(filter(None, commands)))


def _beside(width: int, *parts: RenderableType) -> Grid:
    """Return two parts beside each other, the first of this width at least."""
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(min_width=width)
    grid.add_row(*parts)
    return grid


def _kind(alike: Sequence[Remark]) -> RenderableType:
    """Return findings with the same code in as few lines as possible: what, where and what to do about it."""
    label, remedies = alike[0].label, [_split(finding.remedy)[0] for finding in alike]
    if len(alike) == 1:
        return Line(f"{label}: {_what(alike[0])} -> {remedies[0]}", overflow="fold")
    if len(set(remedies)) > 1:
        texts = [f"{_what(finding)} -> {remedy}" for finding, remedy in zip(alike, remedies, strict=True)]
    else:
        texts = [*map(_what, alike), f"-> {remedies[0]}"]
    return Group(Line(f"{label}:"), *(Padding(Line(text, overflow="fold"), _INDENT) for text in texts))


def _what(finding: Remark) -> str:
    return f"{finding.text} ({'; '.join(finding.places)})" if finding.places else finding.text


def _explanations(items: Sequence[Remark]) -> Iterator[RenderableType]:
    """Yield explanations: what is the case, where, and what to do, on lines of their own below each label."""
    for before, item in zip((None, *items), items, strict=False):
        if before is None or before.label != item.label:
            yield Line(item.label, style="yellow")
        yield Padding(Line(item.text), _INDENT)
        yield from (Padding(Line(place), (0, 0, 0, 4)) for place in item.places)
        if item.remedy or item.command:
            yield Padding(Line(f"-> {item.remedy}", overflow="fold"), _INDENT)
        if item.command:
            yield _pasted(item.command)


def _answer(answer: AnswerText) -> Iterator[Line]:
    words, command = _split(" ".join(answer.sentences))
    line = Line(words)
    line.stylize("bold", 0, len(answer.sentences[0]))
    yield from (line, *([_pasted(command)] if command else ()))


def _split(text: str) -> tuple[str, str]:
    """Return a text without the command that it ends with, and the command, empty if there is none."""
    words, found, command = text.rpartition(": vebench ")
    return (f"{words}:", f"vebench {command}") if found else (text, "")


def _pasted(text: str, style: str = "cyan") -> Line:
    """Return a line that only the terminal wraps."""
    return Line(text, style=style, no_wrap=True, overflow="ignore")
