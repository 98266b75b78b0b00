"""Findings on a run as a whole, and on its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.cell import Finding
from vebench.analysis.finding_codes import Code
from vebench.analysis.findings.machine import quota

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.results.records import Run

# A run of which a larger share of cells did not have their CPUs shows what else the machine did.
UNUSABLE_ABOVE = 0.5


def of_run(run: Run, cells: Sequence[CellSummary], file: str = "FILE") -> tuple[Finding, ...]:
    """Return the findings about the run as a whole, which has these cells, and about its file, named ``file``."""
    found = (unusable(cells), quota(run.header.host), unpinned(run), incomplete(run, file), *notes(run, file))
    return tuple(finding for finding in found if finding is not None)


def unusable(cells: Sequence[CellSummary]) -> Finding | None:
    """Return a finding if most cells of a run, reference rows too, were measured while their CPUs were not theirs."""
    measured = [cell for cell in cells if cell.windows]
    disturbed, throttled = sum(cell.disturbed for cell in measured), sum(cell.throttled for cell in measured)
    bad = sum(cell.disturbed or cell.throttled for cell in measured)
    if bad <= UNUSABLE_ABOVE * len(measured):
        return None
    count = f"{bad} of {len(measured)} cell{'s' * (len(measured) != 1)}"
    if not throttled:
        return Finding(Code.UNUSABLE, f"others took CPU time of {count}", "measure on an idle machine")
    culprits = "others or a CPU quota" if disturbed else "a CPU quota"
    return Finding(Code.UNUSABLE, f"{culprits} held back {count}", "measure on more CPUs, or with fewer --workers")


def unpinned(run: Run) -> Finding | None:
    """Return a finding if cells were not held to the CPUs that they own."""
    if run.header.host.pinning and run.header.spec.pin != "none":
        return None
    message = "no cell was held to CPUs of its own: cells of few workers could use all of them"
    if run.header.spec.pin == "none":
        return Finding(Code.UNPINNED, message, "measure without --pin none")
    return Finding(Code.UNPINNED, message, "measure on Linux, where the CPU affinity of a process can be set")


def incomplete(run: Run, file: str) -> Finding | None:
    """Return a finding if cells that were planned are not in the file, or were ended by the user."""
    there, planned = sum(not cell.interrupted for cell in run.cells), run.header.cells
    if planned is None or there >= planned:
        return None
    return Finding(
        Code.INCOMPLETE, f"{there} of {planned} cells", f"{run.header.resume_command(file)} measures the others"
    )


def notes(run: Run, file: str) -> tuple[Finding, ...]:
    """Return a finding for each line of the file that is lost."""
    again = f"{run.header.resume_command(file)} measures again what this line held"
    return tuple(Finding(Code.FILE, note, again) for note in run.notes)
