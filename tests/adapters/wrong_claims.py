"""Adapters that report something else about themselves than they do, or excuse what they do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from altered import Altered, On, shown_before

from vebench.backends.interface import ActionSpace, Difference
from vebench.backends.setup import Engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Batch, Setup

EXCUSES = "excuse|declare|chance|share|cap"
INFO = "info|report|claim|chang|batch|declare"


class ChanceExcuses(Altered):
    """Shows the observations of the step before, and says that it draws its starts itself."""

    tried = On(EXCUSES + "|stale|step before", fraud=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, chance="it draws the start with a generator of its own")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=shown_before(self, batch))


class StaleExcused(Altered):
    """Shows the observations of the step before, and declares a difference in every row."""

    tried = On(EXCUSES + "|stale|step before")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, differences=(Difference("another colour", "observations"),))

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=shown_before(self, batch))


class BlankStarts(Altered):
    """Shows nothing for 16 rows after each reset and declares it: on this task these are most rows."""

    tried = On(EXCUSES + "|most|observation")
    ROWS = 16

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, differences=self.declared())
        self.ages = np.zeros(setup.batch_size, np.int64)

    def declared(self) -> tuple[Difference, ...]:
        return (Difference("starts are blank", "observations", "start", self.ROWS),)

    def alter(self, batch: Batch) -> Batch:
        self.ages = np.where(self.began | (self.batches == 1), 0, self.ages + 1)
        batch.observations[self.ages < self.ROWS] = 0
        return batch


class BlankStartsOfAll(BlankStarts):
    """Declares all fields at the start and the end of each episode, and shows nothing for 16 rows."""

    def declared(self) -> tuple[Difference, ...]:
        fields = ("observations", "rewards", "terminated", "truncated")
        starts = tuple(Difference("starts are blank", name, "start", self.ROWS) for name in fields)
        return (*starts, *(Difference("ends are blank", name, "end") for name in fields))

    def alter(self, batch: Batch) -> Batch:
        batch = super().alter(batch)
        batch.rewards[self.ages < self.ROWS] = 0
        return batch


class DeclaresLater(Altered):
    """Shows zeros in the first rows of episodes, and declares that only after it was reset."""

    tried = On(EXCUSES + "|" + INFO)

    def due(self) -> bool:
        self.info = replace(self.info, differences=(Difference("starts are blank", "observations", "start", 2),))
        return True

    def alter(self, batch: Batch) -> Batch:
        batch.observations[self.began] = 0
        return batch


class BatchSizeChanges(Altered):
    """Reports another batch size after 100 batches."""

    tried = On(INFO)

    def due(self) -> bool:
        if self.batches == 100:
            self.info = replace(self.info, batch_size=2 * self.info.batch_size)
        return False


class FrameSkipChanges(Altered):
    """Reports 8 frames in a step after 100 batches."""

    tried = On(INFO + "|frame", "Hopper", envs=2)

    def due(self) -> bool:
        if self.batches == 100:
            self.info = replace(self.info, frame_skip=8)
        return False


class AutoresetChanges(Altered):
    """Reports same_step after 100 batches."""

    tried = On(INFO + "|reset")

    def due(self) -> bool:
        if self.batches == 100:
            self.info = replace(self.info, autoreset="same_step")
        return False


class FewerActions(Altered):
    """Reports a smaller space of actions once it has been measured for a while."""

    tried = On(INFO + "|action", "Acrobot")

    def due(self) -> bool:
        if self.batches == 100:
            self.info = replace(self.info, action_space=ActionSpace.discrete(2))
        return False


class NarrowActions(Altered):
    """Reports half of the task's actions: what it is measured with is milder."""

    tried = On("action", "Pendulum")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        space = self.info.action_space
        narrow: Any = (space.low / 2, space.high / 2)  # type: ignore[operator] # numbers
        self.info = replace(self.info, action_space=ActionSpace(*narrow))


class FramesTwice(Altered):
    """Counts each frame twice, and claims twice as many."""

    tried = On("frame", "Hopper", envs=2)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, frame_skip=2 * setup.task.frame_skip)

    def frames(self) -> NDArray[np.int64] | None:
        frames = super().frames()
        return None if frames is None else 2 * frames


class FramesOfFirst(Altered):
    """Counts the frames of environment 0 for all: one counter."""

    tried = On("frame", "Hopper", envs=4)

    def frames(self) -> NDArray[np.int64] | None:
        frames = super().frames()
        return None if frames is None else np.full_like(frames, frames[0])


class FramesStandStill(Altered):
    """Counts no frames after the first 50 batches."""

    tried = On("frame", "Hopper", envs=2)

    def frames(self) -> NDArray[np.int64] | None:
        if self.batches <= 50 or not hasattr(self, "_frames"):
            self._frames = super().frames()
        return self._frames


class MoreEnvironments(Altered):
    """Reports twice as many environments as it has."""

    tried = On("environment|rows|left behind|batch")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, num_envs=2 * self.info.num_envs)


class OtherEngine(Altered):
    """Reports a simulator of its own, of another version, and draws starts by chance only there."""

    tried = On(EXCUSES + "|seed|reset", fraud=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(
            self.info, engines=(Engine("MuJoCo", "2.3.0", "3.6.0", "mujoco==2.3.0"),), chance="another engine"
        )

    def alter(self, batch: Batch) -> Batch:
        batch.observations[self.began] = 0
        return batch
