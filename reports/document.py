"""The content of a page, independent of the format: documents of facts, tables, findings, sentences and charts.

Pages build it, every format writes it. It imports neither results nor formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self

from vebench.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.analysis.findings import Finding, Gravity
    from vebench.analysis.statistics import Estimate

Tone = Literal["plain", "best", "reference_row", "missing", "struck"]


@dataclass(frozen=True)
class Text:
    """One place of a table."""

    lines: tuple[str, ...]
    """The first line is the result, the others explain it."""
    tone: Tone = "plain"
    value: Estimate | str | int | float | None = None
    """The result of the first line, to sort by."""
    short: str = ""
    """The second line in fewer characters. With it, a terminal may show both on one line."""


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
    notes: tuple[str, ...] = ()
    """How to read it."""
    details: tuple[str, ...] = ()
    """Further notes, which a terminal shows on request."""
    numbers: bool = True
    """Places hold numbers, and are not wrapped."""
    group: str = ""
    """The task or similar that it is about. Documents show a group together."""
    further: bool = False
    """The document's answers, legend and mark of the best are about other tables."""


@dataclass(frozen=True)
class Remark:
    """A finding, or the explanation of a verdict."""

    label: str
    """The code of a finding; the verdict that is explained."""
    text: str
    places: tuple[str, ...] = ()
    """Where it is the case."""
    remedy: str = ""
    command: str = ""
    """The command of the remedy, to be pasted."""
    gravity: Gravity | None = None
    """The consequence of a finding for the results. An explanation has none."""

    @classmethod
    def of(cls, finding: Finding, places: Iterable[str] = ()) -> Self:
        """Return a finding in words."""
        where = tuple(map(one_line, places))
        code = finding.code
        return cls(code.value, one_line(finding.message), where, one_line(finding.remedy), gravity=code.gravity)


@dataclass(frozen=True)
class AnswerText:
    """The conclusion of a group of tables and charts, in sentences, the most important first."""

    group: str
    sentences: tuple[str, ...]
    code: tuple[str, ...] = ()
    """Lines of Python that use what is recommended."""
    settled: bool = True
    """The question is answered, and not only why it cannot be."""


@dataclass(frozen=True)
class Document:
    """All that is shown about one thing."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """Names and values."""
    tables: tuple[Table, ...]
    legend: tuple[str, ...] = ()
    """How to read the tables."""
    findings: tuple[Remark, ...] = ()
    """The gravest first."""
    explanations: tuple[Remark, ...] = ()
    best: str = ""
    """The meaning of the mark of the best places."""
    notice: str = ""
    """One line to be read before all else."""
    answers: tuple[AnswerText, ...] = ()
    """The conclusions: first in a file, last on a terminal."""
    charts: tuple[Chart, ...] = ()
    all_notes: str = ""
    """The command that shows everything, where something was left out."""
    file: str = ""
    """The run file that it is about."""

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Findings and explanations."""
        return (*self.findings, *self.explanations)


# bound: a row that no backend can beat. ideal: each worker adds as much as the first. forecast: nothing was measured.
LineRole = Literal["measured", "bound", "ideal", "forecast"]
ChartKind = Literal["rate", "efficiency", "cost"]


@dataclass(frozen=True)
class Mark:
    """A place on the axis of workers, and in few words what is there."""

    x: float
    text: str
    wins: bool = False


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart, or group of bars."""

    name: str
    points: tuple[tuple[float, Estimate], ...]
    """By rising x."""
    role: LineRole = "measured"
    family: str = ""
    """Lines of one family have one colour. By default the name."""
    dashed: bool = False
    banded: bool = False
    """The intervals of a line are shown; bars always show theirs."""
    mark: Mark | None = None
    """A text at one of its points."""


@dataclass(frozen=True)
class Chart:
    """Lines over a logarithmic axis, or bars if it has few places."""

    group: str
    """The task or similar that it is about. With the kind, it names the chart."""
    kind: ChartKind
    title: str
    x_label: str
    y_label: str
    series: tuple[ChartLine, ...]
    marks: tuple[Mark, ...] = ()
    linear: bool = False
    """The vertical axis begins at zero. Otherwise it is logarithmic; bars always begin at zero."""


@dataclass(frozen=True)
class View:
    """Parts of a run's documents that are shown on request: rates, speedups and findings always are."""

    columns: tuple[str, ...] = ()
    """Columns of the data, each shown as a further table of each task."""
    every_finding: bool = False
    """Nothing is left out for being of less weight."""
    each_run: bool = True
    """Runs that are shown side by side follow one by one."""
    forecast: int | None = None
    """The number of workers to predict rates for."""


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
