"""Steps our own classes beside Gymnasium's environments in this process, and compares every byte that they return.

Gymnasium's side is a ``SyncVectorEnv``. On our side is what ``fast-sync`` has, the share that takes care of ends, with
its threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import ale_py
import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation
from numpy.typing import NDArray

from vebench.backends.environments import making
from vebench.backends.environments.making import ArraySpec
from vebench.backends.environments.simulators import AtariScreen
from vebench.backends.environments.suites import fast_settings, load_target
from vebench.backends.fast.backend import FastShare, FastTask
from vebench.backends.fast.classes import class_of
from vebench.backends.interface import Task
from vebench.backends.shared_memory.gymnasium_share import Autoreset, Remarks, batch_infos
from vebench.backends.shared_memory.memory_layout import Division, Memory
from vebench.backends.shared_memory.worker import WorkerFailure

# What is in a row before anything was written: rows that are never written to are then found.
UNTOUCHED = 0xA5
KEPT_CHANCE = 0.5  # that an action lasts for another step


class Way(NamedTuple):
    """How our class steps: with so many threads, and all environments at once or each asked for by itself."""

    threads: int = 2
    singly: bool = False

    def __str__(self) -> str:
        return f"{self.threads} threads{', singly' if self.singly else ''}"


@dataclass(frozen=True)
class Case:
    """One comparison: so many environments, so many steps.

    ``theirs`` makes one environment of Gymnasium's, ``ours`` builds our class with the same settings. With
    ``new_starts`` a quarter through the steps one environment is given a new seed in the middle of its episode, after a
    half all are, and after three quarters all start anew without one. Real-valued actions are drawn from ``beyond``
    times the space, unless ``play`` returns the actions for an observation.
    """

    name: str
    task: Task
    theirs: Callable[[], gymnasium.Env[Any, Any]]
    ours: Callable[[], FastTask]
    steps: int
    num_envs: int = 2
    seed: int = 0
    new_starts: bool = False
    autoreset: Autoreset = "NextStep"
    action_type: type[np.generic] | None = None
    beyond: float = 1.0
    ways: tuple[Way, ...] = (Way(),)
    play: Callable[[NDArray[Any]], NDArray[Any]] | None = None


@dataclass
class Found:
    """What a comparison found. ``rows``: those of Gymnasium's, each compared with the same row in each way of ours.

    ``ends``: how many episodes ended so, by kind and the frame of the step. ``difference``: the first, in words.
    """

    rows: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    difference: str = ""

    def add(self, other: Found) -> None:
        """Count another comparison's findings to these."""
        self.rows += other.rows
        self.ends.update(other.ends)
        self.difference = self.difference or other.difference


def compare(case: Case) -> Found:
    """Step both sides with the same actions until all steps are made, or the first difference is found."""
    found = Found()
    theirs = _Theirs(case, found.ends)
    ours: list[_Ours] = []
    try:
        for way in case.ways:
            ours.append(_Ours(case, way, theirs.actions))
            if ours[-1].spaces != theirs.spaces:
                found.difference = f"{case.name}, {way}: spaces are {ours[-1].spaces}, not {theirs.spaces}"
                return found
        for step in _stepped(case, theirs, ours):
            found.rows += case.num_envs
            for each in ours:
                problem = _difference(theirs, each)
                if problem:
                    found.difference = f"{case.name}, {each.way}, step {step}: {problem}"
                    return found
        return found
    finally:
        for side in (theirs, *ours):
            side.close()


def _stepped(case: Case, theirs: _Theirs, ours: Sequence[_Ours]) -> Iterator[int]:
    """Reset and step all sides; yield the number of steps made whenever there are new rows."""
    everyone, count = (theirs, *ours), case.num_envs
    tape = _actions(theirs.spaces[1], case)

    def reset(seeds: Sequence[int | None], mask: Sequence[bool]) -> None:
        for side in everyone:
            side.reset(list(seeds), np.array(mask))

    every = [True] * count
    reset(range(case.seed, case.seed + count), every)
    yield 0
    for step in range(1, case.steps + 1):
        over = theirs.results[1] | theirs.results[2]
        if case.autoreset == "Disabled" and over.any():
            reset([None] * count, over)
        actions = tape[step - 1] if case.play is None else case.play(theirs.observations)
        for side in everyone:
            side.step(actions)
        yield step
        quarter = 4 * step // case.steps if case.new_starts and 4 * step % case.steps < 4 else 0
        if quarter == 1:
            reset([case.seed + 1000, *[None] * (count - 1)], [True, *[False] * (count - 1)])
        elif quarter == 2:
            reset(range(case.seed + 2000, case.seed + 2000 + count), every)
        elif quarter == 3:
            reset([None] * count, every)
        if quarter in (1, 2, 3):
            yield step


def _actions(space: gymnasium.Space[Any], case: Case) -> NDArray[Any]:
    """Return actions by step and environment. Each lasts for some steps, so that games are played, not only shaken."""
    steps, count, random = case.steps, case.num_envs, np.random.default_rng([case.seed, 0xAC])
    if isinstance(space, Discrete):
        drawn = random.integers(space.n, size=(steps, count))
        lasts = random.random((steps, count)) < KEPT_CHANCE
        for step in range(1, steps):
            drawn[step] = np.where(lasts[step], drawn[step - 1], drawn[step])
        return drawn.astype(case.action_type or np.int64)
    assert isinstance(space, Box)
    low, high = case.beyond * space.low, case.beyond * space.high
    return random.uniform(low, high, (steps, count, *low.shape)).astype(case.action_type or np.float64)


class _Noting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts how episodes end: a life lost, the game over, or the limit on its frames, and at which frame of a step."""

    def __init__(self, case: Case, ends: Counter[str]) -> None:
        super().__init__(case.theirs())
        self._task, self._ends = case.task, ends

    def frames(self) -> int:
        return making.frames_of(self._task, self.env) or 0

    def step(self, action: Any) -> Any:
        before = self.frames()
        row = self.env.step(action)
        _, _, terminated, truncated, _ = row
        if terminated or truncated:
            kind = "both" if terminated and truncated else "terminated" if terminated else "limit"
            if self._task.suite == "atari":
                simulator: Any = self.unwrapped
                lost = terminated and not simulator.ale.game_over(with_truncation=False)
                kind = "life" if lost else "game over" if terminated else "limit"
                kind = f"{kind}, frame {self.frames() - before}"
            self._ends[kind] += 1
        return row


class _Theirs:
    """Gymnasium's environments."""

    def __init__(self, case: Case, ends: Counter[str]) -> None:
        make = partial(_Noting, case, ends)
        self._envs = SyncVectorEnv([make] * case.num_envs, autoreset_mode=case.autoreset)
        self.spaces = (self._envs.single_observation_space, self._envs.single_action_space)
        action_type = case.action_type or (np.int64 if isinstance(self.spaces[1], Discrete) else np.float64)
        self.actions = ArraySpec(self.spaces[1].shape or (), np.dtype(action_type))
        flags = np.zeros((2, case.num_envs), np.bool_)
        self.results = (np.zeros(case.num_envs), *flags)

    @property
    def frames(self) -> list[int]:
        """The frames of each environment's episode."""
        return [environment.frames() for environment in self._envs.envs]

    def reset(self, seeds: list[int | None], mask: NDArray[np.bool_]) -> None:
        self.observations, _ = self._envs.reset(seed=seeds, options={"reset_mask": mask})
        self.infos: dict[str, Any] = {}
        for result in self.results:
            result[mask] = 0

    def step(self, actions: NDArray[Any]) -> None:
        self.observations, *results, infos = self._envs.step(actions)
        self.results = tuple(results)
        self.infos = ends_in(infos)

    def close(self) -> None:
        self._envs.close()


def ends_in(infos: Mapping[str, Any]) -> dict[str, Any]:
    """Return the infos that our own classes give: only the last observations of episodes."""
    left = {"final_obs", "_final_obs", "final_info", "_final_info"} & infos.keys()
    return {name: {} if name == "final_info" else infos[name] for name in left}


class _Ours:
    """Our class, stepped by the share of a team."""

    def __init__(self, case: Case, way: Way, actions: ArraySpec) -> None:
        self.way, self._count = way, case.num_envs
        task = case.ours()
        self.spaces = (task.observation_space, task.action_space)
        observed = ArraySpec(task.observation_space.shape or (), np.dtype(task.observation_space.dtype))
        # Rows as the processes of a team have them.
        self._memory = Memory(Division(case.num_envs, 1), (observed,), (actions,))
        self._rows = rows = self._memory.arrays
        (self.observations,), *self.results, (self._actions,) = rows
        self.observations.reshape(-1).view(np.uint8).fill(UNTOUCHED)
        division = Division(case.num_envs, way.threads, one_by_one=way.singly)
        self._share = FastShare(task, division, case.autoreset, rows, 0, case.num_envs)
        self._share.open()

    @property
    def frames(self) -> list[int]:
        return self._share.answer("frames", None) or []

    def reset(self, seeds: list[int | None], mask: NDArray[np.bool_]) -> None:
        self._share.answer("reset", (seeds, None if mask.all() else mask.tolist(), None))
        self.infos: dict[str, Any] = {}

    def step(self, actions: NDArray[Any]) -> None:
        self._actions[:] = actions
        if self.way.singly:
            remarks = self._step_singly()
        else:
            self._share.start()
            remarks = self._share.step() or []
        self.infos = batch_infos(self._count, remarks)

    def _step_singly(self) -> Remarks:
        """Ask for environments one after another, the last first, and receive two at a time."""
        left = self._count
        for index in reversed(range(left)):
            self._share.put([index])
        remarks: Remarks = []
        while left:
            done, told = self._share.get(min(2, left), None)
            left -= len(done)
            for remark in told.values():
                assert not isinstance(remark, WorkerFailure), remark
                remarks += remark
        return sorted(remarks, key=itemgetter(0))

    def close(self) -> None:
        self._share.close()
        self._memory.close()


def _difference(theirs: _Theirs, ours: _Ours) -> str:
    """Return in words where our rows differ from Gymnasium's, nothing if they do not."""
    names = ("observations", "rewards", "terminated", "truncated")
    both = zip((theirs.observations, *theirs.results), (ours.observations, *ours.results), strict=True)
    for name, (expected, found) in zip(names, both, strict=True):
        if expected.shape != found.shape or expected.dtype != found.dtype:
            return f"{name} are {found.dtype}{found.shape}, not {expected.dtype}{expected.shape}"
        if expected.tobytes() != found.tobytes():
            each = found.dtype.itemsize
            flat = [np.ascontiguousarray(one).reshape(-1).view(np.uint8).reshape(-1, each) for one in (expected, found)]
            places = np.flatnonzero((flat[0] != flat[1]).any(axis=1))
            at = tuple(map(int, np.unravel_index(places[0], expected.shape)))
            return f"{name}{list(at)} is {found[at]!r}, not {expected[at]!r}; {len(places)} values differ"
    if theirs.frames != ours.frames:
        return f"frames {ours.frames}, not {theirs.frames}"
    return different_infos(theirs.infos, ours.infos)


def different_infos(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Return in words where infos of vector environments differ, nothing if they do not."""
    if theirs.keys() != ours.keys():
        return f"infos are {sorted(ours)}, not {sorted(theirs)}"
    for name, expected in theirs.items():
        found = ours[name]
        if isinstance(expected, dict):
            if problem := different_infos(expected, found):
                return f"{name}: {problem}"
        elif (found.dtype, found.shape) != (expected.dtype, expected.shape):
            return f"infos[{name!r}] are {found.dtype}{found.shape}, not {expected.dtype}{expected.shape}"
        elif _values(found) != _values(expected):
            return f"infos[{name!r}] are {found!r}, not {expected!r}"
    return ""


def _values(values: NDArray[Any]) -> list[tuple[type, bytes]]:
    """Return the bytes of each value: an array, numbers that are one value, or None."""
    return [(type(value), np.asarray(value).tobytes()) for value in values]


# Cases.


def ours_of(env_id: str, settings: Mapping[str, Any]) -> Callable[[], FastTask]:
    """Return what builds our class for a task that is in the table."""
    ours = class_of(env_id)
    assert ours is not None
    return partial(load_target(ours.target), env_id, dict(settings))


def benchmark_case(name: str, task: Task, steps: int, **parts: Any) -> Case:
    """Return a comparison with the reference of every backend, as the benchmark steps it."""
    ours = ours_of(task.id, fast_settings(task))
    return Case(name, task, partial(making.make, task), ours, steps, **parts)


def made_case(name: str, task: Task, steps: int, settings: Mapping[str, Any], **parts: Any) -> Case:
    """Return a comparison with what ``gymnasium.make`` returns for these settings."""
    theirs = partial(gymnasium.make, task.id, disable_env_checker=True, **settings)
    return Case(name, task, theirs, ours_of(task.id, settings), steps, **parts)


def wrapped_case(name: str, task: Task, steps: int, settings: Mapping[str, Any], **parts: Any) -> Case:
    """Return a comparison with Gymnasium's plain wrappers, or the benchmark's for ``last_frames`` and ``any_noop``."""
    return Case(name, task, partial(wrapped_game, task.id, settings), ours_of(task.id, settings), steps, **parts)


def wrapped_game(env_id: str, settings: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return a game as people make it, with Gymnasium's wrappers, by the names of ``AtariSettings``."""
    gymnasium.register_envs(ale_py)
    asked = dict(settings)
    stack, clip = asked.pop("stack", 4), asked.pop("reward_clip", False)
    gaps = {name: asked.pop(name, False) for name in ("last_frames", "any_noop")}
    names = ("repeat_action_probability", "full_action_space", "max_num_frames_per_episode", "mode", "difficulty")
    of_the_emulator = {name: asked.pop(name) for name in (*names, "render_mode") if name in asked}
    emulator = gymnasium.make(env_id, frameskip=1, disable_env_checker=True, **of_the_emulator)
    screen = AtariScreen(emulator, **gaps, **asked) if any(gaps.values()) else AtariPreprocessing(emulator, **asked)
    cv2.setNumThreads(1)  # a process for each CPU is there already
    shown = FrameStackObservation(screen, stack)
    return ClipReward(shown, -1.0, 1.0) if clip else shown
