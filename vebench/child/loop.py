"""The only timed loop. It contains nothing but ``send``, ``recv`` and the counting of rows."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace, VectorBackend

# A tape of this many batches is repeated while the cell runs: long enough that no environment gets a short pattern of
# actions, small enough to leave the caches to the environments.
MOST_TAPE_BATCHES = 1024
FEWEST_TAPE_BATCHES = 32
MOST_TAPE_BYTES = 8 << 20

# The clock is read about this often in a window. At 50 ns per reading, this is less than 0.001 % of a one-second
# window, and a window exceeds its duration by at most 1 %.
READINGS_PER_WINDOW = 100


def action_tape(space: ActionSpace, seed: int, batch_size: int) -> list[NDArray[np.generic]]:
    """Return the batches of actions, each ``(batch_size, *action_shape)``, that every backend of a run gets.

    They depend only on the arguments, so backends with the same batch size get the same bytes.
    """
    bytes_per_batch = 8 * batch_size * max(1, space.low.size)
    count = min(MOST_TAPE_BATCHES, max(FEWEST_TAPE_BATCHES, MOST_TAPE_BYTES // bytes_per_batch))
    return list(space.sample(np.random.default_rng(seed), count, batch_size))


class Stretch(NamedTuple):
    """One stretch of the loop: its nanoseconds, its rows, and how many of these only report a reset."""

    ns: int
    rows: int
    resets: int


class Loop:
    """Steps one backend with the actions of a tape, and counts rows and resets.

    A row after an end is an autoreset, not a transition. Looking up each row would double the cost of the loop.
    Instead, the loop counts ends, and remembers for each environment whether its last row was an end. Every end is
    followed by a reset row, so resets of a stretch = its ends + ends outstanding before it - ends outstanding after it.
    """

    def __init__(
        self, backend: VectorBackend, actions: Sequence[NDArray[np.generic]], clock: Callable[[], int]
    ) -> None:
        self._backend = backend
        self._actions = cycle(actions)
        self._clock = clock
        self._ended = np.zeros(backend.info.num_envs, np.bool_)
        self._resets_own_rows = backend.info.autoreset == "next_step"

    def run_for(self, duration_ns: int, batches_per_reading: int) -> Stretch:
        """Step batches until ``duration_ns`` is over. The clock is read once every ``batches_per_reading`` batches."""
        clock = self._clock
        outstanding = self._outstanding()
        rows = ends = 0
        start = now = clock()
        while now - start < duration_ns:
            more_rows, more_ends = self._step(batches_per_reading)
            now = clock()
            rows += more_rows
            ends += more_ends
        resets = ends + outstanding - self._outstanding() if self._resets_own_rows else 0
        return Stretch(now - start, rows, resets)

    def warm_up(self, duration_ns: int, window_ns: int) -> int:
        """Step batches for ``duration_ns``, at least one. Returns how many fit between two clock readings of a window.

        ``window_ns`` is the duration of a window.
        """
        clock = self._clock
        start = now = clock()
        batches, stretch = 0, 1
        while True:
            self._step(stretch)
            batches += stretch
            now = clock()
            if now - start >= duration_ns:
                break
            # Starts with one batch per reading and at most doubles, so even a very short warm-up finds the pace.
            stretch = max(1, min(2 * stretch, batches * window_ns // (READINGS_PER_WINDOW * max(1, now - start))))
        return max(1, batches * window_ns // (READINGS_PER_WINDOW * max(1, now - start)))

    def _outstanding(self) -> int:
        return int(np.count_nonzero(self._ended))

    def _step(self, batches: int) -> tuple[int, int]:
        send, recv, ended = self._backend.send, self._backend.recv, self._ended
        rows = ends = 0
        outstanding = bool(self._outstanding())
        for actions in islice(self._actions, batches):
            send(actions)
            _, _, terminated, truncated, env_ids = recv()
            rows += len(env_ids)
            # Most batches contain no end. Right after another thread has woken this one, caches are cold, and three
            # numpy calls take 4 microseconds; this takes 1. If a backend has as many threads as CPUs, this is visible.
            if 1 in terminated.tobytes() or 1 in truncated.tobytes():
                over = terminated | truncated
                ended[env_ids] = over
                ends += int(np.count_nonzero(over))
                outstanding = True
            elif outstanding:
                ended[env_ids] = False
                outstanding = bool(self._outstanding())
        return rows, ends
