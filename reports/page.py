"""What a command shows: a result as documents for people and, for most kinds, as data for programs.

A format is a function of a page, see ``vebench.reports.formats.registry``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from vebench.reports.document import Document


@dataclass(frozen=True)
class View:
    """What documents of a run show besides rates, speedups and what is wrong.

    ``columns`` names columns of the data, each shown as a further table of each task. With ``every_finding``, nothing
    is left out for being of less weight: notes, the row that shows what the measuring loop costs, facts in full. With
    ``each_run``, runs that are shown side by side follow one by one. ``published``: figures that others have published
    for these tasks are shown, too, in tables of their own. ``forecast`` is a number of workers to predict rates for,
    None for no prediction.
    """

    columns: tuple[str, ...] = ()
    every_finding: bool = False
    each_run: bool = True
    published: bool = False
    forecast: int | None = None


DEFAULT = View()


Kind = Literal["run", "check", "history", "verify", "tune", "plan", "list", "machine"]


class Page(Protocol):
    """A result of one kind. ``title`` is shown above all documents, empty where their own titles are enough."""

    kind: ClassVar[Kind]
    title: ClassVar[str]

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents, in the order in which they are shown."""


class DataPage(Page, Protocol):
    """A result that programs can read, too."""

    @property
    def data(self) -> object:
        """Lists and mappings of texts, numbers, estimates and findings; None where something does not apply."""
