"""Lines to paste, run as people do: in a script of their own, in an interpreter of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import driving
from support.places import ENVIRONMENTS

from vebench.backends.entry import Built, no_lines
from vebench.backends.interface import Task
from vebench.backends.registry import ENTRIES

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.backends.entry import BackendEntry

TASKS = (
    Task("CartPole-v1", "classic", 1),
    Task("HalfCheetah-v5", "mujoco", 5),
    Task("ALE/Pong-v5", "atari", 4),
)
OWN = Task("uneven:Uneven[length=7,reset_ms=0,step_ms=0]", "callable", 1)
PASTED = [entry for entry in ENTRIES if entry.lines is not no_lines]
BATCHES = 20
LONG = 120.0


def task_of(entry: BackendEntry) -> Task:
    """Return the first task that a backend steps here; the test is skipped where there is none."""
    for task in TASKS:
        if entry.why_not(task) is None:
            return task
    return pytest.skip(str(entry.why_not(TASKS[-1])))


def built(entry: BackendEntry, task: Task, **options: bool | int | str) -> Built:
    """Return what a backend is planned to build with two workers of two environments each, on two CPUs."""
    shape = entry.shape_of(2, 2, 2, options)
    return Built(task, shape.num_envs, shape.batch_size, shape.processes, shape.threads, options)


def pasted(planned: Built, lines: tuple[str, ...], folder: Path, python: str = sys.executable) -> dict[str, int]:
    """Run the lines in a script of ``folder``, and return what was counted."""
    script = driving.write(folder, lines, f"batches={BATCHES}, num_envs={planned.num_envs}")
    path = os.pathsep.join((str(ENVIRONMENTS), str(ENVIRONMENTS.parent / "support")))
    done = subprocess.run(
        [python, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counted: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    assert (counted["num_envs"], counted["batch_size"]) == (planned.num_envs, planned.batch_size)
    assert counted["batches"] >= BATCHES
    return counted
