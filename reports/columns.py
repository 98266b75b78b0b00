"""The columns of a cell as data: one list for JSON, CSV and similar formats.

A new result or counter is one line at the end of ``COLUMNS``. Each format has its own way to write the identity of a
cell: file, environment, backend, workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vebench.analysis.cell import CellSummary
from vebench.analysis.statistics import Estimate
from vebench.analysis.summary import why_not_same
from vebench.backends.registry import REFERENCE
from vebench.errors import UsageError, one_line, shown
from vebench.machine.host import format_cpu_list
from vebench.reports import figures
from vebench.reports.document import Table, TableRow, Text, Tone
from vebench.reports.figures import SAME_WORK

Plain = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """One column of the data."""

    path: str  # the path of an attribute of the cell; the default name is the last part
    meaning: str
    unit: str = ""
    head: str = ""  # the heading in the table of all cells; empty if that table omits the column
    named: str = ""  # the name, if it is not the last part of ``path``
    of: Callable[[CellSummary], object] | None = None  # the function that returns a value that is not an attribute
    text: Callable[[CellSummary], str] | None = None  # the function that returns a list as text, for flat formats

    @property
    def name(self) -> str:
        """The name that users' scripts see."""
        return self.named or self.path.rpartition(".")[2]

    def value(self, cell: CellSummary) -> Any:
        """Return the value for a cell: a number, a text, an estimate, a list or None."""
        if self.of is not None:
            return self.of(cell)
        found: Any = cell
        for name in self.path.split("."):
            found = None if found is None else getattr(found, name)
        return found


class RateColumn(Column):
    """A column of estimates. Flat formats write their bounds as further columns."""


def _what_it_steps(cell: CellSummary) -> str | None:
    """Return the kind of environments that a backend steps; None for a reference row."""
    if cell.reference_row:
        return None
    if cell.built.own_classes is not None:
        return cell.built.own_classes.words
    if cell.entry.steps_gymnasium:
        return "any Gymnasium environment"
    library = cell.entry.library.title
    return f"{library}'s own environments" if library else "environments of its adapter"


def _parts_of_startup(cell: CellSummary) -> str | None:
    """Return the seconds of imports, of compiling, and of the rest up to the end of the first step, if JAX compiled."""
    found = cell.figures
    if not found.compile_seconds:
        return None
    later = (found.making_seconds or 0) + (found.reset_seconds or 0) + (found.first_step_seconds or 0)
    rest = max(0.0, later - found.compile_seconds)
    return f"{found.imports_seconds or 0:.1f} + {found.compile_seconds:.1f} + {rest:.1f} s"


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
    RateColumn("figures.steps_per_second", "steps of all environments together", "steps/s"),
    RateColumn("frames_per_second", "the rate of the tables: steps x frame skip", "frames/s", "frames/s"),
    RateColumn("speedup", f"frames/s over {REFERENCE}'s with one worker, same run", "times", "speedup"),
    RateColumn("figures.efficiency", "speedup over the number of CPUs owned", "ratio", "efficiency"),
    RateColumn("figures.of_ceiling", "frames/s over the bare simulator's on the same CPUs", "ratio", "of ceiling"),
    RateColumn("figures.frames_per_cpu_second", "frames per CPU second of all processes", "frames/s", "frames/CPU s"),
    RateColumn("figures.ns_per_batch", "wall time from one batch to the next", "ns"),
    Column("figures.startup_seconds", "median time from the process's start to the first batch", "s", "start-up"),
    Column("figures.peak_rss_bytes", "peak memory of the whole process tree", "bytes", "memory"),
    Column("conditions.oversubscribed", "more workers, processes or threads than CPUs"),
    Column("verdict", f"work status: does it do the same work as {REFERENCE}? none for reference rows", head=SAME_WORK),
    Column(
        "findings",
        "findings, each with a code, a message and a remedy",
        head="findings",
        text=lambda cell: " ".join(one.code for one in cell.findings),
    ),
    Column("work.reason", "why the work is unverified or different, or how it is known", named="verdict_reason"),
    RateColumn("loop_ns_per_batch", "cost of the measuring loop itself, for the backend null only", "ns"),
    Column("conditions.disturbed_windows", "windows in which other processes used its CPUs"),
    Column("steps", "kind of environments: any of Gymnasium, its own classes, or others", of=_what_it_steps),
    Column("differences", f"declared differences from {REFERENCE}", of=lambda cell: "; ".join(cell.built.differences)),
    Column("struck", "why its rate is excluded from comparisons, if it is", of=lambda cell: cell.exclusion or ""),
    Column("work.proof.verdict", "work status of the rows that were recorded while it was measured", named="proof"),
    Column("work.proof.rows", "rows recorded in the cell that were compared", "rows", "rows compared", "proof_rows"),
    Column(
        "proof_share",
        "share of its steps that were replayed for the comparison",
        "ratio",
        of=lambda cell: cell.work.proof and cell.work.proof.steps / max(1, cell.work.proof.of_steps),
    ),
    Column(
        "proof_reason",
        "why its rows were not compared, or how they differ",
        of=lambda cell: cell.work.proof and why_not_same(cell.work.proof),
    ),
    Column("figures.acting.waiting", "share of loop time waiting, given --policy", "ratio", named="waiting_share"),
    Column("figures.acting.inference", "share of loop time spent choosing actions", "ratio", named="inference_share"),
    Column("figures.acting.copies", "share of loop time spent on copies for the policy", "ratio", named="copy_share"),
    Column("figures.acting.latency_p50_ns", "median time from the actions of a batch to the next batch", "ns"),
    Column("figures.acting.latency_p99_ns", "99th percentile of the time from actions to the next batch", "ns"),
    Column("figures.acting.age", "staleness: mean number of policy calls between an action and its row"),
    Column("figures.rows_per_batch", "mean number of rows per batch, where it varies", "rows"),
    Column("figures.learning.sampling", "sampling's part of training (--learner)", "ratio", named="sampling_share"),
    Column("figures.learning.steps_per_second", "rate, with learning", "steps/s", named="training_steps_per_second"),
    Column("figures.learning.at_most", "gain if sampling took no time", "times", named="at_most_faster"),
    Column("work.proof.environments", "environments replayed to compare its rows", "environments", named="proof_envs"),
    Column(
        "hosts",
        "rates of the replicas; empty on one machine",
        "steps/s",
        of=lambda cell: [{"host": name, "steps_per_second": rate} for name, rate in cell.conditions.host_rates.items()],
        text=lambda cell: " ".join(f"{name}={rate.median:.0f}" for name, rate in cell.conditions.host_rates.items()),
    ),
    Column("work_in_words", "work status, with (before) if no row of the cell itself was compared", named="work"),
    Column("figures.imports_seconds", "the part of startup that imports libraries", "s"),
    Column("figures.making_seconds", "the part of startup that makes the environments", "s"),
    Column("figures.reset_seconds", "the part of startup that the first reset takes", "s"),
    RateColumn("figures.memory_per_env", "peak memory of all processes over the number of environments", "bytes"),
    RateColumn("figures.growth.bytes_per_step", "growth of memory with each step", "bytes/step", named="leak"),
    Column("figures.first_step_seconds", "the first step after startup, in which libraries compile", "s"),
    Column("figures.compile_seconds", "the part of startup and first step in which JAX compiles", "s"),
    Column("parts_of_startup", "imports + compile + rest up to the first step, if JAX compiles", of=_parts_of_startup),
    Column("figures.gpu_bytes_per_env", "peak memory on GPUs over the number of environments", "bytes"),
    RateColumn("figures.steps_per_joule", "steps/s per watt of all CPU packages and GPUs", "steps/J"),
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


def all_cells(cells: Sequence[CellSummary]) -> Table:
    """Return a table of all cells. Columns that are empty, and the task if there is only one, are left out."""
    headed, nothing = (column for column in COLUMNS if column.head), (figures.DASH,)
    values = [column for column in headed if any(of_column(column, cell).lines != nothing for cell in cells)]
    several = len({cell.env for cell in cells}) > 1
    rows = []
    for cell in cells:
        identity: list[str | int] = [cell.workers, cell.envs_per_worker]
        if several:
            identity.insert(0, one_line(cell.env))
        texts = [Text((str(value),), value=value) for value in identity]
        texts += [of_column(column, cell) for column in values]
        rows.append(TableRow(one_line(cell.label), tuple(texts), cell.reference_row))
    heads = ["workers", "envs per worker", *(column.head for column in values)]
    if several:
        heads.insert(0, "task")
    notes = (" ".join(f"{column.head}: {column.meaning}." for column in values if column.unit),)
    return Table("All cells", tuple(heads), tuple(rows), notes=notes)


def of_column(column: Column, cell: CellSummary) -> Text:
    """Return the text of ``cell`` in ``column``, a dash if the column does not apply."""
    value, unit = column.value(cell), column.unit
    tone: Tone = "struck" if cell.exclusion and unit == "frames/s" else "plain"
    # Readers would take the ratios of a reference row for a backend's. The measuring loop alone has no frames.
    if (cell.reference_row and unit in ("times", "ratio")) or (cell.loop_ns_per_batch and unit == "frames/s"):
        value = None
    elif column.text:
        value = ", ".join(dict.fromkeys(one_line(column.text(cell)).split()))
    if value is None or value == "":
        return Text((figures.DASH,))
    numbers: dict[str, Callable[[Any], str]] = {
        "bytes": figures.byte_size,
        "ns": figures.short_time,
        "ratio": "{:.0%}".format,
        "times": "{:.2f}x".format,
    }
    if isinstance(value, Estimate):
        text = figures.time(value) if unit == "ns" else figures.with_spread(value, "x" if unit == "times" else "")
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int) or (isinstance(value, float) and unit in numbers):
        text = numbers.get(unit, "{:,}".format)(value)
    elif isinstance(value, float):
        text = f"{figures.number(value)} {unit}".rstrip()
    else:
        text = one_line(value)
    return Text((text,), tone, value)
