"""Pages on a terminal. Colour only adds to what the characters say; tables too wide are split into blocks.

A terminal is read from its end, and shows few lines at a time. So what a run says comes last, right below its table,
and what explains it comes before. Where there is room for more, figures and all facts are shown, too.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, NewLine
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Line

from vebench.analysis.findings import Gravity
from vebench.reports.console import OurConsole
from vebench.reports.figures import counted
from vebench.reports.formats import terminal_charts, terminal_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

    from vebench.reports.document import Document, Explanation, FindingText, Table
    from vebench.reports.formats.terminal_tables import Fitted
    from vebench.reports.page import Kind, Page

    Section = list[RenderableType]

GRAVITIES = {Gravity.FAULT: "bold red", Gravity.WARNING: "yellow", Gravity.NOTE: "dim"}
NARROW = 100
INDENT = (0, 0, 0, 2)
GAP = (0, 2, 0, 0)
MOST_CODE = 5  # lines of an answer's code below a table that fills most of a small terminal
TABLES_LAST: frozenset[Kind] = frozenset({"run"})  # what explains the tables of these pages comes before them


def render(page: Page) -> RenderableType:
    """Return what Rich lays out at the size of the terminal: one document after another."""
    return _Documents(page.documents, tables_last=page.kind in TABLES_LAST)


@dataclass(frozen=True)
class _Documents:
    """Documents that are laid out once the size is known. Rich looks for the method of that name."""

    documents: tuple[Document, ...]
    tables_last: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        room = console.room / len(self.documents) if isinstance(console, OurConsole) and self.documents else 0.0
        layout = _Layout(console, options, room)
        for number, document in enumerate(self.documents):
            if number:
                yield NewLine()
            yield from (
                layout.ending_with_tables(document) if self.tables_last else layout.beginning_with_tables(document)
            )
        if not self.tables_last:
            yield NewLine()


@dataclass(frozen=True)
class _Layout:
    """How a document is laid out on a console with ``room`` for this many lines, 0 if nobody knows."""

    console: Console
    options: ConsoleOptions
    room: float

    @property
    def width(self) -> int:
        return self.options.max_width

    def beginning_with_tables(self, document: Document) -> Iterator[RenderableType]:
        """Yield the drawing, the facts, the tables, how to read them, and last findings and explanations."""
        yield from _head(document, document.facts)
        for table in document.tables:
            yield NewLine()
            yield from self._with_notes(table)
        yield from _legend(document)
        if document.advice:
            yield NewLine()
            yield Line("Findings", style="bold")
            yield from _findings(document)
            yield from _explanations(document.explanations, self.width)
        yield from _apart(_answers(document, in_full=True))

    def ending_with_tables(self, document: Document) -> Iterator[RenderableType]:
        """Yield the facts, what was found, how to read the tables, the tables, and last what they say.

        Tables that answers are not about come before those, each with what it needs to be read. Figures, and facts that
        are not needed, are there if the whole document still can be seen at the same time.
        """
        answering = [table for table in document.tables if table.about == "answer"]
        others = [list(self._with_notes(table)) for table in document.tables if table.about != "answer"]
        fitted = [terminal_tables.fitted(table, self.width) for table in answering]
        found = [*_findings(document), *_left_out(document), *_explanations(document.explanations, self.width)]
        reading = [*_listings(answering)]
        reading += _paragraph([*_legend(document), *(note for table in fitted for note in _notes(table))])
        tables = [list(_table(table)) for table in fitted]
        charts: list[Section] = [list(part) for part in terminal_charts.drawn(document.charts, self.width)]
        brief = list(_head(document, [fact for fact in document.facts if fact[0] in document.key_facts], cut=True))
        full = list(_head(document, document.facts))
        end = [*tables, *_answers(document, in_full=True)]
        if not (document.in_full or self._fits(end) or not self.room):
            end = self._close([*tables, *_answers(document, in_full=False)])
        rest = [found, *others, reading, *end]
        choices = ([full, *charts, *rest], [brief, *charts, *rest], [full, *rest])
        least = [brief if document.key_facts else full, *rest]
        if document.in_full:
            yield from _apart(choices[0])
        else:
            yield from _apart(next((choice for choice in choices if self._fits(choice)), least))

    def _with_notes(self, table: Table) -> Iterator[RenderableType]:
        fitted = terminal_tables.fitted(table, self.width)
        yield from _table(fitted)
        yield from _notes(fitted)
        yield from _listing(table)

    def _close(self, sections: list[Section]) -> list[Section]:
        """Return the sections as one, without empty lines, if they can be seen at the same time only so."""
        close = [[part for section in sections for part in section]]
        return close if self._fits(close) and not self._fits(sections) else sections

    def _fits(self, sections: Sequence[Section]) -> bool:
        """Return whether all can be seen at the same time, with a line for the prompt."""
        lines = (self.console.render_lines(part, self.options, pad=False) for part in _apart(sections))
        return self.room > 0 and sum(map(len, lines)) < self.room


def _apart(sections: Iterable[Section]) -> Iterator[RenderableType]:
    """Yield all parts, with an empty line between sections; those without a part do not count."""
    for number, section in enumerate(filter(None, sections)):
        if number:
            yield NewLine()
        yield from section


def _head(document: Document, facts: Iterable[tuple[str, str]], *, cut: bool = False) -> Iterator[RenderableType]:
    """Yield the drawing, the title, the notice and these facts, each ``cut`` to a line or in full."""
    if document.drawing is not None:
        yield document.drawing
        yield NewLine()
    yield Line(document.title, style="bold")
    if document.notice:
        yield Line(document.notice, style="bold red")
    grid = Grid.grid(padding=GAP)
    for name, value in facts:
        grid.add_row(Line(name, style="dim"), Line(value, overflow="ellipsis" if cut else "fold", no_wrap=cut))
    if grid.row_count:
        yield grid


def _legend(document: Document) -> Iterator[Line]:
    for line in document.legend:
        yield Line(line, style="dim")
    if document.best:
        yield Line(f"{terminal_tables.BEST} {document.best}", style="dim")


def _table(fitted: Fitted) -> Iterator[RenderableType]:
    yield Line(fitted.table.title, style="bold")
    for number, block in enumerate(fitted.blocks):
        if number:
            yield NewLine()
        yield block


def _notes(fitted: Fitted) -> Iterator[Line]:
    for note in (*fitted.aside, *fitted.table.notes):
        yield Line(note, style="dim")


def _paragraph(lines: Iterable[Line]) -> Section:
    """Return lines as sentences one after another, each once: tables of several tasks share footnotes."""
    texts = dict.fromkeys(line.plain for line in lines)
    sentences = (text if text.endswith(".") else f"{text}." for text in texts)
    return [Line(" ".join(sentences), style="dim")] if texts else []


def _listing(table: Table) -> Iterator[RenderableType]:
    if table.listing is None:
        return
    yield Line(table.listing.heading, style="dim")
    for line in table.listing.lines:
        yield Padding(Line(line, style="dim"), INDENT)


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
        yield from (Padding(Line(text, style="dim"), INDENT) for text in texts)


def _findings(document: Document) -> Iterator[RenderableType]:
    """Yield the findings, those with the same code together, with what they mean for the figures beside them."""
    kinds: dict[str, list[FindingText]] = {}
    for finding in document.findings:
        kinds.setdefault(finding.label, []).append(finding)
    grid = Grid.grid(padding=GAP)
    for alike in kinds.values():
        gravity = alike[0].gravity
        grid.add_row(Line(gravity.value, style=GRAVITIES[gravity]), _kind(alike))
    if kinds:
        yield grid


def _kind(alike: Sequence[FindingText]) -> RenderableType:
    """Return findings with the same code in as few lines as possible: what, where and what to do about it."""
    label, remedies = alike[0].label, {finding.remedy for finding in alike}
    if len(alike) == 1:
        return Line(f"{label}: {_what(alike[0])} -> {alike[0].remedy}", overflow="fold")
    if len(remedies) > 1:
        texts = [f"{_what(finding)} -> {finding.remedy}" for finding in alike]
        return Group(Line(f"{label}:"), *(Padding(Line(text, overflow="fold"), INDENT) for text in texts))
    texts = [*map(_what, alike), f"-> {remedies.pop()}"]
    return Group(Line(f"{label}:"), *(Padding(Line(text, overflow="fold"), INDENT) for text in texts))


def _what(finding: FindingText) -> str:
    return f"{finding.text} ({'; '.join(finding.places)})" if finding.places else finding.text


def _left_out(document: Document) -> Iterator[RenderableType]:
    if document.notes_left_out:
        how = f"vebench report --all {shlex.quote(document.title)}"
        yield Line(f"{counted(document.notes_left_out, 'note')}: {how}", style="dim")


def _explanations(items: Sequence[Explanation], width: int) -> Iterator[RenderableType]:
    """Yield explanations with their labels beside them, or above them where the terminal is narrow."""
    labels = max((len(item.label) for item in items), default=0)
    for item in items:
        if width < NARROW:
            yield Line(item.label, style="yellow")
            yield Padding(_explanation(item), INDENT)
        else:
            grid = Grid.grid(padding=GAP)
            grid.add_column(min_width=labels)
            grid.add_row(Line(item.label, style="yellow"), _explanation(item))
            yield grid
        if item.command:  # on a line of its own, which only the terminal wraps: so it can be pasted
            yield Line(item.command, style="cyan", no_wrap=True, overflow="ignore")


def _explanation(item: Explanation) -> Group:
    """Return what is the case, where, and what to do, each on lines of its own, indented where they go on."""
    places = (Padding(Line(place), INDENT) for place in item.places)
    remedy = Grid.grid(padding=(0, 1, 0, 0))
    remedy.add_row(Line("->"), Line(item.remedy, overflow="fold"))
    return Group(Line(item.text), *places, *([remedy] if item.remedy or item.command else []))


def _answers(document: Document, *, in_full: bool) -> Iterator[Section]:
    """Yield what the tables say, each answer as a paragraph with its code. Code begins its lines, to be pasted.

    Long code is shortened to its last statement, which has the settings, unless it is wanted ``in_full``.
    """
    for answer in document.answers:
        first, *others = answer.sentences
        line = Line(first, style="bold")
        line.append("".join(f" {sentence}" for sentence in others), style="not bold")
        code = answer.code if in_full or len(answer.code) <= MOST_CODE else _end_of(answer.code, document.title)
        yield [line, *(Line(line, style="cyan", overflow="fold") for line in code)]


def _end_of(code: Sequence[str], file: str) -> Sequence[str]:
    """Return the last statement, below a comment that says how to see what comes before it."""
    begin = max(index for index, line in enumerate(code) if line and line[0] not in " )]}#")
    return (f"# {begin} lines before this: vebench report --all {shlex.quote(file)}", *code[begin:])
