"""What services that keep figures over time are given: a name that stays the same, a rate, a note."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.reports.pages.run import Report


@dataclass(frozen=True)
class Entry:
    """One cell's rate in frames a second. ``name`` is unique within a report."""

    name: str
    rate: Estimate
    note: str


def entries(report: Report) -> Iterator[Entry]:
    """Yield every cell that has a rate, without reference rows; of several files, names begin with the file's."""
    several = len(report.sections) > 1
    for section in report.sections:
        for cell in section.cells:
            if cell.frames_per_second is None or cell.reference_row:
                continue
            prefix = f"{section.name}: " if several else ""
            yield Entry(f"{prefix}{_name(cell)}", cell.frames_per_second, _note(cell))


def _name(cell: CellSummary) -> str:
    envs = f" x {figures.counted(cell.envs_per_worker, 'env')}" if cell.envs_per_worker > 1 else ""
    return one_line(f"{cell.env} / {cell.label} / {figures.counted(cell.workers, 'worker')}{envs}")


def _note(cell: CellSummary) -> str:
    codes = ", ".join(dict.fromkeys(finding.code for finding in cell.findings))
    steps = f"{figures.number(cell.steps_per_second.median)} steps/s" if cell.steps_per_second else ""
    return ", ".join(part for part in (steps, codes) if part)
