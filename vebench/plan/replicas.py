"""How a cell is divided into replicas: the CPUs and the number of workers of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from vebench.plan.spec import PER_NODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.machine.placement import Placement


class ReplicaCpus(NamedTuple):
    """How many workers of a cell one replica gets, and which CPUs."""

    workers: int
    cpus: tuple[int, ...]


def divided(wanted: int | Literal["node"], workers: int, placement: Placement) -> tuple[ReplicaCpus, ...]:
    """Return what each replica of a cell with this number of workers gets: ``wanted`` replicas, or one for each node.

    Each CPU of the cell belongs to exactly one replica, and each replica has at least one CPU and one worker; so there
    may be fewer replicas than ``wanted``. Workers are divided in proportion to CPUs. A node is a memory node.
    """
    cpus = placement.owned(workers)
    cpu_sets = _by_node(cpus, placement) if wanted == PER_NODE else _evenly(cpus, min(wanted, workers, len(cpus)))
    shares = shared_out(workers, [len(owned) for owned in cpu_sets])
    return tuple(map(ReplicaCpus, shares, cpu_sets))


def _by_node(cpus: tuple[int, ...], placement: Placement) -> list[tuple[int, ...]]:
    """Return the CPUs grouped by their nearest memory node, in the order in which the nodes first appear."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for cpu in cpus:
        groups.setdefault(placement.nodes((cpu,)), []).append(cpu)
    return [tuple(group) for group in groups.values()]


def _evenly(cpus: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    bounds = [index * len(cpus) // count for index in range(count + 1)]
    return [cpus[start:stop] for start, stop in zip(bounds, bounds[1:], strict=False)]  # noqa: RUF007 - no clearer


def shared_out(workers: int, weights: Sequence[int]) -> list[int]:
    """Return ``workers`` divided in proportion to ``weights``, to within one (largest remainders, Hamilton's method).

    If the weights are numbers of CPUs, no share is smaller than its weight, because a cell owns at most as many CPUs as
    it has workers.
    """
    total = sum(weights)
    shares = [workers * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: (-(workers * weights[index] % total), index))
    for index in by_remainder[: workers - sum(shares)]:
        shares[index] += 1
    return shares
