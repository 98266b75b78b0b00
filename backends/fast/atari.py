"""Atari games stepped by C, with the observations of ``AtariPreprocessing`` and ``FrameStackObservation``.

A step runs only C (``atari.c``), which calls the methods of ALE's C++ class. ale-py's module exports them, and a Python
``ALEInterface`` contains the C++ object. Building a task compares C's results of a game with Python's, and C's pictures
with OpenCV's.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
from ale_py import Action, ALEInterface, LoggerMode, roms
from gymnasium import spaces
from gymnasium.utils import seeding
from numpy.typing import NDArray

from vebench.backends.environments.suites import FRAME_LIMIT, SCREEN_SIZE, STACK
from vebench.backends.fast.backend import FastBatch, FastTask
from vebench.backends.fast.classes import address, needed
from vebench.backends.shared_memory.memory_layout import RowArrays

# The methods in the order of ``struct games`` in ``atari.c``, by their names in ale-py's module.
_METHODS = (
    "_ZN3ale12ALEInterface3actENS_6ActionEf",
    "_ZNK3ale12ALEInterface9game_overEb",
    "_ZNK3ale12ALEInterface14game_truncatedEv",
    "_ZN3ale12ALEInterface5livesEv",
    "_ZNK3ale12ALEInterface9getScreenEv",
    "_ZN3ale12ALEInterface10reset_gameEv",
    "_ZN3ale12ALEInterface7loadROMENSt10filesystem7__cxx114pathE",
    "_ZN3ale12ALEInterface7setModeEj",
    "_ZN3ale12ALEInterface13setDifficultyEj",
)
# The constructor of an empty list of the parts of a path, and the method that fills it.
_PATH = ("_ZNSt10filesystem7__cxx114path5_ListC1Ev", "_ZNSt10filesystem7__cxx114path14_M_split_cmptsEv")
_OBJECT = 40  # bytes of an ``ale::ALEInterface``
_IN_PLACE = 0b11110  # flags of a finished nanobind instance that contains its C++ object
_STEPS_CHECKED = 20  # steps to compare in each of two episodes


@dataclass(frozen=True)
class AtariSettings:
    """Settings of a game, with the names and defaults of ``gymnasium.make`` and the wrappers.

    ``last_frames`` and ``any_noop`` close gaps of Gymnasium's wrapper: see ``environments.simulators.AtariScreen``.
    """

    frame_skip: int = 4
    stack: int = STACK  # pictures in an observation
    noop_max: int = 30
    screen_size: int | tuple[int, int] = SCREEN_SIZE  # the size of a picture: a square, or ``(columns, rows)``
    grayscale_obs: bool = True
    terminal_on_life_loss: bool = False
    reward_clip: bool = False  # whether a reward is replaced by its sign
    repeat_action_probability: float = 0.25
    full_action_space: bool = False
    mode: int | None = None
    difficulty: int | None = None
    max_num_frames_per_episode: int | None = FRAME_LIMIT
    last_frames: bool = False
    any_noop: bool = False  # has no effect here: no-ops are the emulator's own


class AtariTask(FastTask):
    """A game, shared by the environments of one process. Raises ValueError if C does not step it as Python does."""

    how = "games compiled"
    observation_space: spaces.Box

    def __init__(self, env_id: str, settings: Mapping[str, Any]) -> None:
        gymnasium.register_envs(ale_py)
        self.settings = chosen = AtariSettings(**settings)
        if not chosen.grayscale_obs:
            raise ValueError("no compiled pictures: colour")
        size = chosen.screen_size
        self.size: tuple[int, int] = size if isinstance(size, tuple) else (size, size)  # columns and rows
        rom = str(roms.get_rom_path(str(gymnasium.spec(env_id).kwargs["game"])))
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.methods = [address(_function(name)) for name in _METHODS]
        self.path, _ = _path(rom)
        example = self.emulator()
        seed_emulator(example, 0)
        example.loadROM(rom)
        if chosen.mode is not None:
            example.setMode(chosen.mode)
        if chosen.difficulty is not None:
            example.setDifficulty(chosen.difficulty)
        full = chosen.full_action_space
        self.actions: list[Action] = list(example.getLegalActionSet() if full else example.getMinimalActionSet())
        self.waits = self.actions[0] == Action.NOOP
        self.observation_space = spaces.Box(0, 255, (chosen.stack, *reversed(self.size)), np.uint8)
        self.action_space = spaces.Discrete(len(self.actions))
        self.pictures = PictureMaker(example.getScreenDims(), self.size, self._greys(example))
        self._check(example)

    def batch(self, rows: RowArrays) -> AtariBatch:
        """Build an environment for each row."""
        return AtariBatch(self, rows)

    def emulator(self) -> ALEInterface:
        """Return an emulator with these settings and no game."""
        ale = ALEInterface()
        ale.setFloat("repeat_action_probability", float(self.settings.repeat_action_probability))
        if self.settings.max_num_frames_per_episode is not None:
            ale.setInt("max_num_frames_per_episode", int(self.settings.max_num_frames_per_episode))
        return ale

    def _greys(self, example: ALEInterface) -> NDArray[np.uint8]:
        """Return the grey of each raw value. Writes all values to the screen, and reads their greys."""
        shape = example.getScreenDims()
        count = shape[0] * shape[1]
        find = _function("_ZNK3ale12ALEInterface9getScreenEv")
        find.restype = ctypes.c_void_p
        # An ``ale::ALEScreen`` is two numbers, and a vector: the addresses of its begin and end.
        screen = ctypes.string_at(find(ctypes.c_void_p(_object_of(example))), 24)
        rows, columns, begin, end = struct.unpack("iiPP", screen)
        if (rows, columns, end - begin) != (*shape, count):
            raise ValueError("ale-py's screen has another layout than expected")
        pixels = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(begin))
        pixels[:256] = np.arange(256)
        return example.getScreenGrayscale().reshape(-1)[:256].copy()

    def _check(self, by_python: ALEInterface) -> None:
        """Raise ValueError if C and Python differ in a game loaded with the same seed."""
        other = copy(self)
        other.settings = replace(
            self.settings, frame_skip=1, noop_max=0, terminal_on_life_loss=True, reward_clip=False, last_frames=True
        )
        pictures, actions = np.zeros((1, *self.observation_space.shape), np.uint8), np.zeros(1, np.int64)
        rewards, ended, cut_off = np.zeros(1), np.zeros(1, np.bool_), np.zeros(1, np.bool_)
        batch = other.batch(RowArrays((pictures,), rewards, ended, cut_off, (actions,)))
        lives = 0
        for step in range(2 * _STEPS_CHECKED):
            begins, action = step % _STEPS_CHECKED == 0, step % len(self.actions)
            if begins:
                batch.begin(0, None if step else 0)
                by_python.reset_game()
            actions[0], reward = action, 0 if begins else by_python.act(self.actions[action])
            needed().vebench_atari_work(ctypes.c_void_p(batch.context), ctypes.c_int64(0), ctypes.c_int64(1))
            lost, lives = by_python.lives() < lives and not begins, by_python.lives()
            over, truncated = by_python.game_over(with_truncation=False), by_python.game_truncated()
            if (
                # A game's start may use up a short limit of frames, but the episode has not ended then.
                (rewards[0], ended[0], cut_off[0]) != (reward, (over or lost) and not begins, truncated and not begins)
                or (batch._games["lives"][0], batch.frames(0)) != (lives, by_python.getEpisodeFrameNumber())
                or not np.array_equal(pictures[0, -1], by_opencv(by_python.getScreenGrayscale(), self.size))
            ):
                raise ValueError(f"C and Python differ after {step} steps of the game")


class AtariBatch(FastBatch):
    """Games that are stepped by C."""

    def __init__(self, task: AtariTask, rows: RowArrays) -> None:
        (observations,), rewards, terminated, truncated, (actions,) = rows
        settings, count = task.settings, len(rewards)
        self._noop_max = settings.noop_max
        self._ales = [task.emulator() for _ in range(count)]
        self._random: list[np.random.Generator | None] = [None] * count
        self._seeds = [0] * count
        pictures = task.pictures.pictures(observations[:, -1])
        # ``struct game``.
        fields = ("ale", "picture", "begins", "loads", "seeded", "restarted", "noops", "lives", "life_lost")
        self._games = np.zeros(count, [(name, np.int64) for name in fields])
        self._games["ale"] = [_object_of(ale) for ale in self._ales]
        self._games["picture"] = pictures.ctypes.data + pictures.strides[0] * np.arange(count)
        legal = np.array([action.value for action in task.actions], np.int32)
        arrays = (legal, actions, observations, rewards, terminated, truncated, self._games)
        self._kept = task, pictures, arrays
        # ``struct games``: 8 bytes for each field.
        values = (
            *map(int, task.methods),
            task.path.ctypes.data,
            -1 if settings.mode is None else settings.mode,
            -1 if settings.difficulty is None else settings.difficulty,
            settings.frame_skip,
            settings.stack,
            observations[0, -1].size,
            task.waits,
            settings.terminal_on_life_loss,
            settings.reward_clip,
            settings.last_frames,
            *(array.ctypes.data for array in arrays),
        )
        self._all = np.array(values, np.int64)
        self.context = self._all.ctypes.data
        self.work = address(needed().vebench_atari_work)

    def begin(self, index: int, seed: int | None) -> None:
        """Let the next work on one environment begin an episode, as in ``AtariEnv`` and the wrappers."""
        self.current = index
        game, random = self._games[index], self._random[index]
        if seed is not None or random is None:
            self._seeds[index] = seed_emulator(self._ales[index], seed)
            game["loads"], game["seeded"] = True, seed is not None
        if game["loads"] or game["restarted"] or random is None:
            random, _ = seeding.np_random(self._seeds[index])
            self._random[index] = random
        game["noops"] = random.integers(1, self._noop_max + 1) if self._noop_max else 0
        game["begins"] = True

    def frames(self, index: int) -> int:
        """Return the emulator's count of frames in one environment's episode, the reset's no-ops included."""
        return 0 if self._random[index] is None else int(self._ales[index].getEpisodeFrameNumber())

    def close(self) -> None:
        """Free the emulators. No work may follow."""
        self._ales = []


def seed_emulator(ale: ALEInterface, seed: int | None) -> int:
    """Seed an emulator's next load, as in ``AtariEnv``. Return the environment's own seed."""
    own, its = np.random.SeedSequence(seed).generate_state(n_words=2)
    ale.setInt("random_seed", int(its.astype(np.int32)))
    return int(own)


def _function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(sys.modules[ALEInterface.__module__].__file__), name)
    except (AttributeError, OSError) as error:
        raise ValueError(f"ale-py has no {name} here") from error


@cache
def _path(rom: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the path of a game for ``loadROM``, and the path's text. Neither is freed nor changed."""
    # A ``std::filesystem::path`` of GNU's library: a string's address, length and capacity, and a list of parts.
    text = np.frombuffer(rom.encode() + b"\0", np.uint8)
    path = np.array([text.ctypes.data, len(text) - 1, len(text) - 1, 0, 0], np.int64)
    make_list, split = map(_function, _PATH)
    make_list(pointer(path[4:]))
    split(pointer(path))
    return path, text


def _object_of(ale: ALEInterface) -> int:
    """Return the address of the C++ object in a Python emulator. nanobind stores its offset and flags first."""
    head = object.__basicsize__
    offset, flags = struct.unpack("iI", ctypes.string_at(id(ale) + head, 8))
    if flags != _IN_PLACE or not head + 8 <= offset <= ALEInterface.__basicsize__ - _OBJECT:
        raise ValueError("ale-py's emulator has no C++ object inside")
    return id(ale) + int(offset)


class PictureMaker:
    """The data that all pictures of one game share. Raises ValueError for sizes that ``atari.c`` does not support.

    ``screen``: rows and columns. ``size``: columns and rows of a picture. ``greys``: the grey of each raw value.
    """

    def __init__(self, screen: tuple[int, int], size: tuple[int, int], greys: NDArray[np.uint8]) -> None:
        (height, width), (columns, rows) = screen, size
        self._height = ctypes.c_int32(height)
        self._maker = np.zeros(needed().vebench_picture_maker_size(), np.uint8)
        numbers = map(ctypes.c_int32, (height, width, rows, columns))
        refused = needed().vebench_picture_maker_prepare(pointer(self._maker), *numbers, pointer(greys))
        if refused:
            relation = "from" if refused == -1 else "goes a whole number of times into"
            raise ValueError(f"no compiled pictures: {columns} x {rows} {relation} {width} x {height}")

    def pictures(self, into: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the memory of pictures in ``into``, ``(count, rows, columns)``, where only C may write."""
        memory = np.zeros((len(into), needed().vebench_picture_size(self._height)), np.uint8)
        for picture, shown in zip(memory, into, strict=True):
            needed().vebench_picture_prepare(pointer(picture), pointer(self._maker), pointer(shown))
        return memory


def by_opencv(grey: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return a screen resized by OpenCV, as in Gymnasium's wrapper."""
    return np.asarray(cv2.resize(grey, size, interpolation=cv2.INTER_AREA), np.uint8)


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return the address of an array as a C pointer."""
    return ctypes.c_void_p(array.ctypes.data)
