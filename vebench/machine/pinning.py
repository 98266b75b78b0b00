"""Restrict a process to the CPUs that its cell owns, and read back what the kernel reports.

The measuring child loads this before any large library.
"""

from __future__ import annotations

import os

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


def allowed() -> tuple[int, ...] | None:
    """Return the CPUs that this process may use, sorted; None if the system has no CPU affinity."""
    return tuple(sorted(os.sched_getaffinity(0))) if SUPPORTED else None
