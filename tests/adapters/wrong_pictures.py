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
OtherType = altering(
    "Observations are float32 where the task has float64.",
    On("observation|float32|type", "Hopper", envs=2),
    observations=lambda _, batch: batch.observations.astype(np.float32),
)
NegativeZeros = altering(
    "Observations have lost the signs of numbers near 0.",
    On("observation"),
    observations=lambda _, batch: np.where(np.abs(batch.observations) < 0.002, np.float32(0), batch.observations),
)
RotatedRows = altering(
    "Each environment shows the observation of the one before it.",
    On("returns the rows of environment|observation"),
    observations=lambda _, batch: np.roll(batch.observations, 1, axis=0),
)
ShiftedByAPixel = altering(
    "Pictures are shifted by one pixel.", PONG, observations=lambda _, batch: np.roll(batch.observations, 1, axis=-1)
)
ZeroPadded = setting(
    "A stack begins with frames of zeros, and it does not say so.",
    On(PICTURE + "|zero", "Breakout", envs=1),
    "FrameStackObservation",
    padding_type="zero",
)


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
