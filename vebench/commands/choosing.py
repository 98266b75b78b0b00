"""What ``--env`` and ``--backend`` choose among cells that were measured already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.errors import UsageError, did_you_mean, shown
from vebench.plan.tasks import short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.plan.cells import CellKey
    from vebench.plan.spec import BackendChoice


def chosen(
    cells: Sequence[CellKey], envs: Sequence[str], backends: Sequence[BackendChoice], source: str
) -> list[CellKey]:
    """Return the cells of these tasks and backends; empty ``envs`` or ``backends`` mean all.

    A task goes by its full name or its short one. A backend without options means all choices of its options.
    ``source`` is where the cells come from. Raises UsageError for a name that none of them has.
    """
    names = {cell.env: {cell.env.casefold(), short_name(cell.env).casefold()} for cell in cells}
    for env in envs:
        if not any(env.casefold() in known for known in names.values()):
            near = did_you_mean(env, map(short_name, names))
            raise UsageError(f"--env {shown(env)}: not in {source}{near}")
    for choice in backends:
        if not any(_means(choice, cell) for cell in cells):
            near = did_you_mean(choice.label, (cell.backend for cell in cells))
            raise UsageError(f"--backend {shown(choice.label)}: not in {source}{near}")
    wanted = {env.casefold() for env in envs}
    here = [cell for cell in cells if not wanted or names[cell.env] & wanted]
    return [cell for cell in here if not backends or any(_means(choice, cell) for choice in backends)]


def _means(choice: BackendChoice, cell: CellKey) -> bool:
    return cell.backend == choice.label or (not choice.options and cell.backend.partition("[")[0] == choice.name)
