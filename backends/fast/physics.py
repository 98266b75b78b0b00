"""MuJoCo's tasks as Gymnasium's classes step them, many environments of one model at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import mujoco
from gymnasium.utils import seeding

from vebench.backends.environments.physics import ALWAYS_DRAWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from vebench.backends.setup import Task
    from vebench.backends.shared_memory.memory_layout import Arrays


class PhysicsTask:
    """A task, as the environments of one process share it: one model, and one environment of Gymnasium's own class."""

    leaves_out: tuple[str, ...] = ("no infos", "no mj_rnePostConstraint, of which no row shows anything")

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> None:
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        spec = environment.spec
        self.limit = None if spec is None else spec.max_episode_steps
        self.origin: Any = environment.unwrapped
        self.model = environment.get_wrapper_attr("model")
        self.compiled = compiled
        self.observation_space = environment.observation_space
        self.action_space = environment.action_space
        self.how = "stepped in Python"

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""
        noise = {"reset_noise_scale": 0.0} if task.exact and task.id not in ALWAYS_DRAWN else {}
        return {"frame_skip": task.frame_skip, **noise}

    def batch(self, rows: Arrays) -> PhysicsBatch:
        """Build as many environments as there are rows."""
        return PhysicsBatch(self, rows)


class PhysicsBatch:
    """Environments whose physics are stepped one after another."""

    def __init__(self, task: PhysicsTask, rows: Arrays) -> None:
        self.current = 0
        self._task = task
        (self._observations,), self._rewards, self._terminated, self._truncated, (self._actions,) = rows
        count = len(self._rewards)
        self._data = [mujoco.MjData(task.model) for _ in range(count)]
        self._random: list[np.random.Generator | None] = [None] * count
        self._steps = [0] * count

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment, by Gymnasium's own code on its data."""
        self.current = index
        origin, data = self._task.origin, self._data[index]
        if seed is not None or self._random[index] is None:
            self._random[index], _ = seeding.np_random(seed)
        origin.data, origin.np_random = data, self._random[index]
        mujoco.mj_resetData(self._task.model, data)
        self._observations[index] = origin.reset_model()
        self._steps[index] = 0

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments that are not resting; return those that have ended their episodes."""
        ended = []
        origin = self._task.origin
        for index, data in enumerate(self._data):
            if index in resting:
                continue
            self.current = index
            origin.data = data
            self._observations[index], self._rewards[index], terminated, _, _ = origin.step(self._actions[index])
            self._steps[index] += 1
            truncated = self._steps[index] == self._task.limit
            self._terminated[index], self._truncated[index] = terminated, truncated
            if terminated or truncated:
                ended.append(index)
        return ended

    def frames(self, index: int) -> int:
        """Return the sub-steps of one environment's episode."""
        return int(round(self._data[index].time / self._task.model.opt.timestep))  # noqa: RUF046 - MuJoCo has no types

    def close(self) -> None:
        """Free the environments' data."""
        self._data = []
