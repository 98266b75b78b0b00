"""Reports as comma-separated values: one line for each cell, with every number that was derived."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from vebench.machine.placement import format_cpu_list

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.reports.pages.run import Report, Section

Value = str | int | float | bool | None

DERIVED = (
    "steps_per_second",
    "frames_per_second",
    "speedup",
    "efficiency",
    "of_ceiling",
    "frames_per_cpu_second",
    "ns_per_batch",
)
COLUMNS = (
    *("file", "env", "backend", "workers", "envs_per_worker", "num_envs", "batch_size", "processes", "threads", "cpus"),
    *("frame_skip", "status", "reason", "repeats", "windows", "rows", "resets"),
    *(f"{name}{bound}" for name in DERIVED for bound in ("", "_low", "_high")),
    *("startup_seconds", "peak_rss_bytes", "oversubscribed", "verdict", "findings"),
)


def render(report: Report) -> str:
    """Return a head line and a line for each cell of every section. What does not apply is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_line(section, cell) for section in report.sections for cell in section.cells)
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
        **{key: value for name in DERIVED for key, value in _spread(name, getattr(cell, name)).items()},
        "startup_seconds": cell.startup_seconds,
        "peak_rss_bytes": cell.peak_rss_bytes,
        "oversubscribed": cell.oversubscribed or cell.crowded,
        "verdict": cell.verdict,
        "findings": " ".join(finding.code for finding in (*cell.findings, *section.findings)),
    }


def _spread(name: str, estimate: Estimate | None) -> dict[str, Value]:
    return {
        name: None if estimate is None else estimate.median,
        f"{name}_low": None if estimate is None else estimate.low,
        f"{name}_high": None if estimate is None else estimate.high,
    }
