"""gymnasium.make_vec makes a SharedMemoryVectorEnv: by its spec, or where AsyncVectorEnv was."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import ClipReward, FlattenObservation
from support.recipes import recipe

from vebench.backends.shared_memory import SharedMemoryVectorEnv, shared_memory_spec


def test_make_vec_makes_ours_by_its_spec_with_settings_and_wrappers() -> None:
    wrappers = [FlattenObservation, partial(ClipReward, max_reward=0.5)]
    settings = {"sutton_barto_reward": True, "max_episode_steps": 9}
    spec = shared_memory_spec("CartPole-v1", wrappers=wrappers, num_processes=2, copy=False)
    ours = gymnasium.make_vec(spec, num_envs=3, **settings)
    theirs = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync", wrappers=wrappers, **settings)
    assert data_equivalence(ours.reset(seed=1), theirs.reset(seed=1))
    for _ in range(20):
        actions = theirs.action_space.sample()
        assert data_equivalence(ours.step(actions), theirs.step(actions))
    assert isinstance(ours, SharedMemoryVectorEnv)
    assert not ours.copy
    again = gymnasium.make_vec(ours.spec)  # what Gymnasium has kept of it
    assert isinstance(again, SharedMemoryVectorEnv)
    assert again.num_envs == 3
    with_a_module = gymnasium.make_vec(shared_memory_spec("various:various/Troubled-v0"), num_envs=2)
    assert isinstance(with_a_module, SharedMemoryVectorEnv)
    for envs in (ours, theirs, again, with_a_module):
        envs.close()


def test_the_recipe_of_the_documents_makes_ours() -> None:
    envs = recipe("gymnasium-make-vec")["envs"]
    assert isinstance(envs, SharedMemoryVectorEnv)
    envs.reset(seed=1)
    assert envs.step(envs.action_space.sample())[1].tolist() == np.ones(8).tolist()
    envs.close()


def test_gymnasium_makes_ours_where_its_own_class_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium.vector, "AsyncVectorEnv", SharedMemoryVectorEnv)
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="async")
    assert isinstance(envs, SharedMemoryVectorEnv)
    envs.close()
