"""Adapters that are right at first: their faults begin after many steps, ends, resets or some time."""

import time
from typing import Any

import numpy as np
from altered import Altered, On, altering, before

from vebench.backends.interface import Batch

CountsInSixteenBits = altering(
    "Batch 32,768 and those after it show rows shifted by one.",
    On("swap|shows? the row|shift", envs=2),
    since=(1 << 15) - 1,
    observations=lambda _, batch: np.roll(batch.observations, 1, axis=0),
)
CountsEndsInEightBits = altering(
    "The 128th end of each environment is not reported.",
    On("end"),
    terminated=lambda it, batch: batch.terminated & (it.ends != 128),
    truncated=lambda it, batch: batch.truncated & (it.ends != 128),
)
ClipsLater = altering(
    "After 20 ends rewards are clipped to -1..1.",
    On("clip|sign|reward", "Pendulum"),
    rewards=lambda it, batch: np.clip(batch.rewards, -1, 1) if it.ends.sum() >= 20 else batch.rewards,
)
ScalesAfterAnotherReset = altering(
    "From the second reset on every fifth batch has other observations.",
    On("before the reset|later reset|other observations"),
    observations=lambda it, batch: (
        batch.observations * np.float32(1.01) if it.resets > 1 and it.batches % 5 == 2 else batch.observations
    ),
)
DoublesLater = altering(
    "From batch 1,500 on observations are float64.",
    On("observations are float64, not float32"),
    since=1500,
    observations=lambda _, batch: batch.observations.astype(np.float64),
)
OneBitRarely = altering(
    "Every 97th batch one bit of the first observation is flipped.",
    On("observation"),
    observations=lambda it, batch: flipped(batch.observations) if it.batches % 97 == 96 else batch.observations,
)


def flipped(observations: Any) -> Any:
    """Return observations whose first number has another last bit."""
    observations.view(np.uint32)[0, 0] ^= 1
    return observations


class StaleLater(Altered):
    """From batch 2,000 on observations are those of the step before: an index of a queue that has overflowed."""

    tried = On("stale|step before|previous|late")
    since = 2000

    def alter(self, batch: Batch) -> Batch:
        shown = before(self, batch.observations)
        return batch._replace(observations=shown) if self.batches > self.since else batch


def skips_more(it: Any, batch: Batch) -> Batch:
    """Step five frames in a step from some batch on."""
    for environment in it.environments if it.batches == 1500 else ():
        environment.unwrapped.frame_skip = 5
    return batch


SkipsMoreLater = altering("From batch 1,500 on a step takes 5 frames.", On("frame", "Hopper", envs=2), skips_more)
SwapsAfterSeconds = altering(
    "After 0.8 seconds the last two environments are confused.",
    On("swap|shows? the row"),
    observations=lambda it, batch: (
        batch.observations[[*range(len(batch.env_ids) - 2), -1, -2]]
        if time.monotonic() > it.built + 0.8
        else batch.observations
    ),
)


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


def frozen(it: Any, batch: Batch) -> Batch:
    """Show the same observation after 150 steps of an episode."""
    last = before(it, batch.observations)
    batch.observations[it.ages > 150] = last[it.ages > 150]
    return batch


def raising(error: Exception) -> Any:
    """Raise an error."""
    raise error


FreezesLongEpisodes = altering(
    "After 150 steps of an episode its observations never change.",
    On("observation|stale|repeat|frozen", "Pendulum"),
    frozen,
)
RaisesLater = altering(
    "In batch 3,000 it raises: a table that is too short.",
    On("IndexError|index"),
    lambda *_: raising(IndexError("index 3000 is out of bounds for axis 0 with size 3000")),
    since=3000,
)


class BehindByOne(Altered):
    """From batch 1,500 on the last environment's whole rows are those of the batch before: a worker that is behind."""

    tried = On("late|behind|step before")
    since = 1500  # batches after the first

    def recv(self) -> Batch:
        batch = super().recv()
        last = before(self, Batch._make(array.copy() for array in batch))
        if self.batches > self.since:
            for array, row in zip(batch, last, strict=True):
                array[-1] = row[-1]
        return batch


class RaisesAtSecondReset(Altered):
    """The second call of reset raises: a simulator that starts only once."""

    tried = On("started already")

    def reset(self, seed: int) -> None:
        if self.resets:
            raise RuntimeError("the simulator is started already")
        super().reset(seed)
