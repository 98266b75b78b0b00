"""Adapters whose rewards are others."""

from typing import Any

import numpy as np
from altered import On, altering, before, elsewhere, patching

HalfPrecision = altering(
    "Rewards are kept in float16.",
    On("reward|float16|round", "Pendulum"),
    rewards=lambda _, batch: batch.rewards.astype(np.float16),
)
OfTheStepBefore = altering(
    "Rewards are those of the step before.",
    On("reward|stale|step before", "Pendulum"),
    rewards=lambda it, batch: before(it, batch.rewards),
)
NoneAtEnd = altering(
    "The row of an end has no reward.", On("reward"), rewards=lambda it, batch: np.where(it.ended, 0.0, batch.rewards)
)
NoNumberIsZero = altering(
    "Rewards that are no numbers are 0.",
    On("reward|nan", "odd:odd/No-number-v0"),
    rewards=lambda _, batch: np.nan_to_num(batch.rewards),
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
OneWithoutRewards = altering(
    "Environment 1 has no rewards.",
    On("environment 1", "Pendulum"),
    rewards=lambda _, batch: np.where(np.arange(len(batch.rewards)) == 1, 0.0, batch.rewards),
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
