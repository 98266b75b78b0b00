"""What a run spends its time on: starts, warm-ups, windows, proofs and the rest; as measured, and as planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.results.records import CellRecord

_NANO = 1e9


class Spent(NamedTuple):
    """Seconds by what they were spent on. ``rest``: uncounted steps before windows, counters read, ends of cells."""

    starts: float = 0.0
    warm_up: float = 0.0
    windows: float = 0.0
    proofs: float = 0.0
    rest: float = 0.0


def spent(cells: Iterable[CellRecord]) -> Spent | None:
    """Return what cells took of their run, None if that of one is unknown, as in run files of older versions."""
    of_each = []
    for cell in cells:
        if cell.took_ns is None:
            return None
        known = [cell.startup_ns or 0, cell.warmup_ns or 0, sum(window.ns for window in cell.windows)]
        proof = (cell.proof.seconds or 0.0) if cell.proof else 0.0
        starts, warm_up, windows = (ns / _NANO for ns in known)
        of_each.append((starts, warm_up, windows, proof, max(0, cell.took_ns - sum(known)) / _NANO))
    return Spent(*map(sum, zip(*of_each, strict=True))) if of_each else None
