"""Figures that others have published for a task, in tables of their own, apart from measured figures.

``reports/published.json`` has them as their sources print them, the highest of each system and machine. A source that
says nothing of intervals has none here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Listing, Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "published.json"
PUBLISHED_TITLE = "Published by others, not measured here"


@dataclass(frozen=True)
class Published:
    """Figures from one source for some of our tasks.

    ``task`` is the task as the source calls it, ``date`` when the figures first appeared. ``frames_per_second`` has the
    highest rate of each system on each of the ``machines``, None where the source has none; ``hardware`` lists their
    processors. ``counts`` says what the rates of each system count.
    """

    of: tuple[str, ...]
    task: str
    source: str
    url: str
    date: str
    hardware: str
    machines: tuple[str, ...]
    frames_per_second: dict[str, tuple[float | None, ...]]
    counts: dict[str, str]


@cache
def published() -> tuple[Published, ...]:
    """Return all published figures."""
    text = files("vebench.reports").joinpath(FILE).read_text(encoding="utf-8")
    return msgspec.json.decode(text, type=tuple[Published, ...])


def published_tables(envs: Iterable[str]) -> tuple[Table, ...]:
    """Return a table for each of the tasks ``envs`` for which a figure was published."""
    return tuple(
        Table(
            title=f"{PUBLISHED_TITLE}: {entry.task}, highest frames/s",
            columns=entry.machines,
            rows=tuple(TableRow(name, tuple(map(_rate, rates))) for name, rates in entry.frames_per_second.items()),
            corner="system",
            notes=(f"source: {entry.source}, since {entry.date}, {entry.url}", f"machines: {entry.hardware}"),
            listing=Listing("What they count:", tuple(f"{names}: {what}" for names, what in entry.counts.items())),
            group=one_line(env),
            about="others",
        )
        for env in envs
        for entry in published()
        if env in entry.of
    )


def _rate(value: float | None) -> Text:
    return Text((figures.DASH if value is None else figures.number(value),), value=value)
