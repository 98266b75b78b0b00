"""What progress says of a cell, in a line: what it is, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.rules import ENOUGH
from vebench.analysis.statistics import estimate
from vebench.analysis.summary import batch_times, frame_rates
from vebench.analysis.work import difference, steps
from vebench.backends.registry import NULL
from vebench.errors import one_line
from vebench.reports import figures
from vebench.results.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from vebench.analysis.cell import CellSummary
    from vebench.engine.events import CellFinished, ProofDone
    from vebench.plan.cells import Cell


def name(cell: Cell) -> tuple[str, str, str]:
    """Return what identifies a cell: its task, its backend, and its size with its repeat and its side."""
    repeat = f", repeat {cell.repeat + 1}" if cell.repeat else ""
    side = f", {cell.side}" if cell.side else ""
    return one_line(cell.task.id), one_line(cell.backend.label), one_line(f"{cell.key.size}{repeat}{side}")


def widths(names: Sequence[Sequence[str]]) -> list[int]:
    """Return the greatest width of each part of the names."""
    return [max(map(len, parts)) for parts in zip(*names, strict=True)]


def padded(parts: Sequence[str], to: Sequence[int]) -> str:
    """Return the parts of a name as columns of these widths."""
    return "  ".join(part.ljust(width) for part, width in zip(parts, to, strict=True))


def one_row(text: Text) -> Text:
    """Return ``text`` with each line cut off at the width of the terminal."""
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


def result(event: CellFinished) -> str:
    """Return how a cell ended: its rate and how long it took to start, or why it has no rate."""
    outcome = event.outcome
    if outcome.status != "ok":
        return f"{outcome.status}: {one_line(outcome.reason or 'no reason was given')}"
    cell = record(event.cell, outcome)
    loop = estimate(batch_times([cell])) if cell.backend == NULL else None
    frames = estimate(frame_rates([cell]))
    if loop is not None:
        rate = f"{figures.microseconds(loop)} a batch"
    elif frames is not None:
        # Two or three windows of one process say little of how far to trust it: the table does, with all processes.
        spread = f" {figures.spread(frames)}" if len(outcome.windows) >= ENOUGH else ""
        rate = f"{figures.number(frames.median)} frames/s{spread}"
    else:
        rate = "no window"
    if event.cell.known is not None and event.cell.known.verdict == "different":
        rate += "  other work"
    startup = "" if outcome.startup_ns is None else f"  startup {outcome.startup_ns / 1e9:.1f} s"
    return rate + startup


def other_work(cells: Sequence[CellSummary]) -> str:
    """Return that these cells, one at least, did other work while they were measured, and what becomes of them."""
    first, *others = cells
    more = f", and so did {figures.counted(len(others), 'more cell')}" if others else ""
    what = f"{first.label} with {first.key.size} on {first.env} did other work while it was measured"
    why = "rows differ" if first.proof is None else difference(first.proof)
    return one_line(f"{what}{more}: {why}; {'these rates are' if others else 'its rate is'} struck, not removed")


def proven(event: ProofDone) -> str:
    """Return what was found when what a cell had returned was compared."""
    proof = event.proof
    if proof.verdict == "different":
        return one_line(f"other work while it was measured: {difference(proof)}")
    if proof.verdict == "unverified":
        return one_line(f"what it returned was not compared: {proof.reason or 'no reason was given'}")
    return f"{proof.verdict} while it was measured: {steps(proof)}"
