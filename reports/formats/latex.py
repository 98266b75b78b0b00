r"""The tables of runs as LaTeX, to be read with ``\input`` in a document that loads booktabs.

The text is safe in any encoding of fonts: every character that LaTeX treats in a special way is written as a command.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vebench.backends.environments.suites import short_name
from vebench.errors import one_line
from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from vebench.reports.document import Document, Page, Table, TableRow

    Plain = Callable[[str], str]

HEAD = "% Needs \\usepackage{booktabs}."
_MANY_COLUMNS = 5  # more get smaller type
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
    """Return a ``table`` environment for each table of ``page``. A caption of rates has the answer to their task."""
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
    """Yield the sentences above a table. Those of ``several`` documents are told apart by the title of theirs."""
    if table.about == "answer":
        yield from (answer.sentences[0] for answer in document.answers if answer.group == table.group)
    if table.about != "others" and document.notice:
        yield document.notice
    named = several and table.about != "others"
    yield f"{document.title}: {table.title}." if named else f"{table.title}."


def _notes(table: Table, document: Document) -> Iterator[str]:
    """Yield what stands below a table: how to read it, and the machine if it is of one."""
    if table.about == "answer":
        yield from document.legend
        if any(text.tone == "best" for row in table.rows for text in row.texts):
            yield f"Bold: {document.best}."
    yield from table.notes
    if table.listing is not None:
        yield from (table.listing.heading, *table.listing.lines)
    machine = dict(document.facts).get("machine")
    if machine and table.about != "others":
        yield f"This machine: {machine}."


def _table(table: Table, name: str, caption: Iterable[str], notes: Iterable[str], plain: Plain) -> Iterator[str]:
    yield r"\begin{table}"
    yield r"  \centering"
    if len(table.columns) > _MANY_COLUMNS:
        yield r"  \scriptsize\setlength{\tabcolsep}{3pt}%"
    yield rf"  \caption{{{' '.join(escaped(plain(text)) for text in caption)}}}"
    yield rf"  \label{{{name}}}"
    yield rf"  \begin{{tabular}}{{l{'r' * (len(table.columns) - table.aside)}{'l' * table.aside}}}"
    yield r"    \toprule"
    yield f"    {' & '.join(map(escaped, (table.corner, *table.columns)))} \\\\"
    yield r"    \midrule"
    apart = False
    for row in table.rows:
        if row.reference_row and not apart:
            yield r"    \midrule"
        apart = row.reference_row
        yield f"    {' & '.join(_row(row, plain))} \\\\"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield from (rf"  \par\footnotesize {escaped(plain(note))}" for note in notes)
    yield r"\end{table}"


def _row(row: TableRow, plain: Plain) -> Iterator[str]:
    label = escaped(plain(row.label))
    yield rf"\textit{{{label}}}" if row.reference_row else label
    for text in row.texts:
        shown = " ".join(escaped(plain(line)) for line in text.compact or text.lines)
        yield rf"\textbf{{{shown}}}" if text.tone == "best" else shown


def escaped(text: str) -> str:
    """Return ``text`` as LaTeX that shows it; a character that not every LaTeX can show becomes a question mark."""
    return _JOINED.sub(
        r"\1{}",
        "".join(COMMANDS.get(letter) or (letter if _LETTERS.match(letter) else _UNKNOWN) for letter in one_line(text)),
    )
