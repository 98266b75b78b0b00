"""Suites whose environments are measured by their ids, where they are installed."""

from typing import Any

import numpy as np
import pytest

from vebench.backends import pools
from vebench.backends.environments.making import make, sample
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import Setup, Task
from vebench.backends.packages import ENVPOOL, importable
from vebench.backends.registry import BY_NAME, missing_packages
from vebench.plan.tasks import recorded_task, resolve

CHEETAH = Task("dm_control/cheetah-run-v0", "dm_control", 1)
HALLWAY = Task("MiniGrid-Empty-5x5-v0", "minigrid", 1)
SHAPE = {"position": (8,), "velocity": (9,)}
CONTROL = [Task(name, "dm_control", skip) for name, skip in SUITES["dm_control"].tasks.items()]

needs_envpool = pytest.mark.skipif(not importable(ENVPOOL.module), reason="EnvPool is not installed")


def skip_unless_installed(task: Task) -> None:
    if missing := BY_NAME["for-loop"].missing(task):
        pytest.skip(f"not installed: {', '.join(package.name for package in missing)}: make test-all")


def test_a_tasks_sub_steps_are_those_of_its_physics_and_it_ends_by_a_limit() -> None:
    skip_unless_installed(CHEETAH)
    for task in CONTROL:
        environment: Any = make(task).unwrapped
        inner = environment._env
        assert (inner._n_sub_steps, np.isfinite(inner._step_limit)) == (task.frame_skip, True), task
        environment.close()


@needs_envpool
def test_envpool_steps_it_with_dicts_and_says_what_differs() -> None:
    from vebench.backends.pools import EnvPoolSync

    backend = EnvPoolSync(Setup(CHEETAH, 2, 1, cpus=(0, 1)))
    assert "rewards in the row of a reset are not set" in {each.text for each in backend.info.differences}
    assert {engine.name for engine in backend.info.engines} == {"MuJoCo"}
    backend.reset(3)
    for _ in range(5):
        rows = backend.recv()
        assert {key: array.shape[1:] for key, array in dict(rows.observations).items()} == SHAPE
        backend.send(sample(backend.info.action_space, 0, backend.info.batch_size))
    backend.recv()
    backend.close()
    assert pools.chance(CHEETAH) == ("EnvPool draws the start with its own generator, and has no setting for it")


@pytest.mark.parametrize(("name", "task"), [("MiniGrid-Empty-5x5-v0", HALLWAY), ("dm_control/lqr-lqr_2_1-v0", None)])
def test_they_are_found_by_their_ids(name: str, task: Task | None) -> None:
    task = task or Task(name, "dm_control", 1)
    skip_unless_installed(task)
    assert resolve([name]) == (task,)


def test_known_tasks_need_no_lookup_and_nobody_misses_their_packages_who_does_not_name_them() -> None:
    assert resolve(["cheetah-run"]) == (CHEETAH,)
    assert recorded_task("MiniGrid-Empty-5x5-v0", 1, ("MiniGrid-Empty-5x5",)) == HALLWAY
    assert not {"dm-control", "shimmy", "minigrid"} & {package.name for package in missing_packages()}
    why = BY_NAME["gym-sync"].why_not(CHEETAH, lambda module: module not in ("dm_control", "shimmy"))
    assert why == "not installed: dm-control, shimmy (pip install dm-control shimmy)"
