"""What services get that keep figures over time: a name that stays the same, a rate, a note."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.findings import Gravity
from vebench.errors import one_line
from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.reports.pages.run import RunPage, Section


@dataclass(frozen=True)
class NamedRate:
    """One cell's rate in frames a second. ``name`` is unique within a page."""

    name: str
    rate: Estimate
    note: str


def named_rates(page: RunPage) -> Iterator[NamedRate]:
    """Yield every cell that has a rate, without reference rows; of several files, names begin with the file's."""
    several = len(page.sections) > 1
    for section in page.sections:
        for cell in section.cells:
            if cell.frames_per_second is None or cell.reference_row:
                continue
            prefix = f"{section.name}: " if several else ""
            yield NamedRate(f"{prefix}{_name(cell)}", cell.frames_per_second, _note(cell, section))


def _name(cell: CellSummary) -> str:
    return one_line(f"{cell.env} / {cell.label} / {cell.key.size}")


def _note(cell: CellSummary, section: Section) -> str:
    """Return the steps a second, and what was found of the cell; a fault of the run is one of each of its cells."""
    faults = (finding for finding in section.findings if finding.code.gravity is Gravity.FAULT)
    codes = ", ".join(dict.fromkeys(finding.code for finding in (*cell.findings, *faults)))
    steps = f"{figures.number(cell.steps_per_second.median)} steps/s" if cell.steps_per_second else ""
    return ", ".join(part for part in (steps, codes) if part)
