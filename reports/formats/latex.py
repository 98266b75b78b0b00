r"""The tables of runs as LaTeX, to be read with ``\input`` in a document that loads booktabs.

Each table is a float, and the notes on it are a paragraph of the text behind. A rate, its interval and its speedup are
columns of their own, so that any of them can be taken out.
The text is safe in any encoding of fonts: every character that LaTeX treats in a special way is written as a command.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import short_name
from vebench.errors import one_line
from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from vebench.reports.document import Document, Page, Table, TableRow, Text

    Plain = Callable[[str], str]

HEAD = "% Needs \\usepackage{booktabs}."
_PARTS = ("rate", "\N{PLUS-MINUS SIGN}", "\N{MULTIPLICATION SIGN}")
# What has a meaning of its own, what fonts in the old encoding OT1 lack or show as another character, and brackets and
# stars, which at the beginning of a line would belong to the end of the one before.
COMMANDS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "±": r"\textpm{}",
    "µ": r"\textmu{}",
    "→": r"\textrightarrow{}",
    "…": r"\ldots{}",
    "\N{MULTIPLICATION SIGN}": r"\texttimes{}",
}
_JOINED = re.compile(r"([-,])(?=\1)")  # two of these become one character
_UNKNOWN = "?"
# Letters of Western European languages, which LaTeX can set with any fonts, without those that need the encoding T1.
_LETTERS = re.compile(r"[ -~À-ÏÑ-ÖØ-ÝßÀ-ïñ-öø-ýÿ]")


def latex_tables(page: Page) -> str:
    """Return a ``table`` environment and notes for each table of ``page``. A caption of rates has their answer."""
    documents = page.documents
    plain = figures.without_folders(document.file for document in documents)
    tables = [(document, table) for document in documents for table in document.tables]
    names = _names([table for _, table in tables])
    several = len(documents) > 1
    parts = [
        _table(table, name, list(_caption(table, document, several=several)), list(_notes(table, document)), plain)
        for (document, table), name in zip(tables, names, strict=True)
    ]
    return "\n".join([HEAD, *("\n".join(part) for part in parts)]) + "\n"


def _names(tables: list[Table]) -> list[str]:
    """Return a name for each table that a reference can use: no two are the same."""
    names: list[str] = []
    for table in tables:
        name = f"tab:vebench-{re.sub('[^a-z0-9]+', '-', short_name(table.group).lower()).strip('-')}"
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def _caption(table: Table, document: Document, *, several: bool) -> Iterator[str]:
    """Yield the sentences above a table. With ``several`` documents each has its document's title."""
    if table.about == "answer":
        yield from (answer.sentences[0] for answer in document.answers if answer.group == table.group)
    if document.notice:
        yield f"{document.notice[0].upper()}{document.notice[1:]}."
    yield f"{document.title}: {table.title}." if several else f"{table.title}."


def _notes(table: Table, document: Document) -> Iterator[str]:
    """Yield the sentences about a table: how to read it, and the machine."""
    if table.about == "answer":
        yield from document.legend
        if any(len(_parts(text)) == len(_PARTS) for row in table.rows for text in row.texts):
            yield f"{_PARTS[2]}: the speedup."
        if any(text.tone == "best" for row in table.rows for text in row.texts):
            yield f"Bold: {document.best}."
    yield from table.notes
    if table.listing is not None:
        yield f"{table.listing.heading} {'; '.join(table.listing.lines)}"
    machine = dict(document.facts).get("machine")
    if machine:
        yield f"This machine: {machine}."


def _table(table: Table, name: str, caption: Iterable[str], notes: Iterable[str], plain: Plain) -> Iterator[str]:
    columns = range(len(table.columns))
    spans = [max((len(_parts(row.texts[column])) for row in table.rows), default=1) for column in columns]
    sides = "".join(("l" if index >= len(spans) - table.aside else "r") * span for index, span in enumerate(spans))
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{' '.join(escaped(plain(text)) for text in caption)}}}"
    yield rf"  \label{{{name}}}"
    yield rf"  \begin{{tabular}}{{l{sides}}}"
    yield r"    \toprule"
    heads = (_across(escaped(head), span) for head, span in zip(table.columns, spans, strict=True))
    yield f"    {' & '.join((escaped(table.corner), *heads))} \\\\"
    if max(spans, default=1) > 1:
        ends = list(accumulate(spans, initial=1))
        rules = (rf"\cmidrule(lr){{{start + 1}-{end}}}" for start, end in pairwise(ends) if end - start > 1)
        yield f"    {' '.join(rules)}"
        below = {1: ("",), 2: ("", _PARTS[1]), 3: _PARTS}
        parts = (part for span in spans for part in below[span])
        yield f"    {' & '.join(('', *map(escaped, parts)))} \\\\"
    yield r"    \midrule"
    apart = False
    for row in table.rows:
        if row.reference_row and not apart:
            yield r"    \midrule"
        apart = row.reference_row
        yield f"    {' & '.join(_row(row, spans, plain))} \\\\"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"
    yield ""
    yield from (escaped(plain(note if note.endswith(".") else f"{note}.")) for note in notes)
    yield ""


def _across(text: str, span: int) -> str:
    return text if span == 1 else rf"\multicolumn{{{span}}}{{c}}{{{text}}}"


def _parts(text: Text) -> tuple[str, ...]:
    """Return a figure, its interval, and what is beside it unless it is a unit; anything else in one."""
    spread = f" {figures.spread(text.value)}" if isinstance(text.value, Estimate) else ""
    figure = text.lines[0].removesuffix(spread)
    if figure != text.lines[0] and (text.short or len(text.lines) == 1):
        beside = "" if text.tone == "reference_row" else text.short.removesuffix("x")
        return figure, spread.removeprefix(f" {_PARTS[1]}"), *filter(None, [beside])  # their signs head the columns
    return ("\n".join(text.lines),)


def _row(row: TableRow, spans: Sequence[int], plain: Plain) -> Iterator[str]:
    label = escaped(plain(row.label))
    yield rf"\textit{{{label}}}" if row.reference_row else label
    for text, span in zip(row.texts, spans, strict=True):
        first, *others = (r"\\".join(escaped(plain(line)) for line in part.split("\n")) for part in _parts(text))
        if len(text.lines) > 1 and not others:
            first = rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{first}\end{{tabular}}"
        shown = [first, *others, *[""] * (span - 1 - len(others))] if others else [_across(first, span)]
        yield " & ".join(rf"\textbf{{{part}}}" if text.tone == "best" else part for part in shown)


def escaped(text: str) -> str:
    """Return ``text`` as LaTeX that shows it; a character that not every LaTeX can show becomes a question mark."""
    plain = (letter if _LETTERS.match(letter) or letter in COMMANDS else _UNKNOWN for letter in one_line(text))
    return _JOINED.sub(r"\1{}", "".join(COMMANDS.get(letter, letter) for letter in plain))
