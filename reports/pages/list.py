"""What can be measured here: backends by the suites that they step, tasks by name, and other projects' backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.findings import Code, own_classes
from vebench.backends.environments.suites import SUITES, short_name
from vebench.backends.interface import Task
from vebench.backends.packages import how_to_install, importable
from vebench.backends.registry import ENTRIES, INSTALLATIONS, YARDSTICK, standings
from vebench.interpreters.venvs import python_of
from vebench.reports.document import Document, Listing, Page, Remark, Table, TableRow, Text
from vebench.reports.figures import by_key, tasks_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.backends.entry import BackendEntry
    from vebench.backends.environments.suites import Suite
    from vebench.backends.packages import Installation
    from vebench.backends.registry import Standing


@dataclass(frozen=True)
class ListPage(Page):
    """What can be measured on this machine."""

    kind = "list"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the backends and what each of them steps here, their options, and the tasks."""
        standing = standings()
        rows = []
        for entry in sorted(ENTRIES, key=lambda entry: (entry.reference_row, not entry.by_default)):
            if entry.installation is None:
                named = "" if entry.by_default or entry.name == YARDSTICK else " (named)"
                texts = _steps(entry), Text((f"{entry.summary}{named}",))
                rows.append(TableRow(entry.name, texts, entry.reference_row))
        backends = Table(
            title="Backends",
            columns=("steps", "what it is"),
            rows=tuple(rows),
            numbers=False,
            notes=("Those with (named) need -b to be measured.",),
        )
        meanings = {f"{entry.name}[{key}]": one.meaning for entry in ENTRIES for key, one in entry.options.items()}
        options = Table(
            title="Their options",
            columns=("meaning",),
            rows=tuple(TableRow(option, (Text((meaning,)),)) for option, meaning in meanings.items()),
            corner="option",
            numbers=False,
        )
        tasks = Table(
            title="Tasks (full ids such as ALE/Pong-v5 work, too)",
            columns=("names",),
            rows=tuple(TableRow(suite.title, (Text((_names(suite),)),)) for suite in SUITES.values()),
            corner="kind",
            numbers=False,
        )
        tables = (backends, *_own_classes(standing), options, tasks, _peers())
        findings = (*_missing(), *map(Remark.of, own_classes(standing)))
        return (Document("What can be measured here", (), tables, findings=findings),)


def _names(suite: Suite) -> str:
    return ", ".join((*map(short_name, suite.tasks), *filter(None, (suite.otherwise,))))


def _steps(entry: BackendEntry) -> Text:
    able = [words for suite in SUITES.values() if (words := _of_suite(entry, suite))]
    if able == [suite.title for suite in SUITES.values()]:
        return Text(("all",))
    return Text((", ".join(able),)) if able else Text(("nothing here",), "missing")


def _of_suite(entry: BackendEntry, suite: Suite) -> str:
    """Return a kind of task if a backend steps it here, with how many of them if not all; empty if it does not."""
    tasks = [Task(name, suite.name, skip) for name, skip in suite.tasks.items()] or [Task("any other", suite.name, 1)]
    named = [task for task in tasks if entry.name_of(task) is not None]
    if not named or entry.why_not(named[0]) is not None:
        return ""
    return suite.title if len(named) == len(tasks) else f"{len(named)} of {len(tasks)} {suite.title}"


def _own_classes(standing: Sequence[Standing]) -> Iterator[Table]:
    """Yield a table of which tasks are stepped by own classes here, for the backends that have such."""
    for backends in dict.fromkeys(one.backends for one in standing):
        shown = [(tasks_in_words(one), one.own) for one in standing if one.backends == backends]
        yield Table(
            title=f"Classes of their own: {', '.join(backends)}",
            columns=("here they step",),
            rows=tuple(
                TableRow(tasks, (Text((own.words_for_kind,), "missing" if own.refused else "plain"),))
                for tasks, own in shown
            ),
            corner="kind",
            numbers=False,
        )


def _missing() -> Iterator[Remark]:
    every = (
        *((suite.title, suite.packages) for suite in SUITES.values() if suite.usual),
        *((entry.name, entry.packages) for entry in ENTRIES if entry.installation is None),
    )
    lacking = ((tuple(one for one in packages if not importable(one.module)), name) for name, packages in every)
    needed = by_key((missing, name) for missing, name in lacking if missing)
    for missing, names in needed.items():
        text = f"not installed: {', '.join(package.name for package in missing)}"
        places = (f"needed for {', '.join(names)}",)
        yield Remark(Code.SKIPPED, text, places, how_to_install(missing), gravity=Code.SKIPPED.gravity)


def _peers() -> Table:
    """Return the backends of other projects, with what each needs here."""
    notes = tuple(f"{one.name}: {one.note}" for one in INSTALLATIONS if one.note)
    return Table(
        title="Backends of other projects",
        columns=("backends", "what it is", "here"),
        rows=tuple(TableRow(one.name, _texts(one)) for one in INSTALLATIONS),
        corner="name",
        numbers=False,
        notes=(
            "vebench install NAME makes an interpreter that has it; -b BACKEND then runs there.",
            "vebench run -b all-peers measures them all, with the usual backends.",
        ),
        listing=Listing("To know:", notes) if notes else None,
    )


def _texts(one: Installation) -> tuple[Text, ...]:
    entries = [entry for entry in ENTRIES if entry.installation == one]
    packages = {package for entry in entries for package in entry.packages}
    here = Text((f"vebench install {one.name}",), "missing")
    if packages and all(importable(package.module) for package in packages):
        here = Text(("installed",))
    elif python_of(one.name) is not None:
        here = Text(("set up",))
    return Text((", ".join(entry.name for entry in entries) or "none: a collector",)), Text((one.title,)), here
