"""Adapters that meddle with the process that measures them: its clock, its loop, its judge, its answers."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from altered import Altered, On, before

from vebench.backends.interface import Batch, Setup

CLOCK = "clock|time"


def _halved(clock: Callable[[], int]) -> Callable[[], int]:
    return lambda: clock() // 2


class ClockInConstructor(Altered):
    """Makes the clock slower when it is built: the timed loop has taken its own before."""

    tried = On(CLOCK, fraud=True, harmless=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        time.perf_counter_ns = _halved(time.perf_counter_ns)


class ClockOfTheLoop(Altered):
    """Makes the clock of the loop itself slower, from its first step on."""

    tried = On(CLOCK, fraud=True)

    def due(self) -> bool:
        if self.batches == 2:
            frame: Any = sys._getframe()
            while frame is not None:
                loop = frame.f_locals.get("self")
                if type(loop).__name__ == "Loop":
                    loop._clock = _halved(loop._clock)
                    break
                frame = frame.f_back
        return False


class CountsTwice(Altered):
    """Makes the loop count each row twice."""

    tried = On("row|count|steps", fraud=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        from vebench.child import loop

        step: Any = loop.Loop._step

        def twice(self: object, *arguments: Any, **named: Any) -> tuple[Any, ...]:
            rows, *others = step(self, *arguments, **named)
            return (2 * rows, *others)

        loop.Loop._step = twice  # type: ignore[method-assign] # the fault


class BribesTheJudge(Altered):
    """Shows the observations of the step before, and makes the comparison say that rows are identical."""

    tried = On("stale|step before|observation", fraud=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for name in ("reference", "judge"):
            module: Any = sys.modules.get(f"vebench.child.equality.{name}")
            if hasattr(module, "same"):
                module.same = lambda *_: "identical"

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=before(self, batch.observations))


class WritesItsVerdict(Altered):
    """Shows the observations of the step before, and writes the answer of the comparison itself."""

    tried = On("stale|step before|observation|answer", fraud=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        proof = {"verdict": "identical", "rows": 4404, "ends": 200}
        if sys.argv[-1].isdecimal() and setup.task.exact:
            os.write(int(sys.argv[-1]), json.dumps({"Proof": proof}).encode() + b"\n")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=before(self, batch.observations))


class WritesAWindow(Altered):
    """Writes a window of its own into the answers of the cell."""

    tried = On("answer|window|clock|time", fraud=True)

    def due(self) -> bool:
        if self.batches == 3000 and not self.setup.task.exact and sys.argv[-1].isdecimal():
            window = {"ns": 500_000_000, "rows": 50_000_000, "resets": 0}
            os.write(int(sys.argv[-1]), json.dumps({"Window": window}).encode() + b"\n")
        return False
