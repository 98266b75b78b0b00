"""The findings of many cells, each said once, with words for the cells that it holds for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.findings import GRAVEST_FIRST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings import Finding

    Size = tuple[int, int]

_RANGE_LENGTH = 3


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

    Each lists backends and sizes in as few words as possible.
    """
    envs_by_text: dict[str, list[str]] = {}
    for env in dict.fromkeys(cell.env for cell in members):
        here = [cell for cell in cells if cell.env == env]
        text = _backends([cell for cell in members if cell.env == env], here)
        envs_by_text.setdefault(text, []).append(env)
    return tuple(f"{', '.join(envs)}: {text}" for text, envs in envs_by_text.items())


def _backends(members: Sequence[CellSummary], cells: Sequence[CellSummary]) -> str:
    swept = [_size(cell) for cell in cells]
    labels_by_sizes: dict[str, list[str]] = {}
    for label in dict.fromkeys(cell.label for cell in members):
        words = sizes([_size(cell) for cell in members if cell.label == label], swept)
        labels_by_sizes.setdefault(words, []).append(label)
    every = len({cell.label for cell in cells})
    return "; ".join(
        f"{'every backend' if len(labels) == every > 1 else ', '.join(labels)} at {words}"
        for words, labels in labels_by_sizes.items()
    )


def _size(cell: CellSummary) -> Size:
    return cell.workers, cell.envs_per_worker


def sizes(members: Iterable[Size], swept: Iterable[Size]) -> str:
    """Return words for the sizes of some cells among those ``swept``: ``4..256 workers``, ``1, 4 workers x 16 envs``.

    A size is a number of workers and of environments per worker; the latter is left out if it makes no difference.
    """
    every_workers, every_envs = (sorted(set(counts)) for counts in zip(*swept, strict=True))
    workers_by_envs: dict[int, list[int]] = {}
    for workers, envs in sorted(set(members)):
        workers_by_envs.setdefault(envs, []).append(workers)
    envs_by_workers: dict[tuple[int, ...], list[int]] = {}
    for envs, counts in sorted(workers_by_envs.items()):
        envs_by_workers.setdefault(tuple(counts), []).append(envs)
    return " and ".join(
        _counted(list(counts), every_workers, "worker")
        + (f" x {_counted(envs, every_envs, 'env')}" if envs != every_envs else "")
        for counts, envs in envs_by_workers.items()
    )


def _counted(counts: list[int], swept: list[int], noun: str) -> str:
    """Return ``4..256 workers`` for a stretch of those swept, ``1, 4 workers`` for others."""
    first = swept.index(counts[0])
    if len(counts) >= _RANGE_LENGTH and swept[first : first + len(counts)] == counts:
        return f"{counts[0]}..{counts[-1]} {noun}s"
    return f"{', '.join(map(str, counts))} {noun}{'s' * (counts != [1])}"
