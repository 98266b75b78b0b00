"""The columns of a cell as data: one table for JSON, CSV and every other format of that kind.

A new figure or counter is one line at the end of ``COLUMNS``. Pages show all columns on demand, and one that has a
``head`` in the table of all cells. What identifies a cell (file, environment, backend, workers) is not in it: each
format writes that in its own way.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from vebench.analysis.statistics import Estimate
from vebench.analysis.work import why_not_same
from vebench.backends.registry import REFERENCE
from vebench.errors import UsageError, one_line, shown
from vebench.machine.placement import format_cpu_list
from vebench.reports import figures
from vebench.reports.document import Table, TableRow, Text
from vebench.reports.figures import SAME_WORK, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings import Finding
    from vebench.reports.document import Tone

    Plain = str | int | float | bool | None
    Place = Callable[[CellSummary], Text]


@dataclass(frozen=True)
class Fact:
    """A number or a text; None where it does not apply."""

    name: str
    value: Callable[[CellSummary], Plain]
    meaning: str
    unit: str = ""
    head: str = ""


@dataclass(frozen=True)
class Figure:
    """An estimate, whose bounds a flat format gives columns of their own; None where it does not apply."""

    name: str
    value: Callable[[CellSummary], Estimate | None]
    meaning: str
    unit: str
    head: str = ""


@dataclass(frozen=True)
class Items:
    """Several things; ``text`` is the same for a format without lists, with spaces between them."""

    name: str
    value: Callable[[CellSummary], Sequence[object]]
    text: Callable[[CellSummary], str]
    meaning: str
    unit: str = ""
    head: str = ""


# ``meaning`` is one line for those who read the data, ``unit`` that of the value, empty if it has none. ``head`` is
# above the values in the table of all cells, empty for a column that this table leaves to the raw numbers.
Column = Fact | Figure | Items

COLUMNS: tuple[Column, ...] = (
    Fact("num_envs", lambda cell: cell.num_envs, "environments alive at the same time", "environments"),
    Fact("batch_size", lambda cell: cell.batch_size, "rows that one recv() returns", "rows"),
    Fact("processes", lambda cell: cell.processes, "processes that step environments"),
    Fact("threads", lambda cell: cell.threads, "threads that step environments, in each process"),
    Items("cpus", lambda cell: cell.cpus, lambda cell: format_cpu_list(cell.cpus), "CPUs owned, by their numbers"),
    Fact("frame_skip", lambda cell: cell.frame_skip, "frames in each step", "frames"),
    Fact("status", lambda cell: cell.status, "ok, failed or skipped; ok if any repeat went well"),
    Fact("reason", lambda cell: cell.reason, "why it failed or was skipped"),
    Fact("repeats", lambda cell: cell.repeats, "passes in which it was measured, each in a fresh process"),
    Fact("windows", lambda cell: cell.windows, "timed windows over all repeats that went well"),
    Fact("rows", lambda cell: cell.rows, "rows received in these windows: steps and resets", "rows"),
    Fact("resets", lambda cell: cell.resets, "rows that only report a reset, and are no steps", "rows"),
    Figure("steps_per_second", lambda cell: cell.steps_per_second, "steps of all environments together", "steps/s"),
    Figure(
        "frames_per_second",
        lambda cell: cell.frames_per_second,
        "the rate of the tables: steps x frame skip",
        "frames/s",
        "frames/s",
    ),
    Figure(
        "speedup",
        lambda cell: cell.speedup,
        f"frames/s over those of {REFERENCE} with one worker, same run",
        "times",
        "speedup",
    ),
    Figure("efficiency", lambda cell: cell.efficiency, "speedup over the number of CPUs owned", "ratio", "efficiency"),
    Figure(
        "of_ceiling",
        lambda cell: cell.of_ceiling,
        "frames/s over those of the bare simulator on the same CPUs",
        "ratio",
        "of ceiling",
    ),
    Figure(
        "frames_per_cpu_second",
        lambda cell: cell.frames_per_cpu_second,
        "frames for each second of CPU time of the whole process tree",
        "frames/s",
        "frames/CPU s",
    ),
    Figure("ns_per_batch", lambda cell: cell.ns_per_batch, "wall time from one batch to the next", "ns"),
    Fact(
        "startup_seconds",
        lambda cell: cell.startup_seconds,
        "from the interpreter's first line to the first batch, the median of repeats",
        "s",
        "start-up",
    ),
    Fact(
        "peak_rss_bytes", lambda cell: cell.peak_rss_bytes, "most memory of the whole process tree", "bytes", "memory"
    ),
    Fact(
        "oversubscribed",
        lambda cell: cell.oversubscribed or cell.crowded,
        "more workers, processes or threads than CPUs",
    ),
    Fact(
        "verdict",
        lambda cell: cell.verdict,
        f"whether it does the same work as {REFERENCE}; none for a reference row",
        head=SAME_WORK,
    ),
    Items(
        "findings",
        lambda cell: cell.findings,
        lambda cell: " ".join(finding.code for finding in cell.findings),
        "what was found about it, each with a code, a message and a remedy",
        head="findings",
    ),
    Fact(
        "verdict_reason",
        lambda cell: cell.verdict_reason,
        "why the verdict is unverified or different, or where else it comes from",
    ),
    Figure(
        "loop_ns_per_batch", lambda cell: cell.loop_ns_per_batch, "what the measuring loop itself costs: null", "ns"
    ),
    Fact("disturbed_windows", lambda cell: cell.disturbed_windows, "windows in which others used its CPUs"),
    Fact("steps", steps, "what it steps: any Gymnasium environment, own classes for this task, or others"),
    Fact(
        "differences", lambda cell: "; ".join(cell.differences), f"how it differs from {REFERENCE}, as its adapter says"
    ),
    Fact("struck", lambda cell: cell.why_struck, "why its rate is compared with no other; empty if it may be"),
    Fact(
        "proof",
        lambda cell: cell.proof.verdict if cell.proof else None,
        f"what it returned while it was measured, compared with {REFERENCE}; none if nothing was to be",
    ),
    Fact(
        "proof_rows",
        lambda cell: cell.proof.rows if cell.proof else None,
        "rows of the measured steps that were compared",
        "rows",
        "rows compared",
    ),
    Fact(
        "proof_share",
        lambda cell: cell.proof.steps / max(1, cell.proof.of_steps) if cell.proof else None,
        "how far its steps were made again for that",
        "ratio",
    ),
    Fact(
        "proof_reason",
        lambda cell: why_not_same(cell.proof) if cell.proof else None,
        "why what it returned was not compared, or how it differs",
    ),
    Fact(
        "waiting_share",
        lambda cell: cell.acting.waiting if cell.acting else None,
        "share of the loop's time from actions to their rows; none without --policy",
        "ratio",
    ),
    Fact(
        "inference_share",
        lambda cell: cell.acting.inference if cell.acting else None,
        "share of the loop's time in which the policy chose actions",
        "ratio",
    ),
    Fact(
        "copy_share",
        lambda cell: cell.acting.copies if cell.acting else None,
        "share of the loop's time to bring observations to the policy and actions back",
        "ratio",
    ),
    Fact(
        "latency_p50_ns",
        lambda cell: cell.acting.latency_p50_ns if cell.acting else None,
        "from the actions of a batch to the next batch, the median",
        "ns",
    ),
    Fact(
        "latency_p99_ns",
        lambda cell: cell.acting.latency_p99_ns if cell.acting else None,
        "the same, of which one batch in a hundred takes more",
        "ns",
    ),
    Fact(
        "age",
        lambda cell: cell.acting.age if cell.acting else None,
        "how often the policy acted between choosing an action and getting its row, the mean",
    ),
    Fact(
        "rows_per_batch",
        lambda cell: cell.batch_sizes.mean if cell.batch_sizes else None,
        "how many rows a batch has, the mean; none if all have batch_size",
        "rows",
    ),
    Fact(
        "sampling_share",
        lambda cell: cell.learning.sampling if cell.learning else None,
        "share of training that sampling takes, with the time of --learner",
        "ratio",
    ),
    Fact(
        "training_steps_per_second",
        lambda cell: cell.learning.steps_per_second if cell.learning else None,
        "steps sampled and learned from, with the time of --learner",
        "steps/s",
    ),
    Fact(
        "at_most_faster",
        lambda cell: cell.learning.at_most if cell.learning else None,
        "how many times faster training would be if sampling took no time",
        "times",
    ),
    Fact(
        "proof_envs",
        lambda cell: cell.proof.environments if cell.proof else None,
        "environments that were stepped again to compare what it returned",
        "environments",
    ),
    Figure(
        "delivered_bytes_per_second",
        lambda cell: cell.delivered_bytes_per_second,
        "what one consumer got of its rows, with --hosts ...[deliver=true]",
        "bytes/s",
    ),
    Items(
        "hosts",
        lambda cell: [{"host": host, "steps_per_second": asdict(rate)} for host, rate in cell.host_rates.items()],
        lambda cell: " ".join(f"{host}={rate.median:.0f}" for host, rate in cell.host_rates.items()),
        "the rate of the replica on each host, with an interval from two repeats on; empty if it ran on one machine",
        "steps/s",
    ),
    Fact("work", lambda cell: cell.work, "the verdict, with (before) if no row of the cell itself was compared"),
)


def names(option: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns in ``texts``, each once. Each text is one or more names joined by commas.

    The beginning of a name is enough if no other column has it: ``startup``. Raises UsageError for anything else.
    """
    wanted = [name.strip() for text in texts for name in text.split(",")]
    return tuple(dict.fromkeys(_name(option, beginning) for beginning in wanted))


def _name(option: str, beginning: str) -> str:
    known = [column.name for column in COLUMNS]
    found = [name for name in known if name == beginning] or [name for name in known if name.startswith(beginning)]
    if beginning and len(found) == 1:
        return found[0]
    which = f"could be {' or '.join(found)}" if beginning and found else f"no such column; there are {', '.join(known)}"
    raise UsageError(f"{option} {shown(beginning)}: {which}")


def named(name: str) -> Column:
    """Return the column of that name. Raises KeyError if there is none."""
    return {column.name: column for column in COLUMNS}[name]


def words(column: Column) -> str:
    """Return what the column is, in one line."""
    return f"{column.name}: {column.meaning}{f' ({column.unit})' if column.unit else ''}"


def with_findings(cell: CellSummary, of_run: Sequence[Finding]) -> CellSummary:
    """Return ``cell`` as it is reported: what was found of the run as a whole holds for each of its cells."""
    return replace(cell, findings=(*cell.findings, *of_run))


_RATIOS = ("times", "ratio")


def all_cells(cells: Sequence[CellSummary]) -> Table:
    """Return the table. Of what identifies a cell, it leaves out what is the same in all, such as the task.

    Findings, which take most room, come last.
    """
    identity = [*_identity(cells)]
    values = sorted((column for column in COLUMNS if column.head), key=lambda column: column.name == "findings")
    return Table(
        title="All cells",
        corner="backend",
        columns=(*(name for name, _ in identity), *(column.head for column in values)),
        rows=tuple(
            TableRow(
                one_line(cell.label),
                (*(place(cell) for _, place in identity), *(_value(column, cell) for column in values)),
                cell.reference_row,
            )
            for cell in cells
        ),
        notes=(" ".join(f"{column.head}: {column.meaning}." for column in values if column.unit),),
    )


def _identity(cells: Sequence[CellSummary]) -> Iterator[tuple[str, Place]]:
    if len({cell.env for cell in cells}) > 1:
        yield "task", lambda cell: Text((name := one_line(cell.env),), value=name)
    yield "workers", lambda cell: _counted(cell.workers)
    if len({cell.envs_per_worker for cell in cells}) > 1:
        yield "envs per worker", lambda cell: _counted(cell.envs_per_worker)


def _counted(count: int) -> Text:
    return Text((str(count),), value=count)


def _value(column: Column, cell: CellSummary) -> Text:
    if column.name == "frames_per_second":
        return _rate(cell)
    # No backend can beat a reference row: its ratios would read as those of a backend. The loop alone has no frames.
    if (cell.reference_row and column.unit in _RATIOS) or (cell.loop_ns_per_batch and column.unit == "frames/s"):
        return Text((figures.NOTHING,))
    return replace(of_column(column, cell), tone="plain")  # the whole row of a reference row is set apart


def _rate(cell: CellSummary) -> Text:
    rate = cell.frames_per_second
    if rate is None:
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if (loop := cell.loop_ns_per_batch) is not None:  # it has no frames: this is what the measuring loop costs
        return Text((figures.microseconds(loop), "a batch"), "reference_row")
    return Text((figures.rate(rate),), "struck" if cell.struck else "plain", rate)


# How estimates with these units are written; others are rates.
_ESTIMATES: dict[str, Callable[[Estimate], str]] = {
    "times": figures.times,
    "ratio": figures.ratio,
    "ns": figures.microseconds,
}


def of_column(column: Column, cell: CellSummary) -> Text:
    """Return the place of ``cell`` in a table with values of ``column``, a dash where it does not apply."""
    tone: Tone = "reference_row" if cell.reference_row else "plain"
    if isinstance(column, Items):
        text = ", ".join(dict.fromkeys(one_line(column.text(cell)).split()))
        return Text((text or figures.NOTHING,), tone, text or None)
    value = column.value(cell)
    if value is None or value == "":
        return Text((figures.NOTHING,), tone)
    text = _estimate(value, column.unit) if isinstance(value, Estimate) else _plain(value, column.unit)
    return Text((text,), tone, value, {column.name: value})


def _estimate(value: Estimate, unit: str) -> str:
    return _ESTIMATES.get(unit, figures.rate)(value)


def _plain(value: Plain, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return figures.size(value) if unit == "bytes" else f"{value:,}"
    if isinstance(value, float):
        return f"{figures.number(value)}{f' {unit}' if unit else ''}"
    return one_line(str(value))
