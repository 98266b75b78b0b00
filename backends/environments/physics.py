"""Gymnasium's MuJoCo environments, the sub-steps that they simulate, and the bare physics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.making import action_space, sample
from vebench.backends.environments.suites import ALWAYS_DRAWN, BURST

if TYPE_CHECKING:
    import gymnasium

    from vebench.backends.interface import Task

_TAPE = 1_000  # actions sampled beforehand
_TRIAL_STEPS = 1_000  # steps of the real environment from which the length of its episodes is taken


def make_mujoco(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``; its exact variant starts without noise, where Gymnasium has a setting."""
    import gymnasium

    # Each class has a frame skip of its own, which is the task's, unless a caller asks for another one.
    settings: dict[str, Any] = {**task.arguments, "frame_skip": task.frame_skip, "disable_env_checker": True}
    if task.exact and task.name not in ALWAYS_DRAWN:
        settings["reset_noise_scale"] = 0.0
    environment = gymnasium.make(task.name, **settings)
    # In float64, in whatever type of array a library brings actions: else the cost of control is computed in that.
    simulator: Any = environment.unwrapped
    step = simulator.step
    simulator.step = lambda action: step(np.asarray(action, np.float64))
    return environment


def sub_steps(environment: gymnasium.Env[Any, Any]) -> int:
    """Return the sub-steps of this episode: MuJoCo's time in time steps of its model."""
    simulator: Any = environment.unwrapped
    return int(round(simulator.data.time / simulator.model.opt.timestep))  # noqa: RUF046 - MuJoCo has no types


class Physics:
    """MuJoCo on the model of the Gymnasium environment, without the environment.

    It starts over after as many steps as the environment's own episodes last under random actions: a humanoid that
    stays lying on the ground has many more contacts to solve than one that has just begun to fall.
    """

    def __init__(self, task: Task) -> None:
        import mujoco

        environment = make_mujoco(task)
        self._actions = action_space(task, environment.action_space)
        environment.reset(seed=0)
        episodes = 0
        for action in sample(self._actions, np.random.default_rng(0), _TRIAL_STEPS):
            _, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                episodes += 1
                environment.reset()
        self._episode_steps = max(1, _TRIAL_STEPS // max(1, episodes))
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
        """Make ``BURST`` agent steps, starting over when an episode has lasted long enough."""
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
