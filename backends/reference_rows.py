"""Backends that are only measured for comparison, without processes: ``null`` and ``yardstick``."""

from __future__ import annotations

import numpy as np

from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, Setup


class Null:
    """Returns the same zeros at once, which shows the cost of the measuring loop. Rewards are float64."""

    def __init__(self, setup: Setup) -> None:
        count, difference = setup.batch_size, Difference("there is no environment")
        self._batch = zeros(count)._replace(env_ids=np.arange(count))
        frame_skip, space = setup.task.frame_skip, ActionSpace.discrete(2)
        self.info = BackendInfo(count, count, space, frame_skip, reuses_buffers=True, differences=(difference,))

    def reset(self, seed: int) -> None:
        """Do nothing."""

    def send(self, actions: object) -> None:
        """Do nothing."""

    def recv(self) -> Batch:
        """Return the rows."""
        return self._batch

    def close(self) -> None:
        """Do nothing."""


def zeros(count: int) -> Batch:
    """Return rows without meaning."""
    flags = np.zeros(count, np.bool_)
    return Batch(np.zeros((count, 1), np.float32), np.zeros(count), flags, flags, np.zeros(count, np.int64))


class Yardstick(Null):
    """A fixed amount of work in each ``recv``: Python bytecode, operations on small arrays, and copies of 28 KiB.

    The work takes about 100 microseconds and depends only on Python and numpy. A change makes every baseline useless.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._state = np.linspace(0.0, 1.0, 4)
        self._matrix = np.eye(4) + 0.01
        self._pictures = np.zeros((2, 84, 84, 4), np.uint8)  # two of Atari's observations in size

    def recv(self) -> Batch:
        """Do the work and return the rows."""
        total, table = 0, {}
        for number in range(200):
            total = (total * 31 + number) & 0xFFFF
            table[number & 15] = total
        state = self._state
        for _ in range(8):
            state = np.clip(self._matrix @ state, -1.0, 1.0)
        one, other = self._pictures
        for _ in range(2):
            other[...] = one
            one[...] = other
        return super().recv()
