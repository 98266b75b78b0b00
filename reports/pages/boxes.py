"""Sets of CPUs nested as boxes: packages, memory nodes and last-level caches, the larger around the smaller.

What holds what differs between machines: a node may hold packages, a cache may span nodes. A box is inside another if
its CPUs are among the other's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Box:
    """A set of CPUs that belong together: ``names`` such as ``node 0``, and the details of each."""

    cpus: frozenset[int]
    names: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    inner: list[Box] = field(default_factory=list)

    @property
    def title(self) -> str:
        """All names with their details: ``package 0, node 0 (24 GiB), L3 32 MiB``."""
        pairs = zip(self.names, self.details, strict=True)
        return ", ".join(
            f"{name} {detail}".strip() if name[0] == "L" else f"{name} ({detail})" if detail else name
            for name, detail in pairs
        )

    @property
    def loose(self) -> frozenset[int]:
        """The CPUs that are in none of the boxes inside."""
        return self.cpus.difference(*(inner.cpus for inner in self.inner))


def nested(online: Iterable[int], parts: Iterable[tuple[frozenset[int], str, str]]) -> Box:
    """Return the box of the CPUs ``online`` with all others in it. Each part has its CPUs, a name, and a detail."""
    whole = Box(frozenset(online))
    for cpus, name, detail in sorted(parts, key=lambda part: -len(part[0])):
        _put(whole, cpus, name, detail)
    return whole


def kind_name(rank: int, count: int) -> str:
    """Return what one of ``count`` kinds of core is called; ``rank`` 0 is the fastest."""
    return "fastest kind" if rank == 0 else "slowest kind" if rank + 1 == count else f"kind {rank + 1} of {count}"


def cache(level: int, size_bytes: int | None) -> tuple[str, str]:
    """Return the name and the detail of a cache."""
    return f"L{level}", figures.size(size_bytes) if size_bytes else ""


def _put(box: Box, cpus: frozenset[int], name: str, detail: str) -> None:
    """Put a set of CPUs, no larger than any put before, into ``box`` or into a box in it."""
    if cpus == box.cpus:
        box.names.append(name)
        box.details.append(detail)
        return
    for inner in box.inner:
        if cpus <= inner.cpus:
            _put(inner, cpus, name, detail)
            return
        if cpus & inner.cpus:  # neither holds the other: there is no way to draw it
            return
    box.inner.append(Box(cpus, [name], [detail]))
