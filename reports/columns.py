"""The columns of a cell as data: one table for JSON, CSV and every other format of that kind.

A new result or counter is one line at the end of ``COLUMNS``. Each format writes in its own way what identifies a cell:
file, environment, backend, workers.
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
    """One column of the data."""

    name: str
    meaning: str
    unit: str = ""
    head: str = ""
    """The heading in the table of all cells, empty if that table omits it."""
    of: str | Callable[[CellSummary], object] = ""
    """A function that returns the value, or the path of an attribute, by default the name."""
    bounds: bool = False
    """The value is an estimate, and flat formats write its bounds as columns."""
    text: Callable[[CellSummary], str] | None = None
    """Returns a value that is a list as one text, for formats without lists."""

    @cached_property
    def value(self) -> Callable[[CellSummary], Any]:
        """The function that returns the value for a cell: a number, a text, an estimate or a list, or None."""
        if callable(self.of):
            return self.of
        path = (self.of or self.name).split(".")

        def value(cell: CellSummary) -> Any:
            found: Any = cell
            for attribute in path:
                found = None if found is None else getattr(found, attribute)
            return found

        return value


def _at(path: str, meaning: str, unit: str = "", head: str = "", *, name: str = "", bounds: bool = False) -> Column:
    """Return a column whose value is at this path, by default named as the last part."""
    return Column(name or path.rpartition(".")[2], meaning, unit, head, path, bounds)


def _estimate(path: str, meaning: str, unit: str, head: str = "") -> Column:
    return _at(path, meaning, unit, head, bounds=True)


def _cpus(cell: CellSummary) -> str:
    return format_cpu_list(cell.built.cpus)


def _codes(cell: CellSummary) -> str:
    return " ".join(finding.code for finding in cell.findings)


def _hosts(cell: CellSummary) -> list[dict[str, object]]:
    return [{"host": host, "steps_per_second": asdict(rate)} for host, rate in cell.conditions.host_rates.items()]


def _host_rates(cell: CellSummary) -> str:
    return " ".join(f"{host}={rate.median:.0f}" for host, rate in cell.conditions.host_rates.items())


def _differences(cell: CellSummary) -> str:
    return "; ".join(cell.built.differences)


def _exclusion(cell: CellSummary) -> str:
    return cell.exclusion or ""


def _proof_share(cell: CellSummary) -> float | None:
    proof = cell.work.proof
    return None if proof is None else proof.steps / max(1, proof.of_steps)


def _proof_reason(cell: CellSummary) -> str | None:
    return None if cell.work.proof is None else why_not_same(cell.work.proof)


_ACTING, _LEARNING = "figures.acting", "figures.learning"
COLUMNS: tuple[Column, ...] = (
    _at("built.num_envs", "environments alive at the same time", "environments"),
    _at("built.batch_size", "rows that one recv() returns", "rows"),
    _at("built.processes", "processes that step environments"),
    _at("built.threads", "threads that step environments, in each process"),
    Column("cpus", "numbers of the CPUs that it owns", of="built.cpus", text=_cpus),
    _at("built.frame_skip", "frames in each step", "frames"),
    _at("status", "ok, failed or skipped; ok if any pass went well"),
    _at("reason", "why it failed or was skipped"),
    _at("repeats", "passes in which it was measured, each in a fresh process"),
    _at("conditions.windows", "timed windows over all passes that went well"),
    _at("figures.rows", "rows received in these windows: steps and resets", "rows"),
    _at("figures.resets", "rows that only report a reset and are not steps", "rows"),
    _estimate("figures.steps_per_second", "steps of all environments together", "steps/s"),
    _estimate("frames_per_second", "the rate of the tables: steps x frame skip", "frames/s", "frames/s"),
    _estimate("figures.speedup", f"frames/s over those of {REFERENCE} with one worker, same run", "times", "speedup"),
    _estimate("figures.efficiency", "speedup over the number of CPUs owned", "ratio", "efficiency"),
    _estimate(
        "figures.of_ceiling", "frames/s over those of the bare simulator on the same CPUs", "ratio", "of ceiling"
    ),
    _estimate(
        "figures.frames_per_cpu_second",
        "frames per second of CPU time of the whole process tree",
        "frames/s",
        "frames/CPU s",
    ),
    _estimate("figures.ns_per_batch", "wall time from one batch to the next", "ns"),
    _at(
        "figures.startup_seconds",
        "from the process's start to the first batch, the median over passes",
        "s",
        "start-up",
    ),
    _at("figures.peak_rss_bytes", "peak memory of the whole process tree", "bytes", "memory"),
    _at("conditions.oversubscribed", "more workers, processes or threads than CPUs"),
    _at("verdict", f"whether it does the same work as {REFERENCE}; none for a reference row", head=SAME_WORK),
    Column("findings", "findings, each with a code, a message and a remedy", head="findings", text=_codes),
    _at("work.reason", "why the verdict is unverified or different, or what it is based on", name="verdict_reason"),
    _estimate("loop_ns_per_batch", "cost of the measuring loop itself, for the backend null only", "ns"),
    _at("conditions.disturbed_windows", "windows in which other processes used its CPUs"),
    Column("steps", "what it steps: any Gymnasium environment, its own classes, or others", of=what_it_steps),
    Column("differences", f"differences from {REFERENCE} that its adapter declares", of=_differences),
    Column("struck", "why its rate is excluded from comparisons; empty if it is not", of=_exclusion),
    _at(
        "work.proof.verdict",
        "verdict on its rows while it was measured; none if none were to be compared",
        name="proof",
    ),
    _at("work.proof.rows", "rows recorded in the cell that were compared", "rows", "rows compared", name="proof_rows"),
    Column("proof_share", "share of its steps that were replayed for the comparison", "ratio", of=_proof_share),
    Column("proof_reason", "why its rows were not compared, or how they differ", of=_proof_reason),
    _at(
        f"{_ACTING}.waiting",
        "share of the loop's time spent waiting for rows; none without --policy",
        "ratio",
        name="waiting_share",
    ),
    _at(f"{_ACTING}.inference", "share of the loop's time spent choosing actions", "ratio", name="inference_share"),
    _at(
        f"{_ACTING}.copies",
        "share of the loop's time spent copying observations to the policy and actions back",
        "ratio",
        name="copy_share",
    ),
    _at(f"{_ACTING}.latency_p50_ns", "from the actions of a batch to the next batch, the median", "ns"),
    _at(f"{_ACTING}.latency_p99_ns", "the same, the 99th percentile", "ns"),
    _at(f"{_ACTING}.age", "how often the policy acts between choosing an action and receiving its row, the mean"),
    _at(
        "figures.batch_sizes.mean",
        "rows per batch, the mean; none if all have batch_size",
        "rows",
        name="rows_per_batch",
    ),
    _at(
        f"{_LEARNING}.sampling",
        "share of training time spent sampling, given --learner",
        "ratio",
        name="sampling_share",
    ),
    _at(
        f"{_LEARNING}.steps_per_second",
        "steps sampled and learned from per second, given --learner",
        "steps/s",
        name="training_steps_per_second",
    ),
    _at(
        f"{_LEARNING}.at_most",
        "how many times faster training would be if sampling took no time",
        "times",
        name="at_most_faster",
    ),
    _at(
        "work.proof.environments",
        "environments that were replayed to compare its rows",
        "environments",
        name="proof_envs",
    ),
    Column(
        "hosts",
        "the rate of the replica on each host, with an interval if repeated; empty if it ran on one machine",
        "steps/s",
        of=_hosts,
        text=_host_rates,
    ),
    _at("work_in_words", "the verdict, with (before) if no row of the cell itself was compared", name="work"),
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
    rows = []
    for cell in cells:
        texts = [Text((str(value(cell)),), value=value(cell)) for _, value in identity]
        texts += [_value(column, cell) for column in values]
        rows.append(TableRow(one_line(cell.label), tuple(texts), cell.reference_row))
    heads = (*(name for name, _ in identity), *(column.head for column in values))
    notes = (" ".join(f"{column.head}: {column.meaning}." for column in values if column.unit),)
    return Table("All cells", heads, tuple(rows), notes=notes)


def _value(column: Column, cell: CellSummary) -> Text:
    rate, loop = cell.frames_per_second, cell.loop_ns_per_batch
    if column.name == "frames_per_second":
        if rate is None:
            return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
        if loop is not None:  # it has no frames, but shows the cost of the measuring loop
            return Text((figures.time(loop), "a batch"), "reference_row")
        return Text((figures.rate(rate),), "struck" if cell.excluded else "plain", rate)
    # The ratios of a reference row would read as a backend's. The loop alone has no frames.
    if (cell.reference_row and column.unit in ("times", "ratio")) or (loop and column.unit == "frames/s"):
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
