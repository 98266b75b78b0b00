"""Reports as JSON: a list of cells with their derived numbers, for other programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.reports.pages.run import Report, Section


def render(report: Report) -> str:
    """Return the cells of every section in one list; what does not apply is null.

    What was found of the run as a whole stands with each of its cells.
    """
    cells = [_cell(section, cell) for section in report.sections for cell in section.cells]
    return json.dumps(cells, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _cell(section: Section, cell: CellSummary) -> dict[str, object]:
    return {
        "env": cell.env,
        "backend": cell.backend,
        "workers": cell.workers,
        "num_envs": cell.num_envs,
        "status": cell.status,
        "steps_per_second": _estimate(cell.steps_per_second),
        "frames_per_second": _estimate(cell.frames_per_second),
        "speedup": _estimate(cell.speedup),
        "efficiency": _estimate(cell.efficiency),
        "of_ceiling": _estimate(cell.of_ceiling),
        "frames_per_cpu_second": _estimate(cell.frames_per_cpu_second),
        "startup_seconds": cell.startup_seconds,
        "peak_rss_bytes": cell.peak_rss_bytes,
        "findings": [asdict(finding) for finding in (*cell.findings, *section.findings)],
        # What tells apart cells of one backend with different options, or of different files.
        "options": dict(cell.options),
        "file": section.name,
        "loop_ns_per_batch": _estimate(cell.loop_ns_per_batch),
        "envs_per_worker": cell.envs_per_worker,
        "batch_size": cell.batch_size,
        "processes": cell.processes,
        "threads": cell.threads,
        "cpus": list(cell.cpus),
        "frame_skip": cell.frame_skip,
        "verdict": cell.verdict,
        "verdict_reason": cell.verdict_reason,
    }


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    return None if estimate is None else {"median": estimate.median, "low": estimate.low, "high": estimate.high}
