"""The columns of a cell as data: one table for JSON, CSV and every other format of that kind.

A new figure or counter is one line at the end of ``COLUMNS``. What identifies a cell (file, environment, backend,
workers) is not in it: each format writes that in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.machine.placement import format_cpu_list

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.analysis.cell import CellSummary, Finding
    from vebench.analysis.statistics import Estimate

    Plain = str | int | float | bool | None


@dataclass(frozen=True)
class Fact:
    """A number or a text; None where it does not apply."""

    name: str
    value: Callable[[CellSummary], Plain]


@dataclass(frozen=True)
class Figure:
    """An estimate, whose bounds a flat format gives columns of their own; None where it does not apply."""

    name: str
    value: Callable[[CellSummary], Estimate | None]


@dataclass(frozen=True)
class Items:
    """Several things; ``text`` is the same for a format without lists."""

    name: str
    value: Callable[[CellSummary], Sequence[object]]
    text: Callable[[CellSummary], str]


Column = Fact | Figure | Items

COLUMNS: tuple[Column, ...] = (
    Fact("num_envs", lambda cell: cell.num_envs),
    Fact("batch_size", lambda cell: cell.batch_size),
    Fact("processes", lambda cell: cell.processes),
    Fact("threads", lambda cell: cell.threads),
    Items("cpus", lambda cell: cell.cpus, lambda cell: format_cpu_list(cell.cpus)),
    Fact("frame_skip", lambda cell: cell.frame_skip),
    Fact("status", lambda cell: cell.status),
    Fact("reason", lambda cell: cell.reason),
    Fact("repeats", lambda cell: cell.repeats),
    Fact("windows", lambda cell: cell.windows),
    Fact("rows", lambda cell: cell.rows),
    Fact("resets", lambda cell: cell.resets),
    Figure("steps_per_second", lambda cell: cell.steps_per_second),
    Figure("frames_per_second", lambda cell: cell.frames_per_second),
    Figure("speedup", lambda cell: cell.speedup),
    Figure("efficiency", lambda cell: cell.efficiency),
    Figure("of_ceiling", lambda cell: cell.of_ceiling),
    Figure("frames_per_cpu_second", lambda cell: cell.frames_per_cpu_second),
    Figure("ns_per_batch", lambda cell: cell.ns_per_batch),
    Fact("startup_seconds", lambda cell: cell.startup_seconds),
    Fact("peak_rss_bytes", lambda cell: cell.peak_rss_bytes),
    Fact("oversubscribed", lambda cell: cell.oversubscribed or cell.crowded),
    Fact("verdict", lambda cell: cell.verdict),
    Items("findings", lambda cell: cell.findings, lambda cell: " ".join(finding.code for finding in cell.findings)),
    Fact("verdict_reason", lambda cell: cell.verdict_reason),
    Figure("loop_ns_per_batch", lambda cell: cell.loop_ns_per_batch),
    Fact("disturbed_windows", lambda cell: cell.disturbed_windows),
)


def with_findings(cell: CellSummary, of_run: Sequence[Finding]) -> CellSummary:
    """Return ``cell`` as it is reported: what was found of the run as a whole holds for each of its cells."""
    return replace(cell, findings=(*cell.findings, *of_run))
