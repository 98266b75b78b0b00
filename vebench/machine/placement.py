"""From a pin policy to the CPUs that each cell owns. Pure: what the machine allows is passed in."""

from __future__ import annotations

from dataclasses import dataclass

from vebench.errors import UsageError

POLICIES = ("compact", "none")
MAX_CPU = 1 << 16  # beyond any kernel's NR_CPUS: a typing error, not a machine


@dataclass(frozen=True)
class Placement:
    """The CPUs that cells may own, in the order in which workers take them.

    ``order`` is prefix-stable: one worker more owns the same CPUs plus one. ``usable`` is how many of them do work at
    the same time: their number, or the container's quota where that is less. Without ``pinned`` nothing is restricted.
    """

    order: tuple[int, ...]
    usable: int
    pinned: bool = True

    def owned(self, workers: int) -> tuple[int, ...]:
        """Return the CPUs that a cell owns: the first ``min(workers, usable)``, or all of them if not pinned."""
        return self.order[: min(workers, self.usable)] if self.pinned else self.order


def place(pin: str, allowed: frozenset[int], quota: float | None = None) -> Placement:
    """Return the placement that ``pin`` (``compact``, ``none`` or a list such as ``0-3,8``) gives on these CPUs.

    ``quota`` is the CPU time that the container may use at any one time, in CPUs, None if it is not limited. Raises
    UsageError for a list that is not one, or that names CPUs which are not allowed.
    """
    if pin in POLICIES:
        order = tuple(sorted(allowed))
    else:
        order = parse_cpu_list(pin)
        if outside := sorted(set(order) - allowed):
            raise UsageError(
                f"--pin {pin}: CPU {format_cpu_list(outside)} is not allowed here (allowed: {format_cpu_list(allowed)})"
            )
    limit = len(order) if quota is None else max(1, int(quota))
    return Placement(order, min(len(order), limit), pinned=pin != "none")


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs of a Linux CPU list (``0-3,8``), in the order given. Raises UsageError if it is none."""
    cpus: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise UsageError(f"--pin {text}: not a policy ({', '.join(POLICIES)}) and not a list of CPUs such as 0-3,8")
        start, end = int(first), int(last or first)
        if end < start or end > MAX_CPU:
            raise UsageError(f"--pin {text}: {part.strip()} is no range of CPUs")
        cpus.extend(range(start, end + 1))
    if len(set(cpus)) != len(cpus):
        raise UsageError(f"--pin {text}: a CPU is named twice")
    return tuple(cpus)


def format_cpu_list(cpus: frozenset[int] | tuple[int, ...] | list[int]) -> str:
    """Return the CPUs, sorted, as a Linux CPU list: the inverse of ``parse_cpu_list`` for sorted input."""
    parts: list[str] = []
    ordered = sorted(cpus)
    start = 0
    for index, cpu in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != cpu + 1:
            first = ordered[start]
            parts.append(str(first) if first == cpu else f"{first}-{cpu}")
            start = index + 1
    return ",".join(parts)
