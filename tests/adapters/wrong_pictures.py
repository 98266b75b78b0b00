"""Adapters whose observations are others: stacks, frames, precision."""

from types import MethodType
from typing import Any

import numpy as np
from altered import On, altering, before, patching, setting, wrapper

from vebench.backends.interface import Batch

PICTURE = "picture|stack|frame|observation"
PONG = On(PICTURE, "Pong", envs=1)

StackReversed = altering(
    "The newest frame of a stack is the first.", PONG, observations=lambda _, batch: batch.observations[:, ::-1].copy()
)
LastFrameTwice = altering(
    "The newest frame of a stack stands there twice.",
    PONG,
    observations=lambda _, batch: np.take(batch.observations, [0, 1, 3, 3], axis=1),
)
Transposed = altering(
    "Rows and columns of the picture are confused.",
    PONG,
    observations=lambda _, batch: batch.observations.swapaxes(-1, -2).copy(),
)
StaleAtEnd = altering(
    "The observation of an end is the observation of the step before.",
    On(PICTURE + "|end"),
    observations=lambda it, batch: np.where(it.ended[:, None], before(it, batch.observations), batch.observations),
)
SinglePrecision = altering(
    "Observations are float64, as they must be, and were rounded to float32 on the way.",
    On("observation|round|float32", "Hopper", envs=2),
    observations=lambda _, batch: batch.observations.astype(np.float32).astype(np.float64),
)
OtherType = altering(
    "Observations are float32 where the task has float64.",
    On("observation|float32|type", "Hopper", envs=2),
    observations=lambda _, batch: batch.observations.astype(np.float32),
)
ClipsObservations = altering(
    "Observations are clipped to -3..3: a wrapper for training.",
    On("observation|clip", "Hopper", envs=2),
    observations=lambda _, batch: np.clip(batch.observations, -3, 3),
)
FiveDecimals = altering(
    "Observations are rounded to five decimals.",
    On("observation|round"),
    observations=lambda _, batch: batch.observations.round(5),
)
BeyondFour = altering(
    "Angular velocities are clipped to -4..4.",
    On("observation|clip", "Pendulum"),
    observations=lambda _, batch: np.clip(batch.observations, -4, 4),
)
NegativeZeros = altering(
    "Observations have lost the signs of numbers near 0.",
    On("observation"),
    observations=lambda _, batch: np.where(np.abs(batch.observations) < 0.002, np.float32(0), batch.observations),
)
LastColumnFirst = altering(
    "The columns of an observation are in another order.",
    On("observation"),
    observations=lambda _, batch: np.roll(batch.observations, 1, axis=1),
)
RotatedRows = altering(
    "Each environment shows the observation of the one before it.",
    On("returns the rows of environment|observation"),
    observations=lambda _, batch: np.roll(batch.observations, 1, axis=0),
)
StaleAndClipped = altering(
    "Two faults at once.",
    On("first difference|first at", "Pendulum"),
    observations=lambda it, batch: before(it, batch.observations),
    rewards=lambda _, batch: batch.rewards / 2,
)
FewerShades = altering("Pictures have 64 shades.", PONG, observations=lambda _, batch: batch.observations & 0xFC)
ShiftedByAPixel = altering(
    "Pictures are shifted by one pixel.", PONG, observations=lambda _, batch: np.roll(batch.observations, 1, axis=-1)
)
ZeroPadded = setting(
    "A stack begins with frames of zeros, and it does not say so.",
    On(PICTURE + "|zero", "Breakout", envs=1),
    "FrameStackObservation",
    padding_type="zero",
)
Flat = altering(
    "Observations are flat.",
    On("shape|observation", "Pong", envs=1),
    observations=lambda _, batch: batch.observations.reshape(len(batch.env_ids), -1),
)
OneColumn = altering("Rewards are a column.", On("reward|shape"), rewards=lambda _, batch: batch.rewards[:, None])


def not_cleared(_it: Any, _index: int, stack: Any) -> None:
    """Let a reset add its observation to the stack of the episode before."""

    def reset(*, seed: int | None = None) -> Any:
        observation, info = stack.env.reset(seed=seed)
        stack.obs_queue.extend([observation] * (1 if seed is None else stack.stack_size))
        return np.stack(stack.obs_queue), info

    stack.reset = reset


def last_only(_it: Any, _index: int, environment: Any) -> None:
    """Let the screen forget the last frame but one."""
    screen = wrapper(environment, "AtariScreen")

    def shown(screen: Any) -> Any:
        screen.obs_buffer[1].fill(0)
        return type(screen)._get_obs(screen)

    screen._get_obs = MethodType(shown, screen)


def every_second(it: Any, batch: Batch) -> Any:
    """Return observations that are made in every second step only."""
    if it.batches % 2 or not hasattr(it, "_kept"):
        it._kept = batch.observations
    return it._kept.copy()


StackNotCleared = patching(
    "The first stacks of an episode have frames of the one before.", On(PICTURE, "Breakout", envs=1), not_cleared
)
NoMaximum = patching("Shows the last frame of a step, not the maximum of the last two.", PONG, last_only)
SparseRows = altering(
    "Observations are made in every second step only.",
    On("observation|stale|repeat|step before"),
    observations=every_second,
)
