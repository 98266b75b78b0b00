"""A machine drawn as boxes within boxes: packages, memory nodes, last-level caches, and the cores in them.

What holds what differs between machines: a node may hold packages, a cache may span nodes. A box is inside another if
its CPUs are among the other's. Boxes that look alike are drawn once, and the others are named below that one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.box import ROUNDED
from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from vebench.machine.placement import format_cpu_list
from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.console import RenderableType

    from vebench.machine.sysfs import Cpus
    from vebench.machine.topology import Topology

# On a machine with no more CPUs than this, every box is drawn.
_FOLD_ABOVE = 16
# Of a box with more cores, these first ones are shown, and all with workers.
_MOST_CORES = 64
_FEWEST_IN_SERIES = 4
_STYLES = {"owned": "bold green", "barred": "dim", "free": ""}


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


@dataclass(frozen=True)
class Marks:
    """How CPUs are marked: ``owned`` by workers, or ``barred``, which this process may not use."""

    owned: frozenset[int]
    barred: frozenset[int]

    def state(self, cpu: int) -> str:
        """Return the state of a CPU: a key of ``_STYLES``."""
        return "owned" if cpu in self.owned else "barred" if cpu in self.barred else "free"

    def text(self, cpu: int, width: int) -> str:
        """Return the CPU's number in brackets that say the same as its colour."""
        left, right = {"owned": ("[", "]"), "barred": ("(", ")"), "free": (" ", " ")}[self.state(cpu)]
        return f"{left}{cpu}{right}".rjust(width + 2)


def draw(topology: Topology, owned: Collection[int], allowed: Collection[int]) -> RenderableType:
    """Return the machine as boxes. CPUs are marked that are ``owned``, and those that are not ``allowed``."""
    marks = Marks(frozenset(owned), frozenset(topology.online) - frozenset(allowed))
    return Group(_drawn(_nested(topology), topology, marks), *_legend(marks), *_memory_alone(topology))


def brief(cpus: Collection[int]) -> str:
    """Return a set of CPUs in few characters: a Linux list, or ``1,3..79`` for a series with a wider step."""
    ordered = sorted(cpus)
    steps = {after - before for before, after in pairwise(ordered)}
    if len(ordered) >= _FEWEST_IN_SERIES and len(steps) == 1 and steps != {1}:
        return f"{ordered[0]},{ordered[1]}..{ordered[-1]}"
    return format_cpu_list(ordered)


def _nested(topology: Topology) -> Box:
    """Return the machine's box with all others in it, the larger around the smaller."""
    cores = {frozenset(core) for core in topology.cores}
    named: list[tuple[frozenset[int], str, str]] = []
    named += [(frozenset(cpus), f"package {label}", "") for label, cpus in topology.packages.items()]
    named += [
        (frozenset(node.cpus), f"node {node.id}", figures.size(node.memory_bytes) if node.memory_bytes else "")
        for node in topology.nodes
        if node.cpus
    ]
    # A cache that belongs to one core is shared by nothing in the drawing: it is listed with the facts.
    named += [
        (frozenset(shared.cpus), f"L{shared.level}", figures.size(shared.size_bytes) if shared.size_bytes else "")
        for shared in topology.last_level
        if frozenset(shared.cpus) not in cores
    ]
    whole = Box(frozenset(topology.online))
    for cpus, name, detail in sorted(named, key=lambda part: -len(part[0])):
        _put(whole, cpus, name, detail)
    return whole


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


def _drawn(box: Box, topology: Topology, marks: Marks) -> RenderableType:
    free = box.loose
    loose = [core for core in topology.cores if free.issuperset(core)]
    parts: list[RenderableType] = []
    if loose:
        parts += _cores(loose, topology, marks)
    groups: dict[object, list[Box]] = {}
    for inner in sorted(box.inner, key=lambda inner: min(inner.cpus)):
        look = _look(inner, topology, marks) if len(topology.online) > _FOLD_ABOVE else id(inner)
        groups.setdefault(look, []).append(inner)
    for first, *others in groups.values():
        parts.append(_drawn(first, topology, marks))
        if others:
            parts.append(_named(others))
    if not box.names:
        return Group(*parts)
    return Panel(Group(*parts), title=Text(box.title), title_align="left", box=ROUNDED, padding=(0, 1), expand=True)


def _named(others: Sequence[Box]) -> Text:
    """Return a line that names boxes which look like the one above it."""
    names = (", ".join(name for name in box.names if name[0] != "L") for box in others)
    sets = (f"{name}: {brief(box.cpus)}" if name else brief(box.cpus) for name, box in zip(names, others, strict=True))
    count = "another" if len(others) == 1 else f"{len(others)} more"
    return Text(f"{count} like this: {'; '.join(sets)}", style="dim")


def _look(box: Box, topology: Topology, marks: Marks) -> object:
    """Return what is equal for two boxes that look alike except for their numbers."""
    kind = {cpu: rank for rank, cpus in enumerate(topology.kinds) for cpu in cpus}
    cores = sorted(
        tuple((kind[cpu], marks.state(cpu)) for cpu in core) for core in topology.cores if box.cpus.issuperset(core)
    )
    inner = sorted(repr(_look(inner, topology, marks)) for inner in box.inner)
    return tuple(name.partition(" ")[0] for name in box.names), tuple(cores), tuple(inner)


def _cores(cores: Sequence[Cpus], topology: Topology, marks: Marks) -> Iterator[RenderableType]:
    """Yield the cores, one beside the other, those of each kind apart, the fastest first."""
    width = len(str(topology.online[-1]))
    fastest_first = tuple(reversed(topology.kinds))
    for rank, kind in enumerate(fastest_first):
        here = [core for core in cores if core[0] in set(kind)]
        if not here:
            continue
        if len(fastest_first) > 1:
            last = rank + 1 == len(fastest_first)
            middle = "slowest kind" if last else f"kind {rank + 1} of {len(fastest_first)}"
            yield Text(middle if rank else "fastest kind", style="dim")
        shown = [core for at, core in enumerate(here) if at < _MOST_CORES or marks.owned.intersection(core)]
        yield Columns([_core(core, width, marks) for core in shown], padding=(0, 1))
        if len(shown) < len(here):
            yield Text(f"and {len(here) - len(shown)} more cores", style="dim")


def _core(core: Cpus, width: int, marks: Marks) -> Text:
    text = Text(no_wrap=True)
    for index, cpu in enumerate(core):
        text.append("+" if index else "", style="dim")
        text.append(marks.text(cpu, width), style=_STYLES[marks.state(cpu)])
    return text


def _legend(marks: Marks) -> Iterator[Text]:
    if marks.owned:
        yield Text("[0]: owned by a worker", style="dim")
    if marks.barred:
        yield Text("(0): this process may not use it", style="dim")


def _memory_alone(topology: Topology) -> Iterator[Text]:
    """Yield a line for each memory node without CPUs, which has no place in the boxes."""
    for node in topology.nodes:
        if not node.cpus:
            size = "" if node.memory_bytes is None else f" ({figures.size(node.memory_bytes)})"
            yield Text(f"node {node.id}: memory alone{size}")
