"""Our class for classic control against Gymnasium's: the same bytes."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from support.same_bytes import compare, made_case

from vebench.backends.fast import classic, make_vec
from vebench.backends.fast.classes import NOT_BUILT, library
from vebench.backends.interface import Task

# Each setting is unlike its default and matters within the steps that are compared.
VARIED: Mapping[str, Mapping[str, Any]] = {
    "Acrobot-v1": {"max_episode_steps": 600},
    "CartPole-v0": {"max_episode_steps": 30},
    "CartPole-v1": {"max_episode_steps": 30, "sutton_barto_reward": True},
    "MountainCar-v0": {"max_episode_steps": 30},
    "MountainCarContinuous-v0": {"max_episode_steps": 30},
    "Pendulum-v1": {"max_episode_steps": 700, "g": 9},
}

pytestmark = [
    pytest.mark.skipif(library() is None, reason=NOT_BUILT),
    pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date:DeprecationWarning"),
]


@pytest.mark.parametrize("varied", [False, True], ids=["defaults in float64", "other settings in float32"])
@pytest.mark.parametrize("env_id", VARIED)
def test_every_task_has_the_bytes_of_gymnasiums_class(env_id: str, varied: bool) -> None:
    task, parts = Task(env_id, "classic", 1), {"num_envs": 3, "new_starts": True}
    if varied:
        real = isinstance(gymnasium.make(env_id).action_space, Box)
        parts |= {"autoreset": "SameStep", "action_type": np.float32 if real else None, "beyond": 1.5}
    found = compare(made_case("", task, 1500, VARIED[env_id] if varied else {}, **parts))
    assert found.difference == ""
    assert found.ends or not varied


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize(
    ("env_id", "settings", "fewest"),
    [
        ("CartPole-v1", {}, 400),
        ("MountainCar-v0", {"goal_velocity": 0.005}, 8),
        ("MountainCarContinuous-v0", {"goal_velocity": 0.03}, 8),
    ],
)
def test_games_that_are_played_well_or_badly_end_as_gymnasiums_do(
    env_id: str, settings: dict[str, Any], fewest: int, mode: str
) -> None:
    def play(seen: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        pushes = np.sign(seen[:, 1])  # swings a car up, and tips a pole over
        if "Continuous" in env_id:
            return (pushes * np.linspace(0.7, 1.3, len(seen)))[:, None].astype(np.float32)
        return (pushes > 0) * (2 if "Mountain" in env_id else 1)

    parts: dict[str, Any] = {"num_envs": 16, "seed": 5, "autoreset": mode, "play": play}
    if "Continuous" in env_id:
        parts["action_type"] = np.float32
    found = compare(made_case("", Task(env_id, "classic", 1), 300, settings, **parts))
    assert found.difference == ""
    assert found.ends["terminated"] >= fewest


@pytest.mark.parametrize(
    ("env_id", "settings", "why"),
    [
        ("CartPole-v1", {"render_mode": "rgb_array"}, "does not support render_mode"),
        ("MountainCar-v0", {"goal_velocity": np.float32(0.01)}, "not a number of Python's"),
    ],
)
def test_what_our_class_does_not_know_is_stepped_by_gymnasiums(env_id: str, settings: dict[str, Any], why: str) -> None:
    with pytest.warns(UserWarning, match=why), closing(make_vec(env_id, 2, num_processes=1, **settings)) as envs:
        assert envs.stepped_by.startswith("Gymnasium's class")


def test_functions_of_the_c_library_that_are_not_numpys_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "cos", lambda number: np.nextafter(np.float64(number), 2.0))
    classic._computes_the_same.cache_clear()
    with pytest.raises(ValueError, match="computes other bytes"):
        classic.ClassicTask("CartPole-v1", {})
    classic._computes_the_same.cache_clear()


def test_bounds_of_the_first_state_are_refused_by_name() -> None:
    with closing(make_vec("Pendulum-v1", 2)) as envs:
        assert envs.processes == []  # they would take longer to hand over than to step
        with pytest.raises(ValueError, match=r"takes no x_init, y_init: use own_classes=False"):
            envs.reset(options={"y_init": 0.1, "x_init": 0.2})
        assert envs.reset(options={})[0].shape == (2, 3)
