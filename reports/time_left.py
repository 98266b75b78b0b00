"""How long a run will still take: from its plan, and from how long its steps took so far.

A cell starts, warms up, measures windows, ends, and what it returned is compared. Only one of these steps runs at a
time, whether cells take turns or not. So the time between two events is that of the step which the later event ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import ceil
from typing import TYPE_CHECKING, Literal

from vebench.engine.events import (
    CellFinished,
    CellReady,
    CellStarted,
    CellWarm,
    ProofDone,
    ProofStarted,
    RunStarted,
    WindowDone,
)
from vebench.plan.cells import is_proven
from vebench.reports.pages.plan import STARTUP_SECONDS, proof_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vebench.engine.events import Event
    from vebench.plan.cells import Cell, CellKey, Plan
    from vebench.plan.spec import RunSpec

    Kind = tuple[str, str]  # a step, and the label of the backend that makes it

Step = Literal["start", "warm-up", "first window", "window", "end", "proof"]


class TimeLeft:
    """Follows the events of a run. ``now`` and all other times are in seconds of the same clock."""

    def __init__(self, plan: Plan, now: float) -> None:
        self._planned = _planned(plan.spec)
        self._spec = plan.spec
        self._began = self._last = now
        self._left: Counter[Kind] = Counter()
        for cell in plan.cells:
            if cell.skip is None:
                self._left.update(_kinds(cell, plan.spec))
        self._of_running: dict[tuple[CellKey, str], Counter[Kind]] = {}
        self._seconds: defaultdict[Kind, float] = defaultdict(float)
        self._count: Counter[Kind] = Counter()

    def note(self, event: Event, now: float) -> None:
        """Note that ``event`` has come at the time ``now``."""
        took, self._last = now - self._last, now
        if isinstance(event, RunStarted):
            return
        cell = event.cell
        if isinstance(event, CellStarted):
            self._of_running[cell.key, cell.side] = _kinds(cell, self._spec)
        elif isinstance(event, ProofStarted):
            return
        elif (own := self._of_running.get((cell.key, cell.side))) is not None:
            self._ended(_step(event, own, cell), took, cell, own)
            if isinstance(event, CellFinished):
                self._drop(own, keep=("proof", cell.backend.label) if event.outcome.status == "ok" else None)
            if not own.total():
                del self._of_running[cell.key, cell.side]

    def _ended(self, step: Step, took: float, cell: Cell, own: Counter[Kind]) -> None:
        kind = (step, cell.backend.label)
        self._seconds[kind] += took
        if own[kind]:  # not for a window that is measured again: the others take longer by it
            own[kind] -= 1
            self._left[kind] -= 1
            self._count[kind] += 1

    def _drop(self, own: Counter[Kind], keep: Kind | None) -> None:
        """Forget the steps of a cell that will not come, of one that failed several, but the one to ``keep``."""
        for kind in own:
            if kind != keep:
                self._left[kind] -= own[kind]
                own[kind] = 0

    @property
    def seconds(self) -> float:
        """How many seconds the steps that are left will take, if they take as long as those like them."""
        return sum(count * self._expected(kind) for kind, count in self._left.items())

    def _expected(self, kind: Kind) -> float:
        """Return what a step takes: for that backend, else for all, else as planned."""
        if self._count[kind]:
            return self._seconds[kind] / self._count[kind]
        alike = [other for other in self._count if other[0] == kind[0] and self._count[other]]
        if alike:
            return sum(self._seconds[other] for other in alike) / sum(self._count[other] for other in alike)
        return self._planned[kind[0]]

    @property
    def share(self) -> float:
        """How much of the whole time has passed, 0 to 1."""
        spent, left = self._last - self._began, self.seconds
        return spent / (spent + left) if spent + left > 0 else 1.0

    @property
    def whole_seconds(self) -> int:
        """The seconds left, at least one while a step is left: only a run that is over has none."""
        return max(1, ceil(self.seconds)) if self._left.total() else 0


def _planned(spec: RunSpec) -> Mapping[str, float]:
    """Return what each step takes by the plan, as a dry run foretells it."""
    first = spec.warmup + spec.duration
    steps = {"warm-up": spec.warmup, "first window": first, "window": spec.duration}
    return {"start": STARTUP_SECONDS, **steps, "end": 0.0, "proof": proof_seconds(spec)}


def _kinds(cell: Cell, spec: RunSpec) -> Counter[Kind]:
    """Return the steps of a cell. One that does not take turns goes from its warm-up into its first window unseen."""
    label, rounds = cell.backend.label, spec.rounds
    steps = {"start": 1, "end": 1, "proof": int(is_proven(cell, spec))}
    steps |= {"first window": 1, "window": rounds - 1} if cell.group is None else {"warm-up": 1, "window": rounds}
    return Counter({(step, label): count for step, count in steps.items()})


def _step(event: Event, own: Counter[Kind], cell: Cell) -> Step:
    """Return the step that has ended with ``event``."""
    match event:
        case CellReady():
            return "start"
        case CellWarm():
            return "warm-up"
        case WindowDone():
            return "first window" if own["first window", cell.backend.label] else "window"
        case ProofDone():
            return "proof"
        case _:
            return "end"
