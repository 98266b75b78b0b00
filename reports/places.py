"""The cells that a finding applies to, in words: ``Ant-v5: gym-sync, gym-async at 4..256 workers``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.findings import GRAVEST_FIRST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings import Finding

    Size = tuple[int, int]  # workers, and environments of each

_RANGE_LENGTH = 3  # the shortest range that is written as one


@dataclass(frozen=True)
class Group:
    """A finding of several cells, named in ``places``: ``Ant-v5: gym-sync, gym-async at 4..256 workers``."""

    finding: Finding
    places: tuple[str, ...]


def grouped(cells: Sequence[CellSummary]) -> tuple[Group, ...]:
    """Return the findings of all cells, the gravest first, each once with the cells that it applies to."""
    groups: dict[Finding, list[CellSummary]] = {}
    swept: dict[str, tuple[set[str], set[Size]]] = {}
    for cell in cells:
        labels, of_env = swept.setdefault(cell.env, (set(), set()))
        labels.add(cell.label)
        of_env.add((cell.workers, cell.envs_per_worker))
        for finding in cell.findings:
            groups.setdefault(finding, []).append(cell)
    return tuple(
        Group(finding, _places(members, swept))
        for finding, members in sorted(groups.items(), key=lambda group: GRAVEST_FIRST.index(group[0].code))
    )


def _places(members: Sequence[CellSummary], swept: Mapping[str, tuple[set[str], set[Size]]]) -> tuple[str, ...]:
    """Describe some cells of those ``swept``: one line per task, or per group of tasks with the same members."""
    envs_by_text: dict[str, list[str]] = {}
    by_env: dict[str, dict[str, list[Size]]] = {}
    for cell in members:
        by_label = by_env.setdefault(cell.env, {})
        by_label.setdefault(cell.label, []).append((cell.workers, cell.envs_per_worker))
    for env, sizes_by_label in by_env.items():
        every, of_env = swept[env]
        labels_by_sizes: dict[str, list[str]] = {}
        for label, measured in sizes_by_label.items():
            labels_by_sizes.setdefault(sizes(measured, of_env), []).append(label)
        text = "; ".join(
            f"{'every backend' if len(labels) == len(every) > 1 else ', '.join(labels)} at {words}"
            for words, labels in labels_by_sizes.items()
        )
        envs_by_text.setdefault(text, []).append(env)
    return tuple(f"{', '.join(envs)}: {text}" for text, envs in envs_by_text.items())


def sizes(members: Iterable[Size], swept: Iterable[Size]) -> str:
    """Describe the sizes of some cells among all ``swept``: ``4..256 workers``, ``1, 4 workers x 16 envs``."""
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
    """Return ``4..256 workers`` for a contiguous range of the counts swept, else ``1, 4 workers``."""
    first = swept.index(counts[0])
    if len(counts) >= _RANGE_LENGTH and swept[first : first + len(counts)] == counts:
        return f"{counts[0]}..{counts[-1]} {noun}s"
    return f"{', '.join(map(str, counts))} {noun}{'s' * (counts != [1])}"
