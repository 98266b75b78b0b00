"""Several pools that make up one cell, heard as one: started together, and counted only while all of them ran.

Each is a conversation of its own; where their processes run does not matter here, only that their clocks agree.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.events import Layout, Window
from vebench.engine.messages import Done, Failure, Lap, Ready, Warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.engine.messages import Message

# How long after the last pool is warm the first window begins: the time for each of them to hear of it.
LEAD_NS = 50_000_000
# Of a pool's window, the least that must be common to all.
LEAST_COMMON = 0.5

T = TypeVar("T")


class Pool(Protocol):
    """One pool that runs."""

    def messages(self) -> Iterator[Message]:
        """Yield what it tells."""

    def start(self, at_ns: int) -> None:
        """Tell it when its first window begins, by the clock that all pools share."""

    def log(self) -> str:
        """Return the end of what it printed."""


class FailedPoolError(Exception):
    """A pool has failed; ``failure`` says which, and why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Ensemble:
    """The pools of a cell as one conversation. ``rounds`` is the number of windows."""

    def __init__(self, pools: Sequence[Pool], rounds: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._pools = pools
        self._rounds = rounds
        self._clock = clock

    def messages(self) -> Iterator[Message]:
        """Yield what they tell together, to ``Done`` or ``Failure``. Raises CellError if none will come."""
        streams = [pool.messages() for pool in self._pools]
        try:
            ready = _each(streams, Ready)
            yield Ready(max(one.startup_ns for one in ready), together([one.layout for one in ready]))
            _each(streams, Warm)
            start = self._clock() + LEAD_NS
            for pool in self._pools:
                pool.start(start)
            for _ in range(self._rounds):
                yield common(_each(streams, Lap))
            done = _each(streams, Done)
            yield Done(
                peak_rss_bytes=_sum([one.peak_rss_bytes for one in done]),
                seats=_joined([one.seats for one in done]),
                memory_by_node=_by_node(done),
            )
        except FailedPoolError as error:
            yield error.failure

    def take_turn(self) -> None:
        """Do nothing: pools that keep in step with each other take no turns."""

    def rest(self) -> None:
        """Do nothing, for the same reason."""

    def log(self) -> str:
        """Return the ends of what the pools printed, each under its number."""
        texts = [pool.log() for pool in self._pools]
        return "".join(f"replica {number}:\n{text}\n" for number, text in enumerate(texts) if text)


def _each(streams: Sequence[Iterator[Message]], kind: type[T]) -> list[T]:
    """Return the next message of each pool. Raises FailedPoolError for a failure, and CellError for another kind."""
    found: list[T] = []
    for number, stream in enumerate(streams):
        try:
            message = next(stream)
        except InterruptedCellError:  # that was the user, and is no replica's
            raise
        except CellError as error:
            raise CellError(f"replica {number}: {error}") from None
        if isinstance(message, Failure):
            raise FailedPoolError(Failure(f"replica {number}: {message.reason}"))
        if not isinstance(message, kind):
            raise CellError(f"replica {number} told {type(message).__name__} out of turn")
        found.append(message)
    return found


def together(layouts: Sequence[Layout]) -> Layout:
    """Return the layout of all pools."""
    affinities = [layout.affinity for layout in layouts]
    return replace(
        layouts[0],
        num_envs=sum(layout.num_envs for layout in layouts),
        batch_size=sum(layout.batch_size for layout in layouts),
        processes=sum(layout.processes for layout in layouts),
        threads=max(layout.threads for layout in layouts),
        affinity=_joined(affinities),
    )


def common(laps: Sequence[Lap]) -> Window:
    """Return the window in which all pools ran: what each did in it, by its own rate, added up.

    Raises CellError if they hardly ran at the same time.
    """
    begin = max(lap.start_ns for lap in laps)
    end = min(lap.start_ns + lap.window.ns for lap in laps)
    if end - begin < LEAST_COMMON * max(lap.window.ns for lap in laps):
        raise CellError("replicas hardly ran at the same time: a longer --duration would hold more batches")
    shares = [(end - begin) / lap.window.ns for lap in laps]
    windows = [lap.window for lap in laps]
    rows = [round(window.rows * share) for window, share in zip(windows, shares, strict=True)]
    resets = [round(window.resets * share) for window, share in zip(windows, shares, strict=True)]
    cpu = [
        None if window.cpu_ns is None else round(window.cpu_ns * share)
        for window, share in zip(windows, shares, strict=True)
    ]
    return Window(
        ns=end - begin,
        rows=sum(rows),
        resets=sum(map(min, resets, rows)),
        cpu_ns=_sum(cpu),
        # Of the control group that they share, each tells the same.
        throttled_ns=_most([window.throttled_ns for window in windows]),
        throttles=_most([window.throttles for window in windows]),
        steal_ns=_sum([window.steal_ns for window in windows]),
        others_ns=_sum([window.others_ns for window in windows]),
        switches=_sum([window.switches for window in windows]),
        migrations=_sum([window.migrations for window in windows]),
    )


def _most(values: Sequence[int | None]) -> int | None:
    return None if None in values else max(filter(None, values), default=0)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _joined(values: Sequence[tuple[T, ...] | None]) -> tuple[T, ...] | None:
    """Return the entries of all; None if one of them is not known."""
    known = [value for value in values if value is not None]
    return tuple(item for value in known for item in value) if len(known) == len(values) else None


def _by_node(done: Sequence[Done]) -> dict[str, int] | None:
    known = [one.memory_by_node for one in done if one.memory_by_node is not None]
    if len(known) != len(done):
        return None
    nodes = sorted({node for one in known for node in one})
    return {node: sum(one.get(node, 0) for one in known) for node in nodes}
