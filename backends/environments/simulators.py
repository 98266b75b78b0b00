"""Atari and MuJoCo environments with the same settings for every backend, and the bare simulators.

The settings of Atari follow Machado et al. (2018), "Revisiting the Arcade Learning Environment", without sticky
actions. Observations: the maximum of the last two frames, grey, 84x84 by area interpolation, four frames stacked.
Episodes: frame skip 4, at most 108,000 frames, no end at the loss of a life, no button pressed at a reset, rewards not
clipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vebench.backends.environments.making import action_space, sample
from vebench.backends.environments.suites import ALWAYS_DRAWN, BURST
from vebench.backends.interface import Task
from vebench.backends.lazy import np

if TYPE_CHECKING:
    import gymnasium

FRAME_LIMIT = 108_000
NOOP_MAX = 30
SCREEN_SIZE = 84
STACK = 4
# Rows of the emulator's raw screen in most games. All screens are 160 pixels wide.
SCREEN_ROWS = 210
# Rows of the screen in games known to have more.
TALL_SCREENS = {
    f"ALE/{game}-v5": rows
    for rows, games in (
        (214, "Carnival"),
        (220, "Pooyan"),
        (230, "JourneyEscape"),
        (250, "Adventure AirRaid KeystoneKapers KingKong Klax LaserGates MrDo Pacman SirLancelot SpaceWar"),
    )
    for game in games.split()
}
# Actions that a bare simulator samples beforehand. They also show how long MuJoCo's episodes last.
_TAPE = 1_000


def make_atari(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``. A reset of the exact variant makes ``task.no_ops`` no-ops."""
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
    """Return the emulator's count of frames in this episode, including the no-ops of the reset."""
    simulator: Any = environment.unwrapped
    return int(simulator.ale.getEpisodeFrameNumber())


def game_of(task: Task) -> str:
    """Return ale-py's name of the task's game."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    return str(gymnasium.spec(task.id).kwargs["game"])


def make_mujoco(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``. The exact variant starts without noise, if Gymnasium has a setting for it."""
    import gymnasium

    # The task's frame skip is the default of Gymnasium's class, unless a caller asks for another one.
    settings: dict[str, Any] = {**task.arguments, "frame_skip": task.frame_skip, "disable_env_checker": True}
    if task.exact and task.name not in ALWAYS_DRAWN:
        settings["reset_noise_scale"] = 0.0
    environment = gymnasium.make(task.name, **settings)
    # Convert actions to float64. Otherwise the class computes the cost of control in the type of the given array.
    simulator: Any = environment.unwrapped
    step = simulator.step
    simulator.step = lambda action: step(np.asarray(action, np.float64))
    return environment


def sub_steps(environment: gymnasium.Env[Any, Any]) -> int:
    """Return the number of sub-steps in this episode: MuJoCo's time divided by the model's time step."""
    simulator: Any = environment.unwrapped
    return int(round(simulator.data.time / simulator.model.opt.timestep))  # noqa: RUF046 - MuJoCo has no types


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
        """Make ``BURST`` agent steps. Start a new game after the end of one."""
        start, self._next = self._next, (self._next + BURST) % (_TAPE - BURST)
        act, game_over = self.ale.act, self.ale.game_over
        for action in self._tape[start : start + BURST]:
            act(action)
            if game_over():
                self.ale.reset_game()


class Physics:
    """MuJoCo on the model of the Gymnasium environment, without the environment.

    The simulation is reset after the mean length of the environment's own episodes under random actions. A humanoid
    that stays lying on the ground has many more contacts to solve than one that has just begun to fall.
    """

    def __init__(self, task: Task) -> None:
        import mujoco

        environment = make_mujoco(task)
        self._actions = action_space(task, environment.action_space)
        environment.reset(seed=0)
        episodes = 0
        for action in sample(self._actions, np.random.default_rng(0), _TAPE):
            _, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                episodes += 1
                environment.reset()
        self._episode_steps = _TAPE // max(1, episodes)
        self._model = environment.get_wrapper_attr("model")
        environment.close()
        self._frame_skip = task.frame_skip
        self._step, self._reset = mujoco.mj_step, mujoco.mj_resetData
        self.data = mujoco.MjData(self._model)
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start from the model's initial state, with actions sampled from ``seed``."""
        self._tape = list(sample(self._actions, np.random.default_rng(seed), _TAPE))
        self._next = self._age = 0
        self._reset(self._model, self.data)

    def burst(self) -> None:
        """Make ``BURST`` agent steps. Reset the simulation after an episode's mean length."""
        start, self._next = self._next, (self._next + BURST) % (_TAPE - BURST)
        model, data, step, frame_skip = self._model, self.data, self._step, self._frame_skip
        control = data.ctrl
        for action in self._tape[start : start + BURST]:
            if self._age == self._episode_steps:
                self._reset(model, data)
                self._age = 0
            self._age += 1
            control[:] = action
            step(model, data, frame_skip)
