"""Atari games of our own class against Gymnasium's wrappers with the same settings, byte for byte."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest
from support.same_bytes import BOTH, compare, wrapped_case

from vebench.backends.fast.atari import AtariSettings
from vebench.backends.fast.classes import class_of
from vebench.backends.interface import Task

PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
AT_ANY_FRAME = {"max_num_frames_per_episode": 13, "noop_max": 4}
# By name: the game, its settings, and steps; how it is stepped.
CASES: dict[str, tuple[str, Mapping[str, Any], int, Mapping[str, Any]]] = {
    "as they are by default": (PONG, {}, 40, {}),
    "stale at an end": (PONG, AT_ANY_FRAME, 80, {"ways": BOTH, "new_starts": True}),
    "last frames at an end": (PONG, {**AT_ANY_FRAME, "last_frames": True}, 80, {}),
    "no-ops into an end": (PONG, {"max_num_frames_per_episode": 3, "noop_max": 7}, 12, {}),
    "every frame, in colour": (
        PONG,
        {"frame_skip": 1, "stack": 1, "max_num_frames_per_episode": 9, "grayscale_obs": False, "screen_size": 50},
        20,
        {},
    ),
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
        {"ways": BOTH},
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
