"""Restrict a process to the CPUs that its cell owns, and read back what the kernel made of it.

Loaded by the measuring child before anything heavy: standard library only.
"""

from __future__ import annotations

import os

SUPPORTED = hasattr(os, "sched_setaffinity")

# One thread for every library pool in each worker, or W workers on W CPUs run W x W threads (pytorch/rl #1325).
# The variables are read when the library is loaded, so they must stand in the environment before that.
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
    """Keep this process, and all that it will start, on ``cpus``, and return the set that the kernel reports then.

    None where the system has no such notion; with no ``cpus`` nothing is changed. Raises OSError if
    the kernel refuses, for instance because the CPUs lie outside the cpuset.
    """
    if not SUPPORTED:
        return None
    if cpus:
        os.sched_setaffinity(0, cpus)
    return allowed()


def allowed() -> tuple[int, ...] | None:
    """Return the CPUs that this process may use, sorted; None where the system has no such notion."""
    return tuple(sorted(os.sched_getaffinity(0))) if SUPPORTED else None
