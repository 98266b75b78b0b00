"""Which cells need another repeat until their intervals are narrow enough. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING

from vebench.analysis.statistics import estimate
from vebench.analysis.summary import frame_rates
from vebench.plan.spec import MAX_REPEATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.plan.cells import Cell, Plan
    from vebench.results.records import CellRecord, Run

# To stop as soon as an interval looks narrow favours those that are narrow by chance. After so many processes that
# costs little: docs/method.md has how much.
FEWEST_PROCESSES = 5


def another_pass(plan: Plan, run: Run) -> Plan:
    """Return the cells of ``plan`` to be measured once more, in a shuffled order: those not yet as the spec asks.

    Cells that take turns do so once more together. A cell whose last repeat failed is not tried again, nor is one that
    cannot run.
    """
    records: dict[tuple[str, str, int, int], list[CellRecord]] = {}
    for record in run.cells:
        records.setdefault(record.key[:-1], []).append(record)
    able = list(_following(plan, records))
    wide = {cell.key: cell.group for cell in able if not narrow(records[cell.key[:-1]], plan.spec.until)}
    groups = set(wide.values()) - {None}
    cells = [cell for cell in able if cell.key in wide or cell.group in groups]
    repeat = max((cell.repeat for cell in cells), default=0)
    Random(f"{plan.spec.seed} {repeat}").shuffle(cells)  # noqa: S311 - an order to repeat, no secret
    together: dict[object, list[Cell]] = {}
    for cell in cells:
        together.setdefault(cell.key if cell.group is None else cell.group, []).append(cell)
    return replace(plan, cells=tuple(chain.from_iterable(together.values())))


def _following(plan: Plan, records: Mapping[tuple[str, str, int, int], Sequence[CellRecord]]) -> Iterator[Cell]:
    """Yield each cell that could be measured once more, with the number of its next repeat."""
    for cell in {cell.key[:-1]: cell for cell in plan.cells if cell.skip is None}.values():
        last = max(records.get(cell.key[:-1], ()), key=attrgetter("repeat"), default=None)
        if last is not None and last.status == "ok" and last.repeat + 1 < MAX_REPEATS:
            yield replace(cell, repeat=last.repeat + 1)


def narrow(records: Sequence[CellRecord], until: float | None) -> bool:
    """Return whether a cell, given all its repeats, has enough of them and its interval lies within ``until``."""
    if until is None:
        return True
    sample = frame_rates(records)
    found = estimate(sample)
    half = None if found is None else found.half_width
    enough = not sample.one_process and len(sample.rates) >= FEWEST_PROCESSES
    return enough and half is not None and half <= until
