"""Adapters that take other actions than they are sent."""

import numpy as np
from altered import Altered, On, acting, before, row_zero
from numpy.typing import NDArray

ANY = On("action")

OfTheNextEnvironment = acting(
    "Each environment takes the action of the one after it.", ANY, lambda _, sent: np.roll(sent, -1, axis=0)
)
AStepLate = acting("Each action is taken one step late.", ANY, lambda it, sent: before(it, sent, np.zeros_like(sent)))
FirstForAllAfterEnd = acting(
    "In the step after an end every environment takes the action of the first.",
    ANY,
    lambda it, sent: row_zero(sent) if it.ended.any() else sent,
)
SharedAfterMany = acting(
    "From batch 1,200 on all environments take the action of the first.",
    ANY,
    lambda it, sent: row_zero(sent) if it.batches > 1200 else sent,
)
BackToFront = acting("Actions go to the environments from the last to the first.", ANY, lambda _, sent: sent[::-1])


class QueuedThroughReset(Altered):
    """The action of a reset's row is not dropped but taken in the step after it."""

    tried = ANY

    def send(self, actions: NDArray[np.generic]) -> None:
        taken, last = actions.copy(), before(self, actions)
        taken[self.began] = last[self.began]
        super().send(taken)


class OneLateLater(Altered):
    """From batch 1,500 on the last environment takes each action one step late: a worker that has fallen behind."""

    tried = ANY

    def send(self, actions: NDArray[np.generic]) -> None:
        last = before(self, actions)
        super().send(np.concatenate([actions[:-1], last[-1:]]) if self.batches > 1500 else actions)
