"""What a command shows: a result as documents for people and, for most kinds, as data for programs.

A format is a function of a page, see ``vebench.reports.formats.registry``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from vebench.reports.document import Document

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
