"""Adapters on which a comparison judges more than values: what arrays are, when they change, which seeds count."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
from altered import Altered, On, acting, altering, before, reporting, row_zero

from vebench.backends.interface import Batch, Difference, Setup

ANY = On()


class _Computed(np.ndarray[Any, Any]):
    """Rows that may be computed when somebody looks at them."""


Subclassed = altering(
    "Observations are of a class of its own.", ANY, observations=lambda _, batch: batch.observations.view(_Computed)
)
DeafLater = acting(
    "Takes one action whatever it is sent, but not in its first steps.",
    ANY,
    lambda it, sent: sent if it.batches < 70 else np.zeros_like(sent),
)
WrongLast = altering(
    "Shows row 0 for all environments if it has more than six.",
    ANY,
    observations=lambda _, batch: row_zero(batch.observations) if len(batch.env_ids) > 6 else batch.observations,
)
ExcusesAll = altering(
    "Shows other rewards in all rows but those long after a reset, and declares it.",
    ANY,
    claims={"differences": (Difference("warms up", "rewards", "start", count=1000),)},
    rewards=lambda _, batch: batch.rewards + 1e-3,
)
ReportsMoreLater = reporting("Says that a step has more frames once it was asked.", ANY, after=40, frame_skip=4)


class OddButPlain(Altered):
    """No fault: rows that are read-only, stored by columns or every second one, ids of 32 bits, two sets of buffers."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._buffers: list[Batch] = []  # two, written in turn

    def alter(self, batch: Batch) -> Batch:
        if not self._buffers:
            by_columns = np.asfortranarray(batch.observations)
            rewards, ids = np.repeat(batch.rewards, 2)[::2], batch.env_ids.astype(np.int32)
            odd = batch._replace(observations=by_columns, rewards=rewards, env_ids=ids)
            self._buffers = [odd, Batch._make(array.copy("K") for array in odd)]
        shown = self._buffers[self.batches % 2]
        for array, now in zip(shown, batch, strict=True):
            array.flags.writeable = True
            array[...] = now
            array.flags.writeable = False
        return shown


class ResetsOnce(Altered):
    """Takes the seed of its first reset, and begins with that again."""

    _seed: int | None = None

    def reset(self, seed: int) -> None:
        self._seed = seed if self._seed is None else self._seed
        super().reset(self._seed)


class Overwrites(Altered):
    """Writes into the rows of the batch before, and says that it does not."""

    def alter(self, batch: Batch) -> Batch:
        self._one = getattr(self, "_one", batch)
        self._one.observations[...] = batch.observations
        return batch._replace(observations=self._one.observations)


class FewerLater(Altered):
    """Returns one row less from some batch on."""

    def alter(self, batch: Batch) -> Batch:
        return batch if self.batches < 40 else Batch._make(array[:-1] for array in batch)


class StaleLater(Altered):
    """Shows the observations of the step before, but not in its first steps."""

    def alter(self, batch: Batch) -> Batch:
        last = before(self, batch.observations)
        return batch if self.batches < 70 else batch._replace(observations=last)


class OtherChance(Altered):
    """Takes other seeds where there is chance, and says that it has a generator of its own."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, chance="it draws by itself")

    def reset(self, seed: int) -> None:
        super().reset(seed + 12345)


class RaisesLater(Altered):
    """Raises in the thirty-first step after the second reset of one environment."""

    def reset(self, seed: int) -> None:
        self.batches = 0
        super().reset(seed)

    def recv(self) -> Batch:
        if (self.resets, self.batches, self.setup.batch_size) == (2, 31, 1):
            raise ValueError("lost")
        return super().recv()


class Dies(Altered):
    """Is killed after some steps."""

    def recv(self) -> Batch:
        if self.batches == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().recv()


class RaisesInClose(Altered):
    """Raises while it is closed."""

    def close(self) -> None:
        super().close()
        raise ValueError("a worker has left no answer")
