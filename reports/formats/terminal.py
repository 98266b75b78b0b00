"""Pages on a terminal. Colour only adds to what the characters say.

A terminal is read from its end. So what a run says comes last, right below its table, and what explains it comes
before. A table has as many columns beside each other as fit; those that do not are in a further block below.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, NewLine
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Line

from vebench.analysis.findings import Gravity
from vebench.reports.figures import DASH, by_key, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType

    from vebench.reports.document import Document, Page, PageKind, Remark, Table, Text

    Section = list[RenderableType]

_GRAVITIES = {Gravity.FAULT: "bold red", Gravity.WARNING: "yellow", Gravity.NOTE: "dim"}
_STYLES = {"plain": "", "best": "bold green", "reference_row": "cyan", "missing": "yellow", "struck": "strike yellow"}
_BEST = "*"
_INDENT = (0, 0, 0, 2)
_GAP = 2  # between two columns
_LABEL_SHARE = 3  # a label takes a third of the width at most, or what short words leave; longer ones are folded
_TABLES_LAST: frozenset[PageKind] = frozenset({"run"})  # what explains the tables of these pages comes before them


def on_terminal(page: Page) -> RenderableType:
    """Return what Rich lays out at the width of the terminal: one document after another."""
    return _Documents(page.documents, tables_last=page.kind in _TABLES_LAST)


@dataclass(frozen=True)
class _Documents:
    """Documents that are laid out once the width is known. Rich looks for the method of that name."""

    documents: tuple[Document, ...]
    tables_last: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        layout = _ending_with_tables if self.tables_last else _beginning_with_tables
        for number, document in enumerate(self.documents):
            if number:
                yield NewLine()
            yield from _apart(layout(document, options.max_width))
        if not self.tables_last:
            yield NewLine()


def _beginning_with_tables(document: Document, width: int) -> Iterator[Section]:
    """Yield the drawing, the facts, the tables, how to read them, and last findings and explanations."""
    yield [*_head(document)]
    *tables, last = [list(_with_notes(table, width)) for table in document.tables] or [[]]
    yield from tables
    yield [*last, *_legend(document)]
    if document.remarks:
        yield [Line("Findings", style="bold"), *_findings(document), *_explanations(document.explanations)]
    yield from _answers(document)


def _ending_with_tables(document: Document, width: int) -> Iterator[Section]:
    """Yield the facts, what was found, how to read the tables, the tables, and last what they say.

    Tables that answers are not about come before those, each with what it needs to be read.
    """
    yield [*_head(document)]
    left_out = []
    if document.notes_left_out:
        how = f"vebench report --all {shlex.quote(document.file)}"
        left_out = [Line(f"{counted(document.notes_left_out, 'note')}: {how}", style="dim")]
    yield [*_findings(document), *left_out, *_explanations(document.explanations)]
    yield from (list(_with_notes(table, width)) for table in document.tables if table.about != "answer")
    fitted = [_fitted(table, width) for table in document.tables if table.about == "answer"]
    # As sentences one after another, each once: tables of several tasks share footnotes.
    notes = dict.fromkeys(
        (*(line.plain for line in _legend(document)), *(note for one in fitted for note in one.notes))
    )
    reading = " ".join(text if text.endswith(".") else f"{text}." for text in notes)
    yield [*_listings(fitted), *([Line(reading, style="dim")] if notes else [])]
    yield from (list(_table(table, width)) for table in fitted)
    yield from _answers(document)


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
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    for name, value in document.facts:
        grid.add_row(Line(name, style="dim"), Line(value, overflow="fold"))
    if grid.row_count:
        yield grid


def _legend(document: Document) -> Iterator[Line]:
    for line in document.legend:
        yield Line(line, style="dim")
    if document.best:
        yield Line(f"{_BEST} {document.best}", style="dim")


def _with_notes(table: Table, width: int) -> Iterator[RenderableType]:
    table = _fitted(table, width)
    yield from _table(table, width)
    yield from (Line(note, style="dim") for note in table.notes)
    yield from _listings([table])


def _fitted(table: Table, width: int) -> Table:
    """Return ``table`` without the columns aside, if it is too wide; notes say what they say."""
    kept = len(table.columns) - table.aside
    if not (table.aside and kept) or len([*_blocks(table, width)]) == 1:
        return table
    return replace(
        table,
        columns=table.columns[:kept],
        aside=0,
        rows=tuple(replace(row, texts=row.texts[:kept]) for row in table.rows),
        notes=(*(_words(table, index) for index in range(kept, len(table.columns))), *table.notes),
    )


def _words(table: Table, index: int) -> str:
    """Return what a column says: ``same work: identical: gym-sync, gym-async; equal: envpool-sync``."""
    texts = ((" ".join(row.texts[index].lines), row.label) for row in table.rows)
    labels = by_key((text, label) for text, label in texts if text != DASH)
    parts = [f"{text}: {', '.join(names)}" for text, names in labels.items()]
    return f"{table.columns[index]}: {'; '.join(labels if len(labels) == 1 else parts)}"


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    yield Line(table.title, style="bold")
    for number, block in enumerate(_blocks(table, width)):
        if number:
            yield NewLine()
        yield _grid(table, block, width)


def _grid(table: Table, block: Sequence[int], width: int) -> Grid:
    """Return the columns of ``block``. An empty line sets reference rows apart, unless rows have several lines."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, _GAP - 1, 0, 0), pad_edge=False, header_style="bold")
    left = 0 if table.numbers else width - sum(_needed(table, index) for index in block)
    grid.add_column(table.corner, overflow="fold", max_width=max(len(table.corner), width // _LABEL_SHARE, left))
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


def _blocks(table: Table, width: int) -> Iterator[Sequence[int]]:
    """Yield the columns' indices, as many at a time as fit beside the labels; all of them if they hold prose."""
    if not table.numbers:
        yield range(len(table.columns))
        return
    labels = max(len(text) for text in (table.corner, *(row.label for row in table.rows)))
    left = start = min(labels, width // _LABEL_SHARE)
    block: list[int] = []
    for index in range(len(table.columns)):
        needed = _needed(table, index)
        if block and left + needed > width:
            yield block
            left, block = start, []
        left += needed
        block.append(index)
    yield block


def _needed(table: Table, index: int) -> int:
    """Return how wide a column is, with the gap before it."""
    return _GAP + max(
        [len(table.columns[index]), *(len(line) for row in table.rows for line in _marked(row.texts[index]))]
    )


def _marked(text: Text) -> tuple[str, ...]:
    """Return the lines with the mark of the best right before the figure."""
    first, *others = text.lines
    return (f"{_BEST}{first}" if text.tone == "best" else first, *others)


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
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    for alike in kinds.values():
        if (gravity := alike[0].gravity) is not None:
            grid.add_row(Line(gravity.value, style=_GRAVITIES[gravity]), _kind(alike))
    if kinds:
        yield grid


def _kind(alike: Sequence[Remark]) -> RenderableType:
    """Return findings with the same code in as few lines as possible: what, where and what to do about it."""
    label, remedies = alike[0].label, {finding.remedy for finding in alike}
    if len(alike) == 1:
        return Line(f"{label}: {_what(alike[0])} -> {alike[0].remedy}", overflow="fold")
    if len(remedies) > 1:
        texts = [f"{_what(finding)} -> {finding.remedy}" for finding in alike]
    else:
        texts = [*map(_what, alike), f"-> {alike[0].remedy}"]
    return Group(Line(f"{label}:"), *(Padding(Line(text, overflow="fold"), _INDENT) for text in texts))


def _what(finding: Remark) -> str:
    return f"{finding.text} ({'; '.join(finding.places)})" if finding.places else finding.text


def _explanations(items: Sequence[Remark]) -> Iterator[RenderableType]:
    """Yield explanations: what is the case, where, and what to do, each on lines of its own below the label."""
    for item in items:
        yield Line(item.label, style="yellow")
        yield Padding(Line(item.text), _INDENT)
        yield from (Padding(Line(place), (0, 0, 0, 4)) for place in item.places)
        if item.remedy or item.command:
            yield Padding(Line(f"-> {item.remedy}", overflow="fold"), _INDENT)
        if item.command:  # on a line of its own, which only the terminal wraps: so it can be pasted
            yield Line(item.command, style="cyan", no_wrap=True, overflow="ignore")


def _answers(document: Document) -> Iterator[Section]:
    """Yield what the tables say, each answer as a paragraph with its code. Code begins its lines, to be pasted."""
    for answer in document.answers:
        first, *others = answer.sentences
        line = Line(first, style="bold")
        line.append("".join(f" {sentence}" for sentence in others), style="not bold")
        yield [line, *(Line(code, style="cyan", overflow="fold") for code in answer.code)]
