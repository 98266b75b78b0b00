"""The columns of a cell as data: one table for JSON, CSV and every other format of that kind.

A new figure or counter is one line at the end of ``COLUMNS``. Pages show all columns on demand, and one that has a
``head`` in the table of all cells. What identifies a cell (file, environment, backend, workers) is not in it: each
format writes that in its own way.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
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
class Column:
    """A figure of a cell.

    ``meaning`` describes the column in one line; ``unit`` is empty if the value has none. ``head`` is the heading in
    the table of all cells, empty if that table omits it. ``of`` is a function that returns the value, or the path of
    an attribute, by default the name. With ``bounds`` the value is an estimate, and flat formats write its bounds as
    columns. With ``text`` the value is a list, and ``text`` returns it as one string for formats without lists.
    """

    name: str
    meaning: str
    unit: str = ""
    head: str = ""
    of: str | Callable[[CellSummary], object] = ""
    bounds: bool = False
    text: Callable[[CellSummary], str] | None = None

    @cached_property
    def value(self) -> Callable[[CellSummary], Any]:
        """The function that returns the value for a cell: a number, a text, an estimate or a list, or None."""
        if callable(self.of):
            return self.of
        path = (self.of or self.name).split(".")

        def value(cell: CellSummary) -> Any:  # noqa: ANN401 - values of any type
            found: Any = cell
            for attribute in path:
                found = None if found is None else getattr(found, attribute)
            return found

        return value


_estimate = partial(Column, bounds=True)
COLUMNS: tuple[Column, ...] = (
    Column("num_envs", "environments alive at the same time", "environments", of="built.num_envs"),
    Column("batch_size", "rows that one recv() returns", "rows", of="built.batch_size"),
    Column("processes", "processes that step environments", of="built.processes"),
    Column("threads", "threads that step environments, in each process", of="built.threads"),
    Column(
        "cpus", "numbers of the CPUs that it owns", of="built.cpus", text=lambda cell: format_cpu_list(cell.built.cpus)
    ),
    Column("frame_skip", "frames in each step", "frames", of="built.frame_skip"),
    Column("status", "ok, failed or skipped; ok if any pass went well"),
    Column("reason", "why it failed or was skipped"),
    Column("repeats", "passes in which it was measured, each in a fresh process"),
    Column("windows", "timed windows over all passes that went well", of="conditions.windows"),
    Column("rows", "rows received in these windows: steps and resets", "rows", of="figures.rows"),
    Column("resets", "rows that only report a reset and are not steps", "rows", of="figures.resets"),
    _estimate("steps_per_second", "steps of all environments together", "steps/s", of="figures.steps_per_second"),
    _estimate("frames_per_second", "the rate of the tables: steps x frame skip", "frames/s", "frames/s"),
    _estimate(
        "speedup",
        f"frames/s over those of {REFERENCE} with one worker, same run",
        "times",
        "speedup",
        of="figures.speedup",
    ),
    _estimate("efficiency", "speedup over the number of CPUs owned", "ratio", "efficiency", of="figures.efficiency"),
    _estimate(
        "of_ceiling",
        "frames/s over those of the bare simulator on the same CPUs",
        "ratio",
        "of ceiling",
        of="figures.of_ceiling",
    ),
    _estimate(
        "frames_per_cpu_second",
        "frames per second of CPU time of the whole process tree",
        "frames/s",
        "frames/CPU s",
        of="figures.frames_per_cpu_second",
    ),
    _estimate("ns_per_batch", "wall time from one batch to the next", "ns", of="figures.ns_per_batch"),
    Column(
        "startup_seconds",
        "from the process's start to the first batch, the median over passes",
        "s",
        "start-up",
        of="figures.startup_seconds",
    ),
    Column("peak_rss_bytes", "peak memory of the whole process tree", "bytes", "memory", of="figures.peak_rss_bytes"),
    Column(
        "oversubscribed",
        "more workers, processes or threads than CPUs",
        of="conditions.oversubscribed",
    ),
    Column("verdict", f"whether it does the same work as {REFERENCE}; none for a reference row", head=SAME_WORK),
    Column(
        "findings",
        "findings, each with a code, a message and a remedy",
        head="findings",
        text=lambda cell: " ".join(finding.code for finding in cell.findings),
    ),
    Column("verdict_reason", "why the verdict is unverified or different, or what it is based on", of="work.reason"),
    _estimate("loop_ns_per_batch", "cost of the measuring loop itself, for the backend null only", "ns"),
    Column("disturbed_windows", "windows in which other processes used its CPUs", of="conditions.disturbed_windows"),
    Column("steps", "what it steps: any Gymnasium environment, its own classes, or others", of=what_it_steps),
    Column(
        "differences",
        f"differences from {REFERENCE} that its adapter declares",
        of=lambda cell: "; ".join(cell.built.differences),
    ),
    Column(
        "struck", "why its rate is excluded from comparisons; empty if it is not", of=lambda cell: cell.exclusion or ""
    ),
    Column(
        "proof", "verdict on its rows while it was measured; none if none were to be compared", of="work.proof.verdict"
    ),
    Column("proof_rows", "rows recorded in the cell that were compared", "rows", "rows compared", of="work.proof.rows"),
    Column(
        "proof_share",
        "share of its steps that were replayed for the comparison",
        "ratio",
        of=lambda cell: (proof := cell.work.proof) and proof.steps / max(1, proof.of_steps),
    ),
    Column(
        "proof_reason",
        "why its rows were not compared, or how they differ",
        of=lambda cell: why_not_same(cell.work.proof) if cell.work.proof else None,
    ),
    Column(
        "waiting_share",
        "share of the loop's time spent waiting for rows; none without --policy",
        "ratio",
        of="figures.acting.waiting",
    ),
    Column(
        "inference_share", "share of the loop's time spent choosing actions", "ratio", of="figures.acting.inference"
    ),
    Column(
        "copy_share",
        "share of the loop's time spent copying observations to the policy and actions back",
        "ratio",
        of="figures.acting.copies",
    ),
    Column(
        "latency_p50_ns",
        "from the actions of a batch to the next batch, the median",
        "ns",
        of="figures.acting.latency_p50_ns",
    ),
    Column("latency_p99_ns", "the same, the 99th percentile", "ns", of="figures.acting.latency_p99_ns"),
    Column(
        "age",
        "how often the policy acts between choosing an action and receiving its row, the mean",
        of="figures.acting.age",
    ),
    Column(
        "rows_per_batch", "rows per batch, the mean; none if all have batch_size", "rows", of="figures.batch_sizes.mean"
    ),
    Column(
        "sampling_share",
        "share of training time spent sampling, given --learner",
        "ratio",
        of="figures.learning.sampling",
    ),
    Column(
        "training_steps_per_second",
        "steps sampled and learned from per second, given --learner",
        "steps/s",
        of="figures.learning.steps_per_second",
    ),
    Column(
        "at_most_faster",
        "how many times faster training would be if sampling took no time",
        "times",
        of="figures.learning.at_most",
    ),
    Column(
        "proof_envs",
        "environments that were replayed to compare its rows",
        "environments",
        of="work.proof.environments",
    ),
    Column(
        "hosts",
        "the rate of the replica on each host, with an interval if repeated; empty if it ran on one machine",
        "steps/s",
        of=lambda cell: [
            {"host": host, "steps_per_second": asdict(rate)} for host, rate in cell.conditions.host_rates.items()
        ],
        text=lambda cell: " ".join(f"{host}={rate.median:.0f}" for host, rate in cell.conditions.host_rates.items()),
    ),
    Column("work", "the verdict, with (before) if no row of the cell itself was compared", of="work_in_words"),
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
            raise UsageError(f"{option} {shown(beginning)}: {what or 'no such column; known: ' + ', '.join(known)}")
        names[found[0]] = None
    return tuple(names)


def column_named(name: str) -> Column:
    """Return the column of that name. Raises KeyError if there is none."""
    return {column.name: column for column in COLUMNS}[name]


def with_findings(cell: CellSummary, of_run: Sequence[Finding]) -> CellSummary:
    """Return ``cell`` with the findings on the run as a whole added to its own, as reports show it."""
    return replace(cell, findings=(*cell.findings, *of_run)) if of_run else cell


# How estimates with these units are written; others are rates.
_ESTIMATES: dict[str, Callable[[Estimate], str]] = {
    "times": figures.times,
    "ratio": partial(figures.times, sign=""),
    "ns": figures.time,
}


def all_cells(cells: Sequence[CellSummary]) -> Table:
    """Return all cells as a table. Findings, which take most room, come last."""
    identity: list[tuple[str, Callable[[CellSummary], str | int]]] = [("workers", lambda cell: cell.workers)]
    if len({cell.env for cell in cells}) > 1:
        identity.insert(0, ("task", lambda cell: one_line(cell.env)))
    if len({cell.envs_per_worker for cell in cells}) > 1:
        identity.append(("envs per worker", lambda cell: cell.envs_per_worker))
    values = sorted((column for column in COLUMNS if column.head), key=lambda column: column.name == "findings")
    return Table(
        title="All cells",
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


def _value(column: Column, cell: CellSummary) -> Text:
    if column.name == "frames_per_second":
        if (rate := cell.frames_per_second) is None:
            return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
        if (loop := cell.loop_ns_per_batch) is not None:  # it has no frames: this is what the measuring loop costs
            return Text((figures.time(loop), "a batch"), "reference_row")
        return Text((figures.rate(rate),), "struck" if cell.excluded else "plain", rate)
    # A reference row is no backend: its ratios would read as those of a backend. The loop alone has no frames.
    if (cell.reference_row and column.unit in ("times", "ratio")) or (
        cell.loop_ns_per_batch and column.unit == "frames/s"
    ):
        return Text((figures.DASH,))
    return replace(of_column(column, cell), tone="plain")  # the whole row of a reference row is set apart


def of_column(column: Column, cell: CellSummary) -> Text:
    """Return the table entry of ``column`` for ``cell``, a dash where it does not apply."""
    tone: Tone = "reference_row" if cell.reference_row else "plain"
    value = column.value(cell)
    if column.text:
        value = ", ".join(dict.fromkeys(one_line(column.text(cell)).split()))
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
    return Text((text,), tone, value)
