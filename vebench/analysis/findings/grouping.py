"""The findings of many cells, each said once, with words for the cells that it holds for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.finding_codes import GRAVEST_FIRST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.cell import CellSummary, Finding

RANGE_LENGTH = 3


@dataclass(frozen=True)
class Group:
    """The same finding of several cells, named in ``places``: ``Ant-v5: gym-sync, gym-async at 4..256 workers``."""

    finding: Finding
    places: tuple[str, ...]


def grouped(cells: Sequence[CellSummary]) -> tuple[Group, ...]:
    """Return the findings of all cells, the gravest first, each once with the cells that it holds for."""
    groups: dict[Finding, list[CellSummary]] = {}
    for cell in cells:
        for finding in cell.findings:
            groups.setdefault(finding, []).append(cell)
    return tuple(
        Group(finding, places(members, cells))
        for finding, members in sorted(groups.items(), key=lambda group: GRAVEST_FIRST.index(group[0].code))
    )


def places(members: Sequence[CellSummary], cells: Sequence[CellSummary]) -> tuple[str, ...]:
    """Return words for ``members`` of ``cells``, a line for each task, or for several in which they are the same.

    Each lists backends and workers in as few words as possible.
    """
    envs_by_text: dict[str, list[str]] = {}
    for env in dict.fromkeys(cell.env for cell in members):
        here = [cell for cell in cells if cell.env == env]
        text = _backends([cell for cell in members if cell.env == env], here)
        envs_by_text.setdefault(text, []).append(env)
    return tuple(f"{', '.join(envs)}: {text}" for text, envs in envs_by_text.items())


def _backends(members: Sequence[CellSummary], cells: Sequence[CellSummary]) -> str:
    swept = sorted({cell.workers for cell in cells})
    labels_by_workers: dict[tuple[int, ...], list[str]] = {}
    for label in dict.fromkeys(cell.label for cell in members):
        workers = tuple(sorted({cell.workers for cell in members if cell.label == label}))
        labels_by_workers.setdefault(workers, []).append(label)
    every = len({cell.label for cell in cells})
    return "; ".join(
        f"{'every backend' if len(labels) == every > 1 else ', '.join(labels)} at {_workers(workers, swept)}"
        for workers, labels in labels_by_workers.items()
    )


def _workers(workers: tuple[int, ...], swept: Sequence[int]) -> str:
    """Return ``4..256 workers`` for a stretch of those swept, ``1, 4 workers`` for others."""
    first = swept.index(workers[0])
    if len(workers) >= RANGE_LENGTH and tuple(swept[first : first + len(workers)]) == workers:
        return f"{workers[0]}..{workers[-1]} workers"
    return f"{', '.join(map(str, workers))} worker{'s' * (workers != (1,))}"
