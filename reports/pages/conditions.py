"""What a whole run was measured under, in a few words: it holds for each of its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.findings import Code, quota
from vebench.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.results.records import RunRecord

CONDITION = "condition"  # the name of this fact
# Findings on the run as a whole that it says.
OF_CONDITION = frozenset({Code.THROTTLED, Code.UNPINNED, Code.VIRTUAL_MACHINE})


def condition(header: RunRecord, cells: Sequence[CellSummary]) -> str:
    """Return it in one line, empty if nothing is worth saying."""
    return one_line("; ".join(_parts(header, cells)))


def _parts(header: RunRecord, cells: Sequence[CellSummary]) -> Iterator[str]:
    host = header.host
    if host.virtual:
        yield "virtual machine"
    if any(quota(host)):
        yield f"a quota of {host.quota_cpus:g} CPUs"
    if not host.pinning or not header.spec.pin.pins:
        yield "cells not held to CPUs of their own"
    taken = [cell.stolen_share + cell.others_share for cell in cells if _known(cell)]
    if taken:
        mean, most = sum(taken) / len(taken), max(taken)
        yield f"others took {mean:.1%} of CPU time, up to {most:.1%} in a cell"


def _known(cell: CellSummary) -> bool:
    """Return whether the kernel said for each window what others took, and there are windows."""
    return cell.windows > 0 and any(cell.totals.get(name) is not None for name in ("steal_ns", "others_ns"))
