"""Lines to paste, and what is promised of them; run as people do, in a script and an interpreter of their own."""

from collections.abc import Mapping

import pytest

from vebench.backends.entry import BackendEntry, Built
from vebench.backends.interface import Task
from vebench.backends.registry import ENTRIES

TASKS = (Task("CartPole-v1", "classic", 1), Task("HalfCheetah-v5", "mujoco", 5), Task("ALE/Pong-v5", "atari", 4))
OWN = Task("odd:Counter[length=7]", "callable", 1)
PASTED = [entry for entry in ENTRIES if entry.lines is not BackendEntry.lines]
BATCHES = 20


def task_of(entry: BackendEntry) -> Task:
    """Return the first task that a backend steps here; the test is skipped where there is none."""
    for task in TASKS:
        if entry.why_not(task) is None:
            return task
    return pytest.skip(str(entry.why_not(TASKS[-1])))


def built(entry: BackendEntry, task: Task, workers: int = 2, envs: int = 1, **options: bool | int | str) -> Built:
    """Return what a backend is planned to build on two CPUs."""
    shape = entry.shape_of(workers, envs, 2, options)
    return Built(shape.num_envs, shape.batch_size, shape.processes, shape.threads, task, options)


def check(counted: Mapping[str, int], planned: Built, ends: bool | None = None) -> None:
    """Look at what was counted of 20 batches. ``ends``: whether there are rows that only tell of a reset, if known."""
    assert (counted["num_envs"], counted["batch_size"]) == (planned.num_envs, planned.batch_size)
    assert counted["batches"] >= BATCHES
    rows = counted["batches"] * planned.batch_size
    assert 0 <= rows - counted["steps"] < rows / 2
    assert ends is None or (counted["steps"] < rows) == ends
