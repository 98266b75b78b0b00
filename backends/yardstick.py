"""A fixed amount of work of vebench's own: what the machine does in the same time, whatever is measured beside it.

A step is a mix as environments have it: Python bytecode, operations on small arrays, and copies of some tens of KiB. It
takes about 100 microseconds, depends on nothing but Python and numpy, and is the same in every version: rates relative
to it can be compared from run to run and from machine to machine. Changing it makes every baseline useless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vebench.backends.null import Null

if TYPE_CHECKING:
    from vebench.backends.interface import Batch, Setup

_BYTECODE, _SMALL, _COPIES = 200, 8, 2
_PICTURE = (84, 84, 4)  # as Atari's observations: 28 KiB


class Yardstick(Null):
    """Does the work in each ``recv``, and returns the same zeros."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._state = np.linspace(0.0, 1.0, 4)
        self._matrix = np.eye(4) + 0.01
        self._pictures = np.zeros((2, *_PICTURE), np.uint8)

    def recv(self) -> Batch:
        """Do the work and return the rows."""
        total, table = 0, {}
        for number in range(_BYTECODE):
            total = (total * 31 + number) & 0xFFFF
            table[number & 15] = total
        state = self._state
        for _ in range(_SMALL):
            state = np.clip(self._matrix @ state, -1.0, 1.0)
        one, other = self._pictures
        for _ in range(_COPIES):
            other[...] = one
            one[...] = other
        return super().recv()
