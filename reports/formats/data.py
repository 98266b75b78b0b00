"""Formats for other programs: pages as JSON, runs as CSV and LaTeX, rates and verdicts for services.

Spreadsheets run texts that look like a formula, and names come from outside. So in CSV, a text that begins like a
formula gets a quotation mark before it (https://owasp.org/www-community/attacks/CSV_Injection). Numbers stay unchanged.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from vebench.analysis.cell import Finding, Gravity
from vebench.analysis.comparison import CellComparison
from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import short_name
from vebench.errors import one_line
from vebench.reports import columns, figures
from vebench.reports.columns import Plain, RateColumn
from vebench.reports.document import Page, Table
from vebench.reports.run import RunPage

# Characters with a special meaning in LaTeX, and characters that fonts in the old encoding OT1 lack or confuse. At the
# beginning of a line, brackets and stars would be an argument of the end of the line before.
LATEX_COMMANDS = {
    **{letter: f"\\{letter}" for letter in "{}$&#%_"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "±": r"\textpm{}",
    "µ": r"\textmu{}",
    "→": r"\textrightarrow{}",
    "…": r"\ldots{}",
    "\N{MULTIPLICATION SIGN}": r"\texttimes{}",
}


def json_of(page: Page) -> str:
    """Return the data of ``page`` as JSON. null: a value does not apply."""
    return dump(page.data)


def dump(data: object) -> str:
    """Return ``data`` as JSON, estimates and findings as objects. Raises ValueError for a number that is not finite.

    Characters that could control a terminal or the log of a CI service are escaped. Surrogates, as in file names that
    are not UTF-8, are also escaped, because they cannot be encoded.
    """
    # Python's json is several times slower at indenting, and msgspec writes some numbers differently. So use both.
    line = json.dumps(data, ensure_ascii=False, allow_nan=False, default=_plain)
    text = msgspec.json.format(line.encode(errors="surrogatepass")).decode(errors="surrogatepass")
    if not line.isprintable():
        text = "".join(one if one == "\n" or one.isprintable() else json.dumps(one)[1:-1] for one in text)
    return f"{text}\n".replace("##", "#\\u0023")


def _plain(value: object) -> dict[str, float | str | None]:
    # Name each key, so that a new field in the program does not change the format.
    if isinstance(value, Estimate):
        return {"median": value.median, "low": value.low, "high": value.high}
    if isinstance(value, Finding):
        return {"code": value.code, "message": value.message, "remedy": value.remedy}
    raise TypeError(f"no JSON for {value!r}")


def bibtex(page: Any) -> str:
    """Return the BibTeX entry of ``page``."""
    return str(page.data)


def csv_of(page: RunPage) -> str:
    """Return a head line and one line for each cell."""
    head: list[Plain] = ["file", "env", "backend", "workers", "envs_per_worker"]
    for column in columns.COLUMNS:
        bounds = ("", "_low", "_high") if isinstance(column, RateColumn) else ("",)
        head += [f"{column.name}{bound}" for bound in bounds]
    lines = [head]
    for section in page.sections:
        for cell in section.reported:
            line: list[Plain] = [section.name, cell.env, cell.label, cell.workers, cell.envs_per_worker]
            for column in columns.COLUMNS:
                if isinstance(column, RateColumn):
                    rate = column.value(cell)
                    line += [None] * 3 if rate is None else [rate.median, rate.low, rate.high]
                else:
                    line.append(column.text(cell) if column.text else column.value(cell))
            lines.append([_harmless(value) for value in line])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _harmless(value: Plain) -> Plain:
    if not isinstance(value, str):
        return value
    text = one_line(value)
    # The last four are the full-width forms of the first four.
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")) else text


def bmf(page: RunPage) -> str:
    """Return rates in Bencher Metric Format: ``{cell: {"throughput": {"value", "lower_value", "upper_value"}}}``."""
    metrics = {}
    for name, rate, _ in _named_rates(page):
        values = {"value": rate.median, "lower_value": rate.low, "upper_value": rate.high}
        metrics[name] = {"throughput": {key: value for key, value in values.items() if value is not None}}
    return dump(metrics)


def github(page: RunPage) -> str:
    """Return rates as github-action-benchmark's ``customBiggerIsBetter``, in frames per second."""
    entries = []
    for name, rate, note in _named_rates(page):
        spread = figures.spread(rate)
        entries.append({"name": name, "unit": "frames/s", "value": rate.median, "range": spread, "extra": note})
    return dump(entries)


def _named_rates(page: RunPage) -> Iterator[tuple[str, Estimate, str]]:
    """Yield a name, a rate in frames per second and a note for every cell with a rate, without reference rows.

    A cell has the same name in all runs. With several files, names begin with the file name, so that they are unique.
    The note has the steps per second and the codes of findings, with faults of the run.
    """
    for section in page.sections:
        prefix = f"{section.name}: " if len(page.sections) > 1 else ""
        faults = [finding for finding in section.findings if finding.code.gravity is Gravity.FAULT]
        for cell in section.cells:
            if cell.frames_per_second is not None and not cell.reference_row:
                notes = list(dict.fromkeys(finding.code.value for finding in (*cell.findings, *faults)))
                if cell.figures.steps_per_second:
                    notes.insert(0, f"{figures.number(cell.figures.steps_per_second.median)} steps/s")
                name = one_line(f"{cell.env} / {cell.label} / {cell.key.size}")
                yield f"{prefix}{name}", cell.frames_per_second, ", ".join(notes)


def junit(page: Any) -> str:
    """Return verdicts as JUnit XML, with a test case for each cell.

    GitLab, Jenkins and other services show them with the tests. An inconclusive cell is an error if its backend is
    inconclusive, too. Otherwise, it is skipped.
    """
    cells, command = page.comparison.cells, page.comparison.names.command
    verdicts = {group.key: group.verdict for group in page.comparison.groups}
    suite = ET.Element("testsuite", name=f"vebench {command}")
    counts = {"tests": len(cells), "failures": 0, "errors": 0, "skipped": 0}
    for cell in cells:
        words = in_words(cell)
        name = figures.cell_name(cell.key, cell.metric)
        case = ET.SubElement(suite, "testcase", classname=one_line(cell.key.env), name=name)
        element = "failure" if cell.verdict == "slower" else None
        if cell.verdict in ("missing", "not comparable") or (cell.failed and element is None):
            element = "error"
        elif cell.verdict == "inconclusive" and not cell.failed:
            element = "error" if verdicts[cell.group] == "inconclusive" else "skipped"
        if element is not None:
            counts[element if element == "skipped" else f"{element}s"] += 1
            ET.SubElement(case, element, type=cell.verdict, message=words)
        ET.SubElement(case, "system-out").text = words
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    root = ET.Element("testsuites", name=f"vebench {command}: {page.outcome}")
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def in_words(cell: CellComparison) -> str:
    """Return the verdict on one cell on one line, with its ratio and its reason."""
    ratio = f", ratio {figures.ratio_text(cell.ratio)}" if cell.ratio else ""
    why = cell.failed or cell.why
    reason = f": {one_line(why)}" if why else ""
    return f"{figures.cell_name(cell.key, cell.metric)}: {figures.verdict_word(cell)}{ratio}{reason}"


def workflow_commands(page: Any) -> str:
    """Return a GitHub workflow command for each cell that is slower, has failed, or has no verdict."""
    levels = {"slower": "error", "missing": "warning", "not comparable": "warning", "inconclusive": "warning"}
    # Escapes in the message of a workflow command (github.com/actions/toolkit, packages/core/src/command.ts).
    escapes = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
    lines = []
    for cell in page.comparison.cells:
        level = "error" if cell.failed else levels.get(cell.verdict)
        if level:
            words = in_words(cell).translate(escapes)
            lines.append(f"::{level} title=vebench%3A {figures.verdict_word(cell)}::{words}\n")
    return "".join(lines)


def latex_tables(page: Page) -> str:
    """Return a ``table`` environment and notes for each table of ``page``. Captions of rates begin with the answer."""
    documents = figures.shortened(page.documents)
    lines = [r"% Needs \usepackage{booktabs}."]
    names: list[str] = []
    for document in documents:
        title = f"{document.title}: " if len(documents) > 1 else ""
        for table in document.tables:
            name = f"tab:vebench-{re.sub('[^a-z0-9]+', '-', short_name(table.group).lower()).strip('-')}"
            names.append(name if name not in names else f"{name}-{len(names) + 1}")
            caption: list[str] = []
            notes: list[str] = []
            if not table.further:
                caption += [one.sentences[0] for one in document.answers if one.group == table.group]
                notes += document.legend
                if any(text.tone == "best" for row in table.rows for text in row.texts):
                    notes.append(f"Bold: {document.best}.")
            if document.notice:
                caption.append(f"{document.notice[0].upper()}{document.notice[1:]}.")
            caption.append(f"{title}{table.title}.")
            notes += [*table.notes, *table.details]
            if machine := dict(document.facts).get("machine"):
                notes.append(f"This machine: {machine}.")
            lines += [*_float(table, names[-1], in_latex(" ".join(caption))), ""]
            lines += [*(in_latex(note if note.endswith(".") else f"{note}.") for note in notes), ""]
    return "\n".join(lines) + "\n"


def _float(table: Table, name: str, caption: str) -> Iterator[str]:
    """Yield the lines of a float. The lines of a place are joined."""
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{caption}}}"
    yield rf"  \label{{{name}}}"
    yield rf"  \begin{{tabular}}{{l{('r' if table.numbers else 'l') * len(table.columns)}}}"
    yield r"    \toprule"
    yield f"    {' & '.join(map(in_latex, (table.corner, *table.columns)))} \\\\"
    yield r"    \midrule"
    apart = False
    for row in table.rows:
        if row.reference_row and not apart:
            yield r"    \midrule"
        apart = row.reference_row
        label = in_latex(row.label)
        places = [rf"\textit{{{label}}}" if row.reference_row else label]
        for text in row.texts:
            shown = in_latex(" ".join(text.lines))
            places.append(rf"\textbf{{{shown}}}" if text.tone == "best" else shown)
        yield f"    {' & '.join(places)} \\\\"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def in_latex(text: str) -> str:
    """Return LaTeX that shows ``text``. A character that not every LaTeX can show becomes a question mark."""
    # Letters of Western European languages that LaTeX can set in any encoding, not only in T1.
    letters = re.compile(r"[ -~À-ÏÑ-ÖØ-Ýßà-ïñ-öø-ýÿ]")
    plain = (letter if letters.match(letter) or letter in LATEX_COMMANDS else "?" for letter in one_line(text))
    commands = "".join(LATEX_COMMANDS.get(letter, letter) for letter in plain)
    return re.sub(r"([-,])(?=\1)", r"\1{}", commands)  # LaTeX joins two of these to one character
