"""Adapters that report something else about themselves than they do, or excuse what they do."""

from dataclasses import replace
from typing import Any

import numpy as np
from altered import Altered, On, altering, before, reporting
from numpy.typing import NDArray

from vebench.backends.interface import ActionSpace, Batch, Difference, Setup

EXCUSES = "excuse|declare|chance|share|cap"
INFO = "info|report|claim|chang|batch|declare"
FRAMES = On("frame", "Hopper", envs=2)

StaleExcused = altering(
    "Shows the observations of the step before, and declares a difference in every row.",
    On(EXCUSES + "|stale|step before"),
    claims={"differences": (Difference("another colour", "observations"),)},
    observations=lambda it, batch: before(it, batch.observations),
)
FrameSkipChanges = reporting(
    "Reports 8 frames in a step after 100 batches.", On(INFO + "|frame", "Hopper", envs=2), after=100, frame_skip=8
)
FewerActions = reporting(
    "Reports a smaller space of actions once it has been measured for a while.",
    On(INFO + "|action", "Acrobot"),
    after=100,
    action_space=ActionSpace.discrete(2),
)


def blank(shown: Any, hidden: Any) -> Any:
    """Return observations without some rows."""
    return np.where(hidden[:, None], np.float32(0), shown)


BlankStarts = altering(
    "Shows nothing for 16 rows after each reset and declares it.",
    On(EXCUSES + "|most|observation"),
    claims={"differences": (Difference("starts are blank", "observations", "start", 16),)},
    observations=lambda it, batch: blank(batch.observations, it.ages < 16),
)


class DeclaresLater(Altered):
    """Shows zeros in the first rows of episodes, and declares that only after it was reset."""

    tried = On(EXCUSES + "|" + INFO)

    def alter(self, batch: Batch) -> Batch:
        self.info = replace(self.info, differences=(Difference("starts are blank", "observations", "start", 2),))
        batch.observations[self.began] = 0
        return batch


class FramesTwice(Altered):
    """Counts each frame twice, and claims twice as many."""

    tried = FRAMES

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, frame_skip=2 * setup.task.frame_skip)

    def frames(self) -> NDArray[np.int64] | None:
        frames = super().frames()
        return None if frames is None else 2 * frames


class FramesStandStill(Altered):
    """Counts no frames after the first 50 batches."""

    tried = FRAMES

    def frames(self) -> NDArray[np.int64] | None:
        if self.batches <= 50 or not hasattr(self, "_frames"):
            self._frames = super().frames()
        return self._frames
