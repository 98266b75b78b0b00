"""Atari and MuJoCo environments with the same settings for every backend, and the bare simulators.

The settings of Atari follow Machado et al. (2018), "Revisiting the Arcade Learning Environment", without sticky
actions. Observations: the maximum of the last two frames, grey, 84x84 by area interpolation, four frames stacked.
Episodes: frame skip 4, at most 108,000 frames, no end at the loss of a life, no button pressed at a reset, rewards not
clipped.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from vebench.backends.environments.making import action_space, sample
from vebench.backends.environments.suites import ALWAYS_DRAWN, BURST, FRAME_LIMIT, SCREEN_SIZE, STACK
from vebench.backends.interface import Task

# Number of actions that a bare simulator samples beforehand. MuJoCo's episodes are also measured over so many steps.
_TAPE = 1_000


class AtariScreen(AtariPreprocessing):
    """``AtariPreprocessing`` with two gaps closed: the last observation of an episode, and games without a NOOP.

    ``last_frames``: return an episode's last frames, in steps for which Gymnasium returns stale ones. ``any_noop``:
    make no-ops with the emulator's own NOOP in games whose action 0 presses a button. Gymnasium makes none there.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        noop_max: int = 30,
        last_frames: bool = True,
        any_noop: bool = True,
        **settings: Any,
    ) -> None:
        # Record the arguments for ``spec``. Gymnasium keeps the first record.
        RecordConstructorArgs.__init__(self, noop_max=noop_max, last_frames=last_frames, any_noop=any_noop, **settings)
        other_noop = any_noop and env.get_wrapper_attr("get_action_meanings")()[0] != "NOOP"
        super().__init__(env, noop_max=0 if other_noop else noop_max, **settings)
        self._waits = noop_max if other_noop else 0
        self._last_frames = last_frames
        self._first_frame = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode with 1 to ``noop_max`` no-ops."""
        observation, info = super().reset(seed=seed, options=options)
        if self._waits:
            noop = self.ale.getLegalActionSet()[0]
            for _ in range(int(self.env.unwrapped.np_random.integers(1, self._waits + 1))):
                self.ale.act(noop)
            self.lives = self.ale.lives()
            info |= self.env.unwrapped._get_info()  # type: ignore[attr-defined] # noqa: SLF001 - of ``AtariEnv``
            self._read_screen()
            self.obs_buffer[1].fill(0)
            observation = self._get_obs()  # type: ignore[no-untyped-call] # Gymnasium leaves it without types
        self._first_frame = self.ale.getEpisodeFrameNumber()
        return observation, info

    def _read_screen(self) -> None:
        read = self.ale.getScreenGrayscale if self.grayscale_obs else self.ale.getScreenRGB
        read(self.obs_buffer[0])

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Repeat ``action`` for ``frame_skip`` frames, or until the episode ends."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._last_frames and (terminated or truncated):
            frames = (self.ale.getEpisodeFrameNumber() - self._first_frame - 1) % self.frame_skip + 1
            if frames > self.frame_skip - 2:
                if frames < self.frame_skip:
                    # The step ended before its last frame, so there is no second frame to take the maximum of.
                    self.obs_buffer[1].fill(0)
                self._read_screen()
                observation = self._get_obs()  # type: ignore[no-untyped-call] # Gymnasium leaves it without types
        return observation, reward, terminated, truncated, info


def make_atari(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``. A reset of the exact variant makes ``task.no_ops`` no-ops."""
    import ale_py

    gymnasium.register_envs(ale_py)
    emulator = gymnasium.make(
        task.name,
        frameskip=1,
        repeat_action_probability=0,
        full_action_space=False,
        disable_env_checker=True,
        max_num_frames_per_episode=FRAME_LIMIT,
        **dict[str, Any](task.arguments),
    )
    screen = AtariScreen(emulator, noop_max=task.noop_max, frame_skip=task.frame_skip, screen_size=SCREEN_SIZE)
    return FrameStackObservation(screen, STACK, padding_type="reset")


def emulator_frames(environment: gymnasium.Env[Any, Any]) -> int:
    """Return the emulator's count of frames in this episode, including the no-ops of the reset."""
    return int(environment.get_wrapper_attr("ale").getEpisodeFrameNumber())


def game_of(task: Task) -> str:
    """Return ale-py's name of the task's game."""
    import ale_py

    gymnasium.register_envs(ale_py)
    return str(gymnasium.spec(task.id).kwargs["game"])


def make_mujoco(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``. The exact variant starts without noise, if Gymnasium has a setting for it."""
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


class _Simulator:
    """A bare simulator, which repeats a tape of actions sampled from a seed."""

    _tape: list[Any]
    _next = 0

    def _burst(self) -> list[Any]:
        """Return the actions of the next ``BURST`` agent steps."""
        start, self._next = self._next, (self._next + BURST) % (_TAPE - BURST)
        return self._tape[start : start + BURST]


class Emulator(_Simulator):
    """The Arcade Learning Environment with frame skip inside, no sticky actions and the minimal action set."""

    def __init__(self, task: Task) -> None:
        import ale_py
        from ale_py import roms

        self._rom: Any = roms.get_rom_path(game_of(task))
        self.ale = ale_py.ALEInterface()
        self.ale.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale.setInt("frame_skip", task.frame_skip)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", FRAME_LIMIT)

    def seed(self, seed: int) -> None:
        """Start a new game with actions sampled from ``seed``."""
        self.ale.setInt("random_seed", seed % 2**31)
        self.ale.loadROM(self._rom)  # a seed takes effect when the game is loaded
        actions = self.ale.getMinimalActionSet()
        choices = np.random.default_rng(seed).integers(len(actions), size=_TAPE)
        self._tape, self._next = [actions[choice] for choice in choices], 0

    def burst(self) -> None:
        """Make ``BURST`` agent steps. Start a new game after the end of one."""
        act, game_over = self.ale.act, self.ale.game_over
        for action in self._burst():
            act(action)
            if game_over():
                self.ale.reset_game()


class Physics(_Simulator):
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
        for action in sample(self._actions, 0, _TAPE):
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
        self._tape = list(sample(self._actions, seed, _TAPE))
        self._next = self._age = 0
        self._reset(self._model, self.data)

    def burst(self) -> None:
        """Make ``BURST`` agent steps. Reset the simulation after an episode's mean length."""
        model, data, step, frame_skip = self._model, self.data, self._step, self._frame_skip
        control = data.ctrl
        for action in self._burst():
            if self._age == self._episode_steps:
                self._reset(model, data)
                self._age = 0
            self._age += 1
            control[:] = action
            step(model, data, frame_skip)
