"""Adapters whose rewards are others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from altered import Altered, On

if TYPE_CHECKING:
    from vebench.backends.interface import Batch, Setup


class HalfPrecision(Altered):
    """Rewards are kept in float16."""

    tried = On("reward|float16|round", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=batch.rewards.astype(np.float16))


class WholeNumbers(Altered):
    """Rewards are cut to whole numbers."""

    tried = On("reward|round", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=np.trunc(batch.rewards))


class OfTheStepBefore(Altered):
    """Rewards are those of the step before."""

    tried = On("reward|stale|step before", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        last, self._last = getattr(self, "_last", batch.rewards), batch.rewards
        return batch._replace(rewards=last)


class SummedInSinglePrecision(Altered):
    """The terms of a reward are rounded to float32 before they are added: a port to another language."""

    tried = On("reward|round", "Hopper", envs=2)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            environment.step = self._summed(environment.step)  # type: ignore[method-assign] # the fault

    @staticmethod
    def _summed(step: Any) -> Any:  # noqa: ANN401 - Gymnasium's
        def summed(action: object) -> Any:  # noqa: ANN401 - Gymnasium's
            observation, _, terminated, truncated, info = step(action)
            terms = [np.float32(value) for name, value in info.items() if name.startswith("reward_")]
            return observation, float(sum(terms, np.float32(0))), terminated, truncated, info

        return summed


class Averaged(Altered):
    """Rewards are averaged over the frames of a step, not summed."""

    tried = On("reward", "Breakout", envs=2)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=batch.rewards / self.info.frame_skip)


class ReturnAtEnd(Altered):
    """The row of an end has the episode's return for its reward."""

    tried = On("reward")

    def alter(self, batch: Batch) -> Batch:
        returns = getattr(self, "_returns", 0.0) * ~self.began + batch.rewards
        self._returns = returns
        return batch._replace(rewards=np.where(self.ended, returns, batch.rewards))


class NoneAtEnd(Altered):
    """The row of an end has no reward."""

    tried = On("reward")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=np.where(self.ended, 0.0, batch.rewards))


class Accumulated(Altered):
    """Rewards are summed over an episode: an array that is added to and cleared at resets only."""

    tried = On("reward", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        self._returns = getattr(self, "_returns", 0.0) * ~self.began + batch.rewards
        return batch._replace(rewards=self._returns.copy())


class RareCap(Altered):
    """Rewards below -15 are cut: a bound that is met rarely."""

    tried = On("reward|clip", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=np.maximum(batch.rewards, -15.0))


class NoNumberIsZero(Altered):
    """Rewards that are no numbers are 0."""

    tried = On("reward|nan", "odd:odd/No-number-v0")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=np.nan_to_num(batch.rewards))


class AnotherTerm(Altered):
    """The cost of actions is left out of rewards."""

    tried = On("reward", "HalfCheetah", envs=2)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            environment.unwrapped._ctrl_cost_weight = 0.0
