"""The runs of a page that are set beside each other: what they are called, and what is found of a task in two."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING, NamedTuple

from vebench.reports import figures

if TYPE_CHECKING:
    from vebench.analysis.beside import TaskBeside
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.results.records import RunRecord


@dataclass(frozen=True)
class Side:
    """One of the runs: its short name, such as B, its file, header and cells, and why it is unusable, if it is."""

    name: str
    file: str
    head: RunRecord
    cells: tuple[CellSummary, ...]
    notice: str = ""


class Other(NamedTuple):
    """A run that is set beside the first one, and what is found of one task in both."""

    side: Side
    found: TaskBeside


def short_names(count: int) -> list[str]:
    """Return a short name for each of so many runs: A, B, and so on; A2 comes after Z."""
    rounds, letters = 1 + count // len(ascii_uppercase), ascii_uppercase
    return [f"{letter}{number if number > 1 else ''}" for number in range(1, rounds + 1) for letter in letters][:count]


def interval(ratio: Estimate) -> str:
    """Return a ratio and both ends of its interval: ``1.42x (1.31 to 1.53)``."""
    if ratio.low is None or ratio.high is None:
        return f"{figures.number(ratio.median)}x (no interval)"
    return f"{figures.number(ratio.median)}x ({figures.number(ratio.low)} to {figures.number(ratio.high)})"
