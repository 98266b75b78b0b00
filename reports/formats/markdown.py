"""Pages in GitHub's Markdown, which reads well as plain text, too: to be pasted into a pull request or an issue.

What a run says comes first and in the open: its answers, tables, figures and faults. All else about it is folded.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from vebench.analysis.findings import Gravity
from vebench.backends.environments.suites import short_name
from vebench.errors import one_line
from vebench.reports import figures, plots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from vebench.reports.document import Chart, Document, Page, Remark, Table, Text

_MARKS = {"best": "**", "struck": "~~"}
# What would begin markup inside a line. With a backslash before it, it shows as itself. What is harmless stays as it
# is, for those who read the plain text.
_SPECIAL = re.compile(r"([\\`*<|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\](?=\())")
_IN_BRACKETS = re.compile(rf"{_SPECIAL.pattern[:-1]}|[\[\]])")  # a bracket within brackets might be the last one
# GitHub finds these after that, wherever they stand: a formula, and a person, who would be notified.
_FOUND_LATER = {re.compile(r"\$"): "<span>$</span>", re.compile(r"(?<!\w)@(?=\w)"): "@<!-- -->"}
_LONGEST_PART = 60  # characters of a part of a figure's file name
_FOLDED = frozenset({"file", "machine", "condition", "system", "packages", "measured", "command"})  # of the facts


@dataclass(frozen=True)
class _Writer:
    """What documents are written with: file names without folders, and the names of the figures' files, if any.

    ``folds``: what is not needed at first sight can be opened; and a place of a table is one line.
    """

    plain: Callable[[str], str]
    folds: bool
    files: Sequence[tuple[Chart, str]] = ()

    def escaped(self, text: str, special: re.Pattern[str] = _SPECIAL) -> str:
        """Return ``text`` so that it shows as itself within a line."""
        return _found_later(special.sub(r"\\\1", self.plain(one_line(text))))


def _found_later(text: str) -> str:
    for found, instead in _FOUND_LATER.items():
        text = found.sub(instead, text)
    return text


def markdown_text(page: Page) -> str:
    """Return all documents as one Markdown text, without drawings and figures."""
    return _text(page, [()] * len(page.documents))


def with_figures(page: Page, name: str) -> Mapping[str, str]:
    """Return the text of the file ``name`` and, where they can be drawn, its figures, by the names of files."""
    documents = page.documents
    if not any(document.charts for document in documents) or plots.missing():
        return {name: markdown_text(page)}
    files = _figure_files(documents, PurePath(name).stem)
    drawn = [item for of_document in files for item in of_document]
    images = {file: plots.svg((chart,), among=[one for one, _ in drawn]) for chart, file in drawn}
    return {name: _text(page, files), **images}


def _text(page: Page, files: Sequence[Sequence[tuple[Chart, str]]]) -> str:
    documents = page.documents
    plain, folds = figures.without_folders(document.file for document in documents), page.kind == "run"
    writers = [_Writer(plain, folds, of_document) for of_document in files]
    title = [f"# {writers[0].escaped(page.title)}", ""] if page.title and writers else []
    lines = [line for document, writer in zip(documents, writers, strict=True) for line in _document(document, writer)]
    return "\n".join([*title, *lines]).rstrip() + "\n"


def _document(document: Document, writer: _Writer) -> Iterator[str]:
    yield from _block([f"## {writer.escaped(document.title)}"])
    if document.notice:
        yield from _block([f"**{writer.escaped(document.notice)}**"])
    for answer in document.answers:
        first, *others = answer.sentences
        yield from _block([" ".join([f"**{writer.escaped(first)}**", *map(writer.escaped, others)])])
        if answer.code:
            plain = (writer.plain(line) for line in answer.code)
            lines = ["".join(one if one.isprintable() else " " for one in line) for line in plain]
            fence = "`" * max(3, 1 + _longest_fence("\n".join(lines)))
            yield from _block([f"{fence}python", *lines, fence])
    folded_facts = [fact for fact in document.facts if writer.folds and fact[0] in _FOLDED]
    yield from _facts([fact for fact in document.facts if fact not in folded_facts], writer)
    best = [f"**Bold**: {document.best}."] if document.best else []
    legend = [*_block([*(f"{writer.escaped(line)}  " for line in document.legend), *best])]
    if not (writer.folds and document.tables):
        yield from legend
    yield from _tables(document, writer)
    in_the_open = [item for item in document.remarks if not writer.folds or item.gravity in (None, Gravity.FAULT)]
    folded = [item for item in document.remarks if item not in in_the_open]
    if in_the_open:
        yield from ("### Findings", "", *_remarks(in_the_open, writer))
    if folded:
        more = "more " if in_the_open else ""
        yield from _folded(figures.counted(len(folded), f"{more}finding"), _remarks(folded, writer))
    if writer.folds and document.tables:
        yield from _folded("How to read this", legend)
    machine = dict(folded_facts).get("machine")
    summary = f"Measured on {writer.plain(machine)}" if machine else "Machine, packages and command"
    yield from _folded(summary, _facts(folded_facts, writer))


def _block(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, and an empty one after them; nothing if there are none."""
    if block := [*lines]:
        yield from (*block, "")


def _folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that a click shows; nothing if there are none."""
    if inner := "\n".join(lines).strip("\n"):
        # Beside <summary> the line is HTML, not Markdown.
        title = _found_later(html.escape(summary))
        yield f"<details>\n<summary>{title}</summary>\n\n{inner}\n\n</details>\n"


def _facts(facts: Sequence[tuple[str, str]], writer: _Writer) -> Iterator[str]:
    shown = ((key, _code(writer.plain(value)) if key == "command" else writer.escaped(value)) for key, value in facts)
    return _block(f"- {key}: {value}" for key, value in shown)


def _remarks(items: Sequence[Remark], writer: _Writer) -> Iterator[str]:
    for item in items:
        yield f"- **{item.label}**: {writer.escaped(item.text)}"
        yield from (f"  - {writer.escaped(place)}" for place in item.places)
        if item.remedy or item.command:
            command = f" {_code(writer.plain(item.command))}" if item.command else ""
            yield f"  - → {writer.escaped(item.remedy)}{command}"
    yield ""


def _tables(document: Document, writer: _Writer) -> Iterator[str]:
    """Yield the tables; below the first that stand together are the figures of their group, all but one folded."""
    left: dict[str, list[tuple[Chart, str]]] = {}
    for chart, file in writer.files:
        left.setdefault(chart.group, []).append((chart, file))
    for group, together in groupby(document.tables, key=lambda table: table.group):
        tables = [*together]
        for table in tables:
            yield from _table(table, writer)
        for index, (chart, file) in enumerate(left.pop(group, ())):
            image = f"![{writer.escaped(chart.title, _IN_BRACKETS)}]({quote(file)})"
            yield from _folded(writer.plain(chart.title), [image]) if index else _block([image])
        for listing in (table.listing for table in tables if table.listing):
            lines = [f"- {writer.escaped(line)}" for line in listing.lines]
            if writer.folds:
                yield from _folded(listing.heading.rstrip(":"), lines)
            else:
                yield from (listing.heading, "", *lines, "")


def _table(table: Table, writer: _Writer) -> Iterator[str]:
    yield from _block([f"### {writer.escaped(table.title)}"])
    head = [table.corner, *map(writer.escaped, table.columns)]
    body = [
        [
            f"*{writer.escaped(row.label)}*" if row.reference_row and writer.folds else writer.escaped(row.label),
            *(_place(text, writer) for text in row.texts),
        ]
        for row in table.rows
    ]
    widths = [max(len(line[index]) for line in (head, *body)) for index in range(len(head))]
    right = [False, *[table.numbers] * (len(table.columns) - table.aside), *[False] * table.aside]
    rule = ["-" * (width - end) + ":" * end for width, end in zip(widths, right, strict=True)]
    for line in (head, rule, *body):
        places = zip(line, widths, right, strict=True)
        yield f"| {' | '.join(text.rjust(width) if end else text.ljust(width) for text, width, end in places)} |"
    yield ""
    yield from _block(f"{writer.escaped(note)}  " for note in table.notes)


def _place(text: Text, writer: _Writer) -> str:
    first, *others = map(writer.escaped, text.lines)
    mark = _MARKS.get(text.tone, "")
    return (" " if writer.folds and text.short else "<br>").join([f"{mark}{first}{mark}", *others])


def _longest_fence(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _code(text: str) -> str:
    """Return a code span, fenced by more backticks than ``text`` has in a row."""
    fence = "`" * (_longest_fence(text) + 1)
    return f"`{text}`" if len(fence) == 1 else f"{fence} {text} {fence}"


def _figure_files(documents: Sequence[Document], stem: str) -> list[list[tuple[Chart, str]]]:
    """Return for each document its charts, each with the name of its file: ``report-pong-rate.svg``.

    ``stem`` is the name of the file that they belong to, without its suffix. Of several documents, the name of each is
    in those of its figures. No two names are equal, also where case does not matter.
    """
    taken: set[str] = set()

    def named(chart: Chart, document: Document) -> str:
        own = [PurePath(document.file or document.title).stem] if len(documents) > 1 else []
        parts = (re.sub(r"[^a-z0-9]+", "-", part.lower()) for part in (*own, short_name(chart.group), chart.kind))
        name = free = "-".join([stem, *filter(None, (part[:_LONGEST_PART].strip("-") for part in parts))])
        number = 1
        while free.lower() in taken:
            number += 1
            free = f"{name}-{number}"
        taken.add(free.lower())
        return f"{free}.svg"

    return [[(chart, named(chart, document)) for chart in document.charts] for document in documents]
