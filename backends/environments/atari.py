"""Atari environments with the same settings for every backend, the frames that they simulate, and the bare emulator.

The settings follow Machado et al. (2018), "Revisiting the Arcade Learning Environment", without sticky actions: frame
skip 4, the maximum of the last two frames, grey, 84x84 by area interpolation, four frames stacked, 108,000 frames an
episode, no clipping of rewards, no end at the loss of a life, no button pressed at a reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vebench.backends.environments.suites import BURST
from vebench.backends.lazy import np

if TYPE_CHECKING:
    import gymnasium

    from vebench.backends.interface import Task

FRAME_LIMIT = 108_000
NOOP_MAX = 30
SCREEN_SIZE = 84
STACK = 4
_TAPE = 1_000  # actions sampled beforehand
# Rows of the emulator's raw screen, in most games and in those known to have more. All screens are 160 pixels wide.
SCREEN_ROWS = 210
_TALLEST = "Adventure AirRaid KeystoneKapers KingKong Klax LaserGates MrDo Pacman SirLancelot SpaceWar"
_TALL = {"Carnival": 214, "Pooyan": 220, "JourneyEscape": 230, **dict.fromkeys(_TALLEST.split(), 250)}
TALL_SCREENS = {f"ALE/{game}-v5": rows for game, rows in _TALL.items()}


def make_atari(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``; its exact variant makes ``task.no_ops`` no-ops at a reset."""
    import ale_py
    import gymnasium
    from gymnasium.wrappers import FrameStackObservation

    from vebench.backends.environments.atari_screen import AtariScreen

    gymnasium.register_envs(ale_py)
    arguments: dict[str, Any] = task.arguments
    emulator = gymnasium.make(
        task.name,
        frameskip=1,
        repeat_action_probability=0,
        full_action_space=False,
        disable_env_checker=True,
        max_num_frames_per_episode=FRAME_LIMIT,
        **arguments,
    )
    screen = AtariScreen(emulator, noop_max=noop_max(task), frame_skip=task.frame_skip, screen_size=SCREEN_SIZE)
    return FrameStackObservation(screen, STACK, padding_type="reset")


def noop_max(task: Task) -> int:
    """Return the largest number of no-ops of a reset. A reset of the exact variant always makes this number."""
    return task.no_ops if task.exact else NOOP_MAX


def emulator_frames(environment: gymnasium.Env[Any, Any]) -> int:
    """Return the frames of this episode by the emulator's own count, with the no-ops of its reset."""
    simulator: Any = environment.unwrapped
    return int(simulator.ale.getEpisodeFrameNumber())


def game_of(task: Task) -> str:
    """Return what ale-py calls a game."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    return str(gymnasium.spec(task.id).kwargs["game"])


class Emulator:
    """The Arcade Learning Environment with frame skip inside, no sticky actions and the minimal action set."""

    def __init__(self, task: Task) -> None:
        import ale_py
        from ale_py import roms

        game = game_of(task)
        rom = roms.get_rom_path(game)
        if rom is None:
            raise ValueError(f"ale-py has no ROM of {game}")
        self._rom = rom
        self.ale = ale_py.ALEInterface()
        self.ale.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale.setInt("frame_skip", task.frame_skip)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", FRAME_LIMIT)
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start a new game with actions sampled from ``seed``."""
        self.ale.setInt("random_seed", seed % 2**31)
        self.ale.loadROM(self._rom)  # a seed takes effect when the game is loaded
        actions = self.ale.getMinimalActionSet()
        choices = np.random.default_rng(seed).integers(len(actions), size=_TAPE)
        self._tape = [actions[choice] for choice in choices]
        self._next = 0

    def burst(self) -> None:
        """Make ``BURST`` agent steps, starting a new game where one ends."""
        start, self._next = self._next, (self._next + BURST) % (_TAPE - BURST)
        act, game_over = self.ale.act, self.ale.game_over
        for action in self._tape[start : start + BURST]:
            act(action)
            if game_over():
                self.ale.reset_game()
