"""A for-loop that sleeps for a share of each step, as ``SLEEP_SHARE`` says: with 0.1 nine tenths as fast as without."""

import os
import time

import numpy as np
from numpy.typing import NDArray

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch, Setup

SHORTEST_S = 0.002  # a shorter sleep takes much longer than it says


class Sleepy(ForLoop):
    """What it owes is slept as soon as it is worth it, and what a sleep took too long is made up for later."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        share = float(os.environ.get("SLEEP_SHARE", "0"))
        self._owed_per_second = share / (1 - share)  # so that the share is one of the step that it makes longer
        self._owed = 0.0
        self._since = time.perf_counter()

    def send(self, actions: NDArray[np.generic]) -> None:
        self._since = time.perf_counter()
        super().send(actions)

    def recv(self) -> Batch:
        batch = super().recv()
        now = time.perf_counter()
        self._owed += self._owed_per_second * (now - self._since)
        if self._owed > SHORTEST_S:
            time.sleep(self._owed)
            self._owed -= time.perf_counter() - now
        return batch
