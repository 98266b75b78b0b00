"""Interleaving: the cells of a group are alive together and take turns, so what slows the machine slows them all."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from vebench.plan import memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vebench.plan.cells import Cell, Plan

MOST_PROCESSES = 256  # alive at the same time in a group, though those of only one cell work


def interleaved(plan: Plan, memory_available: int | None) -> Plan:
    """Return the plan with its cells in groups that take turns: the cells of one pass on one task, if there is room.

    If there is no room for all of them, they make several groups. Within a pass, tasks come one after another.
    ``memory_available`` is in bytes, None if unknown.
    """
    by_pass: dict[tuple[int, str], list[Cell]] = {}
    for cell in plan.cells:
        by_pass.setdefault((cell.repeat, cell.task.id), []).append(cell)
    return replace(plan, cells=in_groups(by_pass.values(), memory_available))


def in_groups(groups: Iterable[Sequence[Cell]], memory_available: int | None) -> tuple[Cell, ...]:
    """Return the cells of all ``groups``. The cells of a group take turns; a group that is too large is split.

    Cells that cannot run and cells with replicas come first and are in no group: replicas run in step with each other.
    """
    numbers = count()
    return tuple(cell for cells in groups for cell in _in_groups(cells, numbers, memory_available))


def _in_groups(cells: Sequence[Cell], numbers: Iterator[int], memory_available: int | None) -> Iterator[Cell]:
    yield from (cell for cell in cells if not _takes_turns(cell))
    number, bytes_left, processes_left = next(numbers), memory_available, MOST_PROCESSES
    for cell in filter(_takes_turns, cells):
        needed = memory.estimate(cell.task.suite, cell.entry, cell.shape, cell.backend.options)
        if processes_left < cell.shape.processes or (bytes_left is not None and bytes_left < needed):
            number, bytes_left, processes_left = next(numbers), memory_available, MOST_PROCESSES
        yield replace(cell, group=number)
        processes_left -= cell.shape.processes
        bytes_left = None if bytes_left is None else bytes_left - needed


def _takes_turns(cell: Cell) -> bool:
    return cell.skip is None and not cell.replicas
