"""Atari games on the emulator itself, as ``AtariPreprocessing`` and ``FrameStackObservation`` show them.

What is left out is what no row shows: a picture in colour of every frame, copies of the stack, infos.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ale_py
import gymnasium
import numpy as np
from ale_py import Action, ALEInterface, LoggerMode, roms
from gymnasium import spaces
from gymnasium.utils import seeding

from vebench.backends.environments.atari import FRAME_LIMIT, NOOP_MAX, SCREEN_SIZE, STACK
from vebench.backends.fast.picture import PictureMaker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from vebench.backends.fast.picture import Picture
    from vebench.backends.setup import Task
    from vebench.backends.shared_memory.memory_layout import Arrays


@dataclass(frozen=True)
class AtariSettings:
    """How a game is stepped and shown, by the names of Gymnasium's wrappers where they have one.

    ``last_frames``: whether an episode's last observation shows the frames that it ended with, as EnvPool's does and
    that of every backend here, and not those before them, as Gymnasium's wrapper does. ``any_noop``: whether games
    whose action 0 is no NOOP are given one at a reset, where Gymnasium's wrapper refuses.
    """

    frame_skip: int = 4
    stack: int = STACK
    noop_max: int = NOOP_MAX
    screen_size: int = SCREEN_SIZE
    repeat_action_probability: float = 0.25
    full_action_space: bool = False
    max_num_frames_per_episode: int = FRAME_LIMIT
    last_frames: bool = False
    any_noop: bool = False


class AtariTask:
    """A game, as the environments of one process share it."""

    leaves_out: tuple[str, ...] = ("no infos",)

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> None:
        gymnasium.register_envs(ale_py)
        self.settings = AtariSettings(**settings)
        game = str(gymnasium.spec(env_id).kwargs["game"])
        rom = roms.get_rom_path(game)
        if rom is None:
            raise ValueError(f"ale-py has no ROM of {game}")
        self.rom = rom
        example = self.emulator()
        example.loadROM(rom)
        full = self.settings.full_action_space
        self.actions: list[Action] = list(example.getLegalActionSet() if full else example.getMinimalActionSet())
        self.waits = self.actions[0] == Action.NOOP
        self.pictures = PictureMaker(example, self.settings.screen_size, compiled=compiled)
        self.how = self.pictures.how
        size = self.settings.screen_size
        self.observation_space = spaces.Box(0, 255, (self.settings.stack, size, size), np.uint8)
        self.action_space = spaces.Discrete(len(self.actions))

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""
        return {
            "frame_skip": task.frame_skip,
            "noop_max": 1 if task.exact else NOOP_MAX,
            "repeat_action_probability": 0.0,
            "last_frames": True,
            "any_noop": True,
        }

    def emulator(self) -> ALEInterface:
        """Return an emulator with these settings and no game."""
        ale = ALEInterface()
        ale.setLoggerMode(LoggerMode.Error)
        ale.setFloat("repeat_action_probability", self.settings.repeat_action_probability)
        ale.setInt("max_num_frames_per_episode", self.settings.max_num_frames_per_episode)
        return ale

    def batch(self, rows: Arrays) -> AtariBatch:
        """Build as many environments as there are rows."""
        return AtariBatch(self, rows)


class AtariBatch:
    """Games that are stepped one after another."""

    def __init__(self, task: AtariTask, rows: Arrays) -> None:
        self.current = 0
        (observations,), self._rewards, self._terminated, self._truncated, (self._actions,) = rows
        self._games = [_Game(task, row) for row in observations]

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment."""
        self.current = index
        self._games[index].reset(seed)

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments that are not resting; return those that have ended their episodes."""
        ended = []
        rewards, terminated, truncated = self._rewards, self._terminated, self._truncated
        for index, (game, action) in enumerate(zip(self._games, self._actions.tolist(), strict=True)):
            if resting and index in resting:
                continue
            self.current = index
            rewards[index], over = game.step(action)
            if over:
                terminated[index] = game.ale.game_over(with_truncation=False)
                truncated[index] = game.ale.game_truncated()
                ended.append(index)
        return ended

    def frames(self, index: int) -> int:
        """Return the frames of one environment's episode by the emulator's own count, no-ops at its reset included."""
        return int(self._games[index].ale.getEpisodeFrameNumber())

    def close(self) -> None:
        """Free the emulators."""
        self._games = []


class _Game:
    """One game, and the row that shows it."""

    def __init__(self, task: AtariTask, row: NDArray[np.uint8]) -> None:
        self._task = task
        self._skip = task.settings.frame_skip
        self.ale = task.emulator()
        self._loaded = False
        self._random: np.random.Generator | None = None
        # The stack is one run of bytes: the oldest picture first.
        self._row = row.reshape(-1)
        self._newest = row[-1]
        self._size = row[-1].size
        self._picture: Picture = task.pictures.picture(self.ale, row[-1])

    def reset(self, seed: int | None) -> None:
        """Start a new episode as ``AtariEnv.reset`` does, and the wrappers above it."""
        self._start(seed)
        settings = self._task.settings
        if settings.noop_max and (self._task.waits or settings.any_noop):
            assert self._random is not None  # noqa: S101 - a type checker cannot know
            for _ in range(int(self._random.integers(1, settings.noop_max + 1))):
                self.ale.act(Action.NOOP)
                if self.ale.game_over():
                    self._start(seed)
        self._picture.alone()
        self._row.reshape(-1, self._size)[:-1] = self._newest.reshape(-1)

    def _start(self, seed: int | None) -> None:
        if seed is not None or not self._loaded:
            # A seed takes effect when the game is loaded.
            words = np.random.SeedSequence(seed).generate_state(n_words=2)
            self._random, _ = seeding.np_random(int(words[0]))
            self.ale.setInt("random_seed", int(words[1].astype(np.int32)))
            self.ale.loadROM(self._task.rom)
            self._loaded = True
        self.ale.reset_game()

    def step(self, index: int) -> tuple[float, bool]:
        """Repeat an action for so many frames, or until the episode ends; return the reward, and whether it has."""
        ale, action = self.ale, self._task.actions[index]
        skip = self._skip
        reward = 0.0
        row = self._row
        for frame in range(skip):
            reward += ale.act(action)
            if ale.game_over():
                row[: -self._size] = row[self._size :]
                if frame == skip - 1:
                    self._picture.second()
                elif frame == skip - 2:
                    self._picture.alone()
                return reward, True
            if frame == skip - 2:
                self._picture.first()
        row[: -self._size] = row[self._size :]
        self._picture.second()
        return reward, False
