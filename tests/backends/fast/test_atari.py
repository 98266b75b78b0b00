"""Atari games of our own class against Gymnasium's wrappers with the same settings, byte for byte."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

import ale_py
import gymnasium
from ale_py import ALEInterface
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation

from vebench.backends.environments.atari_screen import AtariScreen
from vebench.backends.fast import atari
from vebench.backends.fast.atari import AtariSettings, AtariTask
from vebench.backends.fast.classes import class_of
from vebench.backends.shared_memory.memory_layout import RowArrays

if TYPE_CHECKING:
    from collections.abc import Mapping

PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
OF_THE_GAME = (
    "repeat_action_probability",
    "full_action_space",
    "mode",
    "difficulty",
    "max_num_frames_per_episode",
)
OF_THE_WRAPPER = ("noop_max", "frame_skip", "screen_size", "terminal_on_life_loss", "grayscale_obs")


def gymnasiums(env_id: str, given: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return the environment that the settings stand for, built of Gymnasium's own parts."""
    gymnasium.register_envs(ale_py)
    values = asdict(AtariSettings(**given))
    game = gymnasium.make(env_id, frameskip=1, disable_env_checker=True, **{name: values[name] for name in OF_THE_GAME})
    wrapper: Any
    if values["last_frames"]:
        wrapper = AtariScreen(
            game, noop_max=values["noop_max"], frame_skip=values["frame_skip"], screen_size=values["screen_size"]
        )
        wrapper.terminal_on_life_loss = values["terminal_on_life_loss"]
    else:
        wrapper = AtariPreprocessing(game, **{name: values[name] for name in OF_THE_WRAPPER})
    stacked = FrameStackObservation(wrapper, values["stack"])
    return ClipReward(stacked, -1, 1) if values["reward_clip"] else stacked


class Ours:
    """Environments of our own class, and their rows; all but ``reset`` is for one."""

    def __init__(self, env_id: str, given: Mapping[str, Any], *, compiled: bool, num_envs: int = 1) -> None:
        self.task = AtariTask(env_id, given, compiled=compiled)
        observations = np.zeros((num_envs, *(self.task.observation_space.shape or ())), np.uint8)
        flags = np.zeros((2, num_envs), np.bool_)
        actions = np.zeros(num_envs, np.int64)
        self.rows = RowArrays((observations,), np.zeros(num_envs), flags[0], flags[1], (actions,))
        self.batch = self.task.batch(self.rows)

    def step(self, action: int) -> tuple[float, bool, bool]:
        self.rows.actions[0][0] = action
        ended = self.batch.step(())
        results = float(self.rows.rewards[0]), bool(self.rows.terminated[0]), bool(self.rows.truncated[0])
        assert bool(ended) == (results[1] or results[2])
        return results


class Case(NamedTuple):
    """What is compared. ``then``: the seeds after the first. Each is slow: with a seed the game is loaded anew."""

    env_id: str
    given: Mapping[str, Any]
    steps: int
    then: tuple[int | None, ...] = ()
    by_opencv_too: bool = False


WITHOUT_CHANCE = {"repeat_action_probability": 0.0}
AT_ANY_FRAME = {"max_num_frames_per_episode": 13, "noop_max": 4}
CASES = {
    "as they are by default": Case(PONG, {}, 40),
    "stale at an end": Case(PONG, AT_ANY_FRAME, 45, then=(None, 7, None), by_opencv_too=True),
    "last frames at an end": Case(PONG, {**AT_ANY_FRAME, "last_frames": True}, 45),
    "no-ops into an end": Case(PONG, {"max_num_frames_per_episode": 3, "noop_max": 7}, 6),
    "every frame, in colour": Case(
        PONG,
        {"frame_skip": 1, "stack": 1, "max_num_frames_per_episode": 9, "grayscale_obs": False, "screen_size": 50},
        20,
    ),
    "a life is an episode": Case(
        BREAKOUT,
        {"frame_skip": 2, "terminal_on_life_loss": True, "reward_clip": True, "mode": 8, "difficulty": 1},
        150,
    ),
    "starts that are kept": Case(BREAKOUT, {**WITHOUT_CHANCE, "noop_max": 3, "max_num_frames_per_episode": 50}, 150),
    "starts that are kept, no-ops into an end": Case(
        PONG, {**WITHOUT_CHANCE, "max_num_frames_per_episode": 4, "noop_max": 9, "stack": 1}, 12
    ),
    "odd raw values, 250 rows": Case(
        "ALE/AirRaid-v5",
        {"frame_skip": 5, "stack": 2, "screen_size": (100, 64), "noop_max": 0, "full_action_space": True},
        40,
        by_opencv_too=True,
    ),
    "without a NOOP": Case(
        "ALE/VideoCheckers-v5",
        {"frame_skip": 3, "any_noop": True, "last_frames": True, "max_num_frames_per_episode": 40},
        40,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_setting_gives_the_bytes_of_gymnasiums_wrappers(case: Case) -> None:
    env_id, given, steps, then, by_opencv_too = case
    theirs = gymnasiums(env_id, given)
    both = [Ours(env_id, given, compiled=compiled) for compiled in ((True, False) if by_opencv_too else (True,))]
    seeds, random, frames = [7, *then], np.random.default_rng(1), set()
    count = int(both[0].task.action_space.n)

    def reset() -> None:
        seed = seeds.pop(0) if seeds else None
        observation, _ = theirs.reset(seed=seed)
        for ours in both:
            ours.batch.reset(0, seed)
            np.testing.assert_array_equal(observation, ours.rows.observations[0][0])

    assert theirs.observation_space == both[0].task.observation_space
    assert theirs.action_space == both[0].task.action_space
    reset()
    game: Any = theirs.unwrapped
    for _ in range(steps):
        action = int(random.integers(count))
        before = game.ale.getEpisodeFrameNumber()
        observation, reward, terminated, truncated, _ = theirs.step(action)
        for ours in both:
            assert ours.step(action) == (reward, terminated, truncated)
            np.testing.assert_array_equal(observation, ours.rows.observations[0][0])
            assert ours.batch.frames(0) == game.ale.getEpisodeFrameNumber()
        if terminated or truncated:
            frames.add(game.ale.getEpisodeFrameNumber() - before)
            reset()
    if AT_ANY_FRAME.items() <= given.items():
        assert frames == {1, 2, 3, 4}, "an episode ended with each frame of a step"


@pytest.mark.parametrize(
    ("env_id", "given", "resets"),
    [
        (BREAKOUT, WITHOUT_CHANCE, 2),
        (BREAKOUT, {}, 4),
        (BREAKOUT, {**WITHOUT_CHANCE, "mode": 8}, 4),
        (BREAKOUT, {**WITHOUT_CHANCE, "difficulty": 1}, 4),
        (BREAKOUT, {**WITHOUT_CHANCE, "noop_max": 0}, 4),
        ("ALE/Seaquest-v5", WITHOUT_CHANCE, 4),
    ],
)
def test_only_where_all_resets_end_in_the_same_state_is_it_kept_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, env_id: str, given: Mapping[str, Any], resets: int
) -> None:
    made = []

    class Counting(ALEInterface):
        def reset_game(self) -> None:
            made.append(self)
            super().reset_game()

    monkeypatch.setattr(atari, "ALEInterface", Counting)
    ours = Ours(env_id, given, compiled=True, num_envs=2)
    for seed in (1, None):
        for index in range(2):
            ours.batch.reset(index, seed)
    assert len(made) == resets
    assert (atari.KEPT in ours.task.leaves_out) == (resets == 2)


@pytest.mark.parametrize(
    ("env_id", "given", "reason"),
    [
        (PONG, {"frame_skip": 0}, "frame_skip is a whole number from 1, not 0"),
        (PONG, {"screen_size": (84, 84, 3)}, "screen_size is a whole number or"),
        (PONG, {"screen_size": 8.5}, "screen_size is a whole number from 1, not 8.5"),
        (PONG, {"repeat_action_probability": 2}, "repeat_action_probability is a number from 0 to 1, not 2"),
        (PONG, {"reward_clip": 1}, "reward_clip is true or false, not 1"),
        (PONG, {"scale_obs": True}, "ALE/Pong-v5 has no scale_obs"),
        (PONG, {"mode": 7}, "ALE/Pong-v5 has no mode 7, it has 0, 1"),
        (PONG, {"difficulty": 9}, "ALE/Pong-v5 has no difficulty 9, it has 0, 1"),
        ("ALE/VideoCheckers-v5", {}, "the first action of ALE/VideoCheckers-v5 is not NOOP: noop_max must be 0"),
    ],
)
def test_a_setting_without_sense_is_refused_by_name(env_id: str, given: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        AtariTask(env_id, given)


def test_the_table_of_classes_refuses_no_setting_that_the_class_has() -> None:
    ours = class_of(PONG)
    assert ours is not None
    assert not ours.unsupported & set(asdict(AtariSettings()))
