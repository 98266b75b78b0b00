"""Adapters on which a comparison judges more than values: what arrays are, when they change, which seeds count."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch, Difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup


class Fresh(ForLoop):
    """No fault: new arrays in each batch."""

    batches = 0

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.setup = setup
        self.info = replace(self.info, reuses_buffers=False)

    def recv(self) -> Batch:
        self.batches += 1
        return Batch._make(array.copy() for array in super().recv())


class OddButPlain(Fresh):
    """No fault: rows that are read-only, stored by columns or every second one, ids of 32 bits, two sets of buffers."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._buffers: list[Batch] = []  # two, written in turn

    def recv(self) -> Batch:
        batch = super().recv()
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


class Rounded(Fresh):
    """No fault: keeps rewards in float32."""

    def recv(self) -> Batch:
        batch = super().recv()
        return batch._replace(rewards=batch.rewards.astype(np.float32))


class IgnoresSeed(Fresh):
    """Resets with the seed that it was built with."""

    def reset(self, seed: int) -> None:
        super().reset(self.setup.seed)


class ResetsOnce(Fresh):
    """Takes the seed of its first reset, and begins with that again."""

    _seed: int | None = None

    def reset(self, seed: int) -> None:
        self._seed = seed if self._seed is None else self._seed
        super().reset(self._seed)


class Overwrites(Fresh):
    """Writes into the rows of the batch before, and says that it does not."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._one: Batch | None = None

    def recv(self) -> Batch:
        batch = super().recv()
        if self._one is None:
            self._one = batch
        self._one.observations[...] = batch.observations
        return batch._replace(observations=self._one.observations)


class _Computed(np.ndarray[Any, Any]):
    """Rows that may be computed when somebody looks at them."""


class Subclassed(Fresh):
    def recv(self) -> Batch:
        batch = super().recv()
        return batch._replace(observations=batch.observations.view(_Computed))


class FlagsOfEight(Fresh):
    def recv(self) -> Batch:
        batch = super().recv()
        return batch._replace(terminated=batch.terminated.astype(np.uint8))


class FewerLater(Fresh):
    """Returns one row less from some batch on."""

    def recv(self) -> Batch:
        batch = super().recv()
        return batch if self.batches < 40 else Batch._make(array[:-1] for array in batch)


class ReportsMoreLater(Fresh):
    """Says that a step has more frames once it was asked."""

    def recv(self) -> Batch:
        if self.batches == 40:
            self.info = replace(self.info, frame_skip=4)
        return super().recv()


class StaleLater(Fresh):
    """Shows the observations of the step before, but not in its first steps."""

    _last: NDArray[Any] | None = None

    def recv(self) -> Batch:
        batch = super().recv()
        last, self._last = self._last, batch.observations
        return batch if last is None or self.batches < 70 else batch._replace(observations=last)


class DeafLater(Fresh):
    """Takes one action whatever it is sent, but not in its first steps."""

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(actions if self.batches < 70 else np.zeros_like(actions))


class WrongLast(Fresh):
    """Shows another row for its last environment if it has more than six."""

    def recv(self) -> Batch:
        batch = super().recv()
        if len(batch.env_ids) > 6:
            batch.observations[:] = batch.observations[0]
        return batch


class OtherChance(Fresh):
    """Takes other seeds where there is chance, and says that it has a generator of its own."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, chance="it draws by itself")

    def reset(self, seed: int) -> None:
        super().reset(seed + 12345)


class ExcusesAll(Fresh):
    """Shows other rewards in all rows but those long after a reset, and declares it."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, differences=(Difference("warms up", "rewards", "start", count=1000),))

    def recv(self) -> Batch:
        batch = super().recv()
        return batch._replace(rewards=batch.rewards + 1e-3)


class RaisesLater(Fresh):
    """Raises in the thirty-first step after the second reset of one environment."""

    resets = 0

    def reset(self, seed: int) -> None:
        self.resets += 1
        self.batches = 0
        super().reset(seed)

    def recv(self) -> Batch:
        if (self.resets, self.batches, self.setup.batch_size) == (2, 31, 1):
            raise ValueError("lost")
        return super().recv()


class Dies(Fresh):
    """Is killed after some steps."""

    def recv(self) -> Batch:
        if self.batches == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().recv()


class RaisesInClose(Fresh):
    """Raises while it is closed."""

    def close(self) -> None:
        super().close()
        raise ValueError("a worker has left no answer")
