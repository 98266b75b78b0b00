"""Restrict a process to the CPUs that its cell owns, and read back what the kernel reports.

The measuring child loads this before any large library.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SUPPORTED = hasattr(os, "sched_setaffinity")

# Each library gets one thread in each worker; otherwise W workers on W CPUs run W x W threads (pytorch/rl #1325).
# A library reads these variables when it is loaded, so they must be set before that.
ONE_THREAD_EACH = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OPENCV_FOR_THREADS_NUM": "1",
}


def restrict(cpus: list[int] | tuple[int, ...]) -> tuple[int, ...] | None:
    """Restrict this process, and all that it will start, to ``cpus``. Returns the set that the kernel then reports.

    Returns None if the system has no CPU affinity. If ``cpus`` is empty, nothing changes. Raises OSError if the kernel
    refuses, for example because the CPUs are outside the cpuset.
    """
    if not SUPPORTED:
        return None
    if cpus:
        os.sched_setaffinity(0, cpus)
    return allowed()


def keep_off(cpus: Sequence[int], home: Sequence[int] | None) -> None:
    """Keep this process, which may use the CPUs ``home``, off those of a cell, unless it would have none left."""
    if home is not None:
        restrict(sorted(set(home).difference(cpus)) or list(home))


def allowed() -> tuple[int, ...] | None:
    """Return the CPUs that this process may use, sorted; None if the system has no CPU affinity."""
    return tuple(sorted(os.sched_getaffinity(0))) if SUPPORTED else None


def own_threads() -> set[int]:
    """Return the ids of this process's threads; none where the system does not list them."""
    tasks = Path("/proc/self/task")
    return {int(thread.name) for thread in tasks.iterdir()} if tasks.exists() else set()


def place(threads: Sequence[int], cpus: Sequence[int]) -> None:
    """Keep each thread on a CPU of its own, since the kernel at times puts two of them on one."""
    for thread, cpu in zip(threads, cpus):  # noqa: B905 - there may be more CPUs
        os.sched_setaffinity(thread, {cpu})
