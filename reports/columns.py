"""The columns of a cell as data: one list for JSON, CSV and similar formats.

A new result or counter is one line at the end of ``COLUMNS``. Each format has its own way to write the identity of a
cell: file, environment, backend, workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from vebench.analysis.cell import CellSummary, Finding
from vebench.analysis.statistics import Estimate
from vebench.analysis.summary import why_not_same
from vebench.backends.registry import REFERENCE
from vebench.errors import UsageError, one_line, shown
from vebench.machine.host import format_cpu_list
from vebench.reports import figures
from vebench.reports.document import Table, TableRow, Text, Tone
from vebench.reports.figures import SAME_WORK, what_it_steps

Plain = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """One column of the data."""

    path: str  # the path of an attribute of the cell; the default name is the last part
    meaning: str
    unit: str = ""
    head: str = ""  # the heading in the table of all cells; empty if that table omits the column
    named: str = ""  # the name, if it is not the last part of ``path``
    bounds: bool = False  # the value is an estimate, and flat formats write its bounds as columns
    of: Callable[[CellSummary], object] | None = None  # the function that returns a value that is not an attribute
    text: Callable[[CellSummary], str] | None = None  # the function that returns a list as text, for flat formats

    @property
    def name(self) -> str:
        """The name that users' scripts see."""
        return self.named or self.path.rpartition(".")[2]

    @cached_property
    def value(self) -> Callable[[CellSummary], Any]:
        """The function that returns the value for a cell: a number, a text, an estimate, a list or None."""
        if self.of is not None:
            return self.of
        outer, _, inner = self.path.rpartition(".")
        if not outer:
            return attrgetter(inner)
        holder, attribute = attrgetter(outer), attrgetter(inner)

        def value(cell: CellSummary) -> Any:
            found = holder(cell)
            return None if found is None else attribute(found)

        return value


def _host_rates(cell: CellSummary) -> list[dict[str, object]]:
    return [{"host": host, "steps_per_second": asdict(rate)} for host, rate in cell.conditions.host_rates.items()]


def _host_words(cell: CellSummary) -> str:
    return " ".join(f"{host}={rate.median:.0f}" for host, rate in cell.conditions.host_rates.items())


def _codes(cell: CellSummary) -> str:
    return " ".join(finding.code for finding in cell.findings)


def _differences(cell: CellSummary) -> str:
    return "; ".join(cell.built.differences)


def _proof_reason(cell: CellSummary) -> str | None:
    return None if cell.work.proof is None else why_not_same(cell.work.proof)


def _proof_share(cell: CellSummary) -> float | None:
    proof = cell.work.proof
    return None if proof is None else proof.steps / max(1, proof.of_steps)


_RATE, _SHARE = partial(Column, bounds=True), partial(Column, unit="ratio")
COLUMNS: tuple[Column, ...] = (
    Column("built.num_envs", "environments alive at the same time", "environments"),
    Column("built.batch_size", "rows that one recv() returns", "rows"),
    Column("built.processes", "processes that step environments"),
    Column("built.threads", "threads that step environments, in each process"),
    Column("built.cpus", "numbers of the CPUs that it owns", text=lambda cell: format_cpu_list(cell.built.cpus)),
    Column("built.frame_skip", "frames in each step", "frames"),
    Column("status", "ok, failed or skipped; ok if any pass went well"),
    Column("reason", "why it failed or was skipped"),
    Column("repeats", "passes in which it was measured, each in a fresh process"),
    Column("conditions.windows", "timed windows over all passes that went well"),
    Column("figures.rows", "rows received in these windows: steps and resets", "rows"),
    Column("figures.resets", "rows that only report a reset and are not steps", "rows"),
    _RATE("figures.steps_per_second", "steps of all environments together", "steps/s"),
    _RATE("frames_per_second", "the rate of the tables: steps x frame skip", "frames/s", "frames/s"),
    _RATE("figures.speedup", f"frames/s over frames/s of {REFERENCE} with one worker, same run", "times", "speedup"),
    _RATE("figures.efficiency", "speedup over the number of CPUs owned", "ratio", "efficiency"),
    _RATE("figures.of_ceiling", "frames/s over frames/s of the bare simulator on the same CPUs", "ratio", "of ceiling"),
    _RATE(
        "figures.frames_per_cpu_second", "frames per second of CPU time of all processes", "frames/s", "frames/CPU s"
    ),
    _RATE("figures.ns_per_batch", "wall time from one batch to the next", "ns"),
    Column("figures.startup_seconds", "from the process's start to the first batch, the median", "s", "start-up"),
    Column("figures.peak_rss_bytes", "peak memory of the whole process tree", "bytes", "memory"),
    Column("conditions.oversubscribed", "more workers, processes or threads than CPUs"),
    Column("verdict", f"whether it does the same work as {REFERENCE}; none for a reference row", head=SAME_WORK),
    Column("findings", "findings, each with a code, a message and a remedy", head="findings", text=_codes),
    Column("work.reason", "why the verdict is unverified or different, or its basis", named="verdict_reason"),
    _RATE("loop_ns_per_batch", "cost of the measuring loop itself, for the backend null only", "ns"),
    Column("conditions.disturbed_windows", "windows in which other processes used its CPUs"),
    Column("steps", "what it steps: any Gymnasium environment, its own classes, or others", of=what_it_steps),
    Column("differences", f"differences from {REFERENCE} that its adapter declares", of=_differences),
    Column(
        "struck", "why its rate is excluded from comparisons; empty if it is not", of=lambda cell: cell.exclusion or ""
    ),
    Column(
        "work.proof.verdict", "verdict on its rows while it was measured; none if none were compared", named="proof"
    ),
    Column("work.proof.rows", "rows recorded in the cell that were compared", "rows", "rows compared", "proof_rows"),
    Column("proof_share", "share of its steps that were replayed for the comparison", "ratio", of=_proof_share),
    Column("proof_reason", "why its rows were not compared, or how they differ", of=_proof_reason),
    _SHARE("figures.acting.waiting", "share of the loop's time spent waiting, given --policy", named="waiting_share"),
    _SHARE("figures.acting.inference", "share of the loop's time spent choosing actions", named="inference_share"),
    _SHARE(
        "figures.acting.copies", "share of the loop's time spent copying to the policy and back", named="copy_share"
    ),
    Column("figures.acting.latency_p50_ns", "from the actions of a batch to the next batch, the median", "ns"),
    Column("figures.acting.latency_p99_ns", "the same, the 99th percentile", "ns"),
    Column("figures.acting.age", "how often the policy acts between choosing an action and its row, the mean"),
    Column("figures.batch_sizes.mean", "rows per batch, the mean, where it varies", "rows", named="rows_per_batch"),
    _SHARE(
        "figures.learning.sampling", "share of training time spent sampling, given --learner", named="sampling_share"
    ),
    Column(
        "figures.learning.steps_per_second",
        "steps sampled and learned from per second, given --learner",
        "steps/s",
        named="training_steps_per_second",
    ),
    Column(
        "figures.learning.at_most", "gain if sampling took no time, given --learner", "times", named="at_most_faster"
    ),
    Column("work.proof.environments", "environments replayed to compare its rows", "environments", named="proof_envs"),
    Column("hosts", "rates of the replicas; empty on one machine", "steps/s", of=_host_rates, text=_host_words),
    Column("work_in_words", "the verdict, with (before) if no row of the cell itself was compared", named="work"),
)


def column_names(option: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns in ``texts``, each once. Each text has names separated by commas.

    The beginning of a name is enough if it is unique: ``startup``. Raises UsageError for anything else.
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
    """Return the column with this name. Raises KeyError if there is none."""
    return {column.name: column for column in COLUMNS}[name]


def with_findings(cell: CellSummary, of_run: Sequence[Finding]) -> CellSummary:
    """Return ``cell`` with the findings on the run as a whole added to its own findings."""
    return replace(cell, findings=(*cell.findings, *of_run)) if of_run else cell


# The functions that write estimates, by unit. Estimates with other units are rates.
_ESTIMATES: dict[str, Callable[[Estimate], str]] = {
    "times": figures.times,
    "ratio": partial(figures.times, sign=""),
    "ns": figures.time,
}
_NUMBERS: dict[str, Callable[[Any], str]] = {
    "bytes": figures.size,
    "ns": figures.short_time,
    "ratio": "{:.0%}".format,
    "times": "{:.2f}x".format,
}


def all_cells(cells: Sequence[CellSummary]) -> Table:
    """Return a table of all cells. Findings come last, because they need most space."""
    identity: list[tuple[str, Callable[[CellSummary], str | int]]] = [("workers", lambda cell: cell.workers)]
    if len({cell.env for cell in cells}) > 1:
        identity.insert(0, ("task", lambda cell: one_line(cell.env)))
    if len({cell.envs_per_worker for cell in cells}) > 1:
        identity.append(("envs per worker", lambda cell: cell.envs_per_worker))
    values = sorted((column for column in COLUMNS if column.head), key=lambda column: column.name == "findings")
    rows = []
    for cell in cells:
        texts = [Text((str(value(cell)),), value=value(cell)) for _, value in identity]
        texts += [of_column(column, cell) for column in values]
        rows.append(TableRow(one_line(cell.label), tuple(texts), cell.reference_row))
    heads = (*(name for name, _ in identity), *(column.head for column in values))
    notes = (" ".join(f"{column.head}: {column.meaning}." for column in values if column.unit),)
    return Table("All cells", heads, tuple(rows), notes=notes)


def of_column(column: Column, cell: CellSummary) -> Text:
    """Return the place of ``column`` and ``cell`` in a table; a dash if the column does not apply."""
    value, unit = column.value(cell), column.unit
    tone: Tone = "struck" if cell.excluded and unit == "frames/s" else "plain"
    # Readers would take the ratios of a reference row for a backend's. The measuring loop alone has no frames.
    if (cell.reference_row and unit in ("times", "ratio")) or (cell.loop_ns_per_batch and unit == "frames/s"):
        value = None
    elif column.text:
        value = ", ".join(dict.fromkeys(one_line(column.text(cell)).split()))
    if value is None or value == "":
        return Text((figures.DASH,))
    if isinstance(value, Estimate):
        text = _ESTIMATES.get(unit, figures.rate)(value)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int) or (isinstance(value, float) and unit in _NUMBERS):
        text = _NUMBERS.get(unit, "{:,}".format)(value)
    elif isinstance(value, float):
        text = f"{figures.number(value)} {unit}".rstrip()
    else:
        text = one_line(value)
    return Text((text,), tone, value)
