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

from vebench.backends.environments.atari import FRAME_LIMIT, NOOP_MAX, SCREEN_SIZE, STACK, noop_max
from vebench.backends.fast.picture import PictureMaker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from vebench.backends.fast.commons import Area
    from vebench.backends.interface import Task
    from vebench.backends.shared_memory.memory_layout import RowArrays


@dataclass(frozen=True)
class AtariSettings:
    """How a game is stepped and shown, by the names that ``gymnasium.make`` and the wrappers have, with their defaults.

    ``stack``: how many pictures ``FrameStackObservation`` shows. ``reward_clip``: whether a reward is replaced by its
    sign. ``screen_size``: of a picture, one number for a square or ``(columns, rows)``.

    Two settings close gaps of Gymnasium's wrapper. ``last_frames``: whether an episode's last observation shows the
    frames that it ended with, as EnvPool's does and that of every backend here, and not those before them.
    ``any_noop``: whether games whose action 0 is no NOOP are given one at a reset, where Gymnasium's wrapper refuses.
    """

    frame_skip: int = 4
    stack: int = STACK
    noop_max: int = NOOP_MAX
    screen_size: int | tuple[int, int] = SCREEN_SIZE
    grayscale_obs: bool = True
    terminal_on_life_loss: bool = False
    reward_clip: bool = False
    repeat_action_probability: float = 0.25
    full_action_space: bool = False
    mode: int | None = None
    difficulty: int | None = None
    max_num_frames_per_episode: int | None = FRAME_LIMIT
    last_frames: bool = False
    any_noop: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of a picture."""
        both = self.screen_size
        return both if isinstance(both, tuple) else (both, both)


class AtariTask:
    """A game, as the environments of one process share it."""

    leaves_out: tuple[str, ...] = ("no infos",)
    refuses = frozenset[str]()
    fewest = 1

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> None:
        gymnasium.register_envs(ale_py)
        self.settings = chosen = AtariSettings(**settings)
        self.rom = str(roms.get_rom_path(str(gymnasium.spec(env_id).kwargs["game"])))
        ALEInterface.setLoggerMode(LoggerMode.Error)
        example = self.emulator()
        example.loadROM(self.rom)
        full = chosen.full_action_space
        self.actions: list[Action] = list(example.getLegalActionSet() if full else example.getMinimalActionSet())
        self.waits = self.actions[0] == Action.NOOP
        grey, size = chosen.grayscale_obs, chosen.size
        self.pictures = PictureMaker(example, size, grey=grey, compiled=compiled)
        self.how, self.uncompiled = self.pictures.how, self.pictures.uncompiled
        shape = (chosen.stack, *reversed(size), *(() if grey else (3,)))
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(len(self.actions))

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""
        same = {"repeat_action_probability": 0.0, "last_frames": True, "any_noop": True}
        return {"frame_skip": task.frame_skip, "noop_max": noop_max(task), **same}

    def emulator(self) -> ALEInterface:
        """Return an emulator with these settings and no game."""
        ale = ALEInterface()
        ale.setFloat("repeat_action_probability", float(self.settings.repeat_action_probability))
        if self.settings.max_num_frames_per_episode is not None:
            ale.setInt("max_num_frames_per_episode", int(self.settings.max_num_frames_per_episode))
        return ale

    def load(self, ale: ALEInterface) -> None:
        """Load the game into an emulator. A seed takes effect with it; it takes as long as a thousand frames."""
        ale.loadROM(self.rom)
        if self.settings.mode is not None:
            ale.setMode(self.settings.mode)
        if self.settings.difficulty is not None:
            ale.setDifficulty(self.settings.difficulty)

    @staticmethod
    def commons(_count: int) -> None:
        """Return None: an emulator belongs to the process that has built it."""

    def batch(self, rows: RowArrays, _area: Area | None = None) -> AtariBatch:
        """Build as many environments as there are rows."""
        return AtariBatch(self, rows)


class AtariBatch:
    """Games that are stepped one after another."""

    def __init__(self, task: AtariTask, rows: RowArrays) -> None:
        self.current = 0
        (observations,), self._rewards, self._terminated, self._truncated, (self._actions,) = rows
        self._games = [_Game(task, row) for row in observations]
        self._flagged: list[int] = []

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment."""
        self.current = index
        self._games[index].reset(seed)

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments; return those that have ended their episodes. Those that rest begin a new one."""
        for index in self._flagged:
            self._terminated[index] = self._truncated[index] = False
        ended = []
        games, rewards = self._games, self._rewards
        for index, action in enumerate(self._actions.tolist()):
            self.current = index
            game = games[index]
            if resting and index in resting:
                game.reset(None)
                rewards[index] = 0.0
                continue
            rewards[index], over = game.step(action)
            if over:
                self._terminated[index], self._truncated[index] = game.terminated(), game.truncated()
                ended.append(index)
        self._flagged = ended
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
        settings = task.settings
        self._task, self._settings = task, settings
        self.ale = task.emulator()
        self._loaded = False
        self._random: np.random.Generator | None = None
        self._lives = 0
        self._life_lost = False
        # The stack is one run of bytes: the oldest picture first.
        self._row = row
        size = row[-1].size
        flat = row.reshape(-1)
        self._newer, self._older = flat[size:], flat[:-size]
        self._picture = task.pictures.picture(self.ale, row[-1])
        self._both_at = settings.frame_skip - 1
        self._first_at = settings.frame_skip - 2
        self._clips = settings.reward_clip
        # What is called again and again, bound once.
        self._act, self._actions = self.ale.act, task.actions
        self._over = self._over_or_life_lost if settings.terminal_on_life_loss else self.ale.game_over
        self._first = self._picture.first
        # Gymnasium takes the larger of two screens only where there are two.
        self._show = self._picture.second if settings.frame_skip > 1 else self._picture.alone

    def reset(self, seed: int | None) -> None:
        """Start a new episode as ``AtariEnv.reset`` does, and the wrappers above it."""
        self._start(seed)
        settings = self._settings
        if settings.noop_max:
            assert self._random is not None  # noqa: S101 - a type checker cannot know
            for _ in range(int(self._random.integers(1, settings.noop_max + 1))):
                self.ale.act(Action.NOOP)
                if self._task.waits and self.ale.game_over():
                    self._start(seed)
        self._lives, self._life_lost = self.ale.lives(), False
        self._picture.alone()
        self._row[:-1] = self._row[-1]

    def _start(self, seed: int | None) -> None:
        if seed is not None or not self._loaded:
            words = np.random.SeedSequence(seed).generate_state(n_words=2)
            self._random, _ = seeding.np_random(int(words[0]))
            self.ale.setInt("random_seed", int(words[1].astype(np.int32)))
            self._task.load(self.ale)
            self._loaded = True
        self.ale.reset_game()

    def step(self, index: int) -> tuple[float, bool]:
        """Repeat an action, ``frame_skip`` times or until the episode ends; return the reward, and whether it did."""
        act, over, action = self._act, self._over, self._actions[index]
        reward = 0
        ended = False
        for frame in range(self._both_at + 1):
            reward += act(action)
            if over():
                ended = True
                break
            if frame == self._first_at:
                self._first()
        self._older[:] = self._newer
        if ended:
            self._show_end(frame)
        else:
            self._show()
        if self._clips:
            reward = (reward > 0) - (reward < 0)
        return reward, ended

    def _show_end(self, frame: int) -> None:
        """Write the picture of an episode that has ended with a frame of a step, counted from 0."""
        if self._settings.last_frames:
            if frame == self._both_at:
                self._show()
            elif frame == self._first_at:
                self._picture.alone()
        elif frame == self._both_at > 0:
            self._picture.stale()

    def _over_or_life_lost(self) -> bool:
        before, self._lives = self._lives, self.ale.lives()
        self._life_lost = self._lives < before
        return self._life_lost or self.ale.game_over()

    def terminated(self) -> bool:
        """Return whether the game is over, or a life is lost where that ends an episode."""
        return self._life_lost or self.ale.game_over(with_truncation=False)

    def truncated(self) -> bool:
        """Return whether the game has reached the limit of its frames."""
        return bool(self.ale.game_truncated())
