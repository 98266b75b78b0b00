"""What a run file holds, as immutable records that are checked when they are read.

Rates are not here: they are derived from the raw counts whenever they are needed (``vebench.analysis``).

History of the schema:
    1  first version
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from vebench.errors import one_line, shown
from vebench.plan.cells import CellKey
from vebench.plan.spec import BackendChoice, RunSpec

if TYPE_CHECKING:
    from vebench.engine.events import Outcome
    from vebench.plan.cells import Cell

SCHEMA = 1
INTERRUPTED = "interrupted"  # the reason that the engine gives for a cell which the user ended

# Bounded, so that every rate derived from them is a finite float.
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(gt=0, le=2**63 - 1)]


class WindowRecord(Struct, frozen=True):
    """One window, as ``vebench.engine.events.Window`` describes it. Times in nanoseconds."""

    ns: Positive
    rows: Count
    resets: Count
    cpu_ns: Count | None = None
    throttled_ns: Count | None = None
    steal_ns: Count | None = None

    def __post_init__(self) -> None:
        if self.resets > self.rows:
            raise ValueError(f"{self.resets} resets among {self.rows} rows")

    @property
    def transitions(self) -> int:
        """Agent steps: rows that are not merely the report of an autoreset."""
        return self.rows - self.resets


class CellRecord(Struct, frozen=True, tag_field="type", tag="cell"):
    """One cell. Counts of a cell that never got ready are those planned. ``affinity`` is the CPU set as read back.

    ``settled`` is whether the rate had settled when warm-up ended, after ``warmup_ns``; None if nobody looked.
    """

    env: str
    backend: str
    options: dict[str, bool | int | float | str]
    workers: Positive
    envs_per_worker: Positive
    num_envs: Count
    batch_size: Count
    processes: Count
    threads: Count
    cpus: tuple[Count, ...]
    frame_skip: Positive
    repeat: Count
    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    startup_ns: Count | None = None
    peak_rss_bytes: Count | None = None
    windows: tuple[WindowRecord, ...] = ()
    autoreset: str = "next_step"
    differences: tuple[str, ...] = ()
    affinity: tuple[Count, ...] | None = None
    warmup_ns: Count | None = None
    settled: bool | None = None

    @property
    def label(self) -> str:
        """The backend as a user writes it, options included: ``envpool-async[ratio=2]``."""
        return BackendChoice(self.backend, self.options).label

    @property
    def key(self) -> CellKey:
        """The cell's identity within its run, equal to ``vebench.plan.cells.Cell.key`` of the cell measured."""
        return CellKey(self.env, self.label, self.workers, self.envs_per_worker, self.repeat)

    @property
    def interrupted(self) -> bool:
        """Whether it was the user who ended the cell: that is no fault of it."""
        return self.status == "failed" and self.reason == INTERRUPTED


class HostRecord(Struct, frozen=True):
    """The machine that a run ran on: enough to tell whether two runs can be put beside each other."""

    system: str
    kernel: str
    machine: str
    cpu_model: str
    cpus_online: Positive
    cpus_allowed: tuple[Count, ...]
    usable_cpus: Positive
    memory_bytes: Count | None = None
    python: str = ""
    container: bool | None = None
    virtual: bool | None = None
    pinning: bool = True


class RunRecord(Struct, frozen=True, tag_field="type", tag="run"):
    """The first line of a run file: what was asked for, where, with which packages, and the command that repeats it.

    ``cells`` is how many cells were planned, None in files of earlier versions.
    """

    schema: int
    spec: RunSpec
    host: HostRecord
    packages: dict[str, str]
    command: str
    started: str = ""
    cells: Count | None = None


class Run(Struct, frozen=True):
    """A whole run file. ``notes`` are what a reader should know of the file itself, such as a cut-off last line."""

    header: RunRecord
    cells: tuple[CellRecord, ...]
    notes: tuple[str, ...] = ()


def record(cell: Cell, outcome: Outcome) -> CellRecord:
    """Return what the run file says of ``cell``: the counts of its layout, or those planned if it never got ready."""
    layout = outcome.layout
    counts = layout or cell.shape
    return CellRecord(
        env=cell.task.id,
        backend=cell.backend.name,
        options=dict(cell.backend.options),
        workers=cell.workers,
        envs_per_worker=cell.envs_per_worker,
        num_envs=counts.num_envs,
        batch_size=counts.batch_size,
        processes=counts.processes,
        threads=counts.threads,
        cpus=cell.cpus,
        frame_skip=layout.frame_skip if layout else cell.task.frame_skip,
        repeat=cell.repeat,
        status=outcome.status,
        reason=None if outcome.reason is None else one_line(outcome.reason),
        startup_ns=outcome.startup_ns,
        peak_rss_bytes=outcome.peak_rss_bytes,
        windows=tuple(
            WindowRecord(
                ns=window.ns,
                rows=window.rows,
                resets=window.resets,
                cpu_ns=window.cpu_ns,
                throttled_ns=window.throttled_ns,
                steal_ns=window.steal_ns,
            )
            for window in outcome.windows
        ),
        autoreset=layout.autoreset if layout else "next_step",
        differences=tuple(one_line(text) for text in layout.differences) if layout else (),
        affinity=layout.affinity if layout else None,
        warmup_ns=outcome.warmup_ns,
        settled=outcome.settled,
    )


def encode(line: CellRecord | RunRecord) -> bytes:
    """Return the line as a run file holds it. Raises ValueError, which says why, if it could not be read again."""
    try:
        data = msgspec.json.encode(line)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"what cannot be written: {error}") from None
    try:
        msgspec.json.decode(data, type=type(line))
    except msgspec.DecodeError as error:
        what, _, path = str(error).replace("`", "").partition(" - at $.")
        raise ValueError(f"{path} = {shown(str(_at(line, path)))}: {what}") from None
    return data


def _at(line: object, path: str) -> object:
    """Return the value at a path as msgspec writes it: ``windows[0].rows``."""
    value: Any = line
    for step in re.findall(r"\w+", path):
        value = value[int(step)] if step.isdecimal() else getattr(value, step)
    return value


def unreadable(cell: CellRecord, reason: str) -> CellRecord:
    """Return ``cell`` as failed for this reason, without anything that its adapter said."""
    return CellRecord(
        env=cell.env,
        backend=cell.backend,
        options=cell.options,
        workers=cell.workers,
        envs_per_worker=cell.envs_per_worker,
        num_envs=0,
        batch_size=0,
        processes=0,
        threads=0,
        cpus=cell.cpus,
        frame_skip=1,
        repeat=cell.repeat,
        status="failed",
        reason=one_line(reason),
    )
