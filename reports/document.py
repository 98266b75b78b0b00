"""The neutral model of what is shown: facts, tables, findings, charts, and the pages that hold them.

Pages build it, every format writes it. It is a leaf: it knows neither results nor formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

from vebench.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from vebench.analysis.findings import Finding, Gravity
    from vebench.analysis.statistics import Estimate

    Value = Estimate | str | int | float | None

# best: the place to look at first. reference_row: a figure of a row that is no choice. missing: something is lacking.
# struck: a figure that is not valid.
Tone = Literal["plain", "best", "reference_row", "missing", "struck"]
# answer: what answers, legend and mark of the best are about. run: more of the same run.
Subject = Literal["answer", "run"]


@dataclass(frozen=True)
class Text:
    """One place of a table: the first line is what counts, the others explain it.

    ``value`` is what the first line shows, to sort by: an estimate, a number, a verdict; None if it shows no single
    one. ``short``: the second line may stand beside the first, and is this where there is little room; empty if not.
    """

    lines: tuple[str, ...]
    tone: Tone = "plain"
    value: Value = None
    short: str = ""


@dataclass(frozen=True)
class TableRow:
    """One line of a table, with a text for each column. Reference rows come last and are set apart."""

    label: str
    texts: tuple[Text, ...]
    reference_row: bool = False


@dataclass(frozen=True)
class Listing:
    """Lines below a heading, for text that is too long for a table."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table with a column of labels, headed ``corner``, and one column for each of ``columns``.

    The last ``aside`` columns are about whole rows, beside those that rows are compared in. ``notes`` are footnotes.
    ``numbers``: places hold numbers, not prose. ``group`` is what it is of, such as a task: documents show what is of
    one group together. ``about`` says whether the document's answers, legend and mark of the best belong to it: what
    others need to be read stands in their own notes and listings.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    corner: str = "backend"
    aside: int = 0
    notes: tuple[str, ...] = ()
    listing: Listing | None = None
    numbers: bool = True
    group: str = ""
    about: Subject = "answer"


@dataclass(frozen=True)
class Remark:
    """What is listed under ``label``: what is the case, where (a line for each place), and what to do.

    A finding has its code as the label, and a ``gravity``: what it means for the figures. An explanation, of a verdict
    or of a place in a table, has none. ``command`` is what the remedy says to run, as it can be pasted. Either is empty
    where nothing is to be done.
    """

    label: str
    text: str
    places: tuple[str, ...] = ()
    remedy: str = ""
    command: str = ""
    gravity: Gravity | None = None

    @classmethod
    def of(cls, finding: Finding, places: Iterable[str] = ()) -> Self:
        """Return a finding in words."""
        code = finding.code
        words = one_line(finding.message), tuple(map(one_line, places)), one_line(finding.remedy)
        return cls(code.value, *words, gravity=code.gravity)


@dataclass(frozen=True)
class AnswerText:
    """What a group of tables and figures says, in sentences, the most important first.

    ``code`` is what to paste to use what is recommended, lines of Python; empty where nothing is. ``settled``: whether
    the question is answered, and not only why it cannot be.
    """

    group: str
    sentences: tuple[str, ...]
    code: tuple[str, ...] = ()
    settled: bool = True


@dataclass(frozen=True)
class Document:
    """All that is shown about one thing: facts by name, tables, how to read them, and last findings and explanations.

    ``answers`` are for those who read nothing else: first in a file, last on a terminal. ``charts`` show the same as
    the tables. ``file`` is the run file that it is of, empty if it is of none.

    ``notice`` is one line to be read before all else, empty if there is none. ``best`` is what the mark of the best
    places means, empty if no place has it. ``drawing`` is for a terminal, where it comes first and takes the width that
    there is; other formats leave it out.

    ``findings`` have the gravest first. Where not all was asked for, ``all_notes`` is the command that shows all.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    legend: tuple[str, ...] = ()
    findings: tuple[Remark, ...] = ()
    explanations: tuple[Remark, ...] = ()
    best: str = ""
    drawing: RenderableType | None = None
    notice: str = ""
    answers: tuple[AnswerText, ...] = ()
    charts: tuple[Chart, ...] = ()
    all_notes: str = ""
    file: str = ""

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """All that comes last, as formats list it: findings and explanations."""
        return (*self.findings, *self.explanations)


# measured: points with intervals, which a line joins. bound: the same of a row that no backend can beat. ideal: what
# would be if each worker added as much as the first. forecast: what a model expects where nothing was measured.
LineRole = Literal["measured", "bound", "ideal", "forecast"]
ChartKind = Literal["rate", "efficiency", "cost"]


@dataclass(frozen=True)
class Mark:
    """A place on the axis of workers, and in few words what is there, such as the end of the CPUs, or what ``wins``."""

    x: float
    text: str
    wins: bool = False


@dataclass(frozen=True)
class ChartLine:
    """One line of a figure, or group of bars: its points, by rising ``x``. ``name`` is in the key.

    Lines of one ``family``, by default the name, have one colour; ``dashed`` sets two apart. A ``banded`` line
    shows its intervals; bars always do. ``mark`` is what is said of one of the points.
    """

    name: str
    points: tuple[tuple[float, Estimate], ...]
    role: LineRole = "measured"
    family: str = ""
    dashed: bool = False
    banded: bool = False
    mark: Mark | None = None


@dataclass(frozen=True)
class Chart:
    """Lines over a common horizontal axis, or bars if it has few places.

    Both axes are logarithmic; with ``linear``, the vertical one is not and begins at zero. Bars always begin there.
    ``group`` is what it is of, such as a task: documents show what is of one group together. With ``kind``, what it
    shows, the group names the figure.
    """

    group: str
    kind: ChartKind
    title: str
    x_label: str
    y_label: str
    series: tuple[ChartLine, ...]
    marks: tuple[Mark, ...] = ()
    linear: bool = False


@dataclass(frozen=True)
class View:
    """What documents of a run show besides rates, speedups and what is wrong.

    ``columns`` names columns of the data, each shown as a further table of each task. With ``every_finding``, nothing
    is left out for being of less weight: notes, ranks by CPU time, what the measuring loop costs, facts in full. With
    ``each_run``, runs that are shown side by side follow one by one. ``forecast`` is a number of workers to predict
    rates for, None for no prediction.
    """

    columns: tuple[str, ...] = ()
    every_finding: bool = False
    each_run: bool = True
    forecast: int | None = None


DEFAULT = View()


PageKind = Literal[
    "run", "check", "bisect", "history", "verify", "tune", "plan", "list", "machine", "submission", "cite"
]


class Page(Protocol):
    """A result of one kind. ``title`` is shown above all documents, empty where their own titles are enough."""

    kind: ClassVar[PageKind]
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents, in the order in which they are shown."""


class DataPage(Page, Protocol):
    """A result that programs can read, too."""

    @property
    def data(self) -> object:
        """Lists and mappings of texts, numbers, estimates and findings; None where something does not apply."""
