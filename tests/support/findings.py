"""What vebench finds in cells, for tests to look at."""

from support.records import make_header

from vebench.analysis.cell import Finding
from vebench.analysis.summary import summarise
from vebench.results.records import CellRecord, Run

STEADY = (1000, 1001, 999, 1000)
FAST = (2000, 2002, 1998, 2000)
NOISY = (700, 1400, 900, 1100)


def findings(*cells: CellRecord, file: str = "a.jsonl") -> list[tuple[Finding, ...]]:
    """Return the findings of each cell of a run on two CPUs."""
    return [cell.findings for cell in summarise(Run(make_header(), cells), file)]


def codes(*cells: CellRecord) -> list[list[str]]:
    """Return the codes of each cell's findings, in the order in which they are listed."""
    return [[finding.code for finding in found] for found in findings(*cells)]
