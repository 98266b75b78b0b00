"""The answers of a child: JSON lines, objects whose only key is the kind of the answer. The parent checks them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal

from vebench.backends.batched.libraries import compiled
from vebench.backends.interface import Engine, OwnClasses
from vebench.errors import message_of
from vebench.machine import devices, kernel

MOST = 2**63 - 1
Counters = dict[str, "int | None"]

# The clock is read about this often in a window. A reading takes 50 ns, so this is less than 0.001 % of a one-second
# window. A window exceeds its duration by at most 2 %, unless one batch takes longer.
READINGS_PER_WINDOW = 100
MOST_TRIES = 3  # tries of a window that is throttled or disturbed
# A cell is undisturbed if the hypervisor and other processes took at most this share of its CPUs' time.
TAKEN_SHARE = 0.05


@dataclass(frozen=True)
class Watched:
    """The processes, CPUs and control groups whose counters are read for a cell."""

    processes: list[int]
    cpus: tuple[int, ...]
    groups: tuple[Path, ...]


def _sum(counts: Sequence[int], shares: Sequence[float]) -> int:
    return sum(round(count * share) for count, share in zip(counts, shares, strict=True))


def _mean(counts: Sequence[int], shares: Sequence[float]) -> int:
    return round(sum(count * share for count, share in zip(counts, shares, strict=True)) / len(counts))


def _most(counts: Sequence[int], _shares: Sequence[float]) -> int:
    return max(counts)


def _count(
    joined: Callable[[Sequence[int], Sequence[float]], int] = _sum, read: Callable[[Watched], int | None] | None = None
) -> Any:
    """Declare a count that is None if unknown. ``read`` reads it from the kernel; without ``read``, the loop counts.

    ``joined`` combines the counts of several replicas, given each one's share in the joint window.
    """
    return field(default=None, metadata={"joined": joined, "read": read})


def _others_ns(watched: Watched) -> int | None:
    """Return the CPUs' busy time minus the cell's CPU time. Only the growth of this value has a meaning."""
    busy, spent = kernel.busy_ns(watched.cpus), kernel.cpu_time_ns(watched.processes)
    return None if busy is None or spent is None else busy - spent


@dataclass(frozen=True)
class Window:
    """One timed stretch of a cell. All times are in nanoseconds."""

    ns: int  # wall time
    rows: int
    resets: int  # rows that only reported an autoreset
    # ``cpu_ns``: CPU time of the cell's process tree. ``throttled_ns`` and ``throttles``: for how long and how often a
    # CPU quota throttled its control groups. ``steal_ns``: time that the hypervisor took from its CPUs.
    cpu_ns: int | None = _count(read=lambda watched: kernel.cpu_time_ns(watched.processes))
    throttled_ns: int | None = _count(_most, lambda watched: kernel.throttling(watched.groups, "throttled_usec", 1000))
    steal_ns: int | None = _count(read=lambda watched: kernel.steal_ns(watched.cpus))
    throttles: int | None = _count(_most, lambda watched: kernel.throttling(watched.groups, "nr_throttled"))
    others_ns: int | None = _count(read=_others_ns)  # time that its CPUs worked for other processes
    # With a policy:
    waited_ns: int | None = _count(_mean)  # time between sending actions and receiving rows
    inferred_ns: int | None = _count(_mean)  # time to choose actions
    copied_ns: int | None = _count(_mean)  # time to copy observations to the policy's device, and actions back
    latency_p50_ns: int | None = _count(_mean)  # median wait for a batch
    latency_p99_ns: int | None = _count(_most)  # 99 % of the waits for a batch are at most this long
    aged: int | None = _count()  # the sum of the rows' ages; see ``Acting``
    batches: int | None = _count()  # the number of batches, if they vary in size
    steps_before: int | None = _count(_mean)  # batches that the cell had stepped when the window began
    # Resident memory of its processes shortly before the window, without the recorder's. Its growth shows leaks.
    resident_bytes: int | None = _count(lambda counts, _shares: sum(counts))
    compiles: int | None = _count(read=lambda _watched: compiled())  # programs that JAX and torch have compiled
    energy_uj: int | None = _count(_most, lambda _watched: devices.energy_uj())  # of CPU packages and GPUs

    def check_resets(self) -> None:
        """Raise ValueError for more resets than rows."""
        if self.resets > self.rows:
            raise ValueError(f"{self.resets} resets among {self.rows} rows")

    @property
    def transitions(self) -> int:
        """The number of steps: rows, except rows that only report an autoreset."""
        return self.rows - self.resets

    @property
    def taken_ns(self) -> int:
        """The time that the hypervisor and other processes took from the cell's CPUs, 0 if unknown."""
        return (self.steal_ns or 0) + (self.others_ns or 0)

    def undisturbed(self, cpus: int) -> bool:
        """Return whether no CPU quota throttled the cell, and others took little time from its ``cpus`` CPUs."""
        return not (self.throttles or self.throttled_ns or too_much(self.taken_ns, cpus * self.ns, cpus))


def too_much(taken_ns: Any, span_ns: Any, readings: Any) -> Any:
    """Return whether others took more than ``TAKEN_SHARE`` of ``span_ns`` of CPU time, beyond the error of the counts.

    ``readings``: the number of counts in the sum, one for each CPU and window, with independent errors.
    """
    # User, system and stolen time are each cut to whole ticks.
    return taken_ns > TAKEN_SHARE * span_ns + 3 * kernel.NANOSECONDS_PER_TICK * readings**0.5


_COUNTS = {item.name: item.metadata for item in fields(Window) if item.metadata}
RARE = ("compiles", "energy_uj", *(name for name, count in _COUNTS.items() if count["read"] is None))  # in few cells


def read_counters(watched: Watched) -> Counters:
    """Return the current values of the kernel's counters, by the name of the field in ``Window``."""
    return {name: count["read"](watched) for name, count in _COUNTS.items() if count["read"]}


def difference(before: Counters, after: Counters, owed: dict[str, int]) -> Counters:
    """Return the growth of each counter, None unless it could be read both times.

    ``others_ns`` is a difference of inexact counts, so it may seem negative. Then it counts as 0, and ``owed`` keeps
    the rest for the next window, so that the sum over many short windows is right.
    """
    growth: Counters = {}
    for name, first in before.items():
        second = after[name]
        if first is None or second is None:
            growth[name] = None
            continue
        total = second - first + owed.get(name, 0)
        growth[name] = None if name == "energy_uj" and total < 0 else max(0, total)  # energy is counted modulo a limit
        if name == "others_ns":
            owed[name] = min(0, total)
    return growth


def joined(windows: Sequence[Window], shares: Sequence[float], ns: int) -> Window:
    """Return one window of ``ns`` nanoseconds from several replicas' windows. It covers a share of each."""
    rows = [round(window.rows * share) for window, share in zip(windows, shares, strict=True)]
    resets = [round(window.resets * share) for window, share in zip(windows, shares, strict=True)]
    counts: Counters = {}
    for name, count in _COUNTS.items():
        values = [getattr(window, name) for window in windows]
        counts[name] = None if None in values else count["joined"](values, shares)
    return Window(ns, sum(rows), sum(map(min, resets, rows)), **counts)


WorkVerdict = Literal["identical", "equal", "equivalent", "same distribution", "unverified", "different"]


class Cause(Enum):
    """Why a cell or its comparison ended early."""

    INTERRUPTED = "interrupted"  # by the user
    GIVEN_UP = "given up"  # no time was left

    @property
    def reason(self) -> str:
        """The cause as a sentence for people."""
        return "no time was left: use a larger --budget" if self is Cause.GIVEN_UP else "interrupted"


def _integers(value: object) -> list[int]:
    if type(value) is int:
        return [value]
    return [number for item in value for number in _integers(item)] if isinstance(value, tuple) else []


@dataclass(frozen=True)
class _Counted:
    """An answer whose integers, also in tuples, must be from 0 to ``MOST``, or from 1 in ``positive`` fields."""

    positive: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            least = 1 if item.name in self.positive else 0
            for number in _integers(getattr(self, item.name)):
                if not least <= number <= MOST:
                    raise ValueError(f"{item.name} must be a whole number from {least} to {MOST}, not {number}")


@dataclass(frozen=True)
class Layout(_Counted):
    """The backend that a cell's adapter has built, and where its process may run."""

    positive = ("num_envs", "batch_size", "frame_skip")

    num_envs: int
    batch_size: int
    processes: int
    threads: int
    frame_skip: int
    autoreset: Literal["next_step", "same_step"] = "next_step"
    differences: tuple[str, ...] = ()
    affinity: tuple[int, ...] | None = None  # the CPUs that the kernel reports for the measuring process
    engines: tuple[Engine, ...] = ()
    unbound: str | None = None  # why memory is not bound as requested, None if it is
    own_classes: OwnClasses | None = None  # see ``BackendInfo``


@dataclass(frozen=True)
class Ready:
    """The environments are built and reset."""

    startup_ns: int  # time since ``main`` of the child began
    layout: Layout
    # Parts of ``startup_ns``: the first reset, importing libraries before the adapter is built, and building it.
    reset_ns: int = 0
    imports_ns: int = 0
    making_ns: int = 0


@dataclass(frozen=True)
class Warm:
    """A replica, or a cell that takes turns, is warm. It waits for the parent's signal to go on."""


@dataclass(frozen=True)
class ReplicaWindow:
    """A window of a replica."""

    start_ns: int  # when the window began, by the replica's clock. The runner converts it to its own clock.
    window: Window


@dataclass(frozen=True)
class HostShare:
    """One host's share of a cell, over all windows."""

    host: str
    steps_per_second: float  # by the host's clock
    offset_ns: int  # how far the host's clock is ahead of the runner's clock
    error_ns: int  # the largest error of ``offset_ns``
    taken_ns: int = 0  # the time that the hypervisor and others took from the cell's CPUs
    disturbed: bool = False  # whether ``taken_ns`` is too much; see ``too_much``


@dataclass(frozen=True)
class Done(_Counted):
    """All windows are measured. The fields are facts about the whole cell, None if unknown."""

    peak_rss_bytes: int | None = None  # memory of the whole process tree: the larger of two readings
    # The CPUs that each thread of each process may use, in the notation of Linux (``0-3,8``). The measuring process
    # comes first. A process whose threads had other CPUs after the last window is listed again at the end.
    seats: tuple[tuple[str, ...], ...] | None = None
    warmup_ns: int | None = None
    settled: bool | None = None  # whether the rate had settled when warm-up ended; None if this was not checked
    hosts: tuple[HostShare, ...] | None = None  # the shares of other hosts; the runner adds them
    priorities: tuple[str, ...] = ()  # thread priorities after the last window that no thread had at the start
    timed: Timed | None = None  # times of one environment, after the last window; see ``Request.times``
    peak_gpu_bytes: int | None = None  # the most memory on GPUs that JAX and torch have used
    first_step_ns: int | None = None  # the time of the first step after the reset, in which libraries may compile
    compile_ns: int | None = None  # the time for which JAX has compiled up to the end of the first step


@dataclass(frozen=True)
class Mismatch(_Counted):
    """The first row that differs from the reference's row: its environment, step, field, and both values."""

    env_id: int
    step: int  # 0 is the reset
    field: str
    expected: str
    found: str
    size: float | None = None  # the largest absolute difference, None if unknown
    leaf: str = ""  # the name of the array if observations are a dict or tuple of arrays

    @property
    def words(self) -> str:
        """The row and both values: ``environment 0, step 7: rewards 0.5 instead of 1.0 (off by 0.5)``."""
        size = "" if self.size is None else f" (off by {self.size:.3g})"
        values = f"{self.found} instead of {self.expected}{size}"
        place = f"{self.field}/{self.leaf}" if self.leaf else self.field
        return f"environment {self.env_id}, step {self.step}: {place} {values}"


@dataclass(frozen=True)
class _Compared(_Counted):
    """The result of a comparison with the reference."""

    verdict: WorkVerdict
    rows: int = 0  # the number of rows compared
    ends: int = 0  # the number of ends of episodes
    allowed: tuple[str, ...] = ()  # the declared differences that occurred
    mismatch: Mismatch | None = None  # where the backend differs
    fault: str | None = None  # the known fault that explains the mismatch
    reason: str | None = None  # why there is no verdict
    # The first reward or observation that is invalid in the environment itself, with its step.
    invalid: str | None = None


@dataclass(frozen=True)
class Proof(_Compared):
    """The result of comparing one backend with the reference."""

    failed: bool = False  # whether the backend could not be run
    engines: tuple[Engine, ...] = ()  # the backend's own copies of simulators
    own_classes: OwnClasses | None = None
    # Frames that the simulators have counted, and that the backend claims; None if not counted:
    simulated: int | None = None
    claimed: int | None = None
    fewest_ends: int = 0  # the smallest number of ends of any environment
    cut_off: int = 0  # the number of ends by a time limit
    excused: int = 0  # the number of rows with declared differences
    log: str | None = None  # the file in which the parent keeps the backend's output


@dataclass(frozen=True)
class StepCosts(_Counted):
    """The steps of one environment in a measured cell, as the comparison has repeated them."""

    batches: int  # the batches of the cell in which they were made
    steps: int
    slow: int  # the steps that took more than twice the median time of all environments' steps
    mean_ns: int  # the time of all steps and resets, divided by the number of steps
    deviation_ns: int  # the standard deviation of the times of a step or reset


@dataclass(frozen=True)
class CellProof(_Compared):
    """A sample of a measured cell's rows, compared with the reference. The cell cannot foresee which rows."""

    environments: int = 0  # the number of environments that were replayed, out of ``num_envs``
    steps: int = 0  # the steps for which each was replayed, out of ``of_steps``. Only some rows are compared.
    of_steps: int = 0
    seed: int = 0  # the seed of the random moments
    seconds: float = 0.0  # the time that the comparison took
    impossible: bool = False  # whether ``reason`` is from the table of backends, so that nothing can ever be compared
    num_envs: int = 0
    cause: Cause | None = None
    costs: tuple[StepCosts, ...] = ()  # if batches have the rows that are ready first


@dataclass(frozen=True)
class Failure:
    """The backend raised an exception. ``reason`` describes it in one line."""

    reason: str


@dataclass(frozen=True)
class Timed(_Counted):
    """Times of an environment's steps and resets, in nanoseconds. A distribution has means of up to 100 equal parts."""

    steps: int
    step_p50_ns: int
    step_p99_ns: int
    resets: int  # the number of resets: after an end, or forced
    reset_p50_ns: int
    make_ns: int = 0  # the time to make the environment
    ends: int = 0  # the number of episodes that ended in the steps
    mean_ns: int = 0  # the mean time of a step, with its share of the time of resets
    idle_ns: int = 0  # the part of ``mean_ns`` in which the environment's CPU was idle; 0 if unknown
    reset_p99_ns: int = 0
    step_ns: tuple[int, ...] = ()  # the distribution of steps
    reset_ns: tuple[int, ...] = ()  # the distribution of resets
    lengths: tuple[int, ...] = ()  # the distribution of the steps of an episode; empty if none ended

    @property
    def per_cpu(self) -> float:
        """The number of environments that keep a CPU busy: more than one if steps wait."""
        return self.mean_ns / max(1, self.mean_ns - self.idle_ns)

    @property
    def waits(self) -> bool:
        """Whether the CPU is idle for most of a step, so that it has time for further processes."""
        return self.idle_ns > self.mean_ns / 2


@dataclass(frozen=True)
class UpdateTimes:
    """Times of an algorithm's updates. Element i of ``update_ns`` has the times with ``2**i`` threads. May be empty."""

    policy: str  # the network's label, as a user writes it
    update_ns: tuple[tuple[int, ...], ...]  # the mean nanoseconds of an update, in each of several stretches
    refusal: str = ""  # why the algorithm or its network does not fit the task


Answer = Ready | Warm | ReplicaWindow | Window | Done | Proof | CellProof | Timed | UpdateTimes | Failure


def describe(error: BaseException) -> str:
    """Return the error's type and the first line of its text, in at most 500 characters. The log has the whole text."""
    text = " ".join(message_of(error).strip().partition("\n")[0].split())
    name = type(error).__name__
    return f"{name}: {text}"[:500] if text else name


def send(descriptor: int, answer: Answer) -> None:
    """Send an answer to ``descriptor``, the end of a pipe."""
    os.write(descriptor, json.dumps({type(answer).__name__: asdict(answer)}).encode() + b"\n")
