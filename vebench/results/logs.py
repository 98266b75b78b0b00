"""The log beside a run file: what the libraries of failed cells printed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.plan.cells import CellKey

SUFFIX = ".log"


def path_beside(run_file: Path) -> Path:
    """Return the path of a run's log."""
    return run_file.with_name(run_file.name + SUFFIX)


def keep(run_file: Path, cell: CellKey, printed: str) -> None:
    """Append what a cell printed, if anything, under a line that names the cell.

    A log is a help, not a result: if it cannot be written, the run goes on without it.
    """
    if not printed.strip():
        return
    heading = f"== {cell.env}, {cell.backend}, {cell.size}, repeat {cell.repeat}"
    with suppress(OSError), path_beside(run_file).open("a", encoding="utf-8") as log:
        log.write(f"{heading}\n{printed.rstrip()}\n\n")
