"""Reports in GitHub's Markdown: one table for each task, which reads well as plain text, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vebench.reports.pages.run import DIFFERENCES, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.reports.pages.run import Document, Report, Table, Text

MARKS = {"best": "**", "struck": "~~"}
# Whatever would begin markup inside a line. Escaped by a backslash, it shows as itself; what is harmless stays, for
# those who read the text as it is.
SPECIAL = re.compile(r"([\\`*<|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\](?=\())")


def render(report: Report) -> str:
    """Return the whole report as one Markdown text."""
    title = ["# Throughput of vector-env backends", ""]
    pages = [line for section in report.sections for line in _page(document(section))]
    return "\n".join([*title, *pages]).rstrip() + "\n"


def render_document(page: Document) -> str:
    """Return one document as a Markdown text."""
    return "\n".join(_page(page)).rstrip() + "\n"


def _page(page: Document) -> Iterator[str]:
    yield f"## {_escaped(page.title)}"
    yield ""
    for name, value in page.facts:
        yield f"- {name}: {_code(value) if name == 'command' else _escaped(value)}"
    yield ""
    yield from (f"{_escaped(line)}  " for line in page.legend)
    if any(text.tone == "best" for table in page.tables for row in table.rows for text in row.texts):
        yield "**Bold**: highest median."
    yield ""
    for table in page.tables:
        yield from _table(table)
    if page.remarks:
        yield "### Findings"
        yield ""
        for remark in page.remarks:
            yield f"- **{remark.code}**: {_escaped(remark.text)}"
            yield from (f"  - {_escaped(place)}" for place in remark.places)
            yield f"  - → {_escaped(remark.remedy)}"
        yield ""


def _table(table: Table) -> Iterator[str]:
    yield f"### {_escaped(table.title)}"
    yield ""
    head = [table.corner, *map(_escaped, table.columns)]
    body = [[_escaped(row.label), *map(_inline, row.texts)] for row in table.rows]
    widths = [max(len(line[index]) for line in (head, *body)) for index in range(len(head))]
    yield _line(head, widths)
    end = ":" if table.numbers else "-"
    yield f"| {'-' * widths[0]} | {' | '.join('-' * (width - 1) + end for width in widths[1:])} |"
    yield from (_line(line, widths) for line in body)
    yield ""
    yield from (f"{_escaped(note)}  " for note in table.notes)
    if table.notes:
        yield ""
    if table.differences:
        yield DIFFERENCES
        yield ""
        yield from (f"- {_escaped(difference)}" for difference in table.differences)
        yield ""


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    first = texts[0].ljust(widths[0])
    return f"| {' | '.join([first, *(text.rjust(width) for text, width in zip(texts[1:], widths[1:], strict=True))])} |"


def _inline(text: Text) -> str:
    first, *others = map(_escaped, text.lines)
    return "<br>".join([f"{MARKS[text.tone]}{first}{MARKS[text.tone]}" if text.tone in MARKS else first, *others])


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text)


def _code(text: str) -> str:
    """Return a code span, fenced by more backticks than ``text`` has in a row."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"
