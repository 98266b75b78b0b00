"""The only timed loop. Nothing but ``send``, ``recv`` and the row accounting stands in it."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace, VectorBackend

# A tape of this many batches is repeated for as long as the cell runs: long enough that no environment meets a short
# pattern, small enough that it stays out of the caches' way.
MOST_TAPE_BATCHES = 1024
FEWEST_TAPE_BATCHES = 32
MOST_TAPE_BYTES = 8 << 20

# The clock is read about this often in a window. At 50 ns a reading that is under 0.001 % of a one-second window, and
# a window overshoots its duration by 1 % at most.
READINGS_PER_WINDOW = 100


def action_tape(space: ActionSpace, seed: int, batch_size: int) -> list[NDArray[np.generic]]:
    """Return the batches of actions, each ``(batch_size, *action_shape)``, that every backend of a run is given.

    They depend on nothing but the arguments, so that backends with the same batch size get the same bytes.
    """
    bytes_per_batch = 8 * batch_size * max(1, space.low.size)
    count = min(MOST_TAPE_BATCHES, max(FEWEST_TAPE_BATCHES, MOST_TAPE_BYTES // bytes_per_batch))
    return list(space.sample(np.random.default_rng(seed), count, batch_size))


class Stretch(NamedTuple):
    """What one stretch of the loop took and returned: nanoseconds, rows, and those of them that only report a reset."""

    ns: int
    rows: int
    resets: int


class Loop:
    """Drives one backend over its tape, and counts.

    A row after an end is an autoreset, no transition. To look up each row would cost as much again as the whole loop.
    So the loop counts ends, and keeps for each environment whether its last row was one. Every end is followed by its
    reset row: a stretch has as many resets as ends, plus the ends outstanding before it, less those after it.
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
        """Step batches until ``duration_ns`` is over; the clock is read only after each ``batches_per_reading``."""
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
        """Step batches for ``duration_ns``, at least one, and return how many fit between two readings of a window."""
        clock = self._clock
        start = now = clock()
        batches, stretch = 0, 1
        while True:
            self._step(stretch)
            batches += stretch
            now = clock()
            if now - start >= duration_ns:
                break
            # Readings grow apart with the pace, so that even a warm-up of an instant finds it.
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
            # Most batches hold no end. Right after a thread has woken this one, the caches are cold, and three calls of
            # numpy take 4 microseconds; this takes one. Where a backend has as many threads as CPUs, that shows.
            if 1 in terminated.tobytes() or 1 in truncated.tobytes():
                over = terminated | truncated
                ended[env_ids] = over
                ends += int(np.count_nonzero(over))
                outstanding = True
            elif outstanding:
                ended[env_ids] = False
                outstanding = bool(self._outstanding())
        return rows, ends
