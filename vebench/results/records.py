"""What a run file holds, as immutable records that are checked when they are read.

Rates are not here: they are derived from the raw counts whenever they are needed (``vebench.analysis``).

History of the schema:
    1  first version
"""

from __future__ import annotations

import re
from dataclasses import astuple
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from vebench.backends.environments.engines import Engine
from vebench.errors import one_line, shown
from vebench.plan.cells import CellKey
from vebench.plan.known_work import WorkVerdict  # noqa: TC001 - msgspec reads the annotations
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
    throttles: Count | None = None
    others_ns: Count | None = None
    switches: Count | None = None
    migrations: Count | None = None

    def __post_init__(self) -> None:
        if self.resets > self.rows:
            raise ValueError(f"{self.resets} resets among {self.rows} rows")

    @property
    def held_back(self) -> bool:
        """Whether a CPU quota held the cell back meanwhile: what it shows then is the quota, not the backend."""
        return bool(self.throttles or self.throttled_ns)

    @property
    def transitions(self) -> int:
        """Agent steps: rows that are not merely the report of an autoreset."""
        return self.rows - self.resets


class CellRecord(Struct, frozen=True, tag_field="type", tag="cell"):
    """One cell. Counts of a cell that never got ready are those planned.

    ``cpus`` are those asked for, worker ``i`` on the ``i``-th. Read back were ``affinity``, the CPU set of the
    measuring process, and ``seats``, that of each thread of each process, the measuring one first, as Linux lists.
    ``verdict`` is what was known of the backend's work when the cell was measured, None of a reference row, and in
    files of versions that did not know any. ``replicas`` are the CPU sets of the pools that it consists of, none if it
    is a single one; its windows are then what they did together. ``memory_policy`` was read back, ``unbound`` is why it
    is not the one asked for, ``memory_by_node`` how many bytes lay on which memory node.
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
    verdict: WorkVerdict | None = None
    verdict_reason: str = ""
    engines: tuple[Engine, ...] = ()
    seats: tuple[tuple[str, ...], ...] | None = None
    replicas: tuple[tuple[Count, ...], ...] = ()
    memory_policy: str | None = None
    unbound: str | None = None
    memory_by_node: dict[str, Count] | None = None
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


class CacheRecord(Struct, frozen=True):
    """How many data or unified caches of one level and size the machine has."""

    level: Count
    size_bytes: Count | None
    count: Positive


class TopologyRecord(Struct, frozen=True):
    """What the machine consists of, CPU sets as Linux lists; see ``vebench.machine.topology.Topology``."""

    cores: Positive
    threads_per_core: Positive
    packages: dict[str, str]
    nodes: dict[str, str]
    caches: tuple[CacheRecord, ...]
    last_level: tuple[str, ...]
    kinds: tuple[str, ...]


class HostRecord(Struct, frozen=True):
    """The machine that a run ran on: enough to tell whether two runs can be put beside each other.

    What has a default stands in no file of the first versions. See ``vebench.machine.host.Host``.
    """

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
    topology: TopologyRecord | None = None
    nodes_allowed: tuple[Count, ...] | None = None
    quota_cpus: Annotated[float, Meta(gt=0)] | None = None
    quota_source: str | None = None
    smt: bool | None = None
    governor: str | None = None
    boost: bool | None = None
    thp: str | None = None
    microcode: str | None = None
    isolated: tuple[Count, ...] = ()


class RunRecord(Struct, frozen=True, tag_field="type", tag="run"):
    """The first line of a run file: what was asked for, where, with which packages, and the command that repeats it.

    ``cells`` is how many cells were planned, None in files of earlier versions. ``fingerprint`` is the same for runs
    that can be put beside each other, see ``vebench.results.header``; the facts behind it are in ``host``.
    ``interpreter`` is the Python that cells ran in, None where it is vebench's own.
    """

    schema: int
    spec: RunSpec
    host: HostRecord
    packages: dict[str, str]
    command: str
    started: str = ""
    cells: Count | None = None
    interpreter: str | None = None
    fingerprint: str = ""


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
                throttles=window.throttles,
                others_ns=window.others_ns,
                switches=window.switches,
                migrations=window.migrations,
            )
            for window in outcome.windows
        ),
        autoreset=layout.autoreset if layout else "next_step",
        differences=tuple(one_line(text) for text in layout.differences) if layout else (),
        affinity=layout.affinity if layout else None,
        verdict=cell.known.verdict if cell.known else None,
        verdict_reason=one_line(cell.known.reason) if cell.known else "",
        engines=tuple(Engine(*map(one_line, astuple(engine))) for engine in layout.engines) if layout else (),
        seats=outcome.seats,
        replicas=tuple(pool.cpus for pool in cell.replicas),
        memory_policy=layout.memory_policy if layout else None,
        unbound=layout.unbound if layout else None,
        memory_by_node=outcome.memory_by_node,
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
        verdict=cell.verdict,
        verdict_reason=cell.verdict_reason,
    )
