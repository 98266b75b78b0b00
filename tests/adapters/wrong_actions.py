"""Adapters that take other actions than they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from altered import Altered, On

if TYPE_CHECKING:
    from numpy.typing import NDArray

ACTION = "action"


class OfTheNextEnvironment(Altered):
    """Each environment takes the action of the one after it."""

    tried = On(ACTION)

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(np.roll(actions, -1, axis=0))


class AStepLate(Altered):
    """Each action is taken one step late: a queue that is one longer."""

    tried = On(ACTION)

    def send(self, actions: NDArray[np.generic]) -> None:
        last, self._last = getattr(self, "_last", np.zeros_like(actions)), actions
        super().send(last)


class ClippedActions(Altered):
    """Actions are clipped to -0.5..0.5: the bounds of another task."""

    tried = On(ACTION, "Pendulum")

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(np.clip(actions, -0.5, 0.5))  # type: ignore[call-overload] # numbers


class SinglePrecisionActions(Altered):
    """Actions are rounded to float32."""

    tried = On(ACTION, "Hopper", envs=2)

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(actions.astype(np.float32).astype(actions.dtype))


class FirstForAllAfterEnd(Altered):
    """In the step after an end every environment takes the action of the first: an index that is set back for all."""

    tried = On(ACTION)

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(actions[np.zeros(len(actions), np.intp)] if self.ended.any() else actions)


class LastActionNever(Altered):
    """The last action of the space is never taken: a bound that is off by one."""

    tried = On(ACTION, "Acrobot")

    def send(self, actions: NDArray[np.generic]) -> None:
        highest = self.info.action_space.high - 1
        super().send(np.minimum(actions, highest))  # type: ignore[type-var] # numbers


class QueuedThroughReset(Altered):
    """The action of a reset's row is not dropped but taken in the step after it."""

    tried = On(ACTION)

    def send(self, actions: NDArray[np.generic]) -> None:
        taken = actions.copy()
        if hasattr(self, "_last"):
            taken[self.began] = self._last[self.began]
        self._last = actions
        super().send(taken)


class SharedAfterMany(Altered):
    """From batch 1,200 on all environments take the action of the first: a broadcast that an optimiser has put in."""

    tried = On(ACTION)

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(actions[np.zeros(len(actions), np.intp)] if self.batches > 1200 else actions)


class RepeatsOfTen(Altered):
    """In one of ten steps the last actions are taken again: a message that is lost."""

    tried = On(ACTION)

    def send(self, actions: NDArray[np.generic]) -> None:
        last, self._last = getattr(self, "_last", actions), actions
        super().send(last if self.batches % 10 == 9 else actions)


class OneLateLater(Altered):
    """From batch 1,500 on the last environment takes each action one step late: a worker that has fallen behind."""

    tried = On(ACTION)

    def send(self, actions: NDArray[np.generic]) -> None:
        last, self._last = getattr(self, "_last", actions), actions
        super().send(np.concatenate([actions[:-1], last[-1:]]) if self.batches > 1500 else actions)


class NormalisedActions(Altered):
    """Actions are taken for shares of the bounds: scaled where they must not be."""

    tried = On(ACTION, "Pendulum")

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(np.clip(actions.astype(np.float32), -1, 1) * 2)
