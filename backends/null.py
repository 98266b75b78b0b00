"""Backends without environments. ``null`` shows the cost of the measuring loop, ``yardstick`` the machine's speed."""

from __future__ import annotations

import numpy as np

from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, NothingToReceiveError, Setup


class Null:
    """Returns the same zeros at once. Rewards are float64."""

    def __init__(self, setup: Setup) -> None:
        count = setup.batch_size
        flags = np.zeros(count, np.bool_)
        self._batch = Batch(np.zeros((count, 1), np.float32), np.zeros(count), flags, flags, np.arange(count))
        self._answer: Batch | None = None
        difference = Difference("there is no environment")
        frame_skip, space = setup.task.frame_skip, ActionSpace.discrete(2)
        self.info = BackendInfo(count, count, space, frame_skip, reuses_buffers=True, differences=(difference,))

    def reset(self, seed: int) -> None:  # noqa: ARG002 - nothing here is random
        """Get ready to answer."""
        self._answer = self._batch

    def send(self, actions: object) -> None:  # noqa: ARG002 - no environment takes them
        """Get ready to answer."""
        self._answer = self._batch

    def recv(self) -> Batch:
        """Return the rows."""
        answer, self._answer = self._answer, None
        if answer is None:
            raise NothingToReceiveError
        return answer

    def close(self) -> None:
        """Stop answering."""
        self._answer = None


class Yardstick(Null):
    """A fixed amount of work in each ``recv``: Python bytecode, operations on small arrays, and copies of 28 KiB.

    The work takes about 100 microseconds, depends only on Python and numpy, and is the same in every version of
    vebench. Rates relative to it can be compared between runs and machines. A change of the work makes every baseline
    useless.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._state = np.linspace(0.0, 1.0, 4)
        self._matrix = np.eye(4) + 0.01
        self._pictures = np.zeros((2, 84, 84, 4), np.uint8)  # as Atari's observations

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
