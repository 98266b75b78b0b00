"""Other projects' backends: what each is, where it can run here, and what makes it run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vebench.backends.packages import importable
from vebench.backends.registry import ENTRIES, INSTALLATIONS
from vebench.interpreters.made import python_of
from vebench.reports.document import Document, Listing, Table, TableRow, Text

if TYPE_CHECKING:
    from vebench.backends.packages import Installation
    from vebench.reports.page import Kind


@dataclass(frozen=True)
class PeersPage:
    """Other projects' backends on this machine."""

    kind: ClassVar[Kind] = "list"
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document."""
        notes = tuple(f"{one.name}: {one.note}" for one in INSTALLATIONS if one.note)
        return (
            Document(
                title="Backends of other projects",
                facts=(),
                tables=(
                    Table(
                        title="What each needs",
                        corner="name",
                        columns=("backends", "what it is", "here"),
                        rows=tuple(TableRow(one.name, _texts(one)) for one in INSTALLATIONS),
                        numbers=False,
                        notes=(
                            "vebench peers setup NAME makes an interpreter that has it; -b BACKEND then runs there.",
                            "vebench run -b all-peers measures them all, beside the usual backends.",
                        ),
                        listing=Listing("To know:", notes) if notes else None,
                    ),
                ),
                findings=(),
            ),
        )


def _texts(one: Installation) -> tuple[Text, ...]:
    backends = [entry.name for entry in ENTRIES if entry.installation == one]
    return Text((", ".join(backends) or "none: a collector",)), Text((one.title,)), _here(one)


def _here(one: Installation) -> Text:
    packages = {package for entry in ENTRIES if entry.installation == one for package in entry.packages}
    if packages and all(importable(package.module) for package in packages):
        return Text(("beside vebench",))
    if (python := python_of(one.name)) is not None:
        return Text((python,))
    pythons = f", with Python {' or '.join(one.pythons)}" if one.pythons else ""
    return Text((f"vebench peers setup {one.name}{pythons}",), "missing")
