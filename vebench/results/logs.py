"""What the libraries of cells that failed printed: beside their run file, or that of comparisons in ``.vebench/``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.plan.cells import CellKey

SUFFIX = ".log"


def _path_beside(run_file: Path) -> Path:
    """Return the path of a run's log."""
    return run_file.with_name(run_file.name + SUFFIX)


def keep(run_file: Path, cell: CellKey, printed: str) -> None:
    """Append what a cell printed, if anything, under a line that names the cell.

    A log is a help, not a result: if it cannot be written, the run goes on without it.
    """
    _append(_path_beside(run_file), f"{cell.env}, {cell.backend}, {cell.size}, repeat {cell.repeat}", printed)


def keep_of_comparison(path: Path, heading: str, printed: str) -> bool:
    """Append what a backend printed while it was compared, likewise. Returns whether ``path`` has it."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    return _append(path, heading, printed)


def _append(path: Path, heading: str, printed: str) -> bool:
    """Append what was printed, if anything, under a heading. Returns whether it is there."""
    if printed.strip():
        with suppress(OSError), path.open("a", encoding="utf-8") as log:
            log.write(f"== {heading}\n{printed.rstrip()}\n\n")
            return True
    return False
