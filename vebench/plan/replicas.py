"""How a cell is divided into replicas: which CPUs and how many workers each gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vebench.plan.spec import PER_NODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.machine.placement import Placement


class Part(NamedTuple):
    """What one replica gets of a cell."""

    workers: int
    cpus: tuple[int, ...]


def divided(wanted: str, workers: int, placement: Placement) -> tuple[Part, ...]:
    """Return the parts of a cell with so many workers: one for each memory node, or as many as ``wanted``.

    No CPU is in two of them, and none is without one. There are no more parts than workers, and none without a CPU.
    Workers are shared out by CPUs, so that each CPU has about as many.
    """
    cpus = placement.owned(workers)
    parts = _by_node(cpus, placement) if wanted == PER_NODE else _evenly(cpus, min(int(wanted), workers, len(cpus)))
    shares = shared_out(workers, [len(part) for part in parts])
    return tuple(map(Part, shares, parts))


def _by_node(cpus: tuple[int, ...], placement: Placement) -> list[tuple[int, ...]]:
    """Return the CPUs by the memory node that they are nearest to, in the order in which nodes are met."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for cpu in cpus:
        groups.setdefault(placement.nodes((cpu,)), []).append(cpu)
    return [tuple(group) for group in groups.values()]


def _evenly(cpus: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    bounds = [index * len(cpus) // count for index in range(count + 1)]
    return [cpus[start:stop] for start, stop in zip(bounds, bounds[1:], strict=False)]  # noqa: RUF007 - no clearer


def shared_out(workers: int, weights: Sequence[int]) -> list[int]:
    """Return ``workers`` in shares as the weights, to within one, by the largest remainders (Hamilton's method).

    A cell owns no more CPUs than it has workers: with their numbers as weights, no share is less than its weight.
    """
    total = sum(weights)
    shares = [workers * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: (-(workers * weights[index] % total), index))
    for index in by_remainder[: workers - sum(shares)]:
        shares[index] += 1
    return shares
