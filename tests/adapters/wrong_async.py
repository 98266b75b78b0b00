"""Adapters that answer in batches of half their environments, and confuse what belongs to whom."""

import numpy as np
from altered import On
from honest import Shuffled, _Pool
from numpy.typing import NDArray

from vebench.backends.interface import Batch, Setup


class ActionsById(Shuffled):
    """Actions are taken in the order of ids, not of the batch's rows."""

    tried = On("action|order")

    def send(self, actions: NDArray[np.generic]) -> None:
        self._sent = sorted(self._sent)
        super().send(actions)


class ActionsOfTheBatchBefore(_Pool):
    """Actions go to the environments of the batch before: two halves, of which each steps as the other is told."""

    tried = On("action")

    def send(self, actions: NDArray[np.generic]) -> None:
        last, self._last = getattr(self, "_last", actions), actions
        super().send(last)


class RowsLost(Shuffled):
    """Every 50th batch one environment is stepped twice with one action: an answer is lost, and asked for again."""

    tried = On("row|action|ahead|lost|twice|step")
    batches = 0

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(actions)
        self.batches += 1
        if self.batches % 50 == 0:
            self._loops[self._sent[0]].step(actions[:1])


class RowsAgain(Shuffled):
    """Every 50th batch one environment is not stepped, and its row is handed out again."""

    tried = On("row|action|stale|not step|repeat|again|still")
    batches = 0

    def send(self, actions: NDArray[np.generic]) -> None:
        self.batches += 1
        if self.batches % 50 == 0:
            self._ready.append(self._sent.pop(0))
            super().send(actions[1:])
        else:
            super().send(actions)


class StarvesLater(Shuffled):
    """From batch 500 on environment 0 does not answer any more: its place in a queue is lost."""

    tried = On("left behind|starv|environment 0")
    batches = 0

    def chosen(self) -> list[int]:
        self.batches += 1
        if self.batches < 500:
            return super().chosen()
        return self._random.sample([index for index in self._ready if index], self._size)


class RowsSorted(Shuffled):
    """Rows are in the order of ids, and ids in the order in which environments were done."""

    tried = On("ids|swap|environment|order")

    def recv(self) -> Batch:
        batch = super().recv()
        order = np.argsort(batch.env_ids)
        return batch._replace(observations=batch.observations[order])


class FlagsOfTheBatchBefore(_Pool):
    """The flags of both halves lie in one place: each half shows those of the other."""

    tried = On("end|flag|terminated|reset")

    def recv(self) -> Batch:
        batch = super().recv()
        last, self._flags = getattr(self, "_flags", batch.terminated), batch.terminated
        return batch._replace(terminated=last)


class SeedsByBatch(Shuffled):
    """Environments are seeded by their place in a batch: both halves begin alike."""

    tried = On("seed|row|environment")

    def reset(self, seed: int) -> None:
        super().reset(seed)
        for index, environment in enumerate(self.environments):
            self._rows[index].observations[0], _ = environment.reset(seed=seed + index % self._size)


class DropsAtReset(_Pool):
    """A reset leaves alone the environments that have not answered yet."""

    tried = On("seed|reset")

    def reset(self, seed: int) -> None:
        busy = [index for index in range(self._count) if index in self._ready and hasattr(self, "_begun")]
        kept = {index: [array.copy() for array in self._rows[index]] for index in busy}
        self._begun = True
        super().reset(seed)
        for index, arrays in kept.items():
            for array, old in zip(self._rows[index], arrays, strict=True):
                array[...] = old


class StepsAhead(_Pool):
    """Steps an environment with the action that was meant for it the last time: it does not wait for the new one."""

    tried = On("action")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._actions: dict[int, NDArray[np.generic]] = {}

    def send(self, actions: NDArray[np.generic]) -> None:
        taken = [self._actions.get(index, action) for index, action in zip(self._sent, actions, strict=True)]
        self._actions.update(zip(self._sent, actions.copy(), strict=True))
        super().send(np.asarray(taken))
