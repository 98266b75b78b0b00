"""Steps our own classes beside Gymnasium's environments in this process, and compares every byte that they return.

Nothing of ours is on Gymnasium's side: its environments are stepped by a plain loop. On our side is what
``fast-sync`` has, the share that takes care of ends, with its threads.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Protocol

import ale_py
import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation
from numpy.typing import NDArray

from vebench.backends.environments import making
from vebench.backends.environments.atari_screen import AtariScreen
from vebench.backends.environments.making import ArraySpec
from vebench.backends.environments.simulators import STACK
from vebench.backends.environments.suites import fast_settings, load_target
from vebench.backends.fast.backend import FastShare, FastTask
from vebench.backends.fast.classes import class_of
from vebench.backends.interface import Task
from vebench.backends.shared_memory.errors import WorkerFailure
from vebench.backends.shared_memory.gymnasium_share import Remarks, batch_infos
from vebench.backends.shared_memory.memory_layout import Division, RowArrays

Autoreset = Literal["NextStep", "SameStep", "Disabled"]
# What is in a row before anything was written: rows that are never written to are then found.
UNTOUCHED = 0xA5
KEPT_CHANCE = 0.5  # that an action lasts for another step
OF_THE_EMULATOR = {
    "repeat_action_probability",
    "full_action_space",
    "max_num_frames_per_episode",
    "mode",
    "difficulty",
    "render_mode",
}


class Way(NamedTuple):
    """How our class steps: with so many threads, and all environments at once or each asked for by itself."""

    threads: int = 2
    singly: bool = False

    def __str__(self) -> str:
        return f"{self.threads} threads{', singly' if self.singly else ''}"


class Build(Protocol):
    """Builds our class."""

    def __call__(self) -> FastTask:
        """Return the task."""


@dataclass(frozen=True)
class Case:
    """One comparison: so many environments, so many steps.

    ``theirs`` makes one environment of Gymnasium's, ``ours`` builds our class with the same settings. With
    ``new_starts`` a quarter through the steps one environment is given a new seed in the middle of its episode, after a
    half all are, and after three quarters all start anew without one. Real-valued actions are drawn from ``beyond``
    times the space. ``infos``: whether ours are asked for, and compared.
    """

    name: str
    task: Task
    theirs: Callable[[], gymnasium.Env[Any, Any]]
    ours: Build
    steps: int
    num_envs: int = 2
    seed: int = 0
    new_starts: bool = False
    autoreset: Autoreset = "NextStep"
    action_type: type[np.generic] | None = None
    beyond: float = 1.0
    infos: bool = True
    ways: tuple[Way, ...] = (Way(),)


@dataclass
class Found:
    """What a comparison found. ``rows``: those of Gymnasium's, each compared with the same row in each way of ours.

    ``ends``: how many episodes ended so, by kind and the frame of the step. ``difference``: the first,
    in words.
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
    everyone = (theirs, *ours)
    count = case.num_envs
    random = np.random.default_rng([case.seed, 0xAC])
    tape = _actions(theirs.action_space, case, random)

    def reset(seeds: Sequence[int | None], mask: Sequence[bool]) -> None:
        for side in everyone:
            side.reset(seeds, mask)

    every = [True] * count
    reset([case.seed + index for index in range(count)], every)
    yield 0
    for step in range(1, case.steps + 1):
        if case.autoreset == "Disabled" and any(theirs.over):
            reset([None] * count, [*theirs.over])
        for side in everyone:
            side.step(tape[step - 1])
        yield step
        quarter = 4 * step // case.steps if case.new_starts and 4 * step % case.steps < 4 else 0
        if quarter == 1:
            reset([case.seed + 1000, *[None] * (count - 1)], [True, *[False] * (count - 1)])
        elif quarter == 2:
            reset([case.seed + 2000 + index for index in range(count)], every)
        elif quarter == 3:
            reset([None] * count, every)
        if quarter in (1, 2, 3):
            yield step


def _actions(space: gymnasium.Space[Any], case: Case, random: np.random.Generator) -> NDArray[Any]:
    """Return actions by step and environment. Each lasts for some steps, so that games are played, not only shaken."""
    steps, count = case.steps, case.num_envs
    if isinstance(space, Discrete):
        drawn = random.integers(space.n, size=(steps, count))
        lasts = random.random((steps, count)) < KEPT_CHANCE
        for step in range(1, steps):
            drawn[step] = np.where(lasts[step], drawn[step - 1], drawn[step])
        return drawn.astype(case.action_type or np.int64)
    assert isinstance(space, Box)
    low, high = case.beyond * space.low, case.beyond * space.high
    return random.uniform(low, high, (steps, count, *low.shape)).astype(case.action_type or np.float64)


class _Theirs:
    """Gymnasium's environments, stepped one after another."""

    def __init__(self, case: Case, ends: Counter[str]) -> None:
        self._case, self._ends = case, ends
        self._environments = [case.theirs() for _ in range(case.num_envs)]
        first = self._environments[0]
        self.action_space = first.action_space
        self.spaces = (first.observation_space, first.action_space)
        observations, actions = first.observation_space, first.action_space
        action_type = case.action_type or (np.int64 if isinstance(actions, Discrete) else np.float64)
        self.actions = ArraySpec(actions.shape or (), np.dtype(action_type))
        seen = ArraySpec(observations.shape or (), np.dtype(observations.dtype))
        self.rows = _rows(seen, self.actions, case.num_envs)
        self.over = [False] * case.num_envs
        self._told: list[tuple[int, dict[str, Any]]] = []
        self.frames = [0] * case.num_envs

    @property
    def infos(self) -> dict[str, Any]:
        """Those of the last reset or step, in the form that Gymnasium's vector environments have."""
        return batch_infos(len(self.over), self._told)

    def reset(self, seeds: Sequence[int | None], mask: Sequence[bool]) -> None:
        self._told = []
        for index, (seed, meant) in enumerate(zip(seeds, mask, strict=True)):
            if meant:
                self._begin(index, seed)
                self.rows.rewards[index] = 0.0
                self.rows.terminated[index] = self.rows.truncated[index] = False

    def step(self, actions: NDArray[Any]) -> None:
        rows, autoreset = self.rows, self._case.autoreset
        self._told = []
        for index, environment in enumerate(self._environments):
            if self.over[index]:
                self._begin(index, None)
                rows.rewards[index] = 0.0
                rows.terminated[index] = rows.truncated[index] = False
                continue
            before = self.frames[index]
            observation, rows.rewards[index], terminated, truncated, info = environment.step(actions[index])
            rows.observations[0][index] = observation
            rows.terminated[index], rows.truncated[index] = terminated, truncated
            self.frames[index] = self._frames(index)
            if terminated or truncated:
                self._ends[self._kind(index, self.frames[index] - before)] += 1
                self.over[index] = True
                if autoreset == "SameStep":
                    final = info if self._case.infos else {}
                    self._told.append((index, {"final_obs": observation, "final_info": final}))
                    self._begin(index, None)
                    continue
            self._tell(index, info)

    def _tell(self, index: int, info: dict[str, Any]) -> None:
        if self._case.infos:
            self._told.append((index, info))

    def _begin(self, index: int, seed: int | None) -> None:
        self.rows.observations[0][index], info = self._environments[index].reset(seed=seed)
        self._tell(index, info)
        self.frames[index] = self._frames(index)
        self.over[index] = False

    def _frames(self, index: int) -> int:
        return making.frames_of(self._case.task, self._environments[index]) or 0

    def _kind(self, index: int, frames: int) -> str:
        """Return what ended an episode: a life lost, the game over, or the limit on its frames, and at which frame."""
        terminated, truncated = bool(self.rows.terminated[index]), bool(self.rows.truncated[index])
        if self._case.task.suite != "atari":
            return "both" if terminated and truncated else "terminated" if terminated else "limit"
        simulator: Any = self._environments[index].unwrapped
        if terminated and not simulator.ale.game_over(with_truncation=False):
            return f"life, frame {frames}"
        return f"{'game over' if terminated else 'limit'}, frame {frames}"

    def close(self) -> None:
        while self._environments:
            self._environments.pop().close()


class _Ours:
    """Our class, stepped by the share of a team."""

    def __init__(self, case: Case, way: Way, actions: ArraySpec) -> None:
        self.way = way
        task = case.ours()
        self.spaces = (task.observation_space, task.action_space)
        space = task.observation_space
        self.rows = _rows(ArraySpec(space.shape or (), np.dtype(space.dtype)), actions, case.num_envs)
        division = Division(case.num_envs, way.threads, one_by_one=way.singly)
        self._share = FastShare(task, division, case.autoreset, self.rows, infos=case.infos)
        self._share.open()
        self.infos: dict[str, Any] = {}

    @property
    def frames(self) -> list[int]:
        """The frames of each environment's episode."""
        return self._share.answer("frames", None) or []

    def reset(self, seeds: Sequence[int | None], mask: Sequence[bool]) -> None:
        counted = None not in seeds and all(mask)
        self._share.answer("reset", seeds[0] if counted else (seeds, mask, None))
        self.infos = self._share.infos(None, np.array(mask))

    def step(self, actions: NDArray[Any]) -> None:
        self.rows.actions[0][:] = actions
        if self.way.singly:
            remarks = self._step_singly()
        else:
            self._share.start()
            remarks = self._share.step() or []
        self.infos = batch_infos(len(self.rows.rewards), remarks) | self._share.infos(None)

    def _step_singly(self) -> Remarks:
        """Ask for environments one after another, the last first, and receive two at a time."""
        left = len(self.rows.rewards)
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


def _rows(observations: ArraySpec, actions: ArraySpec, count: int) -> RowArrays:
    """Return rows as the processes of a team have them."""
    layout = Division(count, 1).layout((observations,), (actions,))
    rows = layout.arrays(mmap.mmap(-1, layout.size))
    rows.observations[0].reshape(-1).view(np.uint8).fill(UNTOUCHED)
    return rows


def _difference(theirs: _Theirs, ours: _Ours) -> str:
    """Return in words where our rows differ from Gymnasium's, nothing if they do not."""
    one, other = theirs.rows, ours.rows
    fields = [(name, getattr(one, name), getattr(other, name)) for name in ("rewards", "terminated", "truncated")]
    for name, expected, found in (("observations", one.observations[0], other.observations[0]), *fields):
        if expected.shape != found.shape or expected.dtype != found.dtype:
            return f"{name} are {found.dtype}{found.shape}, not {expected.dtype}{expected.shape}"
        if expected.tobytes() != found.tobytes():
            return _where(name, expected, found)
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


def _where(name: str, expected: NDArray[Any], found: NDArray[Any]) -> str:
    """Return the first value whose bytes differ, and how many there are."""
    size = expected.dtype.itemsize
    flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, size) for array in (expected, found)]
    places = np.flatnonzero((flat[0] != flat[1]).any(axis=1))
    at = tuple(map(int, np.unravel_index(places[0], expected.shape)))
    return f"{name}{list(at)} is {found[at]!r}, not {expected[at]!r}; {len(places)} of {expected.size} values differ"


# Cases.


def ours_of(env_id: str, settings: Mapping[str, Any]) -> Any:
    """Return what builds our class for a task that is in the table."""
    ours = class_of(env_id)
    if ours is None:
        raise ValueError(f"there is no class of our own for {env_id}")
    return partial(load_target(ours.target), env_id, dict(settings))


def benchmark_case(name: str, task: Task, steps: int, **parts: Any) -> Case:
    """Return a comparison with the reference of every backend, as the benchmark steps it: without infos."""
    ours = ours_of(task.id, fast_settings(task))
    return Case(name, task, partial(making.make, task), ours, steps, infos=False, **parts)


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
    of_the_emulator = {name: asked.pop(name) for name in OF_THE_EMULATOR & asked.keys()}
    emulator = gymnasium.make(env_id, frameskip=1, disable_env_checker=True, **of_the_emulator)
    stack, clip = asked.pop("stack", STACK), asked.pop("reward_clip", False)
    gaps = {name: asked.pop(name, False) for name in ("last_frames", "any_noop")}
    screen = AtariScreen(emulator, **gaps, **asked) if any(gaps.values()) else AtariPreprocessing(emulator, **asked)
    # One thread: a process for each CPU is there already.
    cv2.setNumThreads(1)
    shown = FrameStackObservation(screen, stack)
    return ClipReward(shown, -1.0, 1.0) if clip else shown
