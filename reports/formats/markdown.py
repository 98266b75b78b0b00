"""Pages in GitHub's Markdown, which also reads well as plain text: to be pasted into a pull request or an issue.

Answers, tables, charts and faults of a run come first, in the open. All else about it is folded.
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

    Files = Sequence[tuple[Chart, str]]

_MARKS = {"best": "**", "struck": "~~"}
# These begin markup inside a line. Other characters stay as they are, for readers of the plain text.
_SPECIAL = re.compile(r"([\\`*<|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\](?=\())")
_IN_BRACKETS = re.compile(rf"{_SPECIAL.pattern[:-1]}|[\[\]])")  # a bracket within brackets might be the last one
# GitHub finds these after that, wherever they stand: a formula, and a person, who would be notified.
_FOUND_LATER = {re.compile(r"\$"): "<span>$</span>", re.compile(r"(?<!\w)@(?=\w)"): "@<!-- -->"}
_LONGEST_PART = 60  # characters of a part of a chart's file name
_FOLDED = frozenset({"file", "machine", "condition", "system", "packages", "measured", "command"})  # of the facts


def markdown_text(page: Page) -> str:
    """Return all documents as one Markdown text, without charts."""
    return _text(page, [()] * len(page.documents))


def with_figures(page: Page, name: str) -> Mapping[str, str]:
    """Return the text of the file ``name`` and, where they can be drawn, its charts, by the names of files."""
    documents = page.documents
    if not any(document.charts for document in documents) or plots.missing():
        return {name: markdown_text(page)}
    files = _files(documents, PurePath(name).stem)
    drawn = [pair for of_document in files for pair in of_document]
    images = {file: plots.svg((chart,), among=[one for one, _ in drawn]) for chart, file in drawn}
    return {name: _text(page, files), **images}


def _files(documents: Sequence[Document], stem: str) -> list[Files]:
    """Return for each document its charts, each with the name of its file: ``report-pong-rate.svg``.

    ``stem`` is the name of the text's file without its suffix. No two names are equal, also where case does not matter.
    """
    taken: set[str] = set()
    files: list[Files] = []
    for document in documents:
        own = [PurePath(document.file or document.title).stem] if len(documents) > 1 else []
        named = []
        for chart in document.charts:
            parts = [re.sub(r"[^a-z0-9]+", "-", part.lower()) for part in (*own, short_name(chart.group), chart.kind)]
            short = (part[:_LONGEST_PART].strip("-") for part in parts)
            name = free = "-".join((stem, *(part for part in short if part)))
            number = 1
            while free.lower() in taken:
                number += 1
                free = f"{name}-{number}"
            taken.add(free.lower())
            named.append((chart, f"{free}.svg"))
        files.append(named)
    return files


def _text(page: Page, files: Sequence[Files]) -> str:
    documents = page.documents
    plain = figures.without_folders(document.file for document in documents)
    writers = [_Writer(plain, page.kind == "run", of_document) for of_document in files]
    lines = [f"# {writers[0].escaped(page.title)}", ""] if page.title and writers else []
    for document, writer in zip(documents, writers, strict=True):
        lines += writer.document(document)
    return "\n".join(lines).rstrip() + "\n"


def _found_later(text: str) -> str:
    for found, instead in _FOUND_LATER.items():
        text = found.sub(instead, text)
    return text


def _block(lines: Iterable[str]) -> list[str]:
    """Return lines, and an empty one after them; nothing if there are none."""
    block = [*lines]
    return [*block, ""] if block else []


def _fence(text: str, least: int) -> str:
    """Return more backticks than ``text`` has in a row."""
    return "`" * max(least, 1 + max((len(run) for run in re.findall("`+", text)), default=0))


def _code(text: str) -> str:
    fence = _fence(text, 1)
    return f"`{text}`" if len(fence) == 1 else f"{fence} {text} {fence}"


@dataclass(frozen=True)
class _Writer:
    """Writes one document."""

    plain: Callable[[str], str]
    """Returns a text without the machine's folders."""
    folds: bool
    """Fold what is not needed at first sight."""
    files: Files = ()

    def escaped(self, text: str, special: re.Pattern[str] = _SPECIAL) -> str:
        """Return ``text`` so that it shows as itself within a line."""
        return _found_later(special.sub(r"\\\1", self.plain(one_line(text))))

    def document(self, document: Document) -> Iterator[str]:
        """Yield the lines of a document."""
        yield from (f"## {self.escaped(document.title)}", "")
        if document.notice:
            yield from (f"**{self.escaped(document.notice)}**", "")
        for answer in document.answers:
            first, *others = map(self.escaped, answer.sentences)
            yield from (" ".join((f"**{first}**", *others)), "")
            if answer.code:
                yield from self._python(answer.code)
        folded_facts = [fact for fact in document.facts if self.folds and fact[0] in _FOLDED]
        yield from self._facts(fact for fact in document.facts if fact not in folded_facts)
        best = [f"**Bold**: {document.best}."] if document.best else []
        legend = _block([*(f"{self.escaped(line)}  " for line in document.legend), *best])
        folds_legend = self.folds and bool(document.tables)
        if not folds_legend:
            yield from legend
        yield from self._tables(document)
        in_the_open = [item for item in document.remarks if not self.folds or item.gravity in (None, Gravity.FAULT)]
        folded = [item for item in document.remarks if item not in in_the_open]
        if in_the_open:
            yield from ("### Findings", "", *self._remarks(in_the_open))
        more = "more " if in_the_open else ""
        yield from self._folded(figures.counted(len(folded), f"{more}finding"), self._remarks(folded))
        if folds_legend:
            yield from self._folded("How to read this", legend)
        machine = dict(folded_facts).get("machine")
        summary = f"Measured on {self.plain(machine)}" if machine else "Machine, packages and command"
        yield from self._folded(summary, self._facts(folded_facts))

    def _python(self, code: Sequence[str]) -> Iterator[str]:
        lines = ["".join(one if one.isprintable() else " " for one in self.plain(line)) for line in code]
        fence = _fence("\n".join(lines), 3)
        yield from (f"{fence}python", *lines, fence, "")

    def _folded(self, summary: str, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines that a click shows; nothing if there are none."""
        if inner := "\n".join(lines).strip("\n"):
            # Beside <summary>, the line is HTML.
            yield f"<details>\n<summary>{_found_later(html.escape(summary))}</summary>\n\n{inner}\n\n</details>\n"

    def _facts(self, facts: Iterable[tuple[str, str]]) -> list[str]:
        shown = ((key, _code(self.plain(value)) if key == "command" else self.escaped(value)) for key, value in facts)
        return _block(f"- {key}: {value}" for key, value in shown)

    def _remarks(self, items: Iterable[Remark]) -> Iterator[str]:
        for item in items:
            yield f"- **{item.label}**: {self.escaped(item.text)}"
            yield from (f"  - {self.escaped(place)}" for place in item.places)
            if item.remedy or item.command:
                command = f" {_code(self.plain(item.command))}" if item.command else ""
                yield f"  - → {self.escaped(item.remedy)}{command}"
        yield ""

    def _tables(self, document: Document) -> Iterator[str]:
        """Yield the tables; below the first ones of a group are its charts, all but one folded."""
        left: dict[str, list[tuple[Chart, str]]] = {}
        for chart, file in self.files:
            left.setdefault(chart.group, []).append((chart, file))
        for group, together in groupby(document.tables, key=lambda table: table.group):
            tables = [*together]
            for table in tables:
                yield from self._table(table)
            for index, (chart, file) in enumerate(left.pop(group, ())):
                image = f"![{self.escaped(chart.title, _IN_BRACKETS)}]({quote(file)})"
                yield from self._folded(self.plain(chart.title), [image]) if index else (image, "")
            details = dict.fromkeys(f"- {self.escaped(line)}" for table in tables for line in table.details)
            yield from self._folded("Known differences", details) if self.folds else _block(details)

    def _table(self, table: Table) -> Iterator[str]:
        yield from (f"### {self.escaped(table.title)}", "")
        head = [table.corner, *map(self.escaped, table.columns)]
        body = []
        for row in table.rows:
            label = self.escaped(row.label)
            body.append([f"*{label}*" if row.reference_row and self.folds else label, *map(self._place, row.texts)])
        widths = [max(len(line[index]) for line in (head, *body)) for index in range(len(head))]
        right = [False, *[table.numbers] * len(table.columns)]
        rule = ["-" * (width - end) + ":" * end for width, end in zip(widths, right, strict=True)]
        for line in (head, rule, *body):
            places = zip(line, widths, right, strict=True)
            yield f"| {' | '.join(text.rjust(width) if end else text.ljust(width) for text, width, end in places)} |"
        yield ""
        yield from _block(f"{self.escaped(note)}  " for note in table.notes)

    def _place(self, text: Text) -> str:
        first, *others = map(self.escaped, text.lines)
        mark = _MARKS.get(text.tone, "")
        return (" " if self.folds and text.short else "<br>").join([f"{mark}{first}{mark}", *others])
