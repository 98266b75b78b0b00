"""Which cells need another repeat until their intervals are narrow enough. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from vebench.analysis.scaling import frame_rates
from vebench.analysis.statistics import estimate
from vebench.plan.spec import MAX_REPEATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.plan.cells import Cell, Plan
    from vebench.results.records import CellRecord, Run

# To stop as soon as an interval looks narrow favours those that are narrow by chance. After so many processes that
# costs little: docs/method.md has how much.
FEWEST_PROCESSES = 5


def another_pass(plan: Plan, run: Run) -> Plan:
    """Return the cells of ``plan`` to be measured once more, in a shuffled order: those not yet as the spec asks.

    A cell whose last repeat failed is not tried again, nor is one that cannot run.
    """
    cells = list(_unfinished(plan, run))
    repeat = max((cell.repeat for cell in cells), default=0)
    Random(f"{plan.spec.seed} {repeat}").shuffle(cells)  # noqa: S311 - an order to repeat, no secret
    cells.sort(key=lambda cell: -1 if cell.circle is None else cell.circle)  # who takes turns stays together
    return replace(plan, cells=tuple(cells))


def _unfinished(plan: Plan, run: Run) -> Iterator[Cell]:
    records: dict[tuple[str, str, int, int], list[CellRecord]] = {}
    for record in run.cells:
        records.setdefault(record.key[:-1], []).append(record)
    for cell in {cell.key[:-1]: cell for cell in plan.cells if cell.skip is None}.values():
        measured = sorted(records.get(cell.key[:-1], ()), key=lambda record: record.repeat)
        if measured and measured[-1].status == "ok" and not narrow(measured, plan.spec.until):
            following = measured[-1].repeat + 1
            if following < MAX_REPEATS:
                yield replace(cell, repeat=following)


def narrow(records: Sequence[CellRecord], until: float | None) -> bool:
    """Return whether a cell, given all its repeats, has enough of them and its interval lies within ``until``."""
    if until is None:
        return True
    sample = frame_rates(records)
    found = estimate(sample)
    half = None if found is None else found.half_width
    enough = not sample.one_process and len(sample.rates) >= FEWEST_PROCESSES
    return enough and half is not None and half <= until
