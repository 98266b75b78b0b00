"""Figures that others have published for a task, in tables of their own, apart from measured figures.

``reports/published.json`` has them as their sources print them, with what they count: "unknown" is what a source does
not say. A source that says nothing of intervals has none here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import msgspec

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Listing, Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "published.json"
PUBLISHED_TITLE = "Published by others, not measured here"


@dataclass(frozen=True)
class Group:
    """Figures of systems that count the same: for each, one in each column, None where the source has none.

    ``frame_skip``: frames in a step, counted if the ``unit`` is frames. ``resets_counted``: whether rows that only
    report a reset count. ``learner``: what else runs in the loop. ``envs_per_row``: environments for each row of a
    batch. ``statistic``: of several figures, the one that is given; single if there was one. ``excluded``: what the
    clock leaves out.
    """

    figures: dict[str, tuple[float | None, ...]]
    unit: Literal["frames", "steps"]
    frame_skip: int | None
    resets_counted: Literal["yes", "no", "unknown"]
    actions: Literal["random", "constant", "policy", "unknown"]
    learner: Literal["none", "inference", "training", "unknown"]
    envs_per_row: str
    statistic: Literal["highest", "mean", "single", "range", "unknown"]
    excluded: str
    note: str = ""

    @property
    def counted(self) -> str:
        """What these figures count, in a line."""
        known = (
            "steps" if self.unit == "steps" else f"frames, {self.frame_skip or 'unknown'} in a step",
            f"resets counted: {self.resets_counted}",
            f"actions: {self.actions}",
            f"learner: {self.learner}",
            f"environments for each row: {self.envs_per_row}",
            f"statistic: {self.statistic}",
            f"excluded: {self.excluded}",
        )
        return "; ".join((*filter(None, [self.note]), *known))


@dataclass(frozen=True)
class Published:
    """Figures from one source for some of our tasks, or for none if they are only in the documentation.

    ``task`` is the task as the source calls it, ``shown`` what a figure is, ``date`` when the figures first appeared.
    ``hardware`` says what the ``columns`` ran on.
    """

    of: tuple[str, ...]
    task: str
    shown: str
    source: str
    url: str
    date: str
    hardware: str
    columns: tuple[str, ...]
    groups: tuple[Group, ...]


@cache
def published() -> tuple[Published, ...]:
    """Return all published figures."""
    text = files("vebench.reports").joinpath(FILE).read_text(encoding="utf-8")
    return msgspec.json.decode(text, type=tuple[Published, ...])


def published_tables(envs: Iterable[str]) -> tuple[Table, ...]:
    """Return a table for each of the tasks ``envs`` and each source that has published figures for it."""
    return tuple(
        Table(
            title=f"{PUBLISHED_TITLE}: {entry.task}, {entry.shown}",
            columns=entry.columns,
            rows=tuple(
                TableRow(name, tuple(map(_rate, rates)))
                for group in entry.groups
                for name, rates in group.figures.items()
            ),
            corner="system",
            notes=(f"source: {entry.source}, since {entry.date}, {entry.url}", f"machines: {entry.hardware}"),
            listing=Listing(
                "What they count:", tuple(f"{', '.join(group.figures)}: {group.counted}" for group in entry.groups)
            ),
            group=one_line(env),
            about="others",
        )
        for env in envs
        for entry in published()
        if env in entry.of
    )


def _rate(value: float | None) -> Text:
    return Text((figures.DASH if value is None else figures.number(value),), value=value)
