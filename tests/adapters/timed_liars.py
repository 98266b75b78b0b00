"""Adapters that do the right work wherever they expect to be looked at, and other work while they are timed."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch, Setup

LATE = 40  # batches


class Honest(ForLoop):
    """The reference, by another name."""


class HonestOutOfOrder:
    """Returns one row at a time, of any environment."""

    def __init__(self, setup: Setup) -> None:
        alone = replace(setup, workers=1, envs_per_worker=1)
        self._loops = [ForLoop(alone) for _ in range(setup.batch_size)]
        self._waiting = list(range(setup.batch_size))
        self._random = Random(0)
        self.info = replace(self._loops[0].info, in_order=False, num_envs=setup.batch_size)

    def reset(self, seed: int) -> None:
        self._waiting = list(range(len(self._loops)))
        for env_id, one in enumerate(self._loops):
            one.reset(seed + env_id)

    def send(self, actions: NDArray[np.generic]) -> None:
        self._loops[self._last].send(actions)
        self._waiting.append(self._last)

    def recv(self) -> Batch:
        self._last = self._waiting.pop(self._random.randrange(len(self._waiting)))
        return self._loops[self._last].recv()._replace(env_ids=np.array([self._last]))

    def close(self) -> None:
        for one in self._loops:
            one.close()


class Timed(ForLoop):
    """Right on the exact variant of a task, which is what is compared before a run, and for the first batches."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._late = 1 << 62 if setup.task.exact else LATE
        self._batches = 0

    @property
    def late(self) -> bool:
        return self._batches > self._late

    def recv(self) -> Batch:
        self._batches += 1
        return self.changed(super().recv()) if self.late else super().recv()

    def changed(self, batch: Batch) -> Batch:
        return batch


class Lazy(Timed):
    """Steps its environments every other time only."""

    def send(self, actions: NDArray[np.generic]) -> None:
        if not (self.late and self._batches % 2):
            super().send(actions)
        else:
            self._reset_done = True  # the same rows again


class ChangesRows(Timed):
    """Says that its rows stay as they are, and writes the next ones over them."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, reuses_buffers=False)


class NewInfo(Timed):
    """Says at the end that its frames are others."""

    def changed(self, batch: Batch) -> Batch:
        self.info = replace(self.info, frame_skip=7)
        return batch


class Shown(np.ndarray):
    """An array that is made when somebody looks at it."""


def changing(about: str, **parts: Callable[[Batch], Any]) -> type[Timed]:
    """Return a liar that shows something else in these fields, made of the batch."""

    def changed(_: Timed, batch: Batch) -> Batch:
        return batch._replace(**{name: part(batch) for name, part in parts.items()})

    return type("Changing", (Timed,), {"__doc__": about, "changed": changed})


Drifting = changing("Returns a reward that is wrong by little.", rewards=lambda batch: batch.rewards + 1e-3)
OnlyWhenSeen = changing("Makes only rows that are seen.", observations=lambda batch: batch.observations.view(Shown))
Twice = changing("Returns a row twice.", env_ids=lambda batch: np.zeros_like(batch.env_ids))
NeverEnds = changing(
    "Hides the ends of episodes, so that resets count as steps.",
    terminated=lambda batch: np.zeros_like(batch.terminated),
)


class Short(Timed):
    """Leaves rows out, and steps fewer environments."""

    def changed(self, batch: Batch) -> Batch:
        return Batch._make(array[: self._batches % 3] for array in batch)
