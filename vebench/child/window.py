"""A window: one timed stretch of a cell in raw counts, with the kernel's counters for the same time.

Each counter of the kernel is declared once, as a field of ``Window``: how it is read, and how the counts of several
replicas are combined. The run file stores all fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from vebench.machine import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from _typeshed import DataclassInstance

MOST = 2**63 - 1


def check_counts(record: object, kind: type[DataclassInstance], positive: tuple[str, ...] = ()) -> None:
    """Raise ValueError unless every integer in those fields of ``record`` that ``kind`` declares is a count.

    Counts are from 0 to ``MOST``, or from 1 for fields named in ``positive``. Integers in tuples, lists and
    dictionaries are checked, too; booleans are not.
    """
    for name, least in _bounds(kind, positive):
        value = getattr(record, name)
        kind = type(value)
        if (least <= value <= MOST) if kind is int else (not value or kind is str):  # nearly every field
            continue
        wrong = _outside(value, least)
        if wrong is not None:
            raise ValueError(f"{name} must be a whole number from {least} to {MOST}, not {wrong}")


@cache
def _bounds(kind: type[DataclassInstance], positive: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return the names of the fields that ``kind`` declares, each with the least count that it may hold."""
    return tuple((item.name, int(item.name in positive)) for item in fields(kind))


def _outside(value: object, least: int) -> int | None:
    """Return the first integer in ``value`` that is not from ``least`` to ``MOST``, None if there is none."""
    if isinstance(value, int):
        return None if isinstance(value, bool) or least <= value <= MOST else value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ():
        if type(item) is not str and (wrong := _outside(item, least)) is not None:
            return wrong
    return None


Counts = dict[str, "int | None"]
Joined = Literal["sum", "most", "mean"]

# The clock is read about this often in a window. At 50 ns per reading, this is less than 0.001 % of a one-second
# window, and a window exceeds its duration by at most 2 % unless one batch takes longer.
READINGS_PER_WINDOW = 100
# The share of its CPUs' time that the hypervisor and other processes may take from an undisturbed cell.
TAKEN_SHARE = 0.05
# The error of one window's count of that time on one CPU: user, system and stolen time are each cut to whole ticks.
_HIDDEN_NS = 3 * kernel.NANOSECONDS_PER_TICK


@dataclass(frozen=True)
class Watched:
    """The processes, CPUs and control groups of a cell, whose counters are read."""

    processes: list[int]
    cpus: tuple[int, ...]
    groups: tuple[Path, ...]


def _counter(read: Callable[[Watched], int | None], joined: Joined = "sum", *, owes: bool = False) -> Any:
    """Declare a counter that ``read`` returns, None if the system does not have it.

    - ``joined``: how the counts of replicas are combined: ``sum`` if each counts its own, for the time in which all of
      them ran; ``most`` if all count the same
    - ``owes``: whether a negative count is taken from the next window
    """
    return field(default=None, metadata={"read": read, "joined": joined, "owes": owes})


def _of_loop(joined: Joined) -> Any:
    """Declare a field that only some loops count, else None. ``joined``: as in ``_counter``, or the mean."""
    return field(default=None, metadata={"of_loop": True, "joined": joined})


def _others_ns(watched: Watched) -> int | None:
    """Return the time that the CPUs were busy minus the CPU time of the cell. Only differences of it have a meaning."""
    busy, spent = kernel.busy_ns(watched.cpus), kernel.cpu_time_ns(watched.processes)
    return None if busy is None or spent is None else busy - spent


@dataclass(frozen=True)
class Window:
    """One timed stretch of a cell. All times are in nanoseconds; a counter is None if unknown.

    Raises ValueError for impossible counts.
    """

    ns: int  # wall time
    rows: int
    resets: int  # rows that only reported an autoreset
    # CPU time of the cell's process tree, the time for which a CPU quota throttled its control groups, the time that
    # the hypervisor took from its CPUs, how often the quota throttled, and the time that its CPUs worked for others:
    cpu_ns: int | None = _counter(lambda watched: kernel.cpu_time_ns(watched.processes))
    throttled_ns: int | None = _counter(lambda watched: kernel.throttled_ns(watched.groups), joined="most")
    steal_ns: int | None = _counter(lambda watched: kernel.steal_ns(watched.cpus))
    throttles: int | None = _counter(lambda watched: kernel.throttles(watched.groups), joined="most")
    others_ns: int | None = _counter(_others_ns, owes=True)
    # With a policy:
    waited_ns: int | None = _of_loop("mean")  # from actions to their rows
    inferred_ns: int | None = _of_loop("mean")  # to choose actions
    copied_ns: int | None = _of_loop("mean")  # to bring observations to the policy, and actions back
    latency_p50_ns: int | None = _of_loop("mean")  # of one batch
    latency_p99_ns: int | None = _of_loop("most")
    aged: int | None = _of_loop("sum")  # how often the policy acted between an action and its row, summed over rows
    # Where batches vary in size: their number, and the rows of small, usual and large ones.
    batches: int | None = _of_loop("sum")
    rows_p5: int | None = _of_loop("mean")
    rows_p50: int | None = _of_loop("mean")
    rows_p95: int | None = _of_loop("mean")
    steps_before: int | None = _of_loop("mean")  # batches that the cell had stepped when the window began

    def __post_init__(self) -> None:
        check_counts(self, Window, positive=("ns",))
        self.check_resets()

    def check_resets(self) -> None:
        """Raise ValueError for more resets than rows."""
        if self.resets > self.rows:
            raise ValueError(f"{self.resets} resets among {self.rows} rows")

    @property
    def held_back(self) -> bool:
        """Whether a CPU quota throttled the cell: then the window measures the quota, not the backend."""
        return bool(self.throttles or self.throttled_ns)

    @property
    def taken_ns(self) -> int:
        """The time that the hypervisor and other processes took from the cell's CPUs, 0 if unknown."""
        return (self.steal_ns or 0) + (self.others_ns or 0)

    def disturbed(self, cpus: int) -> bool:
        """Return whether others took too much of the cell's ``cpus`` CPUs."""
        taken = (self.steal_ns or 0) + (self.others_ns or 0)  # ``taken_ns`` takes longer, and windows are many
        return taken > TAKEN_SHARE * cpus * self.ns and bool(too_much(taken, cpus * self.ns, cpus))

    def undisturbed(self, cpus: int) -> bool:
        """Return whether neither a CPU quota nor others kept the cell from its ``cpus`` CPUs."""
        return not (self.throttles or self.throttled_ns or self.disturbed(cpus))

    @property
    def transitions(self) -> int:
        """Steps: rows that do not only report an autoreset."""
        return self.rows - self.resets


def too_much(taken_ns: Any, span_ns: Any, readings: Any) -> Any:
    """Return whether others took more than ``TAKEN_SHARE`` of ``span_ns`` of CPU time, by more than ticks can hide.

    ``readings`` is the number of counts that were added up, one for each CPU and window. Their errors are independent,
    so the error of the sum grows with the square root. All three may be arrays of one shape.
    """
    return taken_ns > TAKEN_SHARE * span_ns + _HIDDEN_NS * readings**0.5


_COUNTERS = tuple(item for item in fields(Window) if "read" in item.metadata)
_OWING = {item.name for item in _COUNTERS if item.metadata["owes"]}
# Properties and methods that ``WindowRecord``, a window of a run file, shares.
SHOWN = ("held_back", "taken_ns", "disturbed", "undisturbed", "transitions")
OF_LOOP = tuple(item.name for item in fields(Window) if "of_loop" in item.metadata)


def read_counters(watched: Watched) -> Counts:
    """Return the kernel's counters as they are now, by the name of the field in ``Window``."""
    return {item.name: item.metadata["read"](watched) for item in _COUNTERS}


def difference(before: Counts, after: Counts, owed: dict[str, int]) -> Counts:
    """Return by how much each counter has grown, None if it could not be read both times.

    The time of others is ticks minus exact times, so that it may seem negative. Then it counts as 0, and ``owed`` keeps
    the rest for the next window, so that the sum over many short windows is right.
    """
    growth: Counts = {}
    for name, first in before.items():
        second = after[name]
        if first is None or second is None:
            growth[name] = None
            continue
        total = second - first + owed.get(name, 0)
        growth[name] = max(0, total)
        if name in _OWING:
            owed[name] = min(0, total)
    return growth


def joined(windows: Sequence[Window], shares: Sequence[float], ns: int) -> Window:
    """Return one window of ``ns`` nanoseconds, combined from the windows of several replicas.

    ``shares``: the share of each replica's window that is inside it, by which rows and counts are multiplied.
    """
    rows = [round(window.rows * share) for window, share in zip(windows, shares, strict=True)]
    resets = [round(window.resets * share) for window, share in zip(windows, shares, strict=True)]
    counts = {}
    for item in (item for item in fields(Window) if "joined" in item.metadata):
        values = [getattr(window, item.name) for window in windows]
        counts[item.name] = None if None in values else _JOINED[item.metadata["joined"]](values, shares)
    return Window(ns, sum(rows), sum(map(min, resets, rows)), **counts)


_JOINED: dict[str, Callable[[Sequence[int], Sequence[float]], int]] = {
    "sum": lambda values, shares: sum(round(value * share) for value, share in zip(values, shares, strict=True)),
    "most": lambda values, _shares: max(values),
    "mean": lambda values, shares: round(
        sum(value * share for value, share in zip(values, shares, strict=True)) / len(values)
    ),
}
