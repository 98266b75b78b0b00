"""Reports as comma-separated values: one line for each cell, with every number that was derived."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from vebench.machine.placement import format_cpu_list

if TYPE_CHECKING:
    from vebench.analysis.scaling import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.reports.tables import Report, Section

Value = str | int | float | bool | None


def render(report: Report) -> str:
    """Return a head line and a line for each cell of every section. What does not apply is empty."""
    lines = [_line(section, cell) for section in report.sections for cell in section.cells]
    out = io.StringIO()
    if lines:
        writer = csv.DictWriter(out, fieldnames=list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return out.getvalue()


def _line(section: Section, cell: CellSummary) -> dict[str, Value]:
    return {
        "file": section.name,
        "env": cell.env,
        "backend": cell.label,
        "workers": cell.workers,
        "envs_per_worker": cell.envs_per_worker,
        "num_envs": cell.num_envs,
        "batch_size": cell.batch_size,
        "processes": cell.processes,
        "threads": cell.threads,
        "cpus": format_cpu_list(cell.cpus),
        "frame_skip": cell.frame_skip,
        "status": cell.status,
        "reason": cell.reason,
        "repeats": cell.repeats,
        "windows": cell.windows,
        "rows": cell.rows,
        "resets": cell.resets,
        **_spread("steps_per_second", cell.steps_per_second),
        **_spread("frames_per_second", cell.frames_per_second),
        **_spread("speedup", cell.speedup),
        **_spread("efficiency", cell.efficiency),
        **_spread("of_ceiling", cell.of_ceiling),
        **_spread("frames_per_cpu_second", cell.frames_per_cpu_second),
        **_spread("ns_per_batch", cell.ns_per_batch),
        "startup_seconds": cell.startup_seconds,
        "peak_rss_bytes": cell.peak_rss_bytes,
        "oversubscribed": cell.oversubscribed,
        "findings": " ".join(finding.code for finding in (*cell.findings, *section.findings)),
    }


def _spread(name: str, estimate: Estimate | None) -> dict[str, Value]:
    return {
        name: None if estimate is None else estimate.median,
        f"{name}_low": None if estimate is None else estimate.low,
        f"{name}_high": None if estimate is None else estimate.high,
    }
