"""Which environments have not answered for so long that they are left behind, and are not only slow.

Rows may come in any order, and a batch is full without the environments that are not ready. One that loads a level, or
whose worker is not scheduled, is silent for thousands of batches of others that are quick, and comes back. So batches
alone tell nothing: time has to go by as well.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# An environment is silent that has not answered for so many batches, plus so many times as many as it used to need for
# an answer. If it does not answer for so many seconds of stepping either, it is left behind.
SILENT, _TIMES_SILENT = 1000, 50
PATIENCE_S = 20.0
# Of the time between two batches no more than this counts: whoever takes them may have paused.
MOST_BETWEEN_S = 0.1
_LOOK_EVERY = 256  # batches


def silent(batches: int, last: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which environments are silent after so many batches.

    ``last``: the batch in which each answered last, -1 if in none, ``(num_envs,)``. ``rows``: how often each answered,
    ``(num_envs,)``.
    """
    usual = (last + 1) / np.maximum(1, rows)
    found: NDArray[np.bool_] = batches - 1 - last > SILENT + _TIMES_SILENT * usual
    return found


def left_behind(env_id: int, batches: int, seconds: float) -> str:
    """Return the fault of an environment that is left behind."""
    answered = f"it answered in none of the last {batches:,} batches, nor in {seconds:g} s"
    return f"environment {env_id} is left behind: {answered}"


class Silence:
    """Looks for an environment that is left behind while a backend is stepped. ``clock`` is in seconds."""

    def __init__(self, num_envs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._batches, self._spent, self._now = 0, 0.0, clock()
        self._rows = np.zeros(num_envs, np.int64)
        self._last = np.full(num_envs, -1)
        self._last_spent = np.zeros(num_envs)

    def note(self, env_ids: NDArray[np.integer]) -> str | None:
        """Take the ids of the next batch. Returns the fault if an environment is left behind, None if none is."""
        now = self._clock()
        self._spent += min(MOST_BETWEEN_S, now - self._now)
        self._now = now
        self._rows[env_ids] += 1
        self._last[env_ids] = self._batches
        self._last_spent[env_ids] = self._spent
        self._batches += 1
        if self._batches % _LOOK_EVERY:
            return None
        lost = silent(self._batches, self._last, self._rows) & (self._spent - self._last_spent > PATIENCE_S)
        if not lost.any():
            return None
        env_id = int(np.flatnonzero(lost)[0])
        return left_behind(env_id, self._batches - 1 - int(self._last[env_id]), PATIENCE_S)
