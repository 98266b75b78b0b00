"""What can be measured here: backends by the suites that they step, their options, and the tasks known by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vebench.analysis.finding_codes import Code
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import Task
from vebench.backends.packages import how_to_install, importable
from vebench.backends.registry import ENTRIES
from vebench.plan.tasks import short_name
from vebench.reports.document import Document, FindingText, Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.backends.entry import BackendEntry
    from vebench.backends.environments.suites import Suite
    from vebench.backends.packages import Package
    from vebench.reports.page import Kind


@dataclass(frozen=True)
class ListPage:
    """What can be measured on this machine."""

    kind: ClassVar[Kind] = "list"
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document with three tables."""
        return (_document(),)


def _document() -> Document:
    """Return a table of the backends and what each of them steps here, one of their options, and one of the tasks.

    What is missing is said once for each group of packages, with the command that installs it.
    """
    options = [(entry, key, option) for entry in ENTRIES for key, option in entry.options.items()]
    return Document(
        title="What can be measured here",
        facts=(),
        tables=(
            Table(
                title="Backends",
                corner="backend",
                columns=("steps", "what it is"),
                rows=tuple(
                    TableRow(entry.name, (_steps(entry), Text((entry.summary,))), entry.reference_row)
                    for entry in ENTRIES
                ),
                numbers=False,
            ),
            Table(
                title="Their options",
                corner="option",
                columns=("meaning",),
                rows=tuple(
                    TableRow(f"{entry.name}[{key}]", (Text((option.meaning,)),)) for entry, key, option in options
                ),
                numbers=False,
            ),
            Table(
                title="Tasks (full ids such as ALE/Pong-v5 work, too)",
                corner="kind",
                columns=("names",),
                rows=tuple(TableRow(suite.title, (Text((_names(suite),)),)) for suite in SUITES.values()),
                numbers=False,
            ),
        ),
        findings=tuple(_missing()),
    )


def _steps(entry: BackendEntry) -> Text:
    """Return the kinds of task that a backend steps here."""
    able = [suite.title for suite in SUITES.values() if entry.why_not(_example(suite)) is None]
    if len(able) == len(SUITES):
        return Text(("all",))
    return Text((", ".join(able),)) if able else Text(("nothing here",), "missing")


def _example(suite: Suite) -> Task:
    """Return a task that stands for all of its suite."""
    name, frame_skip = next(iter(suite.tasks.items()), ("any other", 1))
    return Task(name, suite.name, frame_skip)


def _names(suite: Suite) -> str:
    names = [short_name(name) for name in suite.tasks]
    return ", ".join(names) or "any registered id with array observations and actions, or module:Id"


def _missing() -> Iterator[FindingText]:
    """Yield what is not installed, by suite and by backend, and how to install it."""
    needed: dict[tuple[Package, ...], list[str]] = {}
    for name, packages in (
        *((suite.title, suite.packages) for suite in SUITES.values()),
        *((entry.name, entry.packages) for entry in ENTRIES),
    ):
        if missing := tuple(package for package in packages if not importable(package.module)):
            needed.setdefault(missing, []).append(name)
    for missing, names in needed.items():
        text = f"not installed: {', '.join(package.name for package in missing)}"
        yield FindingText(Code.MISSING_PACKAGES, text, (f"needed for {', '.join(names)}",), how_to_install(missing))
