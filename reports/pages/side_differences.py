"""Which runs are set side by side, and what differs between their machines, packages and plans: a row for each fact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.reports.pages.sides import Side
    from vebench.results.records import HostRecord, RunRecord

    Fact = Callable[[HostRecord], str | None]

HOST: tuple[tuple[str, Fact], ...] = (
    ("CPU model", lambda host: host.cpu_model),
    ("CPUs usable", lambda host: f"{host.usable_cpus} of {host.cpus_online}"),
    ("cores", lambda host: str(host.topology.cores)),
    ("second threads", lambda host: _switch(host.smt)),
    ("memory nodes", lambda host: str(len(host.topology.nodes))),
    ("memory", lambda host: None if host.memory_bytes is None else figures.size(host.memory_bytes)),
    ("governor", lambda host: host.governor),
    ("boost", lambda host: _switch(host.boost)),
    ("huge pages", lambda host: host.thp),
    ("CPU quota", lambda host: None if host.quota_cpus is None else f"{host.quota_cpus:g} CPUs"),
    ("virtual machine", lambda host: _truth(host.virtual)),
    ("container", lambda host: _truth(host.container)),
    ("cells pinned", lambda host: _truth(host.pinning)),
    ("architecture", lambda host: host.machine),
    ("system", lambda host: f"{host.system} {host.kernel}"),
    ("microcode", lambda host: host.microcode),
    ("Python", lambda host: host.python or None),
)
PLAN = ("pin", "smt", "membind", "replicas", "repeats", "rounds", "duration", "warmup")
ALWAYS = ("CPU model", "CPUs usable")
UNKNOWN = "-"
TITLE = "The runs, and what differs between them"


def differences(sides: Sequence[Side]) -> tuple[Table, bool]:
    """Return which runs these are and in what they differ, as a table, and whether they differ in anything at all.

    What only some of them know makes no difference; a package that only some of them have does.
    """
    heads = [side.head for side in sides]
    named = {
        "file": [side.file for side in sides],
        "started": [head.started for head in heads],
    }
    facts: dict[str, Sequence[str | None]] = {
        **{name: [fact(head.host) for head in heads] for name, fact in HOST},
        **{name: [head.packages.get(name, "none") for head in heads] for name in _packages(heads)},
        **{f"--{name}": [_option(head, name) for head in heads] for name in PLAN},
        "cells take turns": [_truth(head.spec.takes_turns) for head in heads],
    }
    differing = [name for name, values in facts.items() if len({value for value in values if value is not None}) > 1]
    shown = {**named, **{name: facts[name] for name in dict.fromkeys((*ALWAYS, *differing))}}
    rows = (
        TableRow(one_line(name), tuple(Text((one_line(value or "") or UNKNOWN,)) for value in values))
        for name, values in shown.items()
    )
    names = tuple(side.name for side in sides)
    return Table(TITLE, "fact", names, tuple(rows), numbers=False, about="run"), bool(differing)


def _packages(heads: Sequence[RunRecord]) -> list[str]:
    return sorted({name for head in heads for name in head.packages})


def _option(head: RunRecord, name: str) -> str:
    value = getattr(head.spec, name)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _switch(on: bool | None) -> str | None:
    return None if on is None else "on" if on else "off"


def _truth(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
