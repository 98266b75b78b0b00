"""The time of a tuning: how much is left, about how long each cell takes, and for how long it is waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from vebench.analysis.forecast import AROUND_S, END_S, FORK_S, LOAD_S
from vebench.child.answers import Timed
from vebench.plan.cells import Cell, CellKey
from vebench.plan.spec import RunSpec
from vebench.results.records import CellRecord

_NANO = 1e-9
# The share that is left for the latency of batches after the race, and seconds to start the command and to answer.
_AFTERWARDS, _ANSWERING_S = 0.08, 1.0
_MOST_SLOWDOWN = 10.0  # more was a pause, which does not predict what follows
# Batches that a cell makes at least: while it warms up, and in each turn, with those before the window.
_WARMUP_BATCHES, _TURN_BATCHES = 9, 3
# A cell is given up after this many times its expected time, or this share of the budget, or these seconds.
_PATIENCE, PATIENT_SHARE, _LEAST_PATIENCE = 4.0, 0.15, 5.0
# Measuring a cell for the first time may take this share of the budget, or twice what the cheapest takes.
_MOST_SHARE, _TIMES_CHEAPEST = 0.1, 2.0


class Budget:
    """The seconds of a command, from its ``start`` to its last line.

    How long cells take is known from their own ``records``; before that, from the ``steps`` of one environment.
    """

    def __init__(self, spec: RunSpec, start: float, clock: Callable[[], float]) -> None:
        self._spec = spec
        self._clock = clock
        self._end = start + spec.budget
        self.seconds = spec.budget
        self.slowdown = 1.0  # how many times as long as expected the last cells took
        self.steps: Timed | None = None
        self.records: Mapping[CellKey, Sequence[CellRecord]] = {}

    @property
    def race_end(self) -> float:
        """When the race is over; the latency is measured after it."""
        return self._end - max(_AFTERWARDS * self.seconds, _ANSWERING_S * self.slowdown)

    @property
    def left(self) -> float:
        """The seconds that are left to race."""
        return self.race_end - self._clock()

    @property
    def left_afterwards(self) -> float:
        """The seconds that are left before the answer is written."""
        return self._end - _ANSWERING_S * self.slowdown - self._clock()

    def learn(self, began: float, expected: float) -> None:
        """Estimate how slow the machine is from work that ``began`` then and was expected to take these seconds."""
        if expected:
            self.slowdown = min(_MOST_SLOWDOWN, max(1.0, (self._clock() - began) / expected))

    @property
    def knows_starts(self) -> bool:
        """Whether any cell was measured."""
        return any(record.status == "ok" for record in chain.from_iterable(self.records.values()))

    def cost(self, cell: Cell) -> float:
        """Return about how many seconds a pass of ``cell`` takes: the time of its last one, if there was one."""
        known = [record for record in self.records.get(cell.key.without_repeat, ()) if record.status == "ok"]
        return (known[-1].took_ns or 0) * _NANO if known else self.slowdown * self.expected(cell)

    def expected(self, cell: Cell) -> float:
        """Return about how many seconds a pass of ``cell`` takes on an idle machine."""
        # Where steps are slow, the fewest batches take longer than the durations asked for.
        spec, shape = self._spec, cell.shape
        at_once = max(1, min(shape.processes * shape.threads, len(cell.cpus)))
        batch = 0.0 if self.steps is None else self.steps.step_p50_ns * _NANO * shape.batch_size / at_once
        turns = spec.windows * (max(spec.duration, _TURN_BATCHES * batch) + AROUND_S)
        return self._start_of(cell) + max(spec.warmup, _WARMUP_BATCHES * batch) + turns + END_S

    def patience(self, cell: Cell, share: float = PATIENT_SHARE) -> float:
        """Return after how many seconds ``cell`` is given up. It may always take this ``share`` of the budget."""
        most = max(_PATIENCE * self.cost(cell), share * self.seconds)
        return max(_LEAST_PATIENCE, min(most, self.left))

    def fitting(self, cells: Sequence[Cell], room: float, most: int) -> list[Cell]:
        """Return which of these cells, the likeliest first, are measured next: at most ``most``, in ``room`` seconds.

        Cells that would take too large a share of the budget are left out.
        """
        costs = [self.cost(cell) for cell in cells]
        largest = max(_MOST_SHARE * self.seconds, _TIMES_CHEAPEST * min(costs, default=0.0))
        chosen: list[Cell] = []
        for cell, cost in zip(cells, costs, strict=True):
            if len(chosen) < most and cost <= min(largest, room):
                chosen.append(cell)
                room -= cost
        return chosen

    def refusal(self, cell: Cell) -> str | None:
        """Return why ``cell`` is not started: a cell of its backend that is no larger failed, or several did."""
        failed = [
            record
            for record in chain.from_iterable(self.records.values())
            if record.label == cell.backend.label and record.status == "failed" and record.cause is None
        ]
        alike = [record for record in failed if record.num_envs <= cell.shape.num_envs or len(failed) > 1]
        if not alike:
            return None
        return f"its setting {alike[0].workers}x{alike[0].envs_per_worker} failed: {alike[0].reason}"

    def slow_start(self, cell: Cell) -> str | None:
        """Return that ``cell`` takes too long to start, None if it does not."""
        if self._start_of(cell) > _MOST_SHARE * self.seconds:
            return f"startup takes more than {_MOST_SHARE:.0%} of the time: use a larger --budget"
        return None

    def _start_of(self, cell: Cell) -> float:
        """Return about how many seconds ``cell`` takes to start."""
        shape = cell.shape
        at_once = max(1, min(shape.processes, len(cell.cpus)))
        started = [
            (record, record.startup_ns * _NANO)
            for record in chain.from_iterable(self.records.values())
            if record.startup_ns is not None
        ]
        if self.steps is not None:
            each = (self.steps.make_ns + self.steps.reset_p50_ns) * _NANO
        else:
            each = min((seconds / max(1, record.num_envs) for record, seconds in started), default=0.0)
        alike = [(record, seconds) for record, seconds in started if record.label == cell.backend.label]
        seen = [
            seconds * max(1.0, shape.processes / max(1, record.processes))
            + each * max(0, shape.num_envs - record.num_envs) / at_once
            for record, seconds in alike
        ]
        # The first cell of a backend waits until its libraries are imported, in the process that it is forked from.
        begin = FORK_S if alike else LOAD_S
        return max(begin + each * shape.num_envs / at_once, min(seen, default=0.0))
