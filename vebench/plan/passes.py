"""Further passes, after the planned ones, over those cells that need another measurement."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from vebench.plan.cells import shuffled
from vebench.plan.spec import MAX_REPEATS

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from vebench.plan.cells import Cell, CellKey, Plan


def next_pass(plan: Plan, wanted: Container[CellKey], repeats: Mapping[CellKey, int]) -> Plan:
    """Return the ``wanted`` cells of ``plan`` for one more pass, in a shuffled order.

    ``repeats`` maps every cell that can be measured again to the number of its next repeat. Other cells are left out,
    and so are cells with ``MAX_REPEATS`` repeats. Keys are without repeats. If one cell of a group that takes turns is
    wanted, the whole group is measured again.
    """
    repeatable = list(_repeatable(plan, repeats))
    chosen = [cell for cell in repeatable if cell.key.without_repeat in wanted]
    keys = {cell.key for cell in chosen}
    groups = {cell.group for cell in chosen} - {None}
    cells = [cell for cell in repeatable if cell.key in keys or cell.group in groups]
    repeat = max((cell.repeat for cell in cells), default=0)
    together: dict[object, list[Cell]] = {}
    for cell in shuffled(cells, plan.spec.seed, repeat):
        together.setdefault(cell.key if cell.group is None else cell.group, []).append(cell)
    return replace(plan, cells=tuple(chain.from_iterable(together.values())))


def _repeatable(plan: Plan, repeats: Mapping[CellKey, int]) -> Iterator[Cell]:
    """Yield, with the number of its next repeat, each cell that can be measured again."""
    once = {cell.key.without_repeat: cell for cell in plan.cells if cell.skip is None}
    number = max(repeats.values(), default=0)  # one for all: what one pass did to its cells is taken out of their rates
    for key, cell in once.items():
        if key in repeats and number < MAX_REPEATS:
            yield replace(cell, repeat=number)
