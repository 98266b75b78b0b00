"""Atari games of our own class against Gymnasium's wrappers with the same settings, byte for byte."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from ale_py import ALEInterface
from support.same_bytes import Way, compare, wrapped_case

from vebench.backends.fast import atari, make_vec
from vebench.backends.fast.atari import AtariTask
from vebench.backends.fast.classes import address
from vebench.backends.interface import Task

PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
AT_ANY_FRAME = {"max_num_frames_per_episode": 13, "noop_max": 4}
# By name: the game, its settings, and steps; how it is stepped.
CASES: dict[str, tuple[str, Mapping[str, Any], int, Mapping[str, Any]]] = {
    "as they are by default": (PONG, {}, 40, {}),
    "several, by two threads or one": (
        BREAKOUT,
        {"max_num_frames_per_episode": 60},
        40,
        {"num_envs": 4, "ways": (Way(1), Way(2), Way(2, singly=True))},
    ),
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
    how = {"num_envs": 1, "seed": 7, **how}
    found = compare(wrapped_case(name, Task(env_id, "atari", 4), steps, given, **how))
    assert found.difference == ""
    assert found.rows >= steps
    assert found.ends or name in ("as they are by default", "odd raw values, 250 rows")
    if AT_ANY_FRAME.items() <= given.items():
        assert set(found.ends) == {f"limit, frame {frame}" for frame in (1, 2, 3, 4)}


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
        # Something else is taken for the lives.
        ("_METHODS", lambda names: (*names[:3], "_ZNK3ale12ALEInterface14getFrameNumberEv", *names[4:])),
        ("by_opencv", lambda _: lambda grey, _size: grey[:84, :84]),
    ],
)
def test_an_emulator_in_which_c_sees_something_else_is_gymnasiums(
    monkeypatch: pytest.MonkeyPatch, name: str, changed: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(atari, name, changed(getattr(atari, name)))
    with pytest.raises(ValueError, match=r"^ale-py|C and Python differ"):
        AtariTask("ALE/Freeway-v5", {})


def test_each_environment_loads_its_game_once(monkeypatch: pytest.MonkeyPatch) -> None:
    function, by_python = atari._function, ALEInterface.loadROM
    loads, kept = {"C": 0, "Python": 0}, list[Any]()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    def counted(name: str) -> Any:
        found = function(name)
        if "7loadROM" not in name:
            return found
        by_c = kind(address(found))

        def load(ale: int, path: int) -> None:
            loads["C"] += 1
            by_c(ale, path)

        kept.append(kind(load))
        return kept[-1]

    def load(ale: ALEInterface, rom: Any) -> None:
        loads["Python"] += 1
        by_python(ale, rom)

    monkeypatch.setattr(atari, "_function", counted)
    monkeypatch.setattr(ALEInterface, "loadROM", load)
    envs = make_vec(PONG, 3, num_processes=2, max_num_frames_per_episode=60)
    # Gymnasium's class shows the spaces. Building the task compares a game of C with a game of Python.
    assert loads == {"C": 1, "Python": 2}
    envs.reset(seed=3)
    assert loads == {"C": 4, "Python": 2}
    ends = sum(int(envs.step(np.zeros(3, np.int64))[3].sum()) for _ in range(40))
    assert ends >= 3
    assert loads == {"C": 4, "Python": 2}
    envs.close()
