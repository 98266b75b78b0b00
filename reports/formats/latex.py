r"""The tables of runs as LaTeX, to be read with ``\input`` in a document that loads booktabs.

Each table is a float, and the notes on it are a paragraph below. The text is safe in any encoding of fonts: every
character that LaTeX treats in a special way is written as a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vebench.backends.environments.suites import short_name
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Document, Page, Table

HEAD = "% Needs \\usepackage{booktabs}."
# Characters with a meaning of their own, characters that fonts in the old encoding OT1 lack or show as others, and
# brackets and stars, which at the beginning of a line would belong to the end of the one before.
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
# Letters of Western European languages that LaTeX can set with any fonts, not only in the encoding T1.
_LETTERS = re.compile(r"[ -~À-ÏÑ-ÖØ-ÝßÀ-ïñ-öø-ýÿ]")


def latex_tables(page: Page) -> str:
    """Return a ``table`` environment and notes for each table of ``page``. A caption of rates has their answer."""
    documents = figures.without_folders(document.file for document in page.documents)(page.documents)
    lines = [HEAD]
    names: list[str] = []
    for document in documents:
        title = f"{document.title}: " if len(documents) > 1 else ""
        for table in document.tables:
            name = f"tab:vebench-{re.sub('[^a-z0-9]+', '-', short_name(table.group).lower()).strip('-')}"
            names.append(name if name not in names else f"{name}-{len(names) + 1}")
            answers = [one.sentences[0] for one in document.answers if one.group == table.group and not table.further]
            notice = [f"{document.notice[0].upper()}{document.notice[1:]}."] if document.notice else []
            caption = " ".join((*answers, *notice, f"{title}{table.title}."))
            notes = [note if note.endswith(".") else f"{note}." for note in _notes(table, document)]
            lines += [*_float(table, names[-1], escaped(caption)), ""]
            lines += [*(escaped(note) for note in notes), ""]
    return "\n".join(lines) + "\n"


def _notes(table: Table, document: Document) -> Iterator[str]:
    """Yield the sentences about a table: how to read it, and the machine."""
    if not table.further:
        yield from document.legend
        if any(text.tone == "best" for row in table.rows for text in row.texts):
            yield f"Bold: {document.best}."
    yield from (*table.notes, *table.details)
    if machine := dict(document.facts).get("machine"):
        yield f"This machine: {machine}."


def _float(table: Table, name: str, caption: str) -> Iterator[str]:
    """Yield the lines of a float. All lines of a place are on one."""
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{caption}}}"
    yield rf"  \label{{{name}}}"
    yield rf"  \begin{{tabular}}{{l{('r' if table.numbers else 'l') * len(table.columns)}}}"
    yield r"    \toprule"
    yield f"    {' & '.join(map(escaped, (table.corner, *table.columns)))} \\\\"
    yield r"    \midrule"
    apart = False
    for row in table.rows:
        if row.reference_row and not apart:
            yield r"    \midrule"
        apart = row.reference_row
        label = escaped(row.label)
        places = [rf"\textit{{{label}}}" if row.reference_row else label]
        for text in row.texts:
            shown = escaped(" ".join(text.lines))
            places.append(rf"\textbf{{{shown}}}" if text.tone == "best" else shown)
        yield f"    {' & '.join(places)} \\\\"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def escaped(text: str) -> str:
    """Return ``text`` as LaTeX that shows it; a character that not every LaTeX can show becomes a question mark."""
    plain = (letter if _LETTERS.match(letter) or letter in COMMANDS else "?" for letter in one_line(text))
    return _JOINED.sub(r"\1{}", "".join(COMMANDS.get(letter, letter) for letter in plain))
