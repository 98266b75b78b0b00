"""Pages in GitHub's Markdown, for pull requests and issues. The text also reads well as plain text.

Answers, tables, charts and faults come first, unfolded. Legends, other findings and the machine are folded.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import PurePath
from urllib.parse import quote

from vebench.analysis.cell import Gravity
from vebench.backends.environments.suites import short_name
from vebench.backends.packages import MATPLOTLIB, importable
from vebench.errors import one_line
from vebench.reports import charts, figures
from vebench.reports.document import COMMANDS, Chart, Document, Page, Remark, Table, Text

Files = Mapping[Chart, str]  # the names of the files of charts
_FOLDED = frozenset({"file", "machine", "condition", "system", "packages", "measured", "command"})  # the folded facts


def markdown_text(page: Page) -> str:
    """Return all documents as one Markdown text, without charts."""
    return _text(page, figures.shortened(page.documents), {})


def with_figures(page: Page, name: str) -> Mapping[str, str]:
    """Return files by name: the text as ``name``, and its charts if matplotlib is installed.

    Charts have names such as ``report-1-pong-rate.svg``.
    """
    documents = figures.shortened(page.documents)
    drawn = [chart for document in documents for chart in document.charts]
    if not drawn or not importable(MATPLOTLIB.module):
        return {name: markdown_text(page)}
    files = {}
    for number, chart in enumerate(drawn, 1):
        task = re.sub(r"[^a-z0-9]+", "-", short_name(chart.group).lower())[:60].strip("-")
        files[chart] = f"{PurePath(name).stem}-{number}-{task}-rate.svg"
    images = {file: charts.svg((chart,), among=drawn) for chart, file in files.items()}
    return {name: _text(page, documents, files), **images}


def _text(page: Page, documents: Sequence[Document], files: Files) -> str:
    lines = [f"# {_escaped(page.title)}", ""] if page.title and documents else []
    for document in documents:
        lines += _lines(document, files)
    return "\n".join(lines).rstrip() + "\n"


def _escaped(text: str) -> str:
    """Return Markdown that shows ``text`` unchanged within a line."""
    # Characters that begin markup inside a line. Other characters stay, because some people read the plain text.
    special = r"([\\`*<|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\](?=\())"
    return _quiet(re.sub(special, r"\\\1", one_line(text)))


def _quiet(text: str) -> str:
    """Return ``text`` so that GitHub finds no formula in it, and notifies nobody."""
    return re.sub(r"(?<!\w)@(?=\w)", "@<!-- -->", text.replace("$", "<span>$</span>"))


def _fence(text: str, least: int) -> str:
    """Return a fence that ``text`` does not contain: at least ``least`` backticks."""
    return "`" * max(least, 1 + max((len(run) for run in re.findall("`+", text)), default=0))


def _code(text: str) -> str:
    fence = _fence(text, 1)
    return f"`{text}`" if len(fence) == 1 else f"{fence} {text} {fence}"


def _lines(document: Document, files: Files) -> Iterator[str]:
    """Yield the lines of the document."""
    yield from (f"## {_escaped(document.title)}", "")
    if document.notice:
        yield from (f"**{_escaped(document.notice)}**", "")
    for answer in document.answers:
        first, *others = map(_escaped, answer.sentences)
        command = [_code(answer.command)] if answer.command else []
        yield from (" ".join((f"**{first}**", *others, *command)), "")
        if answer.code:
            lines = ["".join(one if one.isprintable() else " " for one in line) for line in answer.code]
            fence = _fence("\n".join(lines), 3)
            yield from (f"{fence}python", *lines, fence, "")
    yield from _facts(fact for fact in document.facts if fact[0] not in _FOLDED)
    yield from _tables(document, files)
    in_the_open = [item for item in document.remarks if item.gravity in (None, Gravity.FAULT)]
    if in_the_open:
        yield from ("### Findings", "", *_remarks(in_the_open))
    folded = [item for item in document.remarks if item not in in_the_open]
    words = f"{'more ' if in_the_open else ''}finding"
    yield from _folded(figures.counted(len(folded), words), _remarks(folded))
    best = [f"**Bold**: {document.best}."] if document.best else []
    yield from _folded("How to read this", [*(f"{_escaped(line)}  " for line in document.legend), *best])
    machine = dict(document.facts).get("machine", "")
    summary = f"Measured on {machine}" if machine else "Machine, packages and command"
    yield from _folded(summary, _facts(fact for fact in document.facts if fact[0] in _FOLDED))


def _folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines folded under ``summary``. A click unfolds them. Yield nothing without lines."""
    if inner := "\n".join(lines).strip("\n"):
        # The line with <summary> is HTML, not Markdown, so escape the text for HTML.
        yield f"<details>\n<summary>{_quiet(html.escape(summary))}</summary>\n\n{inner}\n\n</details>\n"


def _facts(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    lines = [f"- {name}: {_code(value) if name in COMMANDS else _escaped(value)}" for name, value in facts]
    yield from (*lines, "") if lines else ()


def _remarks(items: Iterable[Remark]) -> Iterator[str]:
    for item in items:
        yield f"- **{item.label}**: {_escaped(item.text)}"
        yield from (f"  - {_escaped(place)}" for place in item.places)
        if item.remedy:
            command = f" {_code(item.command)}" if item.command else ""
            yield f"  - → {_escaped(item.remedy)}{command}"
    yield ""


def _tables(document: Document, files: Files) -> Iterator[str]:
    """Yield the tables. The chart of a group follows the first tables of the group."""
    left = {chart.group: chart for chart in document.charts if chart in files}
    for group, together in groupby(document.tables, key=lambda table: table.group):
        details: list[str] = []
        for table in together:
            yield from _table(table)
            details += (f"- {_escaped(line)}" for line in table.details)
        if chart := left.pop(group, None):
            title = chart.title.replace("[", "(").replace("]", ")")  # a bracket might end the image's text
            yield from (f"![{_escaped(title)}]({quote(files[chart])})", "")
        yield from _folded("Details", details)


def _table(table: Table) -> Iterator[str]:
    yield from (f"### {_escaped(table.title)}", "")
    lines = [[table.corner, *map(_escaped, table.columns)]]
    for row in table.rows:
        label = _escaped(row.label)
        lines.append([f"*{label}*" if row.reference_row else label, *map(_place, row.texts)])
    widths = [max(map(len, places)) for places in zip(*lines, strict=True)]
    end = ":" if table.numbers else "-"
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + end for width in widths[1:])])
    for first, *others in lines:
        places = [first.ljust(widths[0])]
        for text, width in zip(others, widths[1:], strict=True):
            places.append(text.rjust(width) if table.numbers else text.ljust(width))
        yield f"| {' | '.join(places)} |"
    yield ""
    if table.notes:
        yield from (*(f"{_escaped(note)}  " for note in table.notes), "")


def _place(text: Text) -> str:
    first, *others = map(_escaped, text.lines)
    mark = {"best": "**", "struck": "~~"}.get(text.tone, "")
    return (" " if text.short else "<br>").join([f"{mark}{first}{mark}", *others])
