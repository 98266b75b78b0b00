"""What can be measured here: backends by the kinds of task that they step, and the tasks known by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vebench.backends.interface import Task
from vebench.backends.registry import ENTRIES
from vebench.plan.tasks import KNOWN, short_name
from vebench.reports.document import Document, Table, TableRow, Text

if TYPE_CHECKING:
    from vebench.backends.registry import Entry
    from vebench.reports.page import Kind

# A task of each kind, to stand for all of its kind.
KINDS = {
    "Atari": next(task for task in KNOWN if task.suite == "atari"),
    "MuJoCo": next(task for task in KNOWN if task.suite == "mujoco"),
    "classic": next(task for task in KNOWN if task.suite == "classic"),
    "other Gymnasium": Task("any other", "gymnasium", 1),
}


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
    """Return a table of the backends and what each of them steps here, one of their options, and one of the tasks."""
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
                    TableRow(entry.name, (_steps(entry), Text((entry.summary,))), entry.reference) for entry in ENTRIES
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
                title="Tasks (full ids such as ALE/Pong-v5 will do as well)",
                corner="kind",
                columns=("names",),
                rows=tuple(TableRow(kind, (Text((_names(task),)),)) for kind, task in KINDS.items()),
                numbers=False,
            ),
        ),
    )


def _steps(entry: Entry) -> Text:
    """Return the kinds of task that a backend steps here; where a package is missing, which."""
    refusals = {kind: entry.why_not(task) for kind, task in KINDS.items()}
    able = [kind for kind, why in refusals.items() if why is None]
    missing = dict.fromkeys(why for why in refusals.values() if why is not None and why.startswith("not installed"))
    everything = len(able) == len(KINDS)
    lines = ("all" if everything else ", ".join(able), *missing)
    return Text(tuple(line for line in lines if line), "missing" if missing else "plain")


def _names(stands_for: Task) -> str:
    names = [short_name(task.id) for task in KNOWN if task.suite == stands_for.suite]
    return ", ".join(names) or "any registered id with array observations and actions, or module:Id"
