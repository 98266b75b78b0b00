"""What the runner tells whoever listens (the screen, the run file) while it measures. Plain immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from vebench.backends.environments.engines import Engine  # noqa: TC001 - msgspec reads the annotations
from vebench.plan.known_work import WorkVerdict  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from vebench.plan.cells import Cell, Plan


# What a cell tells is checked against these when it arrives, so that nothing absurd gets into a run file.
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# The CPUs that each thread of each process may use, as the kernel has them: the measuring process first.
Seats = tuple[tuple[Annotated[str, Meta(pattern=r"^[0-9,-]*$")], ...], ...]


@dataclass(frozen=True)
class Window:
    """One timed stretch of a cell, in raw counts.

    ``ns``: its wall time. ``rows``: rows received, of which ``resets`` only reported an autoreset, so that transitions
    are ``rows - resets``. ``cpu_ns``: CPU time of the cell's whole process tree, None where it cannot be read.
    ``throttled_ns``: time the cell's cgroup was held back by its quota, ``throttles``: how often. ``steal_ns``: time
    that the hypervisor took from the CPUs owned. ``others_ns``: time that those worked for others than the cell.
    ``switches``: how often a thread of the cell had to leave a CPU that it still wanted; ``migrations``: how often one
    was moved to another CPU. All of these are None where the system does not tell.
    """

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


@dataclass(frozen=True)
class Layout:
    """What a cell's adapter really built, as it said itself, and the CPUs that its process may use, as read back.

    ``memory_policy`` is likewise read back; ``unbound`` is why it is not what was asked for, None if it is.
    """

    num_envs: Positive
    batch_size: Positive
    processes: Count
    threads: Count
    frame_skip: Positive
    autoreset: Literal["next_step", "same_step"] = "next_step"
    differences: tuple[str, ...] = ()
    affinity: tuple[Count, ...] | None = None
    engines: tuple[Engine, ...] = ()
    memory_policy: str | None = None
    unbound: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a cell ended. A failed cell keeps the windows that it had measured. ``log`` is the end of what it printed.

    ``seats`` were read back after the warm-up; they are known of a cell that got to its end, and so is
    ``memory_by_node``, in bytes.
    ``settled`` is whether the rate had settled when warm-up ended, after ``warmup_ns``; None if nobody looked.
    """

    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    layout: Layout | None = None
    startup_ns: int | None = None
    peak_rss_bytes: int | None = None
    windows: tuple[Window, ...] = ()
    log: str = ""
    seats: Seats | None = None
    memory_by_node: dict[str, int] | None = None
    warmup_ns: int | None = None
    settled: bool | None = None


@dataclass(frozen=True)
class Parting:
    """Where a backend's row first is not the reference's. ``step`` counts from the reset, which is step 0."""

    env_id: Count
    step: Count
    field: str
    expected: str
    found: str
    size: float | None = None


@dataclass(frozen=True)
class Proof:
    """What a comparison of one backend with the reference came to.

    ``rows`` and ``ends``: rows compared, and ends of episodes among them. ``allowed``: differences that the adapter had
    declared, and that showed. ``parting`` and ``fault``: where it differs, and the known fault that explains it.
    ``reason``: why there is no verdict. ``pictures``: files that show the first observation that differs, by their
    paths. ``failed``: the backend could not be run, so that there is nothing to conclude. ``engines``: simulators of
    which the backend carries a copy of its own. ``simulated``: frames that it has simulated while it was compared, as
    ``frames_from`` counts them, of those ``claimed``; None where it cannot be asked.
    """

    verdict: WorkVerdict
    rows: Count = 0
    ends: Count = 0
    allowed: tuple[str, ...] = ()
    parting: Parting | None = None
    fault: str | None = None
    reason: str | None = None
    pictures: tuple[str, ...] = ()
    failed: bool = False
    engines: tuple[Engine, ...] = ()
    simulated: Count | None = None
    claimed: Count | None = None
    frames_from: str | None = None


@dataclass(frozen=True)
class RunStarted:
    """The first event. ``done`` cells of the plan were measured before, by the run that this one resumes."""

    plan: Plan
    done: int = 0


@dataclass(frozen=True)
class CellStarted:
    """A cell's interpreter is being started."""

    cell: Cell


@dataclass(frozen=True)
class CellReady:
    """A cell's environments are built and reset; warm-up begins. ``startup_ns`` is how long that took."""

    cell: Cell
    startup_ns: int


@dataclass(frozen=True)
class CellWarm:
    """A cell that takes turns with others is warm, and waits for its first turn."""

    cell: Cell


@dataclass(frozen=True)
class WindowDone:
    """A window of a cell has been measured."""

    cell: Cell
    window: Window


@dataclass(frozen=True)
class CellFinished:
    """A cell has ended, one way or another. Every cell of the plan gets exactly one of these, unless interrupted."""

    cell: Cell
    outcome: Outcome


Event = RunStarted | CellStarted | CellReady | CellWarm | WindowDone | CellFinished
