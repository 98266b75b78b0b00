"""Threads that step a batch of environments: see ``pool.c``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from vebench.backends.fast.native import needed
from vebench.backends.shared_memory.memory_layout import Division

_POLL_NS = 50_000  # for how long a thread with nothing to do polls at most


class Pool:
    """The threads of one batch, whose function of C is at the address ``work``: see ``FastBatch``.

    They step ``chunk`` environments at a time. The caller steps some while it waits, if the division says so.
    """

    def __init__(self, work: int, context: int, num_envs: int, chunk: int, division: Division) -> None:
        library = self._library = needed()
        library.vebench_pool_start.restype = ctypes.c_void_p
        library.vebench_pool_get.restype = library.vebench_pool_in.restype = ctypes.c_int64
        threads = min(division.processes, -(-num_envs // chunk)) - division.caller_steps
        cpus = np.array(division.cpus[division.caller_steps :], np.int32)
        numbers = (num_envs, chunk, threads, division.caller_steps, min(division.spin_ns, _POLL_NS))
        started = library.vebench_pool_start(
            ctypes.c_void_p(work),
            ctypes.c_void_p(context),
            *map(ctypes.c_int64, numbers),
            ctypes.c_void_p(cpus.ctypes.data if len(cpus) else None),
        )
        if not started:
            where = f" on CPUs {cpus.tolist()}" if len(cpus) else ""
            raise RuntimeError(f"{threads} threads cannot be started{where}")
        self._pool = ctypes.c_void_p(started)
        self._received = np.zeros(num_envs, np.int64)
        # Arguments as C takes them, made once: each step needs them.
        self._all = ctypes.c_int64(num_envs)
        self._at = ctypes.c_void_p(self._received.ctypes.data)
        self._without_limit = ctypes.c_int64(-1)

    def put(self, indices: Sequence[int] | None) -> None:
        """Let the work on these environments begin, None for all. None of them may be in the pool."""
        if indices is None:
            self._library.vebench_pool_put_all(self._pool)
        else:
            given = np.array(indices, np.int64)
            self._library.vebench_pool_put(self._pool, ctypes.c_void_p(given.ctypes.data), ctypes.c_int64(len(given)))

    def get_all(self) -> None:
        """Wait until the work on all environments is done. All must be in the pool."""
        self._library.vebench_pool_get(self._pool, self._all, None, self._without_limit)

    def get(self, least: int, seconds: float | None = None) -> list[int]:
        """Return the first ``least`` environments or more whose work is done; after ``seconds``, fewer."""
        limit = self._without_limit if seconds is None else ctypes.c_int64(int(1e9 * seconds))
        count: int = self._library.vebench_pool_get(self._pool, ctypes.c_int64(least), self._at, limit)
        return self._received[:count].tolist()  # type: ignore[no-any-return]

    def drain(self) -> None:
        """Wait until the pool is empty."""
        self.get(self._library.vebench_pool_in(self._pool))

    def stop(self) -> None:
        """End the threads, once they have finished their work."""
        self._library.vebench_pool_stop(self._pool)
