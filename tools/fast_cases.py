"""What our own classes are compared on: for a task, the cases in which they could differ from Gymnasium's.

Every case is drawn from seeds, so that it repeats itself. ``scale`` makes all of a task's cases shorter or longer.
``tests/support``, where the comparison is, has to be found.
"""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import ale_py
import gymnasium
import numpy as np
from gymnasium.spaces import Box
from support.same_bytes import Case, Way, benchmark_case, compare, made_case, ours_of, wrapped_case

from vebench.backends.environments.suites import FRAME_LIMIT
from vebench.backends.fast.classes import class_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.backends.interface import Task


# Games in which ale-py 0.12.1 may never return from a reset soon after another, in Gymnasium's environment as in ours.
EMULATOR_HANGS = frozenset({"ALE/NameThisGame-v5"})
# In these only in some modes, or where the limit falls within the no-ops of a reset.
MODES_THAT_HANG = frozenset({"ALE/VideoCube-v5"})
HANGS_WITHIN_NOOPS = frozenset({"ALE/DoubleDunk-v5"})


def atari_cases(task: Task, scale: float = 1.0) -> Iterator[Case]:
    """Yield the cases of a game."""

    def steps(count: int) -> int:
        return max(24, round(count * scale))

    random = np.random.default_rng(sum(task.id.encode()))
    gymnasium.register_envs(ale_py)
    game: Any = gymnasium.make(task.id, frameskip=1, disable_env_checker=True).unwrapped
    # Gymnasium's wrapper makes no-ops only where the first action presses no button.
    noops = 30 if game.get_action_meanings()[0] == "NOOP" else 0
    waits = {"noop_max": noops}
    yield benchmark_case("benchmark", task, steps(1000), new_starts=True)
    exact = replace(task, exact=True)
    yield benchmark_case("benchmark, exact", exact, steps(200), num_envs=1, seed=10)
    yield wrapped_case("wrappers, sticky", task, steps(600), waits, seed=20)
    if task.id not in EMULATOR_HANGS:
        yield from limit_cases(task, steps(250), noops)
    lives = {**waits, "terminal_on_life_loss": True}
    yield wrapped_case("life losses", task, steps(500), lives, num_envs=1, seed=70)
    lives |= {"noop_max": 30, "last_frames": True, "any_noop": True, "reward_clip": True}
    yield wrapped_case("life losses, last frames", task, steps(500), lives, num_envs=1, seed=71)
    # Without chance, with many episodes: the first frame after a reset is shown, and little more; then later ones.
    at_once = {"repeat_action_probability": 0.0, "noop_max": 1, "last_frames": True, "any_noop": True}
    limit = {**at_once, "max_num_frames_per_episode": 13}
    yield wrapped_case("starts", task, steps(90), limit, num_envs=3, seed=90)
    later = {**at_once, "noop_max": 30, "max_num_frames_per_episode": 400, "terminal_on_life_loss": True}
    yield wrapped_case("starts, later", task, steps(400), later, num_envs=3, seed=91, autoreset="SameStep")
    for number in range(2):
        settings = drawn_game_settings(random, game.ale, noops)
        if task.id in MODES_THAT_HANG:
            settings |= {"max_num_frames_per_episode": FRAME_LIMIT}
        name = "settings " + ", ".join(f"{key}={value}" for key, value in settings.items())
        yield wrapped_case(name, task, steps(80), settings, num_envs=1, seed=80 + number)


def limit_cases(task: Task, steps: int, noops: int) -> Iterator[Case]:
    """Yield cases in which the limit on an episode's frames falls on each frame of a step, by the no-ops before it."""
    limit = {"noop_max": 30, "max_num_frames_per_episode": 49, "last_frames": True, "any_noop": True}
    yield wrapped_case("limit, last frames", task, steps, limit, num_envs=1, seed=30)
    # Without no-ops, a limit always falls on the same frame.
    limits = (49,) if noops else range(48, 52)
    for frames in limits:
        limit = {"noop_max": noops, "max_num_frames_per_episode": frames}
        made = steps // len(limits)
        name = f"limit of {frames}"
        yield wrapped_case(f"{name}, Disabled", task, made, limit, num_envs=1, autoreset="Disabled", seed=40)
        alone = (Way(2, singly=True),)
        yield wrapped_case(f"{name}, SameStep", task, made // 2, limit, autoreset="SameStep", seed=50, ways=alone)
    if noops and task.id not in HANGS_WITHIN_NOOPS:
        inside = {"noop_max": noops, "max_num_frames_per_episode": 18}
        yield wrapped_case("limit within no-ops", task, steps // 4, inside, num_envs=1, seed=60)


def drawn_game_settings(random: np.random.Generator, ale: Any, noops: int) -> dict[str, Any]:
    """Return settings drawn from those of Gymnasium's wrappers that our class knows."""
    last_frames = bool(random.integers(2))
    noops = 30 if last_frames else noops
    # No size goes a whole number of times into a screen.
    choices: dict[str, tuple[Any, ...]] = {
        "frame_skip": (1, 2, 3, 4, 5, 8),
        "stack": (1, 2, 4, 5),
        "noop_max": (0, noops and 1, noops),
        "screen_size": (84, 64, (96, 72), (41, 5), 128, (160, 200), (50, 110)),
        "repeat_action_probability": (0.0, 0.25, 0.5),
        "full_action_space": (False, True),
        "max_num_frames_per_episode": (61, 143, FRAME_LIMIT),
        "terminal_on_life_loss": (False, True),
        "reward_clip": (False, True),
        "mode": (None, *ale.getAvailableModes()),
        "difficulty": (None, *ale.getAvailableDifficulties()),
    }
    drawn = {key: options[int(random.integers(len(options)))] for key, options in choices.items()}
    gaps = {"last_frames": True, "any_noop": True} if last_frames else {}
    return {key: value for key, value in drawn.items() if value is not None} | gaps


def physics_cases(task: Task, scale: float = 1.0) -> Iterator[Case]:
    """Yield the cases of a MuJoCo task or of classic control."""

    def steps(count: int) -> int:
        return max(24, round(count * scale))

    yield benchmark_case("benchmark", task, steps(2100), num_envs=2)
    yield made_case("actions beyond their bounds", task, steps(300), {}, beyond=3.0, seed=15)
    yield benchmark_case("benchmark, exact", replace(task, exact=True), steps(1100), num_envs=2, seed=10)
    single = np.float32 if isinstance(gymnasium.make(task.id).action_space, Box) else None
    yield made_case("float32 actions", task, steps(600), {}, num_envs=5, action_type=single, new_starts=True, seed=20)
    alone = (Way(2, singly=True),)
    yield made_case("one by one", task, steps(300), {}, num_envs=3, ways=alone, seed=30)
    short = {"max_episode_steps": 7}
    yield made_case("7 steps an episode, SameStep", task, steps(100), short, autoreset="SameStep", num_envs=3, seed=40)
    yield made_case("7 steps an episode, Disabled", task, steps(100), short, autoreset="Disabled", num_envs=3, seed=40)
    if (last := first_end(task, seed=50, steps=steps(200))) is not None:
        # The limit is where the first episode terminates: both at once.
        yield made_case("both ends at once", task, steps(200), {"max_episode_steps": last}, seed=50)
    yield made_case("one step an episode", task, steps(24), {"max_episode_steps": 1}, seed=60)
    random = np.random.default_rng(sum(task.id.encode()))
    for number in range(12):
        settings = drawn_physics_settings(task.id, random)
        name = "settings " + ", ".join(f"{key}={value}" for key, value in settings.items())
        yield made_case(name, task, steps(150), settings, num_envs=3, seed=70 + number)


def first_end(task: Task, seed: int, steps: int) -> int | None:
    """Return after how many steps one of a case's environments first terminates, None if it does not."""
    found: list[int] = []

    def make() -> _NotingEnds:
        environment = _NotingEnds(gymnasium.make(task.id, disable_env_checker=True))
        environment.found = found
        return environment

    compare(Case("", task, make, ours_of(task.id, {}), steps, seed=seed, ways=()))
    return found[0] if found else None


class _NotingEnds(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes after how many steps of an episode the environment has terminated."""

    found: list[int]
    made = 0

    def reset(self, **asked: Any) -> Any:
        self.made = 0
        return self.env.reset(**asked)

    def step(self, action: Any) -> Any:
        self.made += 1
        answer = self.env.step(action)
        if answer[2]:
            self.found.append(self.made)
        return answer


def drawn_physics_settings(env_id: str, random: np.random.Generator) -> dict[str, Any]:
    """Return some settings of a task with other values than their defaults, drawn from those that our class knows."""
    ours = class_of(env_id)
    origin: Any = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    defaults = {name: parameter.default for name, parameter in signature(type(origin)).parameters.items()}
    choices = {
        name: value
        for name in sorted(set(defaults) - {"kwargs", *(ours.unsupported if ours else defaults)})
        if (value := _other(name, defaults[name], random)) is not None
    }
    choices["max_episode_steps"] = int(random.integers(2, 60))
    count = int(random.integers(1, 1 + min(5, len(choices))))
    picked = random.permutation(sorted(choices))[:count]
    return {str(name): choices[str(name)] for name in sorted(picked)}


def _other(name: str, default: Any, random: np.random.Generator) -> Any:
    """Return another value of a setting than its default, None if it has none that could be drawn."""
    if isinstance(default, bool):
        return not default
    if name == "frame_skip":
        return int(random.integers(1, 8))
    if isinstance(default, (int, float)) and name != "main_body":
        return round(float(default or 0.02) * float(random.uniform(0.2, 2.0)), 4)
    if isinstance(default, tuple):
        factor = round(float(random.uniform(0.5, 1.5)), 3)
        return tuple(value if np.isinf(value) else value * factor for value in default)
    return None
