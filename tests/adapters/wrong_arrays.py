"""Adapters whose batches are not what they must be: lazy rows, short batches, ids and flags of other types."""

import mmap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from altered import Altered, On, altering, without_last
from numpy.typing import NDArray

from vebench.backends.interface import Batch, Setup

PLAIN = "plain|array|not a NumPy|type|subclass"
LAZY = PLAIN + "|lazy|late|handed out|change"
FLAGS = On("flag|bool|uint8|terminated")

DoubleIdLater = altering(
    "After 500 batches the last id is that of the row before it.",
    On("twice|double|id|row"),
    since=500,
    env_ids=lambda _, batch: np.append(batch.env_ids[:-1], batch.env_ids[-2]),
)
IdsAsList = altering("Ids are a list.", On(PLAIN + "|env_ids"), env_ids=lambda _, batch: batch.env_ids.tolist())
FlagsAsBytes = altering(
    "Flags are 0 or 1 in uint8.",
    FLAGS,
    terminated=lambda _, batch: batch.terminated.astype(np.uint8),
    truncated=lambda _, batch: batch.truncated.astype(np.uint8),
)
FlagsAsBytesLater = altering(
    "Flags are 0 or 255 in uint8 after the first batch.",
    FLAGS,
    since=1,
    terminated=lambda _, batch: np.where(batch.terminated, np.uint8(255), np.uint8(0)),
    truncated=lambda _, batch: np.where(batch.truncated, np.uint8(255), np.uint8(0)),
)
ObjectRewards = altering(
    "Rewards are Python objects in an array.",
    On(PLAIN + "|reward|object"),
    rewards=lambda _, batch: batch.rewards.astype(object),
)
Masked = altering(
    "Observations are a masked array, in which numbers that count may be hidden.",
    On(PLAIN),
    observations=lambda _, batch: np.ma.masked_array(batch.observations, batch.observations < 0),
)


class FilledLater(Altered):
    """Observations are copied by a thread that nobody waits for."""

    tried = On(LAZY + "|observation")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._thread = ThreadPoolExecutor(1)

    def alter(self, batch: Batch) -> Batch:
        filled = np.zeros_like(batch.observations)
        self._thread.submit(np.copyto, filled, batch.observations)
        return batch._replace(observations=filled)

    def close(self) -> None:
        self._thread.shutdown()
        super().close()


class MappedBelow(Altered):
    """Observations are plain arrays on mapped memory, overwritten by each batch though it says that they are not."""

    tried = On("overwrit|reuse|change|handed out")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        shown = self._batch.observations
        self._map = mmap.mmap(-1, shown.nbytes)
        self._shown = np.frombuffer(self._map, shown.dtype).reshape(shown.shape)

    def alter(self, batch: Batch) -> Batch:
        np.copyto(self._shown, batch.observations)
        return batch._replace(observations=self._shown)


OtherOrderLater = altering(
    "From batch 600 on rows come in another order, and ids say the old one.",
    On("swap|shows? the row|order"),
    lambda _, batch: Batch(*(array[::-1].copy() for array in batch[:-1]), batch.env_ids),
    since=600,
)


class ShortLater(Altered):
    """After 2,000 batches all lack their last row."""

    tried = On("row|batch|short|counted")

    def alter(self, batch: Batch) -> Batch:
        return without_last(batch) if self.batches > 2000 else batch

    def send(self, actions: NDArray[np.generic]) -> None:
        missing = len(self.environments) - len(actions)
        super().send(np.concatenate([actions, actions[:1].repeat(missing, axis=0)]) if missing else actions)
