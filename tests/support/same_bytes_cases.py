"""What our own classes are compared on: for a task, the cases in which they could differ from Gymnasium's.

Every case is drawn from seeds, so that it repeats itself. ``scale`` makes all of a task's cases shorter or longer.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import ale_py
import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from support.same_bytes import Case, Way, compare

from vebench.backends.environments import making
from vebench.backends.environments.atari import FRAME_LIMIT, SCREEN_SIZE, STACK
from vebench.backends.environments.atari_screen import AtariScreen
from vebench.backends.environments.suites import load
from vebench.backends.fast.atari import AtariSettings
from vebench.backends.fast.classes import class_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vebench.backends.fast.task import FastTaskClass
    from vebench.backends.setup import Task

# Settings of AtariSettings that are not there yet are left out of cases, by name.
KNOWN_TO_OURS = {setting.name for setting in fields(AtariSettings)}


def cases_of(task: Task, scale: float = 1.0) -> Iterator[Case]:
    """Yield the cases of a task."""
    yield from (atari_cases if task.suite == "atari" else physics_cases)(task, scale)


def the_class_of(env_id: str) -> FastTaskClass:
    """Return our class for a task that is in the table."""
    ours = class_of(env_id)
    if ours is None:
        raise ValueError(f"there is no class of our own for {env_id}")
    kind: FastTaskClass = load(ours.target)
    return kind


def _ours(env_id: str, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a ``Build``
    return partial(the_class_of(env_id), env_id, dict(settings))


def benchmark_case(name: str, task: Task, steps: int, **parts: Any) -> Case:  # noqa: ANN401 - fields of a case
    """Return a comparison with the reference of every backend, as the benchmark steps it."""
    kind = the_class_of(task.id)
    return Case(name, task, partial(making.make, task), _ours(task.id, kind.settings_of(task)), steps, **parts)


# --- Atari ---


def atari_cases(task: Task, scale: float = 1.0) -> Iterator[Case]:
    """Yield the cases of a game."""

    def steps(count: int) -> int:
        return max(24, round(count * scale))

    random = np.random.default_rng(sum(task.id.encode()))
    noops = 30 if starts_with_noop(task.id) else 0
    waits = {"noop_max": noops}
    yield benchmark_case("benchmark", task, steps(1000), new_starts=True)
    yield benchmark_case("benchmark, exact", replace(task, exact=True), steps(200), num_envs=1, seed=10)
    yield wrapped_case("wrappers, sticky", task, steps(600), waits, new_starts=True, seed=20)
    yield from limit_cases(task, steps(140), noops)
    if "terminal_on_life_loss" in KNOWN_TO_OURS:
        lives = {**waits, "terminal_on_life_loss": True}
        yield wrapped_case("life losses", task, steps(400), lives, seed=70)
        yield wrapped_case("life losses, last frames", task, steps(300), {**lives, "last_frames": True}, seed=71)
    for number in range(3):
        settings = drawn_game_settings(random, noops)
        name = "settings " + ", ".join(f"{key}={value}" for key, value in settings.items())
        yield wrapped_case(name, task, steps(60), settings, num_envs=1, seed=80 + number)


def limit_cases(task: Task, steps: int, noops: int) -> Iterator[Case]:
    """Yield cases in which the limit on an episode's frames falls on each frame of a step, by the no-ops before it."""
    one_by_one = (Way(compiled=True, one_by_one=True), Way(compiled=False, one_by_one=True))
    for name, last_frames, parts in (
        ("limit, last frames", True, {"num_envs": 3}),
        ("limit, SameStep, one by one", False, {"autoreset": "SameStep", "ways": one_by_one}),
        ("limit, Disabled", False, {"autoreset": "Disabled", "num_envs": 3}),
    ):
        # Without no-ops, each limit falls on the same frame always.
        for limit in (49,) if noops else range(48, 52):
            settings = {"noop_max": noops, "max_num_frames_per_episode": limit, "last_frames": last_frames}
            yield wrapped_case(f"{name} of {limit}", task, steps if noops else steps // 4, settings, seed=30, **parts)
    if noops:
        inside = {"noop_max": noops, "max_num_frames_per_episode": 18}
        yield wrapped_case("limit within no-ops", task, steps // 2, inside, num_envs=1, seed=60)


def starts_with_noop(env_id: str) -> bool:
    """Return whether a game's first action presses no button: Gymnasium's wrapper makes no-ops only then."""
    gymnasium.register_envs(ale_py)
    emulator: Any = gymnasium.make(env_id, frameskip=1, disable_env_checker=True)
    meanings: list[str] = emulator.unwrapped.get_action_meanings()
    emulator.close()
    return meanings[0] == "NOOP"


def drawn_game_settings(random: np.random.Generator, noops: int) -> dict[str, Any]:
    """Return settings drawn from those of Gymnasium's wrappers that our class knows."""
    choices: dict[str, tuple[Any, ...]] = {
        "frame_skip": (1, 2, 3, 4, 5, 8),
        "stack": (1, 2, 4, 5),
        "noop_max": (0, 1, noops),
        "screen_size": (84, 64, 96, 42, 128),
        "repeat_action_probability": (0.0, 0.25, 0.5),
        "full_action_space": (False, True),
        "max_num_frames_per_episode": (61, 143, FRAME_LIMIT),
        "grayscale_obs": (True, False),
        "terminal_on_life_loss": (False, True),
        "scale_obs": (False, True),
        "clip_reward": (False, True),
        "reward_clip": (False, True),
        "last_frames": (False, True),
    }
    return {
        key: options[int(random.integers(len(options)))] for key, options in choices.items() if key in KNOWN_TO_OURS
    }


def wrapped_case(
    name: str,
    task: Task,
    steps: int,
    settings: Mapping[str, Any],
    **parts: Any,  # noqa: ANN401 - fields of a case
) -> Case:
    """Return a comparison with Gymnasium's plain wrappers, or with the benchmark's for ``last_frames``."""
    return Case(name, task, partial(wrapped_game, task.id, settings), _ours(task.id, settings), steps, **parts)


def wrapped_game(env_id: str, settings: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return a game as people make it, with Gymnasium's wrappers, by the names of ``AtariSettings``."""
    gymnasium.register_envs(ale_py)
    asked = dict(settings)
    named = {
        name: asked.pop(name)
        for name in ("repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
        if name in asked
    }
    emulator = gymnasium.make(env_id, frameskip=1, disable_env_checker=True, **named)
    stack = asked.pop("stack", STACK)
    clips = asked.pop("clip_reward", False) or asked.pop("reward_clip", False)
    screen: gymnasium.Env[Any, Any]
    asked.pop("any_noop", None)
    if asked.pop("last_frames", False):
        screen = EndsWithItsLastFrames(emulator, **asked)
    else:
        screen = AtariPreprocessing(emulator, **asked)
    if clips:
        screen = gymnasium.wrappers.TransformReward(screen, np.sign)
    return FrameStackObservation(screen, stack)


class EndsWithItsLastFrames(AtariScreen):
    """The benchmark's wrapper with all settings of Gymnasium's, for games that start with a NOOP."""

    def __init__(self, env: gymnasium.Env[Any, Any], **settings: Any) -> None:  # noqa: ANN401 - as Gymnasium's
        AtariPreprocessing.__init__(self, env, **{"screen_size": SCREEN_SIZE, **settings})
        self._waits = self._first_frame = 0


# --- MuJoCo ---


def physics_cases(task: Task, scale: float = 1.0) -> Iterator[Case]:
    """Yield the cases of a MuJoCo task."""

    def steps(count: int) -> int:
        return max(24, round(count * scale))

    one_by_one = (Way(compiled=True, one_by_one=True), Way(compiled=False, one_by_one=True))
    yield benchmark_case("benchmark", task, steps(4200), num_envs=3, new_starts=True)
    yield benchmark_case("benchmark, exact", replace(task, exact=True), steps(1100), num_envs=2, seed=10)
    yield made_case(
        "float32 actions", task, steps(600), {}, num_envs=5, action_type=np.float32, new_starts=True, seed=20
    )
    yield made_case("one by one", task, steps(300), {}, num_envs=3, ways=one_by_one, seed=30)
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


def made_case(
    name: str,
    task: Task,
    steps: int,
    settings: Mapping[str, Any],
    **parts: Any,  # noqa: ANN401 - fields of a case
) -> Case:
    """Return a comparison with what ``gymnasium.make`` returns for these settings."""
    theirs = partial(gymnasium.make, task.id, disable_env_checker=True, **settings)
    return Case(name, task, theirs, _ours(task.id, settings), steps, **parts)


def first_end(task: Task, seed: int, steps: int) -> int | None:
    """Return after how many steps one of a case's environments first terminates, None if it does not."""
    found: list[int] = []
    case = Case("", task, lambda: _NotingEnds(task.id, found), _ours(task.id, {}), steps, seed=seed, ways=())
    compare(case)
    return found[0] if found else None


class _NotingEnds(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes after how many steps of an episode the environment has terminated."""

    def __init__(self, env_id: str, found: list[int]) -> None:
        super().__init__(gymnasium.make(env_id, disable_env_checker=True))
        self._found = found
        self._made = 0

    def reset(self, **asked: Any) -> Any:  # noqa: ANN401 - as Gymnasium's
        self._made = 0
        return self.env.reset(**asked)

    def step(self, action: Any) -> Any:  # noqa: ANN401 - as Gymnasium's
        self._made += 1
        answer = self.env.step(action)
        if answer[2]:
            self._found.append(self._made)
        return answer


def drawn_physics_settings(env_id: str, random: np.random.Generator) -> dict[str, Any]:
    """Return some settings of a task with other values than their defaults, drawn from those that our class knows."""
    ours = class_of(env_id)
    known = frozenset() if ours is None else ours.settings
    origin: Any = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    defaults = {name: parameter.default for name, parameter in signature(type(origin)).parameters.items()}
    choices = {
        name: value
        for name in sorted(known & set(defaults))
        if (value := _other(name, defaults[name], random)) is not None
    }
    if "max_episode_steps" in known:
        choices["max_episode_steps"] = int(random.integers(2, 60))
    count = int(random.integers(1, 1 + min(5, len(choices))))
    picked = random.permutation(sorted(choices))[:count]
    return {str(name): choices[str(name)] for name in sorted(picked)}


def _other(name: str, default: Any, random: np.random.Generator) -> Any:  # noqa: ANN401 - a setting's value
    """Return another value of a setting than its default, None if it has none that could be drawn."""
    if isinstance(default, bool):
        return not default
    if name == "frame_skip":
        return int(random.integers(1, 8))
    if isinstance(default, (int, float)) and name != "main_body":
        return round(float(default) * float(random.uniform(0.2, 2.0)), 4)
    if isinstance(default, tuple):
        factor = round(float(random.uniform(0.5, 1.5)), 3)
        return tuple(value if np.isinf(value) else value * factor for value in default)
    return None
