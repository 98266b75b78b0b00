"""StableBaselinesVecEnv against SubprocVecEnv's contract, element by element, where Stable-Baselines3 is installed."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from support.recipes import recipe

pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: make test-all")

from collections.abc import Iterator

from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from vebench.backends.fast.vector_env import make_vec
from vebench.backends.shared_memory import SharedMemoryVectorEnv, StableBaselinesVecEnv


class Short(gymnasium.Env[Any, Any]):
    """Ends after four steps, or is cut off after three; says what it was reset with."""

    def __init__(self, *, cut: bool = False) -> None:
        self.observation_space = spaces.Dict({"at": spaces.Box(0, 9, (2,), np.float32), "n": spaces.Discrete(9)})
        self.action_space = spaces.Discrete(3)
        self.render_mode = "rgb_array"
        self.cut, self.level, self._steps = cut, 0, 0

    def _at(self) -> dict[str, Any]:
        return {"at": np.full(2, self._steps, np.float32), "n": self._steps}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._at(), {"seed": seed, "options": options, "drawn": self.np_random.random()}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._at(), 0.5 * action, self._steps == 4, self.cut and self._steps == 3, {"text": f"{self._steps}"}

    def render(self) -> Any:
        return np.full((2, 2, 3), self._steps, np.uint8)

    def raised(self, by: int, *, twice: bool = False) -> int:
        return self.level + by * (1 + twice)


def functions() -> list[Any]:
    return [lambda cut=cut: Monitor(Short(cut=cut)) for cut in (False, True, False)]


@pytest.fixture
def both() -> Iterator[tuple[StableBaselinesVecEnv, DummyVecEnv]]:
    ours, theirs = StableBaselinesVecEnv(functions(), num_processes=2), DummyVecEnv(functions())
    yield ours, theirs
    ours.close()
    theirs.close()


def without_clock(infos: Any) -> list[dict[str, Any]]:
    """Return infos without the time that Monitor has measured."""
    return [{**info, **({"episode": info["episode"] | {"t": 0}} if "episode" in info else {})} for info in infos]


def test_rows_infos_ends_seeds_and_options_are_the_librarys(both: tuple[StableBaselinesVecEnv, DummyVecEnv]) -> None:
    ours, theirs = both
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    for options in (None, {"x": 1}, [{"x": 1}, {}, {"x": np.arange(2)}]):
        for envs in both:
            envs.seed(5)
            envs.set_options(options)
        assert data_equivalence(dict(ours.reset()), dict(theirs.reset()))
        assert [info["seed"] for info in ours.reset_infos] == [5, 6, 7]
        mine, its = ([info["options"] or {} for info in envs.reset_infos] for envs in both)
        assert data_equivalence(mine, its)
        for step in range(9):
            actions = np.array([step % 3, 1, 2])
            (observations, rewards, ended, infos), its_rows = ours.step(actions), theirs.step(actions)
            assert data_equivalence(dict(observations), dict(its_rows[0]))
            np.testing.assert_array_equal(rewards, its_rows[1])
            np.testing.assert_array_equal(ended, its_rows[2])
            assert data_equivalence(without_clock(infos), without_clock(its_rows[3]))
        drawn = [[info["drawn"] for info in envs.reset_infos] for envs in both]
        assert drawn[0] == drawn[1]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, True, False]
    assert infos[1]["terminal_observation"]["n"] == infos[1]["episode"]["l"] == 3


def test_attributes_methods_wrappers_and_images_are_by_index(both: tuple[StableBaselinesVecEnv, DummyVecEnv]) -> None:
    for envs in both:
        envs.reset()
        assert envs.get_attr("cut", [1, 2]) == [True, False]
        assert envs.get_attr("render_mode", 1) == ["rgb_array"]
        envs.env_method("set_wrapper_attr", "level", 7, indices=2)
        assert envs.env_method("raised", 1, twice=True) == [2, 2, 9]
        envs.set_attr("mark", "m", indices=[0, -1])
        assert envs.has_attr("level")
        assert not envs.has_attr("mark")
        assert envs.get_attr("mark", [0, 2]) == ["m", "m"]
        assert envs.env_is_wrapped(Monitor) == [True] * 3
        assert envs.env_is_wrapped(gymnasium.wrappers.ClipReward, indices=[0]) == [False]
        assert [image.shape for image in envs.get_images()] == [(2, 2, 3)] * 3


def test_a_vector_environment_can_be_given_if_it_resets_within_a_step() -> None:
    vec_env = StableBaselinesVecEnv(make_vec("CartPole-v1", 2, autoreset_mode="SameStep"))
    vec_env.seed(1)
    assert vec_env.reset().shape == (2, 4)
    infos = [info for _ in range(60) for info in vec_env.step(np.zeros(2, np.int64))[3]]
    assert any("terminal_observation" in info for info in infos)
    vec_env.close()
    for wrong in ({}, {"autoreset_mode": "SameStep", "batch_size": 1}):
        refused = SharedMemoryVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 2, **wrong)
        with pytest.raises(ValueError, match="Stable-Baselines3"):
            StableBaselinesVecEnv(refused)
        refused.close()


def test_the_recipe_of_the_documents_learns() -> None:
    model = recipe("stable-baselines3")["model"]
    assert model.num_timesteps >= 256
    model.get_env().close()
