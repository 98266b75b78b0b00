"""The planned counts of cells: what backends make of (workers, environments per worker, CPUs owned, options)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.entry import Shape
from vebench.backends.environments.suites import BURST

if TYPE_CHECKING:
    from vebench.backends.entry import Options


def in_caller(workers: int, envs: int, _cpus: int, _options: Options) -> Shape:
    """Return the counts with every environment in the calling process."""
    return Shape(workers * envs, workers * envs, processes=1, threads=1)


def process_each(workers: int, envs: int, _cpus: int, _options: Options) -> Shape:
    """Return the counts with a process for each environment."""
    return Shape(workers * envs, workers * envs, processes=workers * envs, threads=1)


def process_each_ahead(workers: int, envs: int, _cpus: int, options: Options) -> Shape:
    """Return the counts with a process for each environment, ``ratio`` of them for each row of a batch."""
    batch = workers * envs
    return Shape(batch * int(options["ratio"]), batch, processes=batch * int(options["ratio"]), threads=1)


def process_per_worker(workers: int, envs: int, _cpus: int, _options: Options) -> Shape:
    """Return the counts with a process for each worker."""
    return Shape(workers * envs, workers * envs, processes=workers, threads=1)


def process_per_cpu(workers: int, envs: int, cpus: int, _options: Options) -> Shape:
    """Return the counts with a process for each CPU owned, as far as there are workers."""
    return Shape(workers * envs, workers * envs, processes=min(workers, cpus), threads=1)


def free_running(workers: int, _envs: int, cpus: int, _options: Options) -> Shape:
    """Return the counts with a process for each CPU owned that makes bursts of steps, and is an environment."""
    processes = min(workers, cpus)
    return Shape(processes, BURST * processes, processes, threads=1)


def thread_per_cpu(workers: int, envs: int, cpus: int, _options: Options) -> Shape:
    """Return the counts with a thread for each CPU owned, as far as there are workers, in one process."""
    return Shape(workers * envs, workers * envs, processes=1, threads=min(workers, cpus))


def threads_ahead(workers: int, envs: int, cpus: int, options: Options) -> Shape:
    """Return the same, with ``ratio`` environments alive for each row of a batch."""
    batch = workers * envs
    return Shape(batch * int(options["ratio"]), batch, processes=1, threads=min(workers, cpus))


def processes_ahead(workers: int, envs: int, cpus: int, options: Options) -> Shape:
    """Return the counts with a process for each CPU owned, and ``ratio`` environments for each row of a batch."""
    batch = workers * envs
    return Shape(batch * int(options["ratio"]), batch, processes=min(workers, cpus), threads=1)


def processes_in_turn(workers: int, envs: int, cpus: int, _options: Options) -> Shape:
    """Return the counts with two processes for each CPU owned, one for each half of the environments."""
    return Shape(2 * workers * envs, workers * envs, processes=2 * min(workers, cpus), threads=1)
