"""Which of many settings may still be the fastest, while they are measured pass by pass. Pure functions.

A setting that is significantly slower than the leader is measured no more (successive elimination: E. Even-Dar,
S. Mannor, Y. Mansour, Action elimination and stopping conditions for the multi-armed bandit, JMLR 7, 2006). Where the
time that is left does not suffice for all others, those with the lowest rates are left out, so that the best get as
many passes as a comparison needs (sequential halving: Z. Karnin, T. Koren, O. Somekh, Almost optimal exploration in
multi-armed bandits, ICML 2013). The comparisons are those of reports: paired by passes, all of them tested together,
and each look at the data has its share of the error that is allowed in total.
``Costs`` foresees what measuring a cell takes, ``fitting`` which cells fit into the time left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, contrast, verdicts
from vebench.engine.runner import GIVEN_UP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.analysis.statistics import Sample
    from vebench.child.answers import Timed
    from vebench.plan.cells import Cell, CellKey
    from vebench.plan.spec import RunSpec
    from vebench.results.records import CellRecord

Key = TypeVar("Key")

_ERROR = 0.05  # the probability, over all looks, of giving up the best or of calling another as good
# After one pass nothing is known of how processes vary: what is below this share of the leader is given up anyway.
_HOPELESS = 0.6
# As many passes a comparison needs to be worth something.
FEWEST_PASSES = 4
_NANO = 1e-9
# Seconds until an interpreter has loaded what a cheap environment needs, and what a cell takes beside what it counts.
USUAL_START, _BESIDE = 1.0, 0.2
# Batches that a cell makes at least: while it warms up, and in each turn, with those before the window.
_WARMUP_BATCHES, _TURN_BATCHES = 9, 3
_LEAD = 0.05  # seconds that a cell steps uncounted before each window
# A cell may take this many times what was foreseen before it is given up, or this share of the whole budget.
PATIENCE, PATIENT_SHARE = 4.0, 0.15
_LEAST_PATIENCE = 5.0
MOST_SLOWDOWN = 10.0  # more was a pause, which says nothing of what comes
# Measuring a cell for the first time may take this share of the budget, or twice what the cheapest takes.
_MOST_SHARE, _TIMES_CHEAPEST = 0.1, 2.0


@dataclass(frozen=True)
class Race(Generic[Key]):
    """How a race stands: those ``alive`` may still be the fastest, the leader first.

    ``decided``: none of the others is significantly faster than the leader by more than the tolerance.
    """

    alive: tuple[Key, ...]
    decided: bool

    @property
    def leader(self) -> Key | None:
        """The setting with the highest rate, None if none has one."""
        return self.alive[0] if self.alive else None


def level_of_look(look: int) -> float:
    """Return the error that the look number ``look``, from 1 on, may make: all of them together make ``_ERROR``."""
    return _ERROR / (look * (look + 1))


def standing(rates: Mapping[Key, Sample], look: int, tolerance: float) -> Race[Key]:
    """Return how a race stands, given the rates of all that were not given up before.

    ``tolerance`` is the share of the leader's rate by which another may be faster without being missed.
    """
    rated = [key for key, rate in rates.items() if rate.rates and min(rate.rates) > 0]
    if not rated:
        return Race((), decided=False)
    leader, *others = sorted(rated, key=lambda key: rates[key].level, reverse=True)
    level, known = level_of_look(look), {key: rates[key] for key in rated}
    still = contenders(known, leader, 0.0, level)
    alive = (leader, *(key for key in others if key in still))
    return Race(alive, decided=not contenders(known, leader, tolerance, level))


def contenders(rates: Mapping[Key, Sample], key: Key, tolerance: float, level: float) -> set[Key]:
    """Return which of these positive rates may be above that of ``key`` by more than the tolerance.

    The others are not, with an error of ``level`` for all of them together.
    """
    against = {}
    for other in rates.keys() - {key}:
        # A single pass does not show how processes vary.
        alone = min(rates[other].processes, rates[key].processes) < FEWEST_FOR_INTERVAL
        against[other] = None if alone else contrast([(1.0, rates[other]), (-1.0, rates[key])])
    verdict = verdicts(against, low=1 / (1 - tolerance), level=level)
    return {
        other
        for other, found in against.items()
        if verdict[other] != "slower" and (found or rates[other].level / rates[key].level >= _HOPELESS)
    }


def affordable(race: Race[Key], passes: Mapping[Key, int], cost: Mapping[Key, float], left: float) -> tuple[Key, ...]:
    """Return those of the living that are worth a further pass, given ``left`` seconds and what a pass of each costs.

    ``passes`` is how many passes each has. As many stay as can get ``FEWEST_PASSES`` in the time that is left, the best
    first, two at least.
    """
    kept: list[Key] = []
    spent = 0.0
    for key in race.alive:
        wanted = max(1, FEWEST_PASSES - passes.get(key, 0))
        spent += cost[key] * wanted
        if spent > left and len(kept) > 1:
            break
        kept.append(key)
    return tuple(kept)


@dataclass(frozen=True)
class Costs:
    """What is known of how long cells take: by ``steps`` of one environment, and by the ``records`` so far.

    ``slowdown``: by how much longer than foreseen those have taken that were measured last, at least 1.
    """

    spec: RunSpec
    steps: Timed | None = None
    records: Mapping[CellKey, Sequence[CellRecord]] = field(default_factory=dict)
    slowdown: float = 1.0

    @property
    def measured(self) -> bool:
        """Whether any cell was measured."""
        return any(record.status == "ok" for records in self.records.values() for record in records)

    def of(self, cell: Cell) -> float:
        """Return about how many seconds a pass of ``cell`` takes."""
        known = [record for record in self.records.get(cell.key.without_repeat, ()) if record.status == "ok"]
        return self.slowdown * (_seconds(known[-1]) if known else self._start(cell) + self._measuring(cell)) + _BESIDE

    def patience(self, cell: Cell, left: float, share: float = PATIENT_SHARE) -> float:
        """Return after how many seconds the cell is given up, if ``left`` seconds are left of the budget.

        It may always take this ``share`` of the whole budget.
        """
        most = max(PATIENCE * self.of(cell), share * self.spec.budget)
        return max(_LEAST_PATIENCE, min(most, left))

    def refused(self, cell: Cell) -> str | None:
        """Return why a cell is not even started, None if it is: one of its backend, no larger, or several failed."""
        failed = [
            record
            for records in self.records.values()
            for record in records
            if record.label == cell.backend.label and record.status == "failed" and not _broken_off(record)
        ]
        alike = [record for record in failed if record.num_envs <= cell.shape.num_envs or len(failed) > 1]
        if not alike:
            return None
        return f"{alike[0].workers}x{alike[0].envs_per_worker} of it failed: {alike[0].reason}"

    def why_not(self, cell: Cell) -> str:
        """Return why there was no time for a cell."""
        start = self._start(cell)
        if start > _MOST_SHARE * self.spec.budget:
            return f"starting it takes more than {_MOST_SHARE:.0%} of the time: give a larger --budget"
        return GIVEN_UP

    def _start(self, cell: Cell) -> float:
        """Return how long it takes until the environments of a cell are built and reset."""
        shape = cell.shape
        at_once = max(1, min(shape.processes, len(cell.cpus)))
        started = [
            (record, record.startup_ns * _NANO)
            for records in self.records.values()
            for record in records
            if record.startup_ns is not None
        ]
        if self.steps is not None:
            each = (self.steps.make_ns + self.steps.reset_p50_ns) * _NANO
        else:
            each = min((seconds / max(1, record.num_envs) for record, seconds in started), default=0.0)
        seen = [
            seconds * max(1.0, shape.processes / max(1, record.processes))
            + each * max(0, shape.num_envs - record.num_envs) / at_once
            for record, seconds in started
            if record.label == cell.backend.label
        ]
        return max(USUAL_START + each * shape.num_envs / at_once, min(seen, default=0.0))

    def _measuring(self, cell: Cell) -> float:
        """Return how long a cell warms up and measures: where steps are slow, a few batches take longer than asked."""
        spec, shape = self.spec, cell.shape
        at_once = max(1, min(shape.processes * shape.threads, len(cell.cpus)))
        batch = 0.0 if self.steps is None else self.steps.step_p50_ns * _NANO * shape.batch_size / at_once
        turn = max(spec.duration + _LEAD, _TURN_BATCHES * batch)
        return max(spec.warmup, _WARMUP_BATCHES * batch) + spec.rounds * turn


def _broken_off(record: CellRecord) -> bool:
    return record.interrupted or record.reason == GIVEN_UP


def _seconds(record: CellRecord) -> float:
    counted = (record.startup_ns or 0) + (record.warmup_ns or 0) + sum(window.ns for window in record.windows)
    return counted * _NANO + _LEAD * len(record.windows)


def fitting(costs: Sequence[float], room: float, budget: float, most: int) -> list[int]:
    """Return which of the cells with these costs, the likeliest first, are measured next: ``most`` at the most.

    They take no more than ``room`` seconds together, and none of them too large a share of the ``budget``: what starts
    slowly is passed over in favour of what comes after it.
    """
    largest = max(_MOST_SHARE * budget, _TIMES_CHEAPEST * min(costs, default=0.0))
    chosen: list[int] = []
    spent = 0.0
    for number, cost in enumerate(costs):
        if len(chosen) < most and cost <= largest and spent + cost <= room:
            chosen.append(number)
            spent += cost
    return chosen
