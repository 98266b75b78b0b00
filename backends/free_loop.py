"""The for-loop's environments on every CPU owned, each process with actions of its own: what no exchange would reach.

Nothing crosses between processes: no observation, no action, no batch. It is what samplers report that count the steps
of their workers, and the limit of every vectoriser that steps these environments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vebench.backends.ceiling import Ceiling
from vebench.backends.environments.making import make
from vebench.backends.environments.spaces import read_spaces
from vebench.backends.environments.suites import BURST
from vebench.backends.for_loop import loop_over
from vebench.backends.interface import Difference, sample
from vebench.backends.trees import as_rows

if TYPE_CHECKING:
    from vebench.backends.interface import Setup, Task

_TAPE = 256  # batches of actions


class FreeLoop(Ceiling):
    """``min(workers, CPUs owned)`` loops, each in a process of its own, the first in the caller's.

    Each steps its share of ``workers x envs_per_worker`` environments. A row stands for each step made since ``send``,
    as with ``Ceiling``; autoresets are not counted.
    """

    differences = (Difference("loops that exchange nothing: no observations, actions or batches of the caller's"),)

    def simulator_of(self, setup: Setup) -> FreeRunning:
        """Return the environments of one process."""
        processes = min(setup.workers, len(setup.cpus))
        return FreeRunning(setup.task, max(1, setup.batch_size // processes))


class FreeRunning:
    """``count`` environments of a task in one process, stepped by the reference's loop. They are made when seeded."""

    def __init__(self, task: Task, count: int) -> None:
        self._task, self._count = task, count

    def seed(self, seed: int) -> None:
        """Start again with actions sampled from ``seed``."""
        environments = [make(self._task) for _ in range(self._count)]
        spaces = read_spaces(self._task, environments[0].observation_space, environments[0].action_space)
        self._rows = spaces.rows(self._count)
        self._loop = loop_over(environments, self._rows)
        self._loop.reset(seed * self._count)
        self._tape = list(as_rows(sample(spaces.actions, np.random.default_rng(seed), _TAPE, self._count)))
        self._at = 0
        self._ahead = 0  # steps made that no burst has counted

    def burst(self) -> None:
        """Make ``BURST`` agent steps, starting over where an episode ends."""
        while self._ahead < BURST:
            over = np.count_nonzero(self._rows.terminated | self._rows.truncated)
            self._loop.step(self._tape[self._at])
            self._at = (self._at + 1) % _TAPE
            self._ahead += self._count - int(over)
        self._ahead -= BURST
