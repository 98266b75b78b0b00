"""Adapters whose arrays are not what they were when they were handed out, or never were."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from altered import Altered, On

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup


class Overwritten(ForLoop):
    """Overwrites its arrays with each batch and does not say so: views that a replay buffer keeps."""

    tried = On("overwrit|reuse|change|handed out")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, reuses_buffers=False)


class OverwrittenInTurn(Altered):
    """Has two sets of arrays in turn and does not say so: rows change after two batches."""

    tried = On("overwrit|reuse|change|handed out")
    SETS = 2

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._sets = [Batch._make(array.copy() for array in self._batch) for _ in range(self.SETS)]

    def alter(self, batch: Batch) -> Batch:
        mine = self._sets[self.batches % self.SETS]
        for array, now in zip(mine, batch, strict=True):
            np.copyto(array, now)
        return mine


class OverwrittenAfterMany(OverwrittenInTurn):
    """Has 64 sets of arrays in turn and does not say so: rows change long after they were handed out."""

    SETS = 64


class FlagsOverwritten(Altered):
    """Copies observations, but its flags are overwritten: a copy that was forgotten."""

    tried = On("overwrit|reuse|change|handed out")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(terminated=self._batch.terminated, truncated=self._batch.truncated)


class RewardsOverwritten(Altered):
    """Copies all but its rewards, which it clears before the next step."""

    tried = On("overwrit|reuse|change|handed out")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=self._batch.rewards)

    def send(self, actions: NDArray[np.generic]) -> None:
        self._batch.rewards.fill(0.0)
        super().send(actions)


class WritesWhenSent(ForLoop):
    """Overwrites its arrays in send and does not say that it reuses them: a step that is made early."""

    tried = On("overwrit|reuse|change|send|handed out")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, reuses_buffers=False)

    def send(self, actions: NDArray[np.generic]) -> None:
        self._loop.step(actions)
        self._sent = True

    def recv(self) -> Batch:
        if getattr(self, "_sent", False):
            self._sent = False
            return self._batch
        return super().recv()


class PreviousAtWrap(Altered):
    """Every 64th batch is the one before it: a ring of which the first place is read too early."""

    tried = On("stale|step before|previous|repeat|same")

    def alter(self, batch: Batch) -> Batch:
        last, self._last = getattr(self, "_last", batch), batch
        return last if self.batches % 64 == 0 else batch


class ShownAhead(Altered):
    """Overwrites the rows it handed out last with those of now: one buffer too few."""

    tried = On("overwrit|reuse|change|handed out")

    def alter(self, batch: Batch) -> Batch:
        last, self._last = getattr(self, "_last", batch), batch
        np.copyto(last.observations, batch.observations)
        return batch


class OneRowShared(Altered):
    """From batch 400 on every row is a view of row 0's memory: strides of zero, as ``broadcast_to`` makes them."""

    tried = On("row 0")

    def due(self) -> bool:
        return self.batches > 400

    def alter(self, batch: Batch) -> Batch:
        first: NDArray[Any] = np.broadcast_to(batch.observations[:1], batch.observations.shape)
        return batch._replace(observations=first)


class ScribblesOnActions(Altered):
    """Scales the caller's actions in place after the step: at the tape's second turn they are others."""

    tried = On("action", "Pendulum")

    def send(self, actions: NDArray[np.generic]) -> None:
        self._sent = actions
        super().send(actions.copy())

    def alter(self, batch: Batch) -> Batch:
        if hasattr(self, "_sent"):
            np.multiply(self._sent, 0.5, out=self._sent)
        return batch
