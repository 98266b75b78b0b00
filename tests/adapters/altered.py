"""What faulty and honest adapters are made from: a for-loop whose rows, once it is due, are altered.

``On`` says on which task and in which layout a fault can show, and in which words its name may be given.
``tools/faults.py`` reads it; the adapters themselves do not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup


@dataclass(frozen=True)
class On:
    """Where an adapter is tried.

    ``named``: a pattern that finds a right name of the fault in what a user reads, empty if any is right. ``fraud``:
    it deceives on purpose, so that it may be a limit; the others are what bugs look like. ``measured``: the fault is
    only in the variant that is measured, so that ``verify``, which compares the exact one, may say nothing of it.
    ``harmless``: what it changes has no effect on rows and figures, so that nothing need be found.
    """

    named: str = ""
    task: str = "CartPole"
    envs: int = 4
    fraud: bool = False
    measured: bool = False
    harmless: bool = False


class Altered(ForLoop):
    """A for-loop that returns new arrays each time. Once it is ``due``, ``alter`` changes them.

    ``batches`` and ``resets`` count those since it was built, ``ends`` those of each environment.
    """

    tried: ClassVar[On] = On()

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, in_order=False, reuses_buffers=False)
        self.setup = setup
        self.batches = self.resets = 0
        self.ends = np.zeros(setup.batch_size, np.int64)
        self.ended = np.zeros(setup.batch_size, np.bool_)  # whose row in this batch is an end
        self.began = np.zeros(setup.batch_size, np.bool_)  # whose row in this batch is a reset's
        self.built = time.monotonic()

    def reset(self, seed: int) -> None:
        self.resets += 1
        self.ended[:] = False
        super().reset(seed)

    def recv(self) -> Batch:
        batch = Batch._make(array.copy() for array in super().recv())
        self.batches += 1
        self.began = self.ended
        self.ended = batch.terminated | batch.truncated
        self.ends += self.ended
        return self.alter(batch) if self.due() else batch

    def due(self) -> bool:
        """Return whether the fault shows by now."""
        return True

    def alter(self, batch: Batch) -> Batch:
        """Return the batch with its fault."""
        return batch


def wrapper(environment: Any, name: str) -> Any:  # noqa: ANN401 - Gymnasium's wrappers
    """Return the wrapper of this class name that the environment has."""
    while type(environment).__name__ != name:
        environment = environment.env
    return environment


def shown_before(faulty: Any, batch: Batch) -> NDArray[Any]:  # noqa: ANN401 - any adapter may keep its last rows
    """Return the observations of the batch before, and keep those of this one."""
    last = getattr(faulty, "shown", batch.observations)
    faulty.shown = batch.observations
    return np.asarray(last)
