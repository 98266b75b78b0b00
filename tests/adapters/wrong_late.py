"""Adapters that are right at first: their faults begin after many steps, ends, resets or some time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from altered import Altered, On, shown_before

from vebench.backends.interface import Batch

if TYPE_CHECKING:
    from vebench.backends.interface import Setup


class StaleLater(Altered):
    """From batch 2,000 on observations are those of the step before: an index of a queue that has overflowed."""

    tried = On("stale|step before|previous|late")

    def recv(self) -> Batch:
        batch = super().recv()
        shown = shown_before(self, batch)
        return batch._replace(observations=shown) if self.batches > 2000 else batch


class StaleAtOnce(StaleLater):
    """From batch 300 on observations are those of the step before: likewise, with a shorter queue."""

    def recv(self) -> Batch:
        self.batches += 1700
        batch = super().recv()
        self.batches -= 1700
        return batch


class ClipsLater(Altered):
    """After 20 ends rewards are clipped to -1..1: a normalisation that begins once its statistics are full."""

    tried = On("clip|sign|reward", "Pendulum")

    def due(self) -> bool:
        return bool(self.ends.sum() >= 20)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=np.clip(batch.rewards, -1, 1))


class SkipsMoreLater(Altered):
    """From batch 1,500 on a step takes 5 frames: a frame skip that adapts to the load."""

    tried = On("frame", "Hopper", envs=2)

    def due(self) -> bool:
        if self.batches == 1500:
            for environment in self.environments:
                environment.unwrapped.frame_skip = 5
        return False


class SwapsAfterSeconds(Altered):
    """After 0.8 seconds the last two environments are confused: a table that a timer renews."""

    tried = On("swap|shows? the row")

    def due(self) -> bool:
        return time.monotonic() > self.built + 0.8

    def alter(self, batch: Batch) -> Batch:
        order = np.arange(len(batch.env_ids))
        order[-2:] = order[:-3:-1]
        return batch._replace(observations=batch.observations[order])


class CountsInSixteenBits(Altered):
    """Batch 32,768 and those after it show rows shifted by one: a counter of 16 bits that has overflowed."""

    tried = On("swap|shows? the row|shift", envs=2)

    def due(self) -> bool:
        return self.batches >= 1 << 15

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=np.roll(batch.observations, 1, axis=0))


class CountsEndsInEightBits(Altered):
    """The 128th end of each environment is not reported: a counter of episodes of 8 bits."""

    tried = On("end")

    def alter(self, batch: Batch) -> Batch:
        lost = self.ends == 128
        return batch._replace(terminated=batch.terminated & ~lost, truncated=batch.truncated & ~lost)


class DeadWorker(Altered):
    """From batch 2,500 on the last environment repeats its row: its worker has died, and its memory is still read."""

    tried = On("not step|same row|repeat|stuck|frozen|left behind|environment")

    def recv(self) -> Batch:
        batch = super().recv()
        if self.batches == 2500:
            self.kept = [array[-1].copy() for array in batch[:-1]]
        elif self.batches > 2500:
            for array, row in zip(batch[:-1], self.kept, strict=True):
                array[-1] = row
        return batch


class RowZeroLater(Altered):
    """From batch 1,800 on row 0 stands for all environments: a buffer of all rows that was reallocated as one."""

    tried = On("row 0")

    def due(self) -> bool:
        return self.batches > 1800

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations[np.zeros(len(batch.env_ids), np.intp)])


class FreezesLongEpisodes(Altered):
    """After 150 steps of an episode its observations stand still: a history of limited length."""

    tried = On("observation|stale|repeat|frozen", "Pendulum")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.ages = np.zeros(setup.batch_size, np.int64)

    def alter(self, batch: Batch) -> Batch:
        self.ages = np.where(self.began | (self.batches == 1), 0, self.ages + 1)
        held = self.ages > 150
        last = shown_before(self, batch)
        batch.observations[held] = last[held]
        return batch


class RoundsLater(Altered):
    """From batch 3,000 on rewards have the precision of float16: a replay buffer that saves memory once it is full."""

    tried = On("round|float16|reward", "Pendulum")

    def due(self) -> bool:
        return self.batches > 3000

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=batch.rewards.astype(np.float16).astype(np.float64))


class NormalisesLater(Altered):
    """From batch 1,300 on observations are divided by their spread: a wrapper that was not turned off."""

    tried = On("observation")

    def due(self) -> bool:
        return self.batches > 1300

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=(batch.observations / 2).astype(np.float32))


class DoublesLater(Altered):
    """From batch 1,500 on observations are float64: a buffer that was allocated anew, without a type."""

    tried = On("observations are float64, not float32")

    def due(self) -> bool:
        return self.batches > 1500

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations.astype(np.float64))


class HalvesLater(Altered):
    """From batch 1,500 on observations have the precision of float16: a cache that is used once it is full."""

    tried = On("observations are rounded to float16")

    def due(self) -> bool:
        return self.batches > 1500

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations.astype(np.float16).astype(np.float32))


class BehindByOne(Altered):
    """From batch 1,500 on the last environment's whole rows are those of the batch before: a worker that is behind."""

    tried = On("late|behind|step before")
    since = 1500  # batches after the first

    def recv(self) -> Batch:
        batch = super().recv()
        last, self._last = getattr(self, "_last", batch), Batch._make(array.copy() for array in batch)
        if self.batches > self.since:
            for array, row in zip(batch, last, strict=True):
                array[-1] = row[-1]
        return batch


class ScalesAfterAnotherReset(Altered):
    """From the second reset on every fifth batch has other observations: a scale that a reset multiplies."""

    tried = On("before the reset|later reset|other observations")

    def due(self) -> bool:
        return self.resets > 1 and self.batches % 5 == 2

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations * np.float32(1.01))


class RaisesLater(Altered):
    """In batch 3,000 it raises: a table that is too short."""

    tried = On("IndexError|index")

    def due(self) -> bool:
        return self.batches > 3000

    def alter(self, batch: Batch) -> Batch:
        raise IndexError("index 3000 is out of bounds for axis 0 with size 3000")


class RaisesAtSecondReset(Altered):
    """The second call of reset raises: a simulator that starts only once."""

    tried = On("started already")

    def reset(self, seed: int) -> None:
        if self.resets:
            raise RuntimeError("the simulator is started already")
        super().reset(seed)


class RaisesAtLimit(Altered):
    """At the first end by time limit it raises: an info that only terminated episodes have."""

    tried = On("KeyError|final_info", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        if batch.truncated.any():
            raise KeyError("final_info")
        return batch


class TornRows(Altered):
    """Every 50th batch has half of its rows from the step before: memory that is read while it is written."""

    tried = On("observation|stale|step before|row")

    def alter(self, batch: Batch) -> Batch:
        last = shown_before(self, batch)
        if self.batches % 50:
            return batch
        half = len(batch.env_ids) // 2
        return batch._replace(observations=np.concatenate([batch.observations[:half], last[half:]]))
