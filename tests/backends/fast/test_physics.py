"""Our class for MuJoCo's tasks against Gymnasium's: the same bytes."""

import inspect
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from support.same_bytes import Case, Way, benchmark_case, compare, made_case

from vebench.backends.fast import make_vec
from vebench.backends.fast.classes import NOT_BUILT, class_of, library
from vebench.backends.fast.physics import PhysicsTask
from vebench.backends.fast.physics_tasks import RULES
from vebench.backends.interface import Task
from vebench.plan.tasks import TASKS

COUNT = 3
# Settings of which each is unlike its default and matters within the steps that are compared.
LOCOMOTION = {
    "forward_reward_weight": 0.7,
    "ctrl_cost_weight": 2,
    "reset_noise_scale": 0.02,
    "exclude_current_positions_from_observation": False,
}
HUMANOID = {
    "include_cinert_in_observation": False,
    "include_qfrc_actuator_in_observation": False,
    "exclude_current_positions_from_observation": False,
}
VARIED: Mapping[str, Mapping[str, Any]] = {
    "Ant-v5": {
        **LOCOMOTION,
        "contact_cost_weight": 0.3,
        "contact_force_range": (None, 0.7),
        "healthy_reward": 3,
        "healthy_z_range": (0.5, 0.8),
        "main_body": "front_left_leg",
        "frame_skip": 3,
    },
    "HalfCheetah-v5": {**LOCOMOTION, "frame_skip": 2},
    "Hopper-v5": {
        **LOCOMOTION,
        "healthy_reward": 3,
        "healthy_state_range": (-2.0, 2.0),
        "healthy_z_range": (1.1, 1.3),
        "healthy_angle_range": (-0.05, 0.05),
    },
    "Humanoid-v5": {**HUMANOID, "contact_cost_weight": 0.01, "contact_cost_range": (None, 0.2), "healthy_reward": 2},
    "HumanoidStandup-v5": {**HUMANOID, "impact_cost_weight": 0.01, "impact_cost_range": (0.1, None)},
    "InvertedDoublePendulum-v5": {"healthy_reward": 3, "reset_noise_scale": 0.3},
    "InvertedPendulum-v5": {"reset_noise_scale": 0.15, "frame_skip": 3},
    "Pusher-v5": {"reward_near_weight": 0.3, "reward_dist_weight": 2, "reward_control_weight": 0.7},
    "Reacher-v5": {"reward_dist_weight": 2, "reward_control_weight": 0.7},
    "Swimmer-v5": LOCOMOTION,
    "Walker2d-v5": {**LOCOMOTION, "healthy_angle_range": (-0.1, 0.1), "terminate_when_unhealthy": False},
}

pytestmark = pytest.mark.skipif(library() is None, reason=NOT_BUILT)


@pytest.mark.parametrize("varied", [False, True], ids=["defaults in float64", "other settings in float32"])
@pytest.mark.parametrize("env_id", RULES)
def test_every_task_has_the_bytes_of_gymnasiums_class(env_id: str, varied: bool) -> None:
    settings = {"max_episode_steps": 17, **(VARIED[env_id] if varied else {})}
    task = Task(env_id, "mujoco", 1)
    dtype = np.float32 if varied else np.float64
    found = compare(made_case("", task, 40, settings, num_envs=COUNT, seed=7, action_type=dtype))
    assert found.difference == ""
    assert found.ends.total() >= 2 * COUNT


CHEETAH, HOPPER, PENDULUM = (TASKS[name] for name in ("HalfCheetah", "Hopper", "InvertedPendulum"))
SHORT = {"max_episode_steps": 7}
ALONE = {"num_envs": 3, "ways": (Way(7, singly=True), Way(1, singly=True))}


@pytest.mark.parametrize(
    ("case", "ends"),
    [
        (made_case("new starts", CHEETAH, 60, {}, num_envs=5, action_type=np.float32, new_starts=True, seed=20), ""),
        (made_case("one by one", CHEETAH, 60, SHORT, **ALONE), "limit"),
        (made_case("one by one, SameStep", CHEETAH, 24, SHORT, autoreset="SameStep", **ALONE), "limit"),
        (made_case("SameStep", CHEETAH, 24, SHORT, autoreset="SameStep", num_envs=3), "limit"),
        (made_case("Disabled", HOPPER, 24, SHORT, autoreset="Disabled", num_envs=3), "limit"),
        (benchmark_case("benchmark", HOPPER, 210), "terminated"),
        (made_case("both ends at once", PENDULUM, 24, {"max_episode_steps": 6}, num_envs=9), "both"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_however_they_end_and_begin_episodes_have_the_bytes_of_gymnasiums_class(case: Case, ends: str) -> None:
    found = compare(case)
    assert found.difference == ""
    assert found.rows > case.steps
    assert found.ends[ends] or not ends


def test_every_setting_of_gymnasiums_class_is_supported_but_the_model() -> None:
    for env_id in RULES:
        kind = type(gymnasium.make(env_id).unwrapped)
        arguments = set(inspect.signature(kind.__init__).parameters) - {"self", "kwargs"}
        ours = class_of(env_id)
        assert ours is not None
        assert arguments & ours.unsupported == {"xml_file"}


def same(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    return [part.tobytes() for part in ours[:-1]] == [part.tobytes() for part in theirs[:-1]]


def test_actions_of_no_numbers_do_what_they_do_at_gymnasium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo keeps a log of warnings there
    one = make_vec("Walker2d-v5", COUNT, num_processes=2, own_classes=True)
    other = SyncVectorEnv([partial(gymnasium.make, "Walker2d-v5", disable_env_checker=True)] * COUNT)
    with closing(one) as ours, closing(other) as theirs:
        assert same(ours.reset(seed=0), theirs.reset(seed=0))
        actions = np.zeros((COUNT, 6), np.float32)
        for odd in (np.nan, np.inf, 1e8):
            actions[1, 2] = odd
            assert same(ours.step(actions), theirs.step(actions))


@pytest.mark.parametrize("asked", [{}, {"batch_size": 2}], ids=str)
def test_an_error_of_mujoco_names_its_environment_and_does_not_end_the_process(asked: dict[str, Any]) -> None:
    with closing(make_vec("HalfCheetah-v5", COUNT, num_processes=2, own_classes=True, **asked)) as envs:
        envs.reset(seed=0)
        envs._own.model.opt.integrator, before = 99, envs._own.model.opt.integrator
        actions, named = envs.action_space.sample(), set()
        for _ in range(COUNT if asked else 1):
            if asked and not named:
                envs.send(actions)
            with pytest.raises(mujoco.FatalError, match="integrator") as raised:
                envs.recv(min_batch=1) if asked else envs.step(actions)
            named.add(str(raised.value.__cause__).partition(":")[0])
        assert named == {f"environment {index}" for index in range(COUNT if asked else 1)}
        envs._own.model.opt.integrator = before
        envs.reset(seed=0)
        if asked:
            envs.send(actions)
        rows = envs.recv(min_batch=1) if asked else envs.step(actions)
        assert rows[1].all()


def test_a_setting_that_gymnasiums_space_does_not_follow_is_refused() -> None:
    with pytest.raises(ValueError, match="is a setting not a bool"):
        PhysicsTask("Humanoid-v5", {"include_cvel_in_observation": 1})
