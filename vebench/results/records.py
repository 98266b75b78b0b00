"""What a run file holds, as immutable records that are checked when they are read.

Rates are not here: they are derived from the raw counts whenever they are needed (``vebench.analysis``).

History of the schema:
    1  first version
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from vebench.plan.spec import RunSpec  # noqa: TC001 - msgspec reads the annotations

SCHEMA = 1

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(gt=0)]


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
    """One cell. Counts of a cell that never got ready are those planned. ``affinity`` is the CPU set as read back."""

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
    """The first line of a run file: what was asked for, where, with which packages, and the command that repeats it."""

    schema: int
    spec: RunSpec
    host: HostRecord
    packages: dict[str, str]
    command: str
    started: str = ""


class Run(Struct, frozen=True):
    """A whole run file. ``notes`` are what a reader should know of the file itself, such as a cut-off last line."""

    header: RunRecord
    cells: tuple[CellRecord, ...]
    notes: tuple[str, ...] = ()
