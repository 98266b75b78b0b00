"""The content of a page, independent of the format: documents of facts, tables, findings, sentences and charts.

Pages build it, every format writes it. It imports neither results nor formats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from vebench.analysis.findings import Finding, Gravity
from vebench.analysis.statistics import Estimate
from vebench.errors import one_line

Tone = Literal["plain", "best", "reference_row", "missing", "struck"]
COMMANDS = ("command", "report", "continue")  # the facts that are commands, to be pasted


@dataclass(frozen=True)
class Text:
    """One place of a table."""

    lines: tuple[str, ...]  # the first is the result, the others explain it
    tone: Tone = "plain"
    value: Estimate | str | int | float | None = None  # the result of the first line, to sort by
    short: str = ""  # the second line in fewer characters; with it, both may be shown on one line


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
    notes: tuple[str, ...] = ()  # how to read it
    details: tuple[str, ...] = ()  # further notes, which a terminal shows on request
    numbers: bool = True  # places hold numbers, and are not wrapped
    group: str = ""  # the task or similar that it is about; documents show a group together
    further: bool = False  # the document's answers, legend and mark of the best are about other tables


@dataclass(frozen=True)
class Remark:
    """A finding, or the explanation of a verdict."""

    label: str  # the code of a finding; the verdict that is explained
    text: str
    places: tuple[str, ...] = ()  # where it is the case
    remedy: str = ""
    command: str = ""  # of the remedy, to be pasted
    gravity: Gravity | None = None  # the consequence of a finding for the results; an explanation has none

    @classmethod
    def of(cls, finding: Finding, places: Iterable[str] = ()) -> Self:
        """Return a finding in words. The command that its remedy ends with, if any, is a field of its own."""
        words, found, command = one_line(finding.remedy).rpartition(": vebench ")
        remedy, command = (f"{words}:", f"vebench {command}") if found else (command, "")
        code, where = finding.code, tuple(map(one_line, places))
        return cls(code.value, one_line(finding.message), where, remedy, command, code.gravity)


@dataclass(frozen=True)
class AnswerText:
    """The conclusion of a group of tables and charts, in sentences, the most important first."""

    group: str
    sentences: tuple[str, ...]
    code: tuple[str, ...] = ()  # lines of Python that use what is recommended
    settled: bool = True  # the question is answered, and not only why it cannot be
    command: str = ""  # that the last sentence recommends, to be pasted


# bound: a row that no backend can beat. ideal: each worker adds as much as the first.
LineRole = Literal["measured", "bound", "ideal"]
ChartKind = Literal["rate", "efficiency", "cost"]


@dataclass(frozen=True)
class Mark:
    """A place on the axis of workers, and in few words what is there."""

    x: float
    text: str


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart."""

    name: str
    points: tuple[tuple[float, Estimate], ...]  # by rising x
    role: LineRole = "measured"
    family: str = ""  # lines of one family have one colour; by default the name
    dashed: bool = False
    winner: float | None = None  # the number of workers of the winner, if that is one of its points


@dataclass(frozen=True)
class Chart:
    """Lines over a logarithmic axis."""

    group: str  # the task or similar that it is about; with the kind, it names the chart
    kind: ChartKind
    title: str
    x_label: str
    y_label: str
    series: tuple[ChartLine, ...]
    marks: tuple[Mark, ...] = ()
    linear: bool = False  # the vertical axis begins at zero; otherwise it is logarithmic


@dataclass(frozen=True)
class Document:
    """All that is shown about one thing."""

    title: str
    facts: tuple[tuple[str, str], ...]  # names and values
    tables: tuple[Table, ...]
    legend: tuple[str, ...] = ()  # how to read the tables
    findings: tuple[Remark, ...] = ()  # the gravest first
    explanations: tuple[Remark, ...] = ()
    best: str = ""  # the meaning of the mark of the best places
    notice: str = ""  # one line to be read before all else
    answers: tuple[AnswerText, ...] = ()  # the conclusions: first in a file, last on a terminal
    charts: tuple[Chart, ...] = ()
    all_notes: str = ""  # the command that shows everything, where something was left out
    file: str = ""  # the run file that it is about

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Findings and explanations."""
        return (*self.findings, *self.explanations)


@dataclass(frozen=True)
class View:
    """Parts of a run's documents that are shown on request: rates, speedups and findings always are."""

    columns: tuple[str, ...] = ()  # of the data, each shown as a further table of each task
    every_finding: bool = False  # nothing is left out for being of less weight
    each_run: bool = True  # runs that are shown side by side follow one by one
    forecast: int | None = None  # the number of workers to predict rates for


DEFAULT = View()
PageKind = Literal[
    "run", "check", "bisect", "history", "verify", "tune", "plan", "list", "machine", "submission", "cite"
]


class Page(Protocol):
    """A result of one kind."""

    @property
    def kind(self) -> PageKind:
        """Which formats can write it, and how documents are laid out on a terminal."""

    @property
    def title(self) -> str:
        """The title above several documents; empty if their own are enough."""
        return ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents, in the order in which they are shown."""


class DataPage(Page, Protocol):
    """A result that programs can read, too."""

    @property
    def data(self) -> object:
        """Lists and mappings of texts, numbers, estimates and findings; None where something does not apply."""


@dataclass(frozen=True)
class SimplePage:
    """A page that was made at once: of one document, and of data if programs can read it."""

    kind: PageKind
    document: Document
    data: object = None
    title: str = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """The document."""
        return (self.document,)
