"""The columns of a cell as data: one table for JSON, CSV and every other format of that kind.

A new figure or counter is one line at the end of ``COLUMNS``. Pages show all columns on demand, and one that has a
``head`` in the table of all cells. What identifies a cell (file, environment, backend, workers) is not in it: each
format writes that in its own way.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from vebench.analysis.statistics import Estimate
from vebench.analysis.summary import why_not_same
from vebench.backends.registry import REFERENCE
from vebench.errors import UsageError, one_line, shown
from vebench.machine.placement import format_cpu_list
from vebench.reports import figures
from vebench.reports.document import Table, TableRow, Text
from vebench.reports.figures import SAME_WORK, what_it_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings import Finding
    from vebench.reports.document import Tone

    Plain = str | int | float | bool | None


@dataclass(frozen=True)
class FactColumn:
    """A number or a text; None where it does not apply.

    ``meaning`` is one line for those who read the data, ``unit`` that of the value, empty if it has none. ``head`` is
    above the values in the table of all cells, empty for a column that this table leaves to the raw numbers.
    """

    name: str
    value: Callable[[CellSummary], Plain]
    meaning: str
    unit: str = ""
    head: str = ""


@dataclass(frozen=True)
class EstimateColumn:
    """An estimate, whose bounds a flat format gives columns of their own; None where it does not apply."""

    name: str
    value: Callable[[CellSummary], Estimate | None]
    meaning: str
    unit: str
    head: str = ""


@dataclass(frozen=True)
class ItemsColumn:
    """Several things; ``text`` is the same for a format without lists, with spaces between them."""

    name: str
    value: Callable[[CellSummary], Sequence[object]]
    text: Callable[[CellSummary], str]
    meaning: str
    unit: str = ""
    head: str = ""


def _fact(name: str, meaning: str, unit: str = "", head: str = "", *, of: str = "") -> FactColumn:
    """Return a column of an attribute of cells; its path is ``of``, or else its name. None has no attributes."""

    def value(cell: CellSummary) -> Plain:
        found: Any = cell
        for attribute in (of or name).split("."):
            found = None if found is None else getattr(found, attribute)
        plain: Plain = found
        return plain

    return FactColumn(name, value, meaning, unit, head)


def _estimate(name: str, meaning: str, unit: str, head: str = "") -> EstimateColumn:
    return EstimateColumn(name, attrgetter(name), meaning, unit, head)


DataColumn = FactColumn | EstimateColumn | ItemsColumn
COLUMNS: tuple[DataColumn, ...] = (
    _fact("num_envs", "environments alive at the same time", "environments"),
    _fact("batch_size", "rows that one recv() returns", "rows"),
    _fact("processes", "processes that step environments"),
    _fact("threads", "threads that step environments, in each process"),
    ItemsColumn("cpus", attrgetter("cpus"), lambda cell: format_cpu_list(cell.cpus), "CPUs owned, by their numbers"),
    _fact("frame_skip", "frames in each step", "frames"),
    _fact("status", "ok, failed or skipped; ok if any repeat went well"),
    _fact("reason", "why it failed or was skipped"),
    _fact("repeats", "passes in which it was measured, each in a fresh process"),
    _fact("windows", "timed windows over all repeats that went well"),
    _fact("rows", "rows received in these windows: steps and resets", "rows"),
    _fact("resets", "rows that only report a reset, and are no steps", "rows"),
    _estimate("steps_per_second", "steps of all environments together", "steps/s"),
    _estimate("frames_per_second", "the rate of the tables: steps x frame skip", "frames/s", "frames/s"),
    _estimate("speedup", f"frames/s over those of {REFERENCE} with one worker, same run", "times", "speedup"),
    _estimate("efficiency", "speedup over the number of CPUs owned", "ratio", "efficiency"),
    _estimate("of_ceiling", "frames/s over those of the bare simulator on the same CPUs", "ratio", "of ceiling"),
    _estimate(
        "frames_per_cpu_second",
        "frames for each second of CPU time of the whole process tree",
        "frames/s",
        "frames/CPU s",
    ),
    _estimate("ns_per_batch", "wall time from one batch to the next", "ns"),
    _fact(
        "startup_seconds",
        "from the interpreter's first line to the first batch, the median of repeats",
        "s",
        "start-up",
    ),
    _fact("peak_rss_bytes", "most memory of the whole process tree", "bytes", "memory"),
    FactColumn(
        "oversubscribed",
        lambda cell: cell.oversubscribed or cell.crowded,
        "more workers, processes or threads than CPUs",
    ),
    _fact("verdict", f"whether it does the same work as {REFERENCE}; none for a reference row", head=SAME_WORK),
    ItemsColumn(
        "findings",
        attrgetter("findings"),
        lambda cell: " ".join(finding.code for finding in cell.findings),
        "what was found about it, each with a code, a message and a remedy",
        head="findings",
    ),
    _fact("verdict_reason", "why the verdict is unverified or different, or where else it comes from"),
    _estimate("loop_ns_per_batch", "what the measuring loop itself costs: null", "ns"),
    _fact("disturbed_windows", "windows in which others used its CPUs"),
    FactColumn(
        "steps", what_it_steps, "what it steps: any Gymnasium environment, own classes for this task, or others"
    ),
    FactColumn(
        "differences", lambda cell: "; ".join(cell.differences), f"how it differs from {REFERENCE}, as its adapter says"
    ),
    _fact("struck", "why its rate is compared with no other; empty if it may be", of="why_struck"),
    _fact(
        "proof",
        f"what it returned while it was measured, compared with {REFERENCE}; none if nothing was to be",
        of="proof.verdict",
    ),
    _fact("proof_rows", "rows of the measured steps that were compared", "rows", "rows compared", of="proof.rows"),
    FactColumn(
        "proof_share",
        lambda cell: cell.proof.steps / max(1, cell.proof.of_steps) if cell.proof else None,
        "how far its steps were made again for that",
        "ratio",
    ),
    FactColumn(
        "proof_reason",
        lambda cell: why_not_same(cell.proof) if cell.proof else None,
        "why what it returned was not compared, or how it differs",
    ),
    _fact(
        "waiting_share",
        "share of the loop's time from actions to their rows; none without --policy",
        "ratio",
        of="acting.waiting",
    ),
    _fact(
        "inference_share", "share of the loop's time in which the policy chose actions", "ratio", of="acting.inference"
    ),
    _fact(
        "copy_share",
        "share of the loop's time to bring observations to the policy and actions back",
        "ratio",
        of="acting.copies",
    ),
    _fact(
        "latency_p50_ns", "from the actions of a batch to the next batch, the median", "ns", of="acting.latency_p50_ns"
    ),
    _fact("latency_p99_ns", "the same, of which one batch in a hundred takes more", "ns", of="acting.latency_p99_ns"),
    _fact(
        "age", "how often the policy acted between choosing an action and getting its row, the mean", of="acting.age"
    ),
    _fact(
        "rows_per_batch",
        "how many rows a batch has, the mean; none if all have batch_size",
        "rows",
        of="batch_sizes.mean",
    ),
    _fact(
        "sampling_share",
        "share of training that sampling takes, with the time of --learner",
        "ratio",
        of="learning.sampling",
    ),
    _fact(
        "training_steps_per_second",
        "steps sampled and learned from, with the time of --learner",
        "steps/s",
        of="learning.steps_per_second",
    ),
    _fact(
        "at_most_faster",
        "how many times faster training would be if sampling took no time",
        "times",
        of="learning.at_most",
    ),
    _fact(
        "proof_envs",
        "environments that were stepped again to compare what it returned",
        "environments",
        of="proof.environments",
    ),
    _estimate(
        "delivered_bytes_per_second", "what one consumer got of its rows, with --hosts ...[deliver=true]", "bytes/s"
    ),
    ItemsColumn(
        "hosts",
        lambda cell: [{"host": host, "steps_per_second": asdict(rate)} for host, rate in cell.host_rates.items()],
        lambda cell: " ".join(f"{host}={rate.median:.0f}" for host, rate in cell.host_rates.items()),
        "the rate of the replica on each host, with an interval from two repeats on; empty if it ran on one machine",
        "steps/s",
    ),
    _fact("work", "the verdict, with (before) if no row of the cell itself was compared"),
)


def column_names(option: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns in ``texts``, each once. Each text is one or more names joined by commas.

    The beginning of a name is enough if no other column has it: ``startup``. Raises UsageError for anything else.
    """
    names: dict[str, None] = {}
    known = [column.name for column in COLUMNS]
    for beginning in (name.strip() for text in texts for name in text.split(",")):
        found = [name for name in known if name == beginning] or [name for name in known if name.startswith(beginning)]
        if not beginning or len(found) != 1:
            what = "could be " + " or ".join(found) if beginning and found else ""
            raise UsageError(f"{option} {shown(beginning)}: {what or 'no such column; there are ' + ', '.join(known)}")
        names[found[0]] = None
    return tuple(names)


def column_named(name: str) -> DataColumn:
    """Return the column of that name. Raises KeyError if there is none."""
    return {column.name: column for column in COLUMNS}[name]


def described(column: DataColumn) -> str:
    """Return what the column is, in one line."""
    return f"{column.name}: {column.meaning}{f' ({column.unit})' if column.unit else ''}"


def with_findings(cell: CellSummary, of_run: Sequence[Finding]) -> CellSummary:
    """Return ``cell`` as it is reported: what was found of the run as a whole holds for each of its cells."""
    return replace(cell, findings=(*cell.findings, *of_run))


# How estimates with these units are written; others are rates.
_ESTIMATES: dict[str, Callable[[Estimate], str]] = {
    "times": figures.times,
    "ratio": partial(figures.times, sign=""),
    "ns": figures.time,
}


def all_cells(cells: Sequence[CellSummary]) -> Table:
    """Return the table. Of what identifies a cell, it leaves out what is the same in all, such as the task.

    Findings, which take most room, come last.
    """
    identity: list[tuple[str, Callable[[CellSummary], str | int]]] = [("workers", lambda cell: cell.workers)]
    if len({cell.env for cell in cells}) > 1:
        identity.insert(0, ("task", lambda cell: one_line(cell.env)))
    if len({cell.envs_per_worker for cell in cells}) > 1:
        identity.append(("envs per worker", lambda cell: cell.envs_per_worker))
    values = sorted((column for column in COLUMNS if column.head), key=lambda column: column.name == "findings")
    return Table(
        title="All cells",
        corner="backend",
        columns=(*(name for name, _ in identity), *(column.head for column in values)),
        rows=tuple(
            TableRow(
                one_line(cell.label),
                (
                    *(Text((str(value(cell)),), value=value(cell)) for _, value in identity),
                    *(_value(column, cell) for column in values),
                ),
                cell.reference_row,
            )
            for cell in cells
        ),
        notes=(" ".join(f"{column.head}: {column.meaning}." for column in values if column.unit),),
    )


def _value(column: DataColumn, cell: CellSummary) -> Text:
    if column.name == "frames_per_second":
        if (rate := cell.frames_per_second) is None:
            return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
        if (loop := cell.loop_ns_per_batch) is not None:  # it has no frames: this is what the measuring loop costs
            return Text((figures.time(loop), "a batch"), "reference_row")
        return Text((figures.rate(rate),), "struck" if cell.struck else "plain", rate)
    # No backend can beat a reference row: its ratios would read as those of a backend. The loop alone has no frames.
    if (cell.reference_row and column.unit in ("times", "ratio")) or (
        cell.loop_ns_per_batch and column.unit == "frames/s"
    ):
        return Text((figures.DASH,))
    return replace(of_column(column, cell), tone="plain")  # the whole row of a reference row is set apart


def of_column(column: DataColumn, cell: CellSummary) -> Text:
    """Return the place of ``cell`` in a table with values of ``column``, a dash where it does not apply."""
    tone: Tone = "reference_row" if cell.reference_row else "plain"
    if isinstance(column, ItemsColumn):
        text = ", ".join(dict.fromkeys(one_line(column.text(cell)).split()))
        return Text((text or figures.DASH,), tone, text or None)
    value = column.value(cell)
    if value is None or value == "":
        return Text((figures.DASH,), tone)
    if isinstance(value, Estimate):
        text = _ESTIMATES.get(column.unit, figures.rate)(value)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int):
        text = figures.size(value) if column.unit == "bytes" else f"{value:,}"
    elif isinstance(value, float):
        text = f"{figures.number(value)}{f' {column.unit}' if column.unit else ''}"
    else:
        text = one_line(value)
    return Text((text,), tone, value, {column.name: value})
