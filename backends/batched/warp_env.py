"""MuJoCo Warp: tasks of Gymnasium's MuJoCo suite, all environments in one model, on a GPU or a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import mujoco_warp
import numpy as np
import warp
from gymnasium.spaces import Box
from numpy.typing import NDArray

from vebench.backends.interface import Task

_MODEL = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
_SKIP, _LIMIT, _NOISE, _COST = 5, 1000, 0.1, 0.1  # as in Gymnasium's HalfCheetah-v5


class HalfCheetah:
    """Gymnasium's HalfCheetah-v5 with MuJoCo Warp's physics, in float32. Starts are drawn as Gymnasium draws them.

    Rewards, starts and observations are computed on the host.
    """

    def __init__(self, task: Task, num_envs: int, _seed: int = 0) -> None:
        if task.name.partition(":")[2] != "HalfCheetah" or task.arguments:
            raise ValueError("the only task of this library is HalfCheetah, without arguments")
        self._size = num_envs
        self._host = model = mujoco.MjModel.from_xml_path(str(_MODEL))
        self._model = mujoco_warp.put_model(model)
        # Twice the contacts that HalfCheetah has when it lies on its back.
        self._data: Any = mujoco_warp.make_data(model, nworld=num_envs, nconmax=32, njmax=160)
        self._graph: Any = None
        if self._data.qpos.device.is_cuda:  # as its documentation does, record the kernels, and launch all together
            self._simulate()  # compiles the kernels, which a recording cannot
            with warp.ScopedCapture() as capture:
                self._simulate()
            self._graph = capture.graph
        self.single_observation_space = Box(-np.inf, np.inf, (model.nq - 1 + model.nv,), np.float32)
        low, high = model.actuator_ctrlrange.T.astype(np.float32)
        self.single_action_space = Box(low, high, dtype=np.float32)

    def reset(self, *, seed: int | None = None, **_: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start a new episode in every environment."""
        self._generators = [np.random.default_rng((seed or 0) + index) for index in range(self._size)]
        self._begin()
        return self._observations(), {}

    def _begin(self) -> None:
        """Start new episodes. All have the same length, so that they end together."""
        mujoco_warp.reset_data(self._model, self._data)
        positions = [drawn.uniform(-_NOISE, _NOISE, self._host.nq) for drawn in self._generators]
        velocities = [drawn.standard_normal(self._host.nv) for drawn in self._generators]
        self._data.qpos.assign(np.float32(self._host.qpos0 + positions))
        self._data.qvel.assign(np.float32(_NOISE * np.array(velocities)))
        self._steps = 0

    def _observations(self) -> NDArray[np.float32]:
        return np.concatenate((self._data.qpos.numpy()[:, 1:], self._data.qvel.numpy()), axis=1)

    def _simulate(self) -> None:
        for _ in range(_SKIP):
            mujoco_warp.step(self._model, self._data)

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Make one step in every environment."""
        before = self._data.qpos.numpy()[:, 0].copy()
        actions = np.asarray(actions, np.float32)
        self._data.ctrl.assign(actions)
        if self._graph is None:
            self._simulate()
        else:
            warp.capture_launch(self._graph)
        moved = self._data.qpos.numpy()[:, 0] - before
        rewards = moved / (self._host.opt.timestep * _SKIP) - _COST * np.square(actions).sum(axis=1)
        self._steps += 1
        over = np.full(self._size, self._steps == _LIMIT)
        if self._steps == _LIMIT:
            self._begin()
        return self._observations(), rewards, np.zeros(self._size, np.bool_), over, {}

    def close(self) -> None:
        """Free the batch."""
        self._data = None
