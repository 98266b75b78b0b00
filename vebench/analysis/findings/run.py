"""Findings on a run as a whole, and on its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.cell import Finding
from vebench.analysis.finding_codes import Code
from vebench.analysis.findings.machine import quota

if TYPE_CHECKING:
    from vebench.results.records import Run


def of_run(run: Run, file: str = "FILE") -> tuple[Finding, ...]:
    """Return the findings about the run as a whole and about its file, which is named ``file``."""
    found = (quota(run.header.host), unpinned(run), incomplete(run, file), *notes(run, file))
    return tuple(finding for finding in found if finding is not None)


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
    """Return a finding for each line of the file that could not be read."""
    again = f"{run.header.resume_command(file)} measures again what this line held"
    return tuple(Finding(Code.FILE, note, again) for note in run.notes)
