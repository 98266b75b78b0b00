"""Adapters whose arrays are not what they were when they were handed out, or never were."""

from dataclasses import replace

import numpy as np
from altered import Altered, On, altering
from honest import InTurn, OverwritesWhenSent
from numpy.typing import NDArray

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch, Setup

CHANGED = On("overwrit|reuse|change|handed out")

OneRowShared = altering(
    "From batch 400 on every row is a view of row 0's memory: strides of zero, as ``broadcast_to`` makes them.",
    On("row 0"),
    since=400,
    observations=lambda _, batch: np.broadcast_to(batch.observations[:1], batch.observations.shape),
)


class Overwritten(ForLoop):
    """Overwrites its arrays with each batch and does not say so: views that a replay buffer keeps."""

    tried = CHANGED

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, reuses_buffers=False)


class OverwrittenInTurn(InTurn):
    """Has two sets of arrays in turn and does not say so: rows change after two batches."""

    tried = CHANGED
    SETS, SAYS_SO = 2, False


class OverwrittenAfterMany(OverwrittenInTurn):
    """Has 64 sets of arrays in turn and does not say so: rows change long after they were handed out."""

    SETS = 64


class WritesWhenSent(OverwritesWhenSent):
    """Overwrites its arrays in send and does not say that it reuses them: a step that is made early."""

    tried = On("overwrit|reuse|change|send|handed out")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, reuses_buffers=False)


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
