"""Adapters whose rewards are others."""

from typing import Any

import numpy as np
from altered import On, altering, before, elsewhere, patching, setting

from vebench.backends.interface import Batch

HalfPrecision = altering(
    "Rewards are kept in float16.",
    On("reward|float16|round", "Pendulum"),
    rewards=lambda _, batch: batch.rewards.astype(np.float16),
)
WholeNumbers = altering(
    "Rewards are cut to whole numbers.",
    On("reward|round", "Pendulum"),
    rewards=lambda _, batch: np.trunc(batch.rewards),
)
OfTheStepBefore = altering(
    "Rewards are those of the step before.",
    On("reward|stale|step before", "Pendulum"),
    rewards=lambda it, batch: before(it, batch.rewards),
)
Averaged = altering(
    "Rewards are averaged over the frames of a step, not summed.",
    On("reward", "Breakout", envs=2),
    rewards=lambda it, batch: batch.rewards / it.info.frame_skip,
)
NoneAtEnd = altering(
    "The row of an end has no reward.", On("reward"), rewards=lambda it, batch: np.where(it.ended, 0.0, batch.rewards)
)
RareCap = altering(
    "Rewards below -15 are cut: a bound that is met rarely.",
    On("reward|clip", "Pendulum"),
    rewards=lambda _, batch: np.maximum(batch.rewards, -15.0),
)
NoNumberIsZero = altering(
    "Rewards that are no numbers are 0.",
    On("reward|nan", "odd:odd/No-number-v0"),
    rewards=lambda _, batch: np.nan_to_num(batch.rewards),
)
AnotherTerm = setting(
    "The cost of actions is left out of rewards.",
    On("reward", "HalfCheetah", envs=2),
    "unwrapped",
    _ctrl_cost_weight=0.0,
)
SixDecimals = altering(
    "Rewards are rounded to six decimals: printed and read again.",
    On("first difference|first at|decimals", "Pendulum"),
    rewards=lambda _, batch: batch.rewards.round(6),
)
Permuted = altering(
    "Each environment has the reward of the one before it.",
    On("first difference|first at|the rewards of environment"),
    rewards=lambda _, batch: np.roll(batch.rewards, 1),
)
PermutedOnPendulum = elsewhere("where all rewards differ.", On(Permuted.tried.named, "Pendulum"), Permuted)
OnlyEndsPay = altering(
    "Only the row of an end has a reward.",
    On("first difference|first at"),
    rewards=lambda it, batch: np.where(it.ended, batch.rewards, 0.0),
)
MeanOfAll = altering(
    "Every environment has the mean reward of all.",
    On("first difference|first at", "Pendulum"),
    rewards=lambda _, batch: np.full_like(batch.rewards, batch.rewards.mean()),
)
Negated = altering(
    "Rewards are costs: their signs are turned.",
    On("multiplied by -1", "Pendulum"),
    rewards=lambda _, batch: -batch.rewards,
)
TwiceAtEnd = altering(
    "The row of an end has its reward twice.",
    On("first difference|first at"),
    rewards=lambda it, batch: batch.rewards * (1 + it.ended),
)
Discounted = altering(
    "Rewards are discounted.",
    On("first difference|first at", "Pendulum"),
    rewards=lambda it, batch: batch.rewards * 0.99**it.ages,
)
OneWithoutRewards = altering(
    "Environment 1 has no rewards.",
    On("environment 1", "Pendulum"),
    rewards=lambda _, batch: np.where(np.arange(len(batch.rewards)) == 1, 0.0, batch.rewards),
)
CostsNothingFar = altering(
    "Rewards below -9 are 0: an overflow of a byte.",
    On("first difference|first at", "Pendulum"),
    rewards=lambda _, batch: np.where(batch.rewards < -9, 0.0, batch.rewards),
)


def so_far(it: Any, batch: Batch) -> Any:
    """Return what each episode has been rewarded so far."""
    it._returns = getattr(it, "_returns", 0.0) * ~it.began + batch.rewards
    return it._returns.copy()


Accumulated = altering("Rewards are summed over an episode.", On("reward", "Pendulum"), rewards=so_far)
ReturnAtEnd = altering(
    "The row of an end has the episode's return for its reward.",
    On("reward"),
    rewards=lambda it, batch: np.where(it.ended, so_far(it, batch), batch.rewards),
)


def summed(_it: Any, _index: int, environment: Any) -> None:
    """Round the terms of a reward before they are added."""
    step = environment.step

    def stepped(action: object) -> Any:
        observation, _, *flags, info = step(action)
        terms = [np.float32(value) for name, value in info.items() if name.startswith("reward_")]
        return observation, float(sum(terms, np.float32(0))), *flags, info

    environment.step = stepped


SummedInSinglePrecision = patching(
    "The terms of a reward are rounded to float32 before they are added.", On("reward|round", "Hopper", envs=2), summed
)
