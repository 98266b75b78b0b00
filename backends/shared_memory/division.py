"""How environments are divided among processes: how many processes, which environments and which CPU for each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.backends.shared_memory.handshake import MOST_SPIN_NS
from vebench.backends.shared_memory.memory_layout import MemoryLayout
from vebench.machine import pinning
from vebench.machine.sysfs import cpu_quota

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.backends.shared_memory.memory_layout import Leaf


def share_out(count: int, processes: int) -> tuple[tuple[int, int], ...]:
    """Return contiguous runs of ``count`` environments, as equal as can be, one for each process: ``(start, stop)``."""
    bounds = [index * count // processes for index in range(processes + 1)]
    return tuple(zip(bounds, bounds[1:], strict=False))  # noqa: RUF007 - pairwise would be no clearer


@dataclass(frozen=True)
class Division:
    """How environments are divided among processes.

    ``processes`` of them step environments, the caller among them if ``caller_steps``. Process ``k`` keeps to
    ``cpus[k]``; but the caller, which is the first if it steps, is not moved. ``spin_ns`` is for how long a process
    that waits polls before it sleeps. ``one_by_one``: environments are asked for singly, not all of a process at once.
    """

    num_envs: int
    processes: int
    caller_steps: bool = True
    cpus: tuple[int, ...] = ()
    spin_ns: int = MOST_SPIN_NS
    one_by_one: bool = False

    @property
    def shares(self) -> tuple[tuple[int, int], ...]:
        """The first environment of each worker, and the one after its last. The caller has those before the first."""
        return share_out(self.num_envs, self.processes)[self.caller_steps :]

    @property
    def own(self) -> int:
        """How many environments the caller steps itself."""
        return share_out(self.num_envs, self.processes)[0][1] if self.caller_steps else 0

    def cpu_of(self, worker: int) -> int | None:
        """Return the CPU that a worker keeps to, None if it may use any."""
        return self.cpus[worker + self.caller_steps] if self.cpus else None

    def layout(self, observations: tuple[Leaf, ...], actions: tuple[Leaf, ...]) -> MemoryLayout:
        """Return where everything is in memory."""
        ring = max((stop - start for start, stop in self.shares), default=1) if self.one_by_one else 1
        return MemoryLayout(self.num_envs, self.shares, observations, actions, ring)


def usable_cpus() -> int:
    """Return how many CPUs this process may use; fewer if the quota of a container gives it the time of fewer."""
    allowed = len(pinning.allowed() or ()) or os.cpu_count() or 1
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota.cpus)))


def divide(  # noqa: PLR0913 - what a user can set, by name
    num_envs: int,
    processes: int | None = None,
    *,
    caller_steps: bool = True,
    cpus: Sequence[int] | None = None,
    spin: float | None = None,
    one_by_one: bool = False,
    available: int | None = None,
) -> Division:
    """Return a division: by default a process for each CPU in ``cpus`` or, without, for each that may be used.

    ``spin`` is in microseconds. By default it is 0 if there are more processes than ``available`` CPUs, since a process
    that polls would take the CPU from one that works. Raises ValueError for numbers that make no sense.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"num_processes must be 1 or more, not {processes}")
    count = max(1, min(num_envs, processes or (len(cpus) if cpus else usable_cpus())))
    if cpus is not None and len(cpus) < count:
        raise ValueError(f"cpus must name a CPU for each of {count} processes, not {len(cpus)}")
    if spin is not None and spin < 0:
        raise ValueError(f"spin must be 0 microseconds or more, not {spin}")
    available = available or (len(set(cpus)) if cpus else usable_cpus())
    crowded = count + (not caller_steps) > available
    spin_ns = int(spin * 1000) if spin is not None else 0 if crowded else MOST_SPIN_NS
    return Division(num_envs, count, caller_steps, tuple(cpus or ()), spin_ns, one_by_one)
