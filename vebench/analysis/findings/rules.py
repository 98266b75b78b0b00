"""All rules about a cell, in the order in which JSON and CSV list their findings.

Other formats list the gravest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.findings import machine, windows, work

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary, Finding
    from vebench.analysis.findings.sweep import Rule, Sweep

RULES: tuple[Rule, ...] = (
    *work.OUTCOME,
    *windows.OBSERVATIONS,
    *work.SPEED,
    *machine.CELL,
    *windows.COURSE,
    *work.WORKERS,
)


def of_cell(cell: CellSummary, sweep: Sweep) -> tuple[Finding, ...]:
    """Return what every rule finds about ``cell``, which is one of the sweep's."""
    return tuple(finding for rule in RULES if (finding := rule(cell, sweep)) is not None)
