"""All cells of a run in one table, a row for each, with the figures that the tables of tasks have no room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.finding_codes import GRAVEST_FIRST
from vebench.backends.registry import CEILING, REFERENCE
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate

    Column = tuple[str, Callable[[CellSummary], Text]]

NOTES = (
    f"speedup: over {REFERENCE} with one worker. efficiency: speedup over the CPUs owned.",
    f"of ceiling: the share of the rate that the bare simulator reaches on the same CPUs ({CEILING}).",
    "frames/CPU s: frames for each second of CPU time. start-up: until the first batch. memory: the most at any time.",
)


def all_cells(cells: Sequence[CellSummary]) -> Table:
    """Return the table. Columns in which all cells are the same, such as the task, are left out."""
    columns = [*_columns(cells)]
    return Table(
        title="All cells",
        corner="backend",
        columns=tuple(name for name, _ in columns),
        rows=tuple(
            TableRow(one_line(cell.label), tuple(place(cell) for _, place in columns), cell.reference_row)
            for cell in cells
        ),
        notes=NOTES,
    )


def _columns(cells: Sequence[CellSummary]) -> list[Column]:
    several_tasks = len({cell.env for cell in cells}) > 1
    several_sizes = len({cell.envs_per_worker for cell in cells}) > 1
    task: list[Column] = [("task", lambda cell: _named(one_line(cell.env)))] if several_tasks else []
    envs: list[Column] = [("envs per worker", lambda cell: _counted(cell.envs_per_worker))] if several_sizes else []
    return [
        *task,
        ("workers", lambda cell: _counted(cell.workers)),
        *envs,
        ("frames/s", _rate),
        ("speedup", lambda cell: _place(None if cell.reference_row else cell.speedup, figures.times)),
        ("efficiency", lambda cell: _place(None if cell.reference_row else cell.efficiency, _share)),
        ("of ceiling", lambda cell: _place(None if cell.reference_row else cell.of_ceiling, _share)),
        (
            "frames/CPU s",
            lambda cell: _place(None if cell.loop_ns_per_batch else cell.frames_per_cpu_second, figures.rate),
        ),
        ("memory", _memory),
        ("start-up", _startup),
        (figures.SAME_WORK, lambda cell: _named(cell.verdict or "")),
        ("findings", _findings),
    ]


def _named(text: str) -> Text:
    return Text((text or figures.NOTHING,), value=text or None)


def _counted(count: int) -> Text:
    return Text((str(count),), value=count)


def _place(estimate: Estimate | None, words: Callable[[Estimate], str]) -> Text:
    return Text((figures.NOTHING,)) if estimate is None else Text((words(estimate),), value=estimate)


def _rate(cell: CellSummary) -> Text:
    rate = cell.frames_per_second
    if rate is None:
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if (loop := cell.loop_ns_per_batch) is not None:  # it has no frames: this is what the measuring loop costs
        return Text((figures.microseconds(loop), "a batch"), "reference_row")
    return Text((figures.rate(rate),), "struck" if cell.struck else "plain", rate)


def _share(share: Estimate) -> str:
    """Return a share and both ends of its interval: ``82% (80 to 84)``."""
    if share.low is None or share.high is None or share.low == share.high:
        return f"{share.median:.0%}"
    return f"{share.median:.0%} ({100 * share.low:.0f} to {100 * share.high:.0f})"


def _memory(cell: CellSummary) -> Text:
    known = cell.peak_rss_bytes
    return Text((figures.NOTHING,)) if known is None else Text((figures.size(known),), value=known)


def _startup(cell: CellSummary) -> Text:
    known = cell.startup_seconds
    return Text((figures.NOTHING,)) if known is None else Text((f"{figures.number(known)} s",), value=known)


def _findings(cell: CellSummary) -> Text:
    codes = sorted({finding.code for finding in cell.findings}, key=GRAVEST_FIRST.index)
    return _named(", ".join(code.value for code in codes))
