"""``make_vec`` against Gymnasium's own vector environments of the same tasks, element by element."""

import multiprocessing
import runpy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, NameNotFound, ResetNeeded, VersionNotFound
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import ClipReward
from support.places import EXAMPLES
from support.same_bytes import different_infos, ends_in, wrapped_game

from vebench.backends.fast import classes, make_vec
from vebench.backends.fast.backend import FastSync, build_task
from vebench.backends.shared_memory import SharedMemoryVectorEnv
from vebench.plan.tasks import TASKS

Build = Callable[..., Any]
Envs = VectorEnv[Any, Any, Any]
Patch = pytest.MonkeyPatch

gymnasium.register_envs(ale_py)
PONG, BREAKOUT, CHEETAH = "ALE/Pong-v5", "ALE/Breakout-v5", "HalfCheetah-v5"


@pytest.fixture
def build() -> Iterator[Build]:
    built: list[Any] = []

    def build_one(*args: Any, **options: Any) -> Any:
        built.append(make_vec(*args, **{"num_processes": 2, **options}))
        return built[-1]

    yield build_one
    for vector in built:
        vector.close()
    assert multiprocessing.active_children() == []


def loop(env_id: str, count: int, autoreset: str = "NextStep", **settings: Any) -> SyncVectorEnv:
    """Return environments as people make them with Gymnasium alone."""
    make = partial(gymnasium.make, env_id, disable_env_checker=True, **settings)
    if env_id.startswith("ALE/"):
        make = partial(wrapped_game, env_id, settings)
    return SyncVectorEnv([make] * count, autoreset_mode=autoreset)


def same(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    """Compare the results of two resets or two steps. Of infos, compare only the last observations of episodes."""
    for mine, its in zip(ours[:-1], theirs[:-1], strict=True):
        assert (mine.dtype, mine.shape) == (its.dtype, its.shape)
        assert mine.tobytes() == its.tobytes()
    assert different_infos(ends_in(theirs[-1]), ours[-1]) == ""


def agree(ours: Envs, theirs: Envs, steps: int, seed: int = 3) -> int:
    """Step both with the same actions and compare what they return; return how many episodes have ended."""
    same(ours.reset(seed=seed), theirs.reset(seed=seed))
    ours.action_space.seed(seed)
    ends = 0
    for _ in range(steps):
        actions = ours.action_space.sample()
        mine, its = ours.step(actions), theirs.step(actions)
        same(mine, its)
        over = mine[2] | mine[3]
        ends += int(over.sum())
        if over.any() and ours.metadata["autoreset_mode"] == AutoresetMode.DISABLED:
            same(*(vector.reset(options={"reset_mask": over.copy()}) for vector in (ours, theirs)))
    theirs.close()
    return ends


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize(
    ("env_id", "settings"), [(CHEETAH, {"max_episode_steps": 7}), (PONG, {"max_num_frames_per_episode": 49})]
)
def test_rows_are_gymnasiums(build: Build, env_id: str, settings: dict[str, Any], mode: str) -> None:
    ours = build(env_id, 3, autoreset_mode=mode, own_classes=True, **settings)
    assert ours.stepped_by.startswith("own classes for this task")
    assert agree(ours, loop(env_id, 3, mode, **settings), steps=30) > 5


def test_infos_are_gymnasiums_classes(build: Build) -> None:
    with pytest.warns(UserWarning, match="stepped by Gymnasium's class: our own classes have no infos"):
        ours = build(CHEETAH, 2, infos=True)
    ours.reset(seed=0)
    assert "x_position" in ours.step(ours.action_space.sample())[4]


def test_settings_of_games_mean_the_same_if_gymnasiums_class_steps(build: Build) -> None:
    settings = {"grayscale_newaxis": True, "scale_obs": True, "repeat_action_probability": 0.5, "difficulty": 1}
    with pytest.warns(UserWarning, match="does not support grayscale_newaxis, scale_obs"):
        ours = build(BREAKOUT, 1, **settings)
    theirs = loop(BREAKOUT, 1, **settings)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    agree(ours, theirs, steps=60)


def test_it_describes_itself_as_gymnasiums_vector_environments_do(build: Build) -> None:
    gaps = {"last_frames": True, "any_noop": True}  # of Gymnasium's wrapper; Pong's first observation has none
    for asked, env_id, more in (("ALE/Pong", PONG, gaps), ("HalfCheetah", CHEETAH, {})):
        ours, theirs = build(asked, 1, **more), loop(env_id, 1)
        assert isinstance(ours, SharedMemoryVectorEnv)
        assert ours.spec.id == env_id
        for name in ("observation_space", "action_space", "single_action_space", "metadata", "render_mode", "num_envs"):
            assert getattr(ours, name) == getattr(theirs, name)
        theirs.close()
        one = gymnasium.make(ours.spec)
        assert one.reset(seed=4)[0].tobytes() == ours.reset(seed=4)[0][0].tobytes()
        one.close()


def test_observations_of_own_classes_without_copies_are_read_only(build: Build) -> None:
    own, gymnasiums_class = (build(CHEETAH, 2, copy=False, own_classes=own) for own in (True, False))
    for returned in (own.reset(seed=0)[0], own.step(own.action_space.sample())[0], own.observations):
        with pytest.raises(ValueError, match="read-only"):
            returned[:] = 0
    gymnasiums_class.reset(seed=0)[0][:] = 0


def test_seeds_of_make_vec_are_those_of_the_first_reset(build: Build) -> None:
    ours, theirs = build(CHEETAH, 3, seed=7), loop(CHEETAH, 3)
    same(ours.reset(), theirs.reset(seed=7))
    same(ours.reset(), theirs.reset())
    same(build(CHEETAH, 3, seed=[7, 3, 9]).reset(), theirs.reset(seed=[7, 3, 9]))
    same(build(CHEETAH, 3, seed=7).reset(seed=1), theirs.reset(seed=1))
    theirs.close()


def test_a_task_without_an_own_class_is_stepped_by_gymnasiums_in_silence(build: Build) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = build("FrozenLake-v1", 3, is_slippery=False)
        asked = build(CHEETAH, 2, own_classes=False)
    assert ours.stepped_by == "Gymnasium's class: there is no class of our own for FrozenLake-v1"
    assert agree(ours, loop("FrozenLake-v1", 3, is_slippery=False), steps=60) > 0
    assert (ours.get_attr("nrow"), asked.get_attr("frame_skip")) == ((4,) * 3, (5, 5))


def unverified(patch: Patch) -> str:
    patch.setattr(classes, "VERSIONS", {**classes.VERSIONS, "gymnasium": ("0.1",)})
    return "our own class was verified with gymnasium 0.1"


def registered_anew(patch: Patch) -> str:
    patch.setitem(gymnasium.registry, CHEETAH, replace(gymnasium.spec(CHEETAH), kwargs={"ctrl_cost_weight": 3.0}))
    return "HalfCheetah-v5 is not registered as by Gymnasium"


def not_compiled(patch: Patch) -> str:
    patch.setattr(classes, "library", lambda: None)
    return classes.NOT_BUILT


@pytest.mark.parametrize("changed", [unverified, registered_anew, not_compiled])
def test_where_our_class_may_not_step_gymnasiums_does_and_a_warning_says_why(
    build: Build, monkeypatch: Patch, changed: Callable[[Patch], str]
) -> None:
    why = changed(monkeypatch)
    with pytest.warns(UserWarning, match=f"HalfCheetah-v5 is stepped by Gymnasium's class: {why}"):
        ours = build(CHEETAH, 2, autoreset_mode="SameStep", context="fork", max_episode_steps=7)
    assert agree(ours, loop(CHEETAH, 2, "SameStep", max_episode_steps=7), steps=20) == 4
    with pytest.raises(ValueError, match=f"own_classes=True: {why}"):
        make_vec(CHEETAH, own_classes=True)
    own = FastSync.stepped(TASKS["HalfCheetah"]).own_classes
    assert own is not None
    assert own.words == ours.stepped_by
    assert (own.remedy == classes.REMEDY) == (changed is not_compiled)


@pytest.mark.parametrize(
    ("env_id", "changes"),
    [
        (CHEETAH, {"entry_point": "elsewhere:Cheetah"}),
        (CHEETAH, {"additional_wrappers": (ClipReward.wrapper_spec(max_reward=0.0),)}),
        (PONG, {"kwargs": {"repeat_action_probability": 0.0}}),
        (PONG, {"max_episode_steps": 9}),
    ],
    ids=str,
)
def test_an_id_of_something_else_is_not_stepped_by_our_class(
    monkeypatch: Patch, env_id: str, changes: dict[str, Any]
) -> None:
    spec = gymnasium.spec(env_id)
    kwargs = {**spec.kwargs, **changes.get("kwargs", {})}
    monkeypatch.setitem(gymnasium.registry, env_id, replace(spec, **{**changes, "kwargs": kwargs}))
    task, steps = build_task(env_id, {})
    assert task is None
    assert "is not registered as by Gymnasium" in steps.refused


def test_a_step_after_an_end_names_the_environment_whose_episode_is_over(build: Build) -> None:
    envs = build("Hopper-v5", 4, autoreset_mode="Disabled", num_processes=1)
    envs.reset(seed=3)
    envs.action_space.seed(1)
    while not (over := np.logical_or(*envs.step(envs.action_space.sample())[2:4])).any():
        pass
    with pytest.raises(AssertionError, match="the episode is over") as raised:
        envs.step(envs.action_space.sample())
    assert str(raised.value.__cause__).startswith(f"environment {np.flatnonzero(over)[0]}: AssertionError: ")


def test_attributes_of_environments_need_gymnasiums_classes(build: Build) -> None:
    own = build(CHEETAH, 2)
    for ask in (partial(own.get_attr, "frame_skip"), partial(own.set_attr, "frame_skip", 2), own.render):
        with pytest.raises(AttributeError, match="own_classes=False"):
            ask()
    own.reset(seed=0)  # goes on
    own.close()
    with pytest.raises(ClosedEnvironmentError):
        own.get_attr("frame_skip")


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "words"),
    [
        ((PONG, 2), {"stack_num": 4}, TypeError, "unexpected keyword argument 'stack_num'"),
        ((PONG, 2), {"frame_skip": 0}, ValueError, "frame_skip"),
        ((CHEETAH, 2), {"vectorization_mode": "async"}, TypeError, "unexpected keyword argument"),
        ((CHEETAH, "2"), {}, ValueError, "num_envs"),
        ((CHEETAH, 2), {"batch_size": 3}, ValueError, "batch_size"),
        ((CHEETAH, 2), {"autoreset_mode": "odd"}, ValueError, "odd"),
        ((CHEETAH, 2), {"seed": [1, 2, 3]}, ValueError, "the length must match num_envs=2"),
        (("FrozenLake-v1", 2), {"own_classes": True}, ValueError, "no class of our own for FrozenLake-v1"),
        (("Nothing-v0", 2), {}, NameNotFound, "Nothing"),
        (("HalfCheetah-v6", 2), {}, VersionNotFound, "HalfCheetah"),
        ((gymnasium.spec("CartPole-v1"), 2), {}, TypeError, "id must be a name"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused_by_name(
    arguments: tuple[Any, ...], settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        make_vec(*arguments, **settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("own_classes", [True, False])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpus", [1 << 20]),
        ("cpus", "0"),
        ("num_processes", 0),
        ("num_processes", True),
        ("seed", -1),
        ("seed", [2**70]),
    ],
    ids=str,
)
def test_arguments_are_refused_whichever_class_steps(own_classes: bool, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name}(:| must be) .+$"):
        make_vec("CartPole-v1", 1, own_classes=own_classes, **{name: value})


@pytest.mark.parametrize("asked", [{"num_processes": 2}, {"batch_size": 1}], ids=str)
def test_an_action_that_a_game_lacks_is_refused_and_steps_nothing(build: Build, asked: dict[str, Any]) -> None:
    ours = build(PONG, 2, **asked)
    step = ours.send if "batch_size" in asked else ours.step
    ours.reset(seed=1)
    for actions, told in (([0, 99], "environment 1: there is no action 99, only 0 to 5"), ([-1, 5], "0: .* -1,")):
        with pytest.raises(ValueError, match=told):
            step(np.array(actions))
    for wrong, error in (([0.5, 0], TypeError), ([0], ValueError), (0, TypeError)):
        with pytest.raises(error, match="actions must"):
            step(np.array(wrong))
    if step == ours.step:
        theirs = loop(PONG, 2)
        theirs.reset(seed=1)
        same((ours.step(np.array([2, 5]))[0], {}), (theirs.step(np.array([2, 5]))[0], {}))
        theirs.close()


@pytest.mark.parametrize("name", [PONG, CHEETAH])
def test_a_step_before_the_first_reset_is_refused_as_by_gymnasium(build: Build, name: str) -> None:
    for asked, step in (({}, "step"), ({"batch_size": 1}, "send")):
        envs = build(name, 2, **asked)
        with pytest.raises(ResetNeeded):
            getattr(envs, step)(envs.action_space.sample())


def test_the_example_of_ppo_has_the_same_returns_on_gymnasiums_processes() -> None:
    pytest.importorskip("torch", reason="needs torch: make test-all")
    example = runpy.run_path(str(EXAMPLES / "ppo.py"))
    train, make_envs = example["train"], example["make_envs"]
    ours, theirs = (train(make_envs(CHEETAH, 2, with_gymnasium=theirs), 2_100, 1)[0] for theirs in (False, True))
    assert ours == theirs
    assert len(ours) == 2
