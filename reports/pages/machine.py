"""The machine as a page: a drawing and facts for readers, and the same as data for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.box import ROUNDED
from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from vebench.errors import one_line
from vebench.machine.placement import format_cpu_list
from vebench.reports.document import DataPage, Document, Remark
from vebench.reports.figures import by_key, counted, size, tasks_in_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from vebench.analysis.findings import Finding
    from vebench.backends.registry import Standing
    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.machine.sysfs import Cpus
    from vebench.machine.topology import Topology


_THIRD_LEVEL = 3
_MOST_IN_ORDER = 32


@dataclass(frozen=True)
class MachinePage(DataPage):
    """A machine as vebench sees it. ``orders``: all allowed CPUs as each policy takes them, second threads last.

    ``workers``: how many workers to show on the CPUs that ``placement`` gives them, None for none. ``versions``: the
    installed packages. ``standings``: what backends with environment classes of their own step here. Both are empty for
    a copy of another machine's files. ``memory_available`` is in bytes, None if unknown.
    """

    host: Host
    placement: Placement
    orders: Mapping[str, Cpus]
    workers: int | None
    versions: Mapping[str, str]
    memory_available: int | None
    findings: tuple[Finding, ...]
    standings: tuple[Standing, ...] = ()
    kind = "machine"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the drawing, facts of the machine, and findings."""
        owned = () if self.workers is None else self.placement.owned(self.workers)
        document = Document(
            title=one_line(self.host.cpu_model),
            facts=tuple((name, one_line(text)) for name, text in _facts(self) if text),
            tables=(),
            findings=tuple(map(Remark.of, self.findings)),
            drawing=_Drawing(self.host.topology, owned, self.host.allowance.cpus).whole(),
        )
        return (document,)

    @property
    def data(self) -> dict[str, object]:
        """Facts of the machine by name: CPU sets as Linux lists, unknown facts as None."""
        host, topology, allowance = self.host, self.host.topology, self.host.allowance
        third = [format_cpu_list(cache.cpus) for cache in topology.caches if cache.level == _THIRD_LEVEL]
        facts: dict[str, object] = {
            "online": format_cpu_list(topology.online),
            "allowed": format_cpu_list(allowance.cpus),
            "cores": [format_cpu_list(core) for core in topology.cores],
            "packages": {label: format_cpu_list(cpus) for label, cpus in topology.packages.items()},
            "nodes": {str(node.id): format_cpu_list(node.cpus) for node in topology.nodes if node.cpus},
            "cpuless_nodes": [node.id for node in topology.nodes if not node.cpus],
            "l3_groups": third or None,
            "kinds_slow_to_fast": [format_cpu_list(kind) for kind in topology.kinds],
            "quota_cpus": host.quota_cpus,
            "usable_cpus": self.placement.usable,
            "order": {policy: list(order) for policy, order in self.orders.items()},
            "cpus_without_node": format_cpu_list(topology.without_node),
            "distances": {
                str(node.id): {str(to): far for to, far in node.distances.items()} for node in topology.nodes
            },
            "node_memory_bytes": {str(node.id): node.memory_bytes for node in topology.nodes},
            "last_level": [format_cpu_list(cache.cpus) for cache in topology.last_level],
            "allowed_nodes": None if allowance.nodes is None else format_cpu_list(allowance.nodes),
            "quota_source": allowance.quota.source if allowance.quota else None,
            "memory_bytes": host.memory_bytes,
            "memory_available_bytes": self.memory_available,
            **{name: getattr(host, name) for name in ("cpu_model", "microcode", "kernel", "smt", "governor", "boost")},
            "transparent_huge_pages": host.thp,
            "isolated": format_cpu_list(host.isolated),
            "container": host.container,
            "virtual": host.virtual,
            "versions": dict(self.versions),
            "own_classes": [{"backends": it.backends, "tasks": it.tasks, **asdict(it.own)} for it in self.standings],
            "findings": self.findings,
        }
        if self.workers is not None:
            owned = self.placement.owned(self.workers)
            facts["workers"] = [owned[worker % len(owned)] for worker in range(self.workers)]
        return facts


def _facts(page: MachinePage) -> Iterator[tuple[str, str]]:
    """Yield facts for readers, by name; the text is empty if a fact is unknown."""
    host, topology = page.host, page.host.topology
    cpus = (
        f"{format_cpu_list(topology.online)} online",
        counted(len(topology.packages), "package") if topology.packages else "",
        counted(len(topology.nodes), "memory node") if topology.nodes else "",
        counted(len(topology.cores), "core"),
        f"{topology.threads_per_core} threads a core" if topology.threads_per_core > 1 else "",
        f"{len(topology.kinds)} kinds of core" if len(topology.kinds) > 1 else "",
        f"no node for {_brief(topology.without_node)}" if topology.without_node else "",
    )
    yield "CPUs", ", ".join(filter(None, cpus))
    caches = Counter((cache.level, cache.size_bytes) for cache in topology.caches)  # data or unified
    yield (
        "caches",
        ", ".join(
            f"L{level}{f' {size(count)}' if count else ''}{f' x {number}' if number > 1 else ''}"
            for (level, count), number in caches.items()
        ),
    )
    nodes = host.allowance.nodes
    memory = (
        size(host.memory_bytes) if host.memory_bytes else "",
        f"{size(page.memory_available)} available" if page.memory_available else "",
        f"nodes {format_cpu_list(nodes)} allowed" if nodes is not None and len(topology.nodes) > 1 else "",
    )
    yield "memory", ", ".join(filter(None, memory))
    yield "usable", _usable(page)
    for policy, order in page.orders.items():
        yield policy, _in_order(order)
    yield "workers", _workers(page)
    on = {True: "on", False: "off"}
    settings = (
        f"governor {host.governor}" if host.governor else "",
        f"boost {on[host.boost]}" if host.boost is not None else "",
        f"SMT {on[host.smt]}" if host.smt is not None else "",
        f"transparent huge pages {host.thp}" if host.thp else "",
        f"microcode {host.microcode}" if host.microcode else "",
        f"isolated CPUs {_brief(host.isolated)}" if host.isolated else "",
    )
    yield "settings", ", ".join(filter(None, settings))
    kernel = f"{host.system} {host.kernel} {host.machine}".strip()
    virtual, container = "virtual machine" if host.virtual else "", "in a container" if host.container else ""
    yield "system", ", ".join(filter(None, (kernel, virtual, container)))
    yield "versions", ", ".join(f"{name} {version}" for name, version in sorted(page.versions.items()))
    kinds = by_key(((", ".join(one.backends), one.own.words_for_kind), tasks_in_words(one)) for one in page.standings)
    for (backends, words), names in kinds.items():
        yield backends, f"{', '.join(names)}: {words}"


def _usable(page: MachinePage) -> str:
    allowance, online = page.host.allowance, page.host.topology.online
    allowed = "all may be used" if allowance.cpus == online else f"{_brief(allowance.cpus)} may be used"
    quota = f"quota of {allowance.quota.cpus:g} ({allowance.quota.source})" if allowance.quota else "no quota"
    return f"{page.placement.usable} of {counted(len(online), 'CPU')}: {allowed}, {quota}"


def _in_order(order: Cpus) -> str:
    shown = ", ".join(map(str, order[:_MOST_IN_ORDER]))
    return shown if len(order) <= _MOST_IN_ORDER else f"{shown}, ... ({len(order)} in all)"


def _workers(page: MachinePage) -> str:
    if page.workers is None:
        return ""
    owned = page.placement.owned(page.workers)
    if not page.placement.pinned:
        return f"{counted(page.workers, 'worker')} on any of CPUs {_brief(owned)}"
    how = "share" if page.workers > len(owned) else "in this order on" if len(owned) > 1 else "on"
    return f"{counted(page.workers, 'worker')} {how} CPU {_in_order(owned)}"


# On a machine with no more CPUs than this, every box is drawn.
_FOLD_ABOVE = 16
# The first cores of a box that are shown; cores with workers always are.
_MOST_CORES = 64
_FEWEST_IN_SERIES = 4
# The brackets say the same as the style.
_STYLES = {"owned": ("[", "]", "bold green"), "barred": ("(", ")", "dim"), "free": (" ", " ", "")}


def _brief(cpus: Collection[int]) -> str:
    """Return a set of CPUs in short form: a Linux list, or ``1,3..79`` for a series with a wider step."""
    ordered = sorted(cpus)
    steps = {after - before for before, after in pairwise(ordered)}
    if len(ordered) >= _FEWEST_IN_SERIES and len(steps) == 1 and steps != {1}:
        return f"{ordered[0]},{ordered[1]}..{ordered[-1]}"
    return format_cpu_list(ordered)


@dataclass
class Box:
    """A set of CPUs that belong together: its names, such as ``node 0``, each with a detail, and the boxes inside."""

    cpus: frozenset[int]
    names: list[tuple[str, str]] = field(default_factory=list)
    inner: list[Box] = field(default_factory=list)

    def put(self, cpus: frozenset[int], name: str, detail: str) -> None:
        """Put a set of CPUs, no larger than any put before, into this box or into one inside."""
        if cpus == self.cpus:
            self.names.append((name, detail))
            return
        for inner in self.inner:
            if cpus <= inner.cpus:
                inner.put(cpus, name, detail)
                return
            if cpus & inner.cpus:  # neither contains the other: it cannot be drawn
                return
        self.inner.append(Box(cpus, [(name, detail)]))


def _nested(topology: Topology) -> Box:
    """Return the machine's box with all other boxes nested inside it."""
    named = [(frozenset(cpus), f"package {label}", "") for label, cpus in topology.packages.items()]
    sizes = ((node, size(node.memory_bytes) if node.memory_bytes else "") for node in topology.nodes if node.cpus)
    named += [(frozenset(node.cpus), f"node {node.id}", memory) for node, memory in sizes]
    # A cache of a single core groups nothing in the drawing: it is listed with the facts.
    cores = {frozenset(core) for core in topology.cores}
    named += [
        (frozenset(shared.cpus), f"L{shared.level}", size(shared.size_bytes) if shared.size_bytes else "")
        for shared in topology.last_level
        if frozenset(shared.cpus) not in cores
    ]
    whole = Box(frozenset(topology.online))
    for cpus, name, detail in sorted(named, key=lambda part: -len(part[0])):
        whole.put(cpus, name, detail)
    return whole


class _Drawing:
    """The machine as boxes. CPUs that are ``owned`` by workers or not ``allowed`` are marked."""

    def __init__(self, topology: Topology, owned: Collection[int], allowed: Collection[int]) -> None:
        self._topology = topology
        barred = set(topology.online).difference(allowed)
        self._states = dict.fromkeys(topology.online, "free")
        self._states |= dict.fromkeys(barred, "barred") | dict.fromkeys(owned, "owned")

    def whole(self) -> RenderableType:
        """Return the boxes, and a legend below them."""
        states = self._states.values()
        legend = [
            *(["[0]: owned by a worker"] if "owned" in states else []),
            *(["(0): this process may not use it"] if "barred" in states else []),
        ]
        alone = [  # they have no place in the boxes
            f"node {node.id}: memory only{'' if node.memory_bytes is None else f' ({size(node.memory_bytes)})'}"
            for node in self._topology.nodes
            if not node.cpus
        ]
        lines = (*(Text(line, style="dim") for line in legend), *map(Text, alone))
        return Group(self._drawn(_nested(self._topology)), *lines)

    def _drawn(self, box: Box) -> RenderableType:
        loose = box.cpus.difference(*(inner.cpus for inner in box.inner))
        parts = [*self._cores([core for core in self._topology.cores if loose.issuperset(core)])]
        groups: dict[object, list[Box]] = {}
        for inner in sorted(box.inner, key=lambda inner: min(inner.cpus)):
            look = self._look(inner) if len(self._topology.online) > _FOLD_ABOVE else id(inner)
            groups.setdefault(look, []).append(inner)
        for first, *others in groups.values():
            parts.append(self._drawn(first))
            if others:  # boxes that look like the one above
                names = (", ".join(name for name, _ in other.names if name[0] != "L") for other in others)
                pairs = zip(names, others, strict=True)
                sets = (f"{name}{': ' if name else ''}{_brief(other.cpus)}" for name, other in pairs)
                count = "another" if len(others) == 1 else f"{len(others)} more"
                parts.append(Text(f"{count} like this: {'; '.join(sets)}", style="dim"))
        if not box.names:
            return Group(*parts)
        title = ", ".join(
            f"{name} {detail}".strip() if name[0] == "L" else f"{name} ({detail})" if detail else name
            for name, detail in box.names
        )
        return Panel(Group(*parts), title=Text(title), title_align="left", box=ROUNDED, padding=(0, 1), expand=True)

    def _look(self, box: Box) -> object:
        """Return a key that is equal for boxes that differ only in their numbers."""
        kind = {cpu: rank for rank, cpus in enumerate(self._topology.kinds) for cpu in cpus}
        cores = [core for core in self._topology.cores if box.cpus.issuperset(core)]
        looks = sorted(tuple((kind[cpu], self._states[cpu]) for cpu in core) for core in cores)
        inner = sorted(repr(self._look(inner)) for inner in box.inner)
        return tuple(name.partition(" ")[0] for name, _ in box.names), tuple(looks), tuple(inner)

    def _cores(self, cores: Sequence[Cpus]) -> Iterator[RenderableType]:
        """Yield the cores side by side, a group for each kind, the fastest first."""
        kinds = len(self._topology.kinds)
        for rank, kind in enumerate(reversed(self._topology.kinds)):
            here = [core for core in cores if core[0] in set(kind)]
            if not here:
                continue
            if kinds > 1:
                slower = "slowest kind" if rank + 1 == kinds else f"kind {rank + 1} of {kinds}"
                yield Text(slower if rank else "fastest kind", style="dim")
            owned = [core for core in here[_MOST_CORES:] if any(self._states[cpu] == "owned" for cpu in core)]
            shown = here[:_MOST_CORES] + owned
            yield Columns([self._core(core) for core in shown], padding=(0, 1))
            if len(shown) < len(here):
                yield Text(f"and {len(here) - len(shown)} more cores", style="dim")

    def _core(self, core: Cpus) -> Text:
        width = len(str(self._topology.online[-1]))
        text = Text(no_wrap=True)
        for index, cpu in enumerate(core):
            left, right, style = _STYLES[self._states[cpu]]
            text.append("+" if index else "", style="dim")
            text.append(f"{left}{cpu}{right}".rjust(width + 2), style=style)
        return text
