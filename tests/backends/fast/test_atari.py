"""Atari games of our own class against Gymnasium's wrappers with the same settings, byte for byte."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import pairwise
from threading import Thread
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from support.same_bytes import compare, wrapped_case, wrapped_game

from vebench.backends.fast import atari
from vebench.backends.fast.atari import AtariSettings, AtariTask
from vebench.backends.fast.classes import class_of
from vebench.backends.interface import Task
from vebench.backends.shared_memory.memory_layout import RowArrays

PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
AT_ANY_FRAME = {"max_num_frames_per_episode": 13, "noop_max": 4}
# By name: the game, its settings, and steps; how it is stepped.
CASES: dict[str, tuple[str, Mapping[str, Any], int, Mapping[str, Any]]] = {
    "as they are by default": (PONG, {}, 40, {}),
    "without infos": (PONG, {"max_num_frames_per_episode": 9}, 20, {"infos": False}),
    "stale at an end": (PONG, AT_ANY_FRAME, 80, {"new_starts": True}),
    "last frames at an end": (PONG, {**AT_ANY_FRAME, "last_frames": True}, 80, {}),
    "no-ops into an end": (PONG, {"max_num_frames_per_episode": 3, "noop_max": 7}, 12, {}),
    "a limit within the start": (
        "ALE/DoubleDunk-v5",
        {"repeat_action_probability": 0.0, "noop_max": 1, "max_num_frames_per_episode": 13},
        12,
        {},
    ),
    "every frame": (PONG, {"frame_skip": 1, "stack": 1, "max_num_frames_per_episode": 9, "screen_size": 50}, 20, {}),
    "a life is an episode": (
        BREAKOUT,
        {"frame_skip": 2, "terminal_on_life_loss": True, "reward_clip": True, "mode": 8, "difficulty": 1},
        150,
        {},
    ),
    "odd raw values, 250 rows": (
        "ALE/AirRaid-v5",
        {"frame_skip": 5, "stack": 2, "screen_size": (100, 64), "noop_max": 0, "full_action_space": True},
        40,
        {},
    ),
    "without a NOOP": (
        "ALE/VideoCheckers-v5",
        {"frame_skip": 3, "any_noop": True, "last_frames": True, "max_num_frames_per_episode": 40},
        40,
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_setting_gives_the_bytes_of_gymnasiums_wrappers(name: str) -> None:
    env_id, given, steps, how = CASES[name]
    found = compare(wrapped_case(name, Task(env_id, "atari", 4), steps, given, num_envs=1, seed=7, **how))
    assert found.difference == ""
    assert found.rows >= steps
    assert found.ends or name in ("as they are by default", "odd raw values, 250 rows")
    if AT_ANY_FRAME.items() <= given.items():
        assert set(found.ends) == {f"limit, frame {frame}" for frame in (1, 2, 3, 4)}


def test_the_table_of_classes_refuses_no_setting_that_the_class_has() -> None:
    ours = class_of(PONG)
    assert ours is not None
    assert not ours.unsupported & set(asdict(AtariSettings()))


class Games:
    """Some games of our class, whose work is done here, by one thread or by two."""

    def __init__(self, env_id: str, settings: Mapping[str, Any], num_envs: int) -> None:
        task = AtariTask(env_id, settings)
        pictures = np.zeros((num_envs, *task.observation_space.shape), np.uint8)
        flags = [np.zeros(num_envs, np.bool_) for _ in range(2)]
        self.rows = RowArrays((pictures,), np.zeros(num_envs), *flags, (np.zeros(num_envs, np.int64),))
        self.batch = task.batch(self.rows, infos=True)
        self._work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.batch.work)

    def work(self, threads: int) -> list[int]:
        bounds = np.linspace(0, len(self.rows.rewards), threads + 1).astype(int).tolist()
        at_once = [Thread(target=self._work, args=(self.batch.context, *part)) for part in pairwise(bounds)]
        for thread in at_once:
            thread.start()
        for thread in at_once:
            thread.join()
        return np.flatnonzero(self.rows.terminated | self.rows.truncated).tolist()


def test_two_threads_load_and_step_games_as_one_does() -> None:
    one, two = (Games(BREAKOUT, {"max_num_frames_per_episode": 60}, 4) for _ in range(2))
    resting = [0, 1, 2, 3]
    ended = 0
    for step in range(40):
        for games in (one, two):
            games.rows.actions[0][:] = np.arange(4) + step & 3
            for index in resting:
                games.batch.begin(index, None if step else index)
        resting = one.work(1)
        assert two.work(2) == resting
        ended += len(resting)
        np.testing.assert_array_equal(one.rows.observations, two.rows.observations)
        np.testing.assert_array_equal(one.rows[1:4], two.rows[1:4])
    assert ended >= 4


def test_infos_and_rendered_screens_are_those_of_gymnasiums_environment() -> None:
    settings = {"frame_skip": 3, "terminal_on_life_loss": True, "noop_max": 5}
    theirs = wrapped_game(BREAKOUT, {**settings, "render_mode": "rgb_array"})
    games = Games(BREAKOUT, settings, 1)
    resting, seed = [0], 3
    lives = set()
    assert games.batch.frames(0) == 0
    with pytest.raises(ResetNeeded):
        games.batch.render(0)
    for step in range(200):
        games.rows.actions[0][:] = action = step % 4
        if resting:
            games.batch.begin(0, seed)
            _, info = theirs.reset(seed=seed)
        else:
            *_, info = theirs.step(action)
        resting, seed = games.work(1), None
        assert {
            name: int(values[0]) for name, values in games.batch.infos(None, first=False).items()
        }.items() <= info.items()
        assert games.batch.frames(0) == info["episode_frame_number"]
        np.testing.assert_array_equal(games.batch.render(0), theirs.render())
        lives.add(info["lives"])
    assert lives == {4, 5}
    theirs.close()


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"grayscale_obs": False}, "colour"), ({"screen_size": (80, 70)}, "80 x 70 goes a whole number of times into")],
)
def test_pictures_that_are_not_compiled_are_gymnasiums(settings: Mapping[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"^no compiled pictures: {why}"):
        AtariTask(PONG, settings)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("_METHODS", lambda names: (*names[:-1], "_ZN3ale12ALEInterface13setDifficultyEl")),
        ("_PATH", lambda names: ("_ZNSt10filesystem7__cxx114path5_ListC1El", names[1])),
        ("_IN_PLACE", lambda flags: flags ^ 4),
        ("_OBJECT", lambda size: size + 100),
        # Something else is taken for the frames of an episode, and for the lives.
        ("_METHODS", lambda names: (*names[:4], names[5], names[4], *names[6:])),
        ("_METHODS", lambda names: (*names[:3], names[5], *names[4:])),
        ("by_opencv", lambda _: lambda grey, _size: grey[:84, :84]),
    ],
)
def test_an_emulator_in_which_c_sees_something_else_is_gymnasiums(
    monkeypatch: pytest.MonkeyPatch, name: str, changed: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(atari, name, changed(getattr(atari, name)))
    with pytest.raises(ValueError, match=r"^ale-py|C sees another game|compiled pictures"):
        AtariTask("ALE/Freeway-v5", {})
