"""Adapters whose faults need some environments or layouts: the last one, those after the eighth, 65 of them."""

import numpy as np
from altered import Altered, On, acting, altering, seeding

from vebench.backends.interface import Batch, Setup

OTHERS = "swap|shows? the row|same row"

BeyondEight = altering(
    "Environments above 7 show the rows of those below 8: an index of which three bits are kept.",
    On(OTHERS, envs=12),
    observations=lambda _, batch: batch.observations[np.arange(len(batch.env_ids)) & 7],
)
BeyondSixteen = altering(
    "Environments above 15 show the row of environment 15: a table of fixed length.",
    On(OTHERS, envs=24),
    observations=lambda _, batch: batch.observations[np.minimum(np.arange(len(batch.env_ids)), 15)],
)
OddRows = altering(
    "Odd environments get the reward of the even one before them: two rows in one register.",
    On("reward|row|environment", "Pendulum"),
    rewards=lambda _, batch: batch.rewards[np.arange(len(batch.env_ids)) & ~1],
)
VectorTail = altering(
    "Rows after the last whole four get no reward: a loop of vectors without its rest.",
    On("reward", envs=6),
    rewards=lambda _, batch: np.where(np.arange(len(batch.rewards)) < len(batch.rewards) // 4 * 4, batch.rewards, 0.0),
)
ManyInOneKernel = altering(
    "With more than 8 environments observations are rounded: another kernel, in half precision, for large batches.",
    On("round|observation|float16", envs=12),
    observations=lambda _, batch: (
        batch.observations.astype(np.float16).astype(np.float32) if len(batch.env_ids) > 8 else batch.observations
    ),
)
SquareTransposed = altering(
    "With as many environments as numbers in an observation, the two are confused: a shape that says too little.",
    On("observation|transpos", envs=4),
    observations=lambda _, batch: (
        batch.observations.T.copy() if batch.observations.shape == (len(batch.env_ids),) * 2 else batch.observations
    ),
)
SharedByOneWorker = seeding(
    "Environments of one worker begin alike: it seeds each with its own number.",
    On("seed|row 0|environment"),
    lambda it, seed, index: seed + index // it.setup.envs_per_worker,
)
ActionsOfOneWorker = acting(
    "Environments of one worker take the action of its first: a message with room for one.",
    On("action"),
    lambda it, sent: sent[np.arange(len(sent)) // it.setup.envs_per_worker * it.setup.envs_per_worker],
)


class LastRowTwice(Altered):
    """The last environment shows the row of the one before it: an upper bound that is off by one."""

    tried = On(OTHERS)

    def alter(self, batch: Batch) -> Batch:
        batch.observations[-1] = batch.observations[-2]
        return batch


class SixtyFourEnds(Altered):
    """Environments above 63 are not reset where they end: a mask of 64 bits."""

    tried = On("no reset|end|reset", envs=72)

    def recv(self) -> Batch:
        over = self._loop._ended
        over[64:] = [False] * len(over[64:])
        return super().recv()


class AloneWithoutReset(Altered):
    """With one environment ends are not followed by resets: a special case for no vector."""

    tried = On("no reset|reset|end", envs=1)

    def recv(self) -> Batch:
        if len(self.environments) == 1:
            self._loop._ended = [False] * len(self.environments)
        return super().recv()


class LongRowsCut(Altered):
    """With more than 16 environments the last number of an observation is lost: a row padded to lines of the cache."""

    tried = On("observation", envs=24)

    def alter(self, batch: Batch) -> Batch:
        if len(batch.env_ids) > 16:
            batch.observations[:, -1] = 0
        return batch


class OneStandsStill(Altered):
    """Environment 5 is stepped every second time only: it shares its lock with another."""

    tried = On("not step|stale|environment|action", envs=8)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if setup.batch_size > 5:
            step = self.environments[5].step
            self._last = None

            def every_second(action: object) -> object:
                if self.batches % 2 and self._last is not None:
                    last, self._last = self._last, None
                    return last
                self._last = step(action)
                return self._last

            self.environments[5].step = every_second  # type: ignore[method-assign, assignment] # the fault
