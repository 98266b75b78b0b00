"""The facts about a run: its machine, the condition that it was in, its packages, and how it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.findings import Code, quota
from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.plan.spec import PER_NODE
from vebench.reports import figures
from vebench.reports.pages.acting import learner_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.results.records import HostRecord, RunRecord

CONDITION = "condition"  # the name of this fact
# Findings on the run as a whole that it says.
OF_CONDITION = frozenset({Code.THROTTLED, Code.UNPINNED, Code.VIRTUAL_MACHINE})


def condition(header: RunRecord, cells: Sequence[CellSummary]) -> str:
    """Return it in one line, empty if nothing is worth saying."""
    return one_line("; ".join(_parts(header, cells)))


def _parts(header: RunRecord, cells: Sequence[CellSummary]) -> Iterator[str]:
    host = header.host
    if host.virtual:
        yield "virtual machine"
    if any(quota(host)):
        yield f"a quota of {host.quota_cpus:g} CPUs"
    if not host.pinning or not header.spec.pin.pins:
        yield "cells not held to CPUs of their own"
    taken = [cell.stolen_share + cell.others_share for cell in cells if _known(cell)]
    if taken:
        mean, most = sum(taken) / len(taken), max(taken)
        yield f"others took {mean:.1%} of CPU time, up to {most:.1%} in a cell"


def _known(cell: CellSummary) -> bool:
    """Return whether the kernel said for each window what others took, and there are windows."""
    return cell.windows > 0 and any(cell.totals.get(name) is not None for name in ("steal_ns", "others_ns"))


_GIB = 2**30


def facts(header: RunRecord, cells: Sequence[CellSummary]) -> tuple[tuple[str, str], ...]:
    """Return the facts about a run with these cells, each with its name and on one line. Unknown ones are left out."""
    spec = header.spec
    windows = f"{figures.counted(spec.rounds, 'window')} of {spec.duration:g} s after {spec.warmup:g} s of warm-up"
    repeats = f", {spec.repeats} repeats" if spec.repeats > 1 else ""
    if spec.until is not None:
        repeats += f", repeated until ±{100 * spec.until:.3g}%"
    if spec.takes_turns:
        repeats += ", cells taking turns"
    replicas = {1: "", PER_NODE: ", a replica for each memory node"}.get(
        spec.replicas, f", in {spec.replicas} replicas"
    )
    packages = ", ".join(f"{name} {version}" for name, version in sorted(header.packages.items()))
    known = (
        ("machine", _machine(header.host)),
        (CONDITION, condition(header, cells)),
        ("hosts", _hosts(header, cells)),
        ("system", _system(header.host)),
        ("packages", packages),
        ("measured", f"{header.started}{', ' if header.started else ''}{windows}{repeats}{replicas}"),
        ("policy", spec.policy.in_words),
        ("learner", "" if spec.learner is None else learner_words(spec.learner)),
        ("proof", _proof(cells)),
        ("command", header.command),
    )
    return tuple((name, one_line(value)) for name, value in known if value)


def _hosts(header: RunRecord, cells: Sequence[CellSummary]) -> str:
    """Return in words on which hosts replicas ran, and how well their clocks are known."""
    asked = header.spec.hosts
    if not header.hosts or asked is None:
        return ""
    errors = [share.error_ns for cell in cells for share in cell.hosts]
    clocks = f"; clocks known to {figures.short(max(errors))}" if errors else ""
    kept = "delivered to one consumer" if asked.deliver else "nothing delivered"
    return f"{', '.join(header.hosts)} by {asked.via}, added up; {kept}{clocks}"


def _proof(cells: Sequence[CellSummary]) -> str:
    """Return in words what was compared of what the measured cells returned."""
    proofs = [cell.proof for cell in cells if cell.proof is not None and cell.proof.rows]
    if not proofs:
        return ""
    rows, made = sum(proof.rows for proof in proofs), sum(proof.of_steps for proof in proofs)
    far = sum(proof.steps for proof in proofs) / max(1, made)
    backends = sum(not cell.reference_row for cell in cells)
    return (
        f"in {len(proofs)} of {figures.counted(backends, 'cell')}, {rows:,} rows of the measured steps compared with "
        f"{REFERENCE}, on the way through {far:.0%} of them"
    )


def _machine(host: HostRecord) -> str:
    cpus = f"{host.usable_cpus} of {figures.counted(host.cpus_online, 'CPU')} usable"
    memory = f"{host.memory_bytes / _GIB:.1f} GiB" if host.memory_bytes is not None else ""
    return ", ".join(part for part in (host.cpu_model, cpus, memory) if part)


def _system(host: HostRecord) -> str:
    python = f"Python {host.python}" if host.python else ""
    container = "in a container" if host.container else ""
    return ", ".join(part for part in (f"{host.system} {host.kernel} {host.machine}", python, container) if part)
