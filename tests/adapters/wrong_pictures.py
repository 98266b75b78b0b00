"""Adapters whose observations are others: stacks, frames, precision."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
from altered import Altered, On, wrapper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Batch, Setup

PICTURE = "picture|stack|frame|observation"


class StackReversed(Altered):
    """The newest frame of a stack is the first."""

    tried = On(PICTURE, "Pong", envs=1)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations[:, ::-1].copy())


class LastFrameTwice(Altered):
    """The newest frame of a stack stands there twice: a shift that begins one place late."""

    tried = On(PICTURE, "Pong", envs=1)

    def alter(self, batch: Batch) -> Batch:
        batch.observations[:, -2] = batch.observations[:, -1]
        return batch


class StackNotCleared(Altered):
    """The first stacks of an episode have frames of the one before."""

    tried = On(PICTURE, "Breakout", envs=1)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            environment.reset = MethodType(_append, environment)  # type: ignore[method-assign] # the fault


def _append(stack: Any, *, seed: int | None = None) -> Any:  # noqa: ANN401 - Gymnasium's wrapper
    observation, info = stack.env.reset(seed=seed)
    frames = 1 if seed is None else stack.stack_size
    stack.obs_queue.extend([observation] * frames)
    return np.stack(stack.obs_queue), info


class NoMaximum(Altered):
    """Shows the last frame of a step, not the maximum of the last two."""

    tried = On(PICTURE, "Pong", envs=1)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            screen = wrapper(environment, "AtariScreen")
            screen._get_obs = MethodType(_last_only, screen)


def _last_only(screen: Any) -> Any:  # noqa: ANN401 - Gymnasium's wrapper
    screen.obs_buffer[1].fill(0)
    return type(screen)._get_obs(screen)


class Transposed(Altered):
    """Rows and columns of the picture are confused: it is square, so that its shape is right."""

    tried = On(PICTURE, "Pong", envs=1)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations.swapaxes(-1, -2).copy())


class StaleAtEnd(Altered):
    """The observation of an end is that of the step before: nobody renders a game that is over."""

    tried = On(PICTURE + "|end")

    def alter(self, batch: Batch) -> Batch:
        last, self._last = getattr(self, "_last", batch.observations), batch.observations
        shown = batch.observations.copy()
        shown[self.ended] = last[self.ended]
        return batch._replace(observations=shown)


class SinglePrecision(Altered):
    """Observations are float64, as they must be, and were rounded to float32 on the way."""

    tried = On("observation|round|float32", "Hopper", envs=2)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations.astype(np.float32).astype(np.float64))


class OtherType(Altered):
    """Observations are float32 where the task has float64."""

    tried = On("observation|float32|type", "Hopper", envs=2)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations.astype(np.float32))


class ClipsObservations(Altered):
    """Observations are clipped to -3..3: a wrapper for training."""

    tried = On("observation|clip", "Hopper", envs=2)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=np.clip(batch.observations, -3, 3))


class FewerShades(Altered):
    """Pictures have 64 shades: two bits saved."""

    tried = On(PICTURE, "Pong", envs=1)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations & 0xFC)


class ShiftedByAPixel(Altered):
    """Pictures are shifted by one pixel."""

    tried = On(PICTURE, "Pong", envs=1)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=np.roll(batch.observations, 1, axis=-1))


class ZeroPadded(Altered):
    """A stack begins with frames of zeros, and it does not say so."""

    tried = On(PICTURE + "|zero", "Breakout", envs=1)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            environment.padding_type = "zero"  # type: ignore[attr-defined] # of the stack's wrapper


class Flat(Altered):
    """Observations are flat: the numbers are right, the shape is not."""

    tried = On("shape|observation", "Pong", envs=1)

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(observations=batch.observations.reshape(len(batch.env_ids), -1))


class OneColumn(Altered):
    """Rewards have a second dimension."""

    tried = On("reward|shape")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(rewards=batch.rewards[:, None])


class SparseRows(Altered):
    """Observations are made in every second step only: pictures cost more than games."""

    tried = On("observation|stale|repeat|step before")

    def alter(self, batch: Batch) -> Batch:
        if self.batches % 2 or not hasattr(self, "_kept"):
            self._kept: NDArray[Any] = batch.observations
        return batch._replace(observations=self._kept.copy())
