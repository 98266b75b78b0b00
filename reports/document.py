"""The content of a page, independent of the format: documents of facts, tables, findings, sentences and charts.

Pages build documents, and every format writes them. This module imports neither results nor formats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, Self

from vebench.analysis.cell import Finding, Gravity
from vebench.analysis.statistics import Estimate
from vebench.errors import one_line

Tone = Literal["plain", "best", "reference_row", "missing", "struck"]
COMMANDS = ("command", "report", "continue")  # facts that are commands, which users paste


@dataclass(frozen=True)
class Text:
    """One place of a table."""

    lines: tuple[str, ...]  # the first line is the result, and the others explain it
    tone: Tone = "plain"
    value: Estimate | str | int | float | None = None  # the value of the first line, for sorting
    short: str = ""  # a short form of the second line, for formats that show both on one line


@dataclass(frozen=True)
class TableRow:
    """One row of a table, with a text for each column. Reference rows come last."""

    label: str
    texts: tuple[Text, ...]
    reference_row: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a column of labels, headed ``corner``, and one column for each of ``columns``."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    corner: str = "backend"
    notes: tuple[str, ...] = ()  # how to read the table
    details: tuple[str, ...] = ()  # further notes, which a terminal shows on request
    numbers: bool = True  # places have numbers, and are not wrapped
    group: str = ""  # the task, or a similar subject; documents show the tables of a group together
    further: bool = False  # the answers, the legend and the mark of the best do not apply to this table


@dataclass(frozen=True)
class Remark:
    """A finding, or the explanation of a verdict."""

    label: str  # the code of a finding, or the explained verdict
    text: str
    places: tuple[str, ...] = ()  # the cells that it applies to, in words
    remedy: str = ""
    command: str = ""  # the command of the remedy, which users paste
    gravity: Gravity | None = None  # the gravity of a finding; None for an explanation

    @classmethod
    def of(cls, finding: Finding, places: Iterable[str] = ()) -> Self:
        """Return a finding as a remark. A command at the end of the remedy moves to the field ``command``."""
        words, found, command = one_line(finding.remedy).rpartition(": vebench ")
        remedy, command = (f"{words}:", f"vebench {command}") if found else (command, "")
        code, where = finding.code, tuple(map(one_line, places))
        return cls(code.value, one_line(finding.message), where, remedy, command, code.gravity)


@dataclass(frozen=True)
class AnswerText:
    """The conclusion of a group of tables and charts, in sentences, the most important first."""

    group: str
    sentences: tuple[str, ...]
    code: tuple[str, ...] = ()  # lines of Python that build the recommended setting
    settled: bool = True  # whether there is an answer; otherwise, sentences say why not
    command: str = ""  # the command that the last sentence recommends, which users paste


# bound: a reference row that no backend can beat. ideal: each worker adds the rate of the first.
LineRole = Literal["measured", "bound", "ideal"]


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart."""

    name: str
    points: tuple[tuple[float, Estimate], ...]  # at least one, sorted by the number of workers
    role: LineRole = "measured"
    family: str = ""  # lines of a family have the same colour; empty: the name
    dashed: bool = False
    winner: float | None = None  # the number of workers of the winner, if the winner is on this line


@dataclass(frozen=True)
class Chart:
    """Rates over numbers of workers, both logarithmic."""

    group: str  # the task; a document has at most one chart for each task
    title: str
    series: tuple[ChartLine, ...]
    marks: tuple[tuple[float, str], ...] = ()  # numbers of workers within the lines, each with a short text


@dataclass(frozen=True)
class Document:
    """Everything that a page shows about one subject."""

    title: str
    facts: tuple[tuple[str, str], ...]  # names and values
    tables: tuple[Table, ...]
    legend: tuple[str, ...] = ()  # how to read the tables
    remarks: tuple[Remark, ...] = ()  # findings, the gravest first, then explanations
    best: str = ""  # the meaning of the mark on the best places
    notice: str = ""  # one line that readers must see first
    answers: tuple[AnswerText, ...] = ()  # the conclusions: first in a file; in a run, last on a terminal
    charts: tuple[Chart, ...] = ()
    all_notes: str = ""  # the command that shows everything, if something was left out
    file: str = ""  # the run file of this document


@dataclass(frozen=True)
class View:
    """The parts of a run's documents that are shown on request. Grave findings are shown unless ``early``."""

    columns: tuple[str, ...] = ()  # columns of the data; each becomes a further table of each task
    every_finding: bool = False  # show notes and the cost of the loop, too
    each_run: bool = True  # after several runs side by side, show each run alone
    early: bool = False  # show an unfinished run: rates and the cells that are ahead, and nothing else
    forecast: int | None = None  # the number of workers for which to predict rates


DEFAULT = View()
PageKind = Literal[
    "run", "check", "bisect", "history", "verify", "tune", "plan", "list", "machine", "submission", "cite"
]


class Page(Protocol):
    """A result of one kind."""

    @property
    def kind(self) -> PageKind:
        """The kind of page. It decides which formats can write the page, and the layout on a terminal."""

    @property
    def title(self) -> str:
        """The title above all documents; empty if their own titles are enough."""
        return ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents, in the order in which they are shown."""

    @property
    def data(self) -> object:
        """Data for programs: lists and mappings of texts, numbers, estimates, findings, and None for no value."""


@dataclass(frozen=True)
class SimplePage:
    """A page with one document, and data if there are any for programs."""

    kind: PageKind
    documents: tuple[Document]
    data: object = None
    title: ClassVar[str] = ""
