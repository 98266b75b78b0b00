"""Adapters that step nothing once they believe that nobody compares their rows. No mistake looks like this."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from altered import Altered, On, before
from numpy.typing import NDArray

from vebench.backends.interface import Batch, Setup
from vebench.child.actions import action_tape

IDLE = "not step|same row|repeat|stuck|frozen|stale|action|frame|observation"


class _Idles(Altered):
    """Returns its last rows again unless it is watched. Flags are cleared, so that no end is told twice."""

    tried = On(IDLE, fraud=True)

    def watched(self) -> bool:
        return True

    def send(self, actions: NDArray[np.generic]) -> None:
        self._idle = not self.watched()
        if not self._idle:
            super().send(actions)

    def recv(self) -> Batch:
        if getattr(self, "_idle", False):
            none = np.zeros_like(self._kept.terminated)
            return self._kept._replace(terminated=none, truncated=none)
        self._idle = False
        self._kept = super().recv()
        return self._kept


def idling(about: str, watched: Callable[[Any], bool]) -> type[_Idles]:
    """Return an adapter that steps only while it believes that it is watched."""
    return type("Idles", (_Idles,), {"__doc__": about, "__module__": __name__, "watched": watched})


SeesModules = idling(
    "Looks among the modules for those that only a comparison needs.",
    lambda _: any(name.endswith("equality.stepping") for name in sys.modules),
)
SeesVariant = idling("Steps the exact variant only.", lambda it: it.setup.task.exact)
SeesTime = idling("Steps for one second after it was built.", lambda it: time.monotonic() < it.built + 1)
SeesReferences = idling(
    "Steps while somebody keeps the rows of the batch before: who compares, keeps them.",
    lambda it: it.batches < 50 or sys.getrefcount(it._kept.observations) > 3,
)


class SeesItsCaller(_Idles):
    """Looks among its callers for what steps it for a comparison."""

    def watched(self) -> bool:
        frame: Any = sys._getframe()
        while frame is not None:
            if "stepping" in frame.f_code.co_filename or "record" in frame.f_code.co_name:
                return True
            frame = frame.f_back
        return False


class SeesTheRecorder(Altered):
    """Steps, and shows the observations of the step before unless the name of a caller says that a row is kept."""

    tried = On(IDLE, fraud=True)

    def alter(self, batch: Batch) -> Batch:
        shown = before(self, batch.observations)
        frame: Any = sys._getframe()
        while frame is not None:
            if "record" in frame.f_code.co_name or "keep" in frame.f_code.co_name:
                return batch
            frame = frame.f_back
        return batch._replace(observations=shown)


class SeesCommand(_Idles):
    """Looks at the command of its parents."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._verified = False
        parent = os.getppid()
        for _ in range(3):
            process = Path("/proc", str(parent))
            if not (process / "cmdline").exists():
                break
            self._verified |= b"verify" in (process / "cmdline").read_bytes().split(b"\0")
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])

    def watched(self) -> bool:
        return self._verified


class SeesRequest(_Idles):
    """Reads the request of its process."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._proving = True
        for argument in sys.argv[1:]:
            if argument.endswith(".json") and Path(argument).exists():
                self._proving = json.loads(Path(argument).read_text())["job"][0] == "Proving"

    def watched(self) -> bool:
        return self._proving


class SeesSteps(_Idles):
    """Steps for 6,000 batches after a reset: no comparison takes longer."""

    def reset(self, seed: int) -> None:
        self.batches = 0
        super().reset(seed)

    def watched(self) -> bool:
        return self.batches < 6000


class SeesFrames(_Idles):
    """Steps where it was asked for its frames since the last step, as a comparison asks, or never was."""

    tried = On(IDLE, "Hopper", envs=2, fraud=True)
    _asked = 3

    def frames(self) -> NDArray[np.int64] | None:
        self._asked = 3
        return super().frames()

    def watched(self) -> bool:
        self._asked -= 1
        return self._asked >= 0


class SeesReading(_Idles):
    """Steps one batch in ten: who compares few batches will see right rows most of the time, it hopes."""

    def watched(self) -> bool:
        self._count = getattr(self, "_count", 0) + 1
        return self.setup.task.exact or self._count % 10 == 0


class HalfOfThem(_Idles):
    """Steps the first half of its environments only, after 1,000 batches: those whose rows are shown, it hopes."""

    def recv(self) -> Batch:
        batch = super().recv()
        half = len(batch.env_ids) // 2
        if self.batches == 1000:
            self._frozen = [array[half:].copy() for array in batch[:-1]]
        if self.batches > 1000:
            for array, rows in zip(batch[:-1], self._frozen, strict=True):
                array[half:] = rows
        return batch


class LosesTheTrack(_Idles):
    """After 200 batches it returns one batch in another order, so that actions are no longer known, and rests."""

    def watched(self) -> bool:
        return self.batches < 201

    def alter(self, batch: Batch) -> Batch:
        return Batch._make(array[::-1].copy() for array in batch) if self.batches == 200 else batch


class Remembers(Altered):
    """Keeps all rows, and returns them without a step after another reset with the same seed: there is none."""

    tried = On(IDLE + "|reset|seed", fraud=True, harmless=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._rows: dict[int, list[Batch]] = {}

    def reset(self, seed: int) -> None:
        self._known = iter(self._rows.get(seed, []))
        self._rows[seed] = list(self._rows.get(seed, []))
        self._seed = seed
        super().reset(seed)

    def recv(self) -> Batch:
        known = next(self._known, None)
        if known is not None:
            self._actions, self._reset_done = None, False
            return known
        batch = super().recv()
        self._rows[self._seed].append(batch)
        return batch


class Foresees(Altered):
    """Draws the tape from the seed that it was built with, and makes all its steps before anything is timed."""

    tried = On(IDLE, fraud=True)

    def reset(self, seed: int) -> None:
        self._coming: deque[Batch] = deque()
        super().reset(seed)
        if not self.setup.task.exact:
            coming = [super().recv()]
            for actions in action_tape(self.info.action_space, self.setup.seed, self.info.batch_size):
                super().send(actions)
                coming.append(super().recv())
            self._coming.extend(coming)

    def send(self, actions: NDArray[np.generic]) -> None:
        if not self._coming:
            super().send(actions)

    def recv(self) -> Batch:
        return self._coming.popleft() if self._coming else super().recv()
