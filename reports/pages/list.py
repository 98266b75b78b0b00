"""The lists of what can be measured here: backends by their tasks, tasks by name, and other projects' backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.findings import Code
from vebench.analysis.rules import own_classes
from vebench.backends.environments.suites import SUITES, short_name
from vebench.backends.interface import Task
from vebench.backends.packages import how_to_install, importable
from vebench.backends.registry import ENTRIES, INSTALLATIONS, YARDSTICK, standings
from vebench.interpreters.venvs import python_of
from vebench.reports.document import Document, Remark, SimplePage, Table, TableRow, Text
from vebench.reports.figures import by_key, tasks_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vebench.backends.entry import BackendEntry
    from vebench.backends.environments.suites import Suite
    from vebench.backends.packages import Installation
    from vebench.backends.registry import Standing


def list_page() -> SimplePage:
    """Return the backends and what each of them steps here, their options, and the tasks."""
    standing = standings()
    tables = (_backends(), *_own_classes(standing), _options(), _tasks(), _peers())
    findings = (*_missing(), *map(Remark.of, own_classes(standing)))
    return SimplePage("list", Document("What can be measured here", (), tables, findings=findings))


def _prose(
    title: str, corner: str, columns: tuple[str, ...], rows: Iterable[TableRow], notes: tuple[str, ...] = ()
) -> Table:
    return Table(title, columns, tuple(rows), corner, notes, numbers=False)


def _row(label: str, text: str) -> TableRow:
    return TableRow(label, (Text((text,)),))


def _backends() -> Table:
    rows = []
    for entry in sorted(ENTRIES, key=lambda entry: (entry.reference_row, not entry.by_default)):
        if entry.library.installation is None:
            named = "" if entry.by_default or entry.name == YARDSTICK else " (named)"
            texts = _steps(entry), Text((f"{entry.summary}{named}",))
            rows.append(TableRow(entry.name, texts, entry.reference_row))
    notes = ("Those with (named) need -b to be measured.",)
    return _prose("Backends", "backend", ("steps", "what it is"), rows, notes)


def _peers() -> Table:
    notes = (
        "vebench install NAME makes an interpreter that has it; -b BACKEND then runs there.",
        "vebench run -b all-peers measures them all, with the usual backends.",
        *(f"{one.name}: {one.note}" for one in INSTALLATIONS if one.note),
    )
    rows = [TableRow(one.name, _peer(one)) for one in INSTALLATIONS]
    return _prose("Backends of other projects", "name", ("backends", "what it is", "here"), rows, notes)


def _steps(entry: BackendEntry) -> Text:
    able = [words for suite in SUITES.values() if (words := _of_suite(entry, suite))]
    if able == [suite.title for suite in SUITES.values()]:
        return Text(("all",))
    return Text((", ".join(able),)) if able else Text(("nothing here",), "missing")


def _of_suite(entry: BackendEntry, suite: Suite) -> str:
    """Return a kind of task if a backend steps it here, with how many of them if not all; empty if it does not."""
    tasks = [Task(name, suite.name, skip) for name, skip in suite.tasks.items()] or [Task("any other", suite.name, 1)]
    named = [task for task in tasks if entry.scope.name_of(task) is not None]
    if not named or entry.why_not(named[0]) is not None:
        return ""
    return suite.title if len(named) == len(tasks) else f"{len(named)} of {len(tasks)} {suite.title}"


def _own_classes(standing: Sequence[Standing]) -> Iterator[Table]:
    """Yield a table for the backends that have environment classes of their own, and which tasks these step here."""
    for backends in dict.fromkeys(one.backends for one in standing):
        rows = []
        for one in standing:
            if one.backends == backends:
                text = Text((one.own.words_for_kind,), "missing" if one.own.refused else "plain")
                rows.append(TableRow(tasks_in_words(one), (text,)))
        yield _prose(f"Classes of their own: {', '.join(backends)}", "kind", ("here they step",), rows)


def _options() -> Table:
    rows = [_row(f"{entry.name}[{key}]", one.meaning) for entry in ENTRIES for key, one in entry.options.items()]
    return _prose("Their options", "option", ("meaning",), rows)


def _tasks() -> Table:
    rows = []
    for suite in SUITES.values():
        names = [*map(short_name, suite.tasks), *([suite.otherwise] if suite.otherwise else [])]
        rows.append(_row(suite.title, ", ".join(names)))
    return _prose("Tasks (full ids such as ALE/Pong-v5 work, too)", "kind", ("names",), rows)


def _missing() -> Iterator[Remark]:
    every = [(suite.title, suite.packages) for suite in SUITES.values() if suite.usual]
    every += [(entry.name, entry.library.packages) for entry in ENTRIES if entry.library.installation is None]
    lacking = ((tuple(one for one in packages if not importable(one.module)), name) for name, packages in every)
    needed = by_key((missing, name) for missing, name in lacking if missing)
    for missing, names in needed.items():
        text = f"not installed: {', '.join(package.name for package in missing)}"
        places = (f"needed for {', '.join(names)}",)
        yield Remark(Code.SKIPPED, text, places, how_to_install(missing), gravity=Code.SKIPPED.gravity)


def _peer(one: Installation) -> tuple[Text, ...]:
    entries = [entry for entry in ENTRIES if entry.library.installation == one]
    packages = {package for entry in entries for package in entry.library.packages}
    here = Text((f"vebench install {one.name}",), "missing")
    if packages and all(importable(package.module) for package in packages):
        here = Text(("installed",))
    elif python_of(one.name) is not None:
        here = Text(("set up",))
    return Text((", ".join(entry.name for entry in entries) or "none: a collector",)), Text((one.title,)), here
