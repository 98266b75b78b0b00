"""``make_vec`` against Gymnasium's own vector environments of the same tasks, element by element."""

import multiprocessing
import runpy
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import ale_py
import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import ClipReward
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from support.same_bytes import different_infos, wrapped_game

from vebench.backends.fast import classes, make_vec, native, physics
from vebench.backends.fast.backend import FastSync
from vebench.backends.fast.classic import ClassicBatch
from vebench.backends.fast.share import build_task
from vebench.backends.shared_memory import SharedMemoryVectorEnv
from vebench.plan.tasks import TASKS

Build = Callable[..., Any]
Envs = VectorEnv[Any, Any, Any]

gymnasium.register_envs(ale_py)
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "ppo.py"
PONG, BREAKOUT, CHEETAH = "ALE/Pong-v5", "ALE/Breakout-v5", "HalfCheetah-v5"


@pytest.fixture
def build() -> Iterator[Build]:
    built: list[Any] = []

    def build_one(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - what make_vec is given
        built.append(make_vec(*args, **{"num_processes": 2, **options}))
        return built[-1]

    yield build_one
    for vector in built:
        vector.close()
    assert multiprocessing.active_children() == []


def gymnasiums(env_id: str, **settings: Any) -> Any:  # noqa: ANN401 - each its own
    """Return an environment as people make it with Gymnasium alone."""
    if env_id.startswith("ALE/"):
        return wrapped_game(env_id, settings)
    return gymnasium.make(env_id, disable_env_checker=True, **settings)


def loop(env_id: str, count: int, autoreset: str = "NextStep", **settings: Any) -> SyncVectorEnv:  # noqa: ANN401 - as above
    return SyncVectorEnv([partial(gymnasiums, env_id, **settings)] * count, autoreset_mode=autoreset)


def same(ours: tuple[Any, ...], theirs: tuple[Any, ...], *, infos: bool = False) -> None:
    """Compare what two resets or two steps have returned; without ``infos``, all but those that are left out then."""
    for mine, its in zip(ours[:-1], theirs[:-1], strict=True):
        assert mine.dtype == its.dtype
        assert mine.shape == its.shape
        assert mine.tobytes() == its.tobytes()
    left = {"final_obs", "_final_obs", "final_info", "_final_info"} & theirs[-1].keys()
    expected = theirs[-1] if infos else {name: {} if name == "final_info" else theirs[-1][name] for name in left}
    assert different_infos(expected, ours[-1]) == ""


def agree(ours: Envs, theirs: Envs, steps: int, seed: int = 3, *, infos: bool = False) -> int:
    """Step both with the same actions and compare what they return; return how many episodes have ended."""
    same(ours.reset(seed=seed), theirs.reset(seed=seed), infos=infos)
    ours.action_space.seed(seed)
    ends = 0
    for _ in range(steps):
        actions = ours.action_space.sample()
        mine, its = ours.step(actions), theirs.step(actions)
        same(mine, its, infos=infos)
        over = mine[2] | mine[3]
        ends += int(over.sum())
        if over.any() and ours.metadata["autoreset_mode"] == AutoresetMode.DISABLED:
            same(*(vector.reset(options={"reset_mask": over.copy()}) for vector in (ours, theirs)), infos=infos)
    theirs.close()
    return ends


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_rows_are_those_of_gymnasiums_class_however_episodes_begin_again(build: Build, mode: str) -> None:
    ours = build(CHEETAH, 3, autoreset_mode=mode, own_classes=True, max_episode_steps=7)
    assert ours.stepped_by.startswith("own classes for this task")
    assert agree(ours, loop(CHEETAH, 3, mode, max_episode_steps=7), steps=20) > 5


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_infos_are_those_of_gymnasiums_class_at_resets_and_at_steps(build: Build, mode: str) -> None:
    for env_id, settings in ((CHEETAH, {"max_episode_steps": 7}), (PONG, {"max_num_frames_per_episode": 49})):
        ours = build(env_id, 3, autoreset_mode=mode, own_classes=True, infos=True, **settings)
        assert agree(ours, loop(env_id, 3, mode, **settings), steps=30, infos=True) > 5


def test_environments_that_are_received_singly_have_the_infos_that_they_would_have_together(build: Build) -> None:
    def histories(**asked: Any) -> list[list[Any]]:  # noqa: ANN401 - as make_vec's own
        envs = build("Hopper-v5", 3, infos=True, max_episode_steps=5, **asked)
        envs.reset(seed=2)
        seen: list[list[Any]] = [[], [], []]
        if asked:
            envs.send(np.zeros((3, 3)))
        while min(map(len, seen)) < 20:
            infos, env_ids = envs.recv()[4:] if asked else (envs.step(np.zeros((3, 3)))[4], range(3))
            for row, env_id in enumerate(env_ids):
                told = [name for name in infos if f"_{name}" in infos and infos[f"_{name}"][row]]
                seen[env_id].append({name: infos[name][row] for name in told})
            if asked:
                envs.send(np.zeros((len(env_ids), 3)))
        return [each[:20] for each in seen]

    together = histories()
    assert histories(batch_size=2) == together
    assert [len(told) for told in together[0][:6]] == [6, 6, 6, 6, 6, 2]  # the last one tells of a reset


@pytest.mark.parametrize(
    ("env_id", "settings"),
    [
        (PONG, {"noop_max": 2}),
        (CHEETAH, {"max_episode_steps": 3, "width": 80, "height": 60, "default_camera_config": {"distance": 3.0}}),
        ("Pendulum-v1", {"max_episode_steps": 3}),
    ],
)
def test_frames_are_those_that_gymnasiums_class_renders(
    build: Build, monkeypatch: pytest.MonkeyPatch, env_id: str, settings: dict[str, Any]
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")
    if env_id == "Pendulum-v1":
        pytest.importorskip("pygame", reason="Gymnasium draws classic control with it")

    def rendered(envs: Any, seed: int) -> list[bytes]:  # noqa: ANN401 - a vector environment
        envs.reset(seed=seed)
        frames = []
        for _ in range(6):
            frames += [frame.tobytes() for frame in envs.render()]
            envs.step(np.full_like(envs.action_space.sample(), 1))
        return frames

    ours = build(env_id, 2, own_classes=True, render_mode="rgb_array", **settings)
    with pytest.raises(ResetNeeded):
        ours.render()
    try:
        found = rendered(ours, 4)
    except mujoco.FatalError:
        pytest.skip("there is no OpenGL here")
    ours.close()
    for index in range(2):
        theirs = loop(env_id, 1, render_mode="rgb_array", **settings)
        assert (ours.render_mode, ours.metadata) == (theirs.render_mode, theirs.metadata)
        assert rendered(theirs, 4 + index) == found[index::2]
        theirs.close()


def test_a_game_that_is_lost_ends_as_gymnasiums_does(build: Build) -> None:
    assert agree(build(BREAKOUT, 1), loop(BREAKOUT, 1), steps=250) > 0


@pytest.mark.parametrize(
    ("own", "mode", "settings", "ends"),
    [
        # Episodes are cut off in the middle of a step: of each at another of its frames, by its no-ops.
        (
            True,
            "SameStep",
            {"frame_skip": 3, "screen_size": (50, 70), "stack": 2, "mode": 4, "max_num_frames_per_episode": 60},
            3,
        ),
        (
            False,
            "NextStep",
            {"grayscale_newaxis": True, "scale_obs": True, "repeat_action_probability": 0.5, "difficulty": 1},
            0,
        ),
    ],
    ids=["by our class", "by Gymnasium's class"],
)
@pytest.mark.filterwarnings("ignore:.*stepped by Gymnasium's class:UserWarning")
def test_settings_mean_what_gymnasiums_wrappers_mean_by_them_whoever_steps(
    build: Build, own: bool, mode: str, settings: dict[str, Any], ends: int
) -> None:
    ours, theirs = build(BREAKOUT, 1, autoreset_mode=mode, **settings), loop(BREAKOUT, 1, mode, **settings)
    assert ours.stepped_by.startswith("own class") == own
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert agree(ours, theirs, steps=60) >= ends


def test_everything_that_a_vector_environment_says_of_itself_is_as_gymnasium_says_it(build: Build) -> None:
    gaps = {"last_frames": True, "any_noop": True}  # what Gymnasium's wrapper lacks, and Pong does not need at first
    for asked, env_id, more in (("ALE/Pong", PONG, gaps), (CHEETAH, CHEETAH, {})):  # the latest version
        ours, theirs = build(asked, 1, **more), loop(env_id, 1)
        assert ours.spec.id == env_id
        assert not more or more.items() <= ours.spec.additional_wrappers[0].kwargs.items()
        for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert (ours.metadata, ours.render_mode, ours.num_envs) == (theirs.metadata, theirs.render_mode, 1)
        assert isinstance(ours, SharedMemoryVectorEnv)
        theirs.close()
        one = gymnasium.make(ours.spec)  # as many wrappers as ours stands for
        assert one.reset(seed=4)[0].tobytes() == ours.reset(seed=4)[0][0].tobytes()
        one.close()


def test_observations_of_our_own_class_that_are_no_copies_cannot_be_written_to(build: Build) -> None:
    # It draws only what has changed since the step before.
    own, gymnasiums_class = (build(CHEETAH, 2, copy=False, own_classes=own) for own in (True, False))
    for returned in (own.reset(seed=0)[0], own.step(own.action_space.sample())[0], own.observations):
        with pytest.raises(ValueError, match="read-only"):
            returned[:] = 0
    gymnasiums_class.reset(seed=0)[0][:] = 0


def test_statistics_of_episodes_are_those_of_gymnasiums_processes(build: Build) -> None:
    functions = [partial(gymnasiums, CHEETAH, max_episode_steps=9)] * 3
    for mode in ("NextStep", "SameStep"):
        told: list[Any] = []
        envs = build(CHEETAH, 3, max_episode_steps=9, autoreset_mode=mode)
        for vector in (envs, AsyncVectorEnv(functions, autoreset_mode=mode)):
            recorded = RecordEpisodeStatistics(vector)
            recorded.reset(seed=2)
            recorded.action_space.seed(2)
            told.append([])
            for _ in range(25):
                episode = recorded.step(recorded.action_space.sample())[4].get("episode")
                told[-1].append(None if episode is None else (episode["r"].tolist(), episode["l"].tolist()))
            recorded.close()
        assert told[0] == told[1]
        assert sum(episode is not None for episode in told[0]) == 2


def test_what_make_vec_is_given_as_seed_is_that_of_each_first_reset(build: Build) -> None:
    ours, theirs = build(CHEETAH, 3, seed=7), loop(CHEETAH, 3)
    same(ours.reset(), theirs.reset(seed=7))
    same(ours.reset(), theirs.reset())
    listed = build(CHEETAH, 3, seed=[7, None, 9])
    mask = np.array([True, False, True])
    listed.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(listed.observations[mask], theirs.reset(seed=7)[0][mask])
    same(listed.reset(seed=1), theirs.reset(seed=1))
    same(listed.reset(), theirs.reset())
    theirs.close()
    with pytest.raises(ValueError, match="the length must match num_envs=2"):
        make_vec(CHEETAH, 2, seed=[1, 2, 3])


def test_a_task_without_a_class_of_our_own_is_stepped_by_gymnasiums_and_nothing_warns(build: Build) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = build("FrozenLake-v1", 3, is_slippery=False)
    assert ours.stepped_by == "Gymnasium's class: there is no class of our own for FrozenLake-v1"
    assert agree(ours, loop("FrozenLake-v1", 3, is_slippery=False), steps=60) > 0
    assert ours.get_attr("nrow") == (4,) * 3


def test_with_unverified_versions_gymnasiums_class_steps_aloud(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "VERSIONS", {**classes.VERSIONS, "gymnasium": ("0.1",)})
    with pytest.warns(UserWarning, match="HalfCheetah-v5 is stepped by Gymnasium's class: .* gymnasium 0.1"):
        ours = build(CHEETAH, 2, autoreset_mode="SameStep", max_episode_steps=7)
    assert ours.stepped_by.startswith("Gymnasium's class: our own class was verified with")
    assert agree(ours, loop(CHEETAH, 2, "SameStep", max_episode_steps=7), steps=20) == 4
    with pytest.raises(ValueError, match=r"own_classes=True: .* gymnasium 0\.1"):
        make_vec(CHEETAH, own_classes=True)


@pytest.mark.parametrize(
    ("env_id", "changes", "why"),
    [
        (CHEETAH, {"entry_point": "elsewhere:Cheetah"}, "is registered as elsewhere:Cheetah, not as gymnasium.envs"),
        (CHEETAH, {"entry_point": HalfCheetahEnv}, "is registered as HalfCheetahEnv, not as gymnasium.envs"),
        (CHEETAH, {"kwargs": {"ctrl_cost_weight": 3.0}}, "is registered with ctrl_cost_weight"),
        (
            CHEETAH,
            {"additional_wrappers": (ClipReward.wrapper_spec(max_reward=0.0),)},
            "wrappers around it: ClipReward",
        ),
        (PONG, {"repeat_action_probability": 0.0}, "with repeat_action_probability=0.0, not 0.25"),
        (PONG, {"full_action_space": True}, "with full_action_space=True, not False"),
        (PONG, {"mode": 1}, "is registered with mode"),
        (PONG, {"max_episode_steps": 9}, "is registered with max_episode_steps=9"),
    ],
    ids=str,
)
def test_an_id_that_stands_for_something_else_is_not_stepped_by_our_own_class(
    monkeypatch: pytest.MonkeyPatch, env_id: str, changes: dict[str, Any], why: str
) -> None:
    spec = gymnasium.spec(env_id)
    kwargs = {name: value for name, value in changes.items() if not hasattr(spec, name)}
    anew = replace(
        spec, **{"kwargs": {**spec.kwargs, **kwargs}, **{key: changes[key] for key in changes.keys() - kwargs}}
    )
    monkeypatch.setitem(gymnasium.registry, env_id, anew)
    task, steps = build_task(env_id, {})
    assert task is None
    assert why in steps.refused


def test_what_is_registered_anew_is_what_steps_and_is_said_why(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.spec(CHEETAH)
    monkeypatch.setitem(gymnasium.registry, CHEETAH, replace(spec, kwargs={"ctrl_cost_weight": 3.0}))
    with pytest.warns(UserWarning, match="our own class for HalfCheetah-v5: HalfCheetah-v5 is registered with ctrl_c"):
        ours = build(CHEETAH, 2, context="fork")
    agree(ours, loop(CHEETAH, 2), steps=5)
    stepped = FastSync.stepped(TASKS["HalfCheetah"])
    assert stepped.own_classes is not None
    assert "Gymnasium's class: our own class for HalfCheetah-v5: HalfCheetah-v5 is" in stepped.own_classes.words


@pytest.mark.parametrize("missing", ["the library", "MuJoCo's library"])
def test_without_compiled_physics_gymnasiums_class_steps_and_the_work_is_the_same(
    build: Build, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "the library":
        monkeypatch.setattr(native, "library", lambda: None)
    else:
        monkeypatch.setattr(physics.mujoco, "__file__", "nowhere")
        physics.mujoco_library.cache_clear()
    with pytest.warns(UserWarning, match="HalfCheetah-v5 is stepped by Gymnasium's class: "):
        ours = build(CHEETAH, 2, max_episode_steps=7)
    assert agree(ours, loop(CHEETAH, 2, max_episode_steps=7), steps=20) > 3
    with pytest.raises(ValueError, match="own_classes=True"):
        make_vec(CHEETAH, own_classes=True)
    own = FastSync.stepped(TASKS["HalfCheetah"]).own_classes
    assert own is not None
    assert (own.words, own.remedy) == (ours.stepped_by, native.REMEDY if missing == "the library" else "")


def test_a_task_is_built_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    init = physics.PhysicsTask.__init__

    def counted(self: Any, *args: Any) -> None:  # noqa: ANN401 - as the task's own
        built.append(self)
        init(self, *args)

    monkeypatch.setattr(physics.PhysicsTask, "__init__", counted)
    build(CHEETAH, 2, num_processes=2).reset(seed=1)
    assert len(built) == 1


def test_a_step_after_an_end_names_the_environment_whose_episode_is_over(build: Build) -> None:
    envs = build("Hopper-v5", 4, autoreset_mode="Disabled", num_processes=1)
    envs.reset(seed=3)
    envs.action_space.seed(1)
    while not (over := np.logical_or(*envs.step(envs.action_space.sample())[2:4])).any():
        pass
    first = int(np.flatnonzero(over)[0])
    with pytest.raises(AssertionError, match="the episode is over") as raised:
        envs.step(envs.action_space.sample())
    assert str(raised.value.__cause__).startswith(f"environment {first}: AssertionError: the episode is over")


def test_who_reads_attributes_needs_gymnasiums_classes(build: Build) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = build(CHEETAH, 2, own_classes=False)
    assert asked.stepped_by == "Gymnasium's class: own_classes=False"
    assert asked.get_attr("frame_skip") == (5, 5)
    own = build(CHEETAH, 2)
    for ask, instead in (
        (partial(own.get_attr, "frame_skip"), "own_classes=False"),
        (partial(own.set_attr, "frame_skip", 2), "own_classes=False"),
        (own.render, "render_mode='rgb_array'"),
    ):
        with pytest.raises(AttributeError, match=instead):
            ask()
    own.reset(seed=0)  # goes on
    own.close()
    with pytest.raises(ClosedEnvironmentError):
        own.get_attr("frame_skip")


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "words"),
    [
        ((PONG, 2), {"stack_num": 4}, TypeError, r"ALE/Pong-v5 has no setting stack_num \(did you mean stack"),
        ((PONG, 2), {"frameskip": 4}, TypeError, "did you mean frame_skip"),
        ((PONG, 2), {"wrappers": []}, TypeError, "no setting wrappers"),
        ((CHEETAH, 2), {"vectorization_mode": "async"}, TypeError, "unexpected keyword argument"),
        ((PONG, 2), {"odd": 1}, TypeError, "ALE/Pong-v5 has no setting odd: it has any_noop, "),
        ((PONG, 2), {"frame_skp": 2}, TypeError, r"has no setting frame_skp \(did you mean frame_skip"),
        ((PONG, 2), {"num_proceses": 1}, TypeError, r"has no setting num_proceses \(did you mean num_processes"),
        ((CHEETAH, 2), {"ctrl_cost_wieght": 1}, TypeError, "unexpected keyword argument 'ctrl_cost_wieght'"),
        ((PONG, 2), {"frame_skip": 0}, ValueError, "frame_skip"),
        ((CHEETAH, 2), {"stack": 4}, TypeError, "stack"),
        ((CHEETAH, 0), {}, ValueError, "num_envs must be a whole number from 1 to"),
        ((CHEETAH, "2"), {}, ValueError, "num_envs"),
        ((PONG, 2), {"render_mode": "human"}, ValueError, "make_vec opens no windows: use render_mode='rgb_array'"),
        ((CHEETAH, 2), {"batch_size": 3}, ValueError, "batch_size"),
        ((CHEETAH, 2), {"autoreset_mode": "odd"}, ValueError, "odd"),
        (("FrozenLake-v1", 2), {"own_classes": True}, ValueError, "no class of our own for FrozenLake-v1"),
        (("Nothing-v0", 2), {}, gymnasium.error.NameNotFound, "Nothing"),
        (("PongDeterministic-v4", 2), {}, gymnasium.error.NameNotFound, "exist. There is ALE/Pong-v5."),
        (("HalfCheetah-v6", 2), {}, gymnasium.error.VersionNotFound, "There is HalfCheetah-v5."),
        ((gymnasium.spec("CartPole-v1"), 2), {}, TypeError, "id must be a name"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_by_name(
    arguments: tuple[Any, ...], settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        make_vec(*arguments, **settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("own_classes", [True, False])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("cpus", cpus) for cpus in ([1 << 20], [-1], "0")),
        *(("context", context) for context in ("x", 3)),
        *(("num_processes", count) for count in (10**9, 0, 1.5, True)),
        *(("seed", seed) for seed in (2**70, -1, 1.5, "7", [2**70])),
        *((flag, "no") for flag in ("copy", "daemon", "caller_steps", "infos")),
    ],
    ids=str,
)
def test_arguments_are_refused_whichever_class_steps(own_classes: bool, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name}(:| must be) .+$"):
        make_vec("CartPole-v1", 1, own_classes=own_classes, **{name: value})


def test_an_older_id_of_a_game_is_stepped_by_gymnasiums_class_and_the_id_that_ours_has_is_named(build: Build) -> None:
    with pytest.warns(UserWarning, match="PongNoFrameskip-v4 is stepped by .*NoFrameskip-v4, only for ALE/Pong"):
        older = build("PongNoFrameskip-v4", 1, noop_max=1)
    newer = build(PONG, 1, noop_max=1, repeat_action_probability=0.0)
    assert agree(newer, older, steps=30) == 0  # the same game, as docs/fast.md says


@pytest.mark.parametrize("asked", [{"num_processes": 2}, {"batch_size": 1}], ids=str)
def test_an_action_that_a_game_lacks_is_refused_by_name_and_steps_nothing(build: Build, asked: dict[str, Any]) -> None:
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


def test_two_threads_that_each_step_environments_of_their_own_get_what_one_would(build: Build) -> None:
    def steps(seed: int) -> list[bytes]:
        envs = build(CHEETAH, 2, num_processes=1, max_episode_steps=30)
        envs.action_space.seed(seed)
        envs.reset(seed=seed)
        return [part.tobytes() for _ in range(200) for part in envs.step(envs.action_space.sample())[:-1]]

    with ThreadPoolExecutor(2) as threads:
        side_by_side = list(threads.map(steps, (1, 2)))
    assert side_by_side == [steps(1), steps(2)]


def test_close_from_another_thread_waits_for_what_begins_a_step(build: Build) -> None:
    def put(indices: Any) -> None:  # noqa: ANN401 - as the share has it
        closer.start()
        closer.join(0.1)
        begin(indices)

    envs = build(CHEETAH, 2)
    envs.reset()
    closer, own = Thread(target=envs.close), envs._team.own  # noqa: SLF001 - the test is of it
    begin, own.put = own.put, put
    with pytest.raises(ClosedEnvironmentError):
        envs.step(envs.action_space.sample())
    closer.join()
    assert envs.closed


def test_an_error_of_no_environment_in_particular_is_raised_for_each_that_is_received(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = build("Acrobot-v1", 3, batch_size=2)
    envs.reset()
    monkeypatch.setattr(ClassicBatch, "finish", lambda *_: 1 / 0)
    envs.send([1, 1], [0, 1])  # the last one in use is another
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            envs.recv(min_batch=1)


def test_the_example_of_ppo_has_the_same_returns_on_gymnasiums_processes() -> None:
    pytest.importorskip("torch", reason="needs torch: make test-all")
    example = runpy.run_path(str(EXAMPLE))
    train, make_envs = example["train"], example["make_envs"]
    ours, theirs = (train(make_envs(CHEETAH, 2, with_gymnasium=theirs), 2_100, 1)[0] for theirs in (False, True))
    assert ours == theirs
    assert len(ours) == 2


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "HalfCheetah-v5"])
def test_a_step_before_the_first_reset_is_refused_as_gymnasium_does(name: str) -> None:
    with closing(make_vec(name, 2, num_processes=1)) as envs, pytest.raises(ResetNeeded):
        envs.step(envs.action_space.sample())
    with closing(make_vec(name, 2, num_processes=1, batch_size=1)) as envs, pytest.raises(ResetNeeded):
        envs.send(envs.action_space.sample())


def test_the_short_names_of_list_mean_what_they_mean_there() -> None:
    with closing(make_vec("HalfCheetah", 1)) as envs:
        assert envs.spec is not None
        assert envs.spec.id == "HalfCheetah-v5"
