"""Pages in GitHub's Markdown, which reads well as plain text, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.reports.document import Answer, Document, Table, Text
    from vebench.reports.page import Page

MARKS = {"best": "**", "struck": "~~"}
# What would begin markup inside a line. With a backslash before it, it shows as itself. What is harmless stays as it
# is, for those who read the plain text.
SPECIAL = re.compile(r"([\\`*<|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\](?=\())")


def render(page: Page) -> str:
    """Return all documents as one Markdown text, without their drawings."""
    title = [f"# {_escaped(page.title)}", ""] if page.title else []
    lines = [line for document in page.documents for line in _document(document)]
    return "\n".join([*title, *lines]).rstrip() + "\n"


def _document(document: Document) -> Iterator[str]:
    yield f"## {_escaped(document.title)}"
    yield ""
    if document.notice:
        yield f"**{_escaped(document.notice)}**"
        yield ""
    for answer in document.answers:
        yield from _answer(answer)
    for name, value in document.facts:
        yield f"- {name}: {_code(value) if name == 'command' else _escaped(value)}"
    yield ""
    yield from (f"{_escaped(line)}  " for line in document.legend)
    if document.best:
        yield f"**Bold**: {document.best}."
    yield ""
    for table in document.tables:
        yield from _table(table)
    if document.advice:
        yield "### Findings"
        yield ""
        for item in document.advice:
            yield f"- **{item.label}**: {_escaped(item.text)}"
            yield from (f"  - {_escaped(place)}" for place in item.places)
            yield f"  - → {_escaped(item.remedy)}"
        yield ""


def _answer(answer: Answer) -> Iterator[str]:
    """Yield the sentences as a paragraph, and what to paste below it."""
    first, *others = map(_escaped, answer.sentences)
    yield " ".join((f"**{first}**", *others))
    yield ""
    if answer.code:
        yield from ("```python", *answer.code, "```", "")


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
    if table.listing:
        yield table.listing.heading
        yield ""
        yield from (f"- {_escaped(line)}" for line in table.listing.lines)
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
