"""MuJoCo's tasks as Gymnasium's classes step them, many environments of one model at a time.

Episodes begin by Gymnasium's own code, on the data of one environment after another. Steps are MuJoCo's own functions,
called in a compiled loop or in one of Python, between which and the rows there are only copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import mujoco
from gymnasium.utils import seeding
from gymnasium.wrappers import TimeLimit

from vebench.backends.environments.suites import ALWAYS_DRAWN
from vebench.backends.fast.commons import Area, commons_for, mujoco_library
from vebench.backends.fast.native import NOT_BUILT, library
from vebench.backends.fast.physics_loops import CompiledLoop, PythonLoop, view_of
from vebench.backends.fast.physics_tasks import RULES, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from vebench.backends.fast.commons import Commons
    from vebench.backends.fast.physics_tasks import Rules
    from vebench.backends.setup import Task
    from vebench.backends.shared_memory.memory_layout import Arrays

_NEVER = 1 << 62


class PhysicsTask:
    """A task, as the environments of one process share it: one model, and one environment of Gymnasium's own class."""

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> None:
        for name in ("frame_skip", "max_episode_steps"):
            if settings.get(name, 1) == 0:
                raise ValueError(f"{name} is 0")
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        origin: Any = environment.unwrapped
        self.origin, self.model, self.data = origin, origin.model, origin.data
        self.frame_skip = int(origin.frame_skip)
        self.limit = _limit(environment)
        self.rules: Rules = RULES[env_id](origin)
        self.observation_space = environment.observation_space
        shown, declared = (sum(view_of(self.data, part).size for part in self.rules.row), self.observation_space.shape)
        if declared != (shown,):
            raise ValueError(f"observations have {shown} numbers and their space {declared}: is a setting not a bool?")
        self.action_space = environment.action_space
        self.compiled = compiled and library() is not None and mujoco_library() is not None
        self.how = "physics compiled" if self.compiled else f"physics in Python ({_why_in_python(compiled)})"
        self.uncompiled = "" if self.compiled or not compiled else _why_in_python(compiled)
        unread = () if self.rules.contacts else ("no mj_rnePostConstraint, of which no row shows anything",)
        self.leaves_out: tuple[str, ...] = ("no infos", *unread)

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""
        noise = {"reset_noise_scale": 0.0} if task.exact and task.id not in ALWAYS_DRAWN else {}
        return {"frame_skip": task.frame_skip, **noise}

    def commons(self, count: int) -> Commons | None:
        """Return memory in which all processes of a team can step each other's environments, None if they cannot."""
        return commons_for(self.model, count) if self.compiled else None

    def batch(self, rows: Arrays, area: Area | None = None) -> PhysicsBatch:
        """Build as many environments as there are rows."""
        return PhysicsBatch(self, rows, area or Area())


def _limit(environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return the steps after which an episode is cut off, None if it is not."""
    while isinstance(environment, gymnasium.Wrapper):
        if isinstance(environment, TimeLimit) and environment.spec is not None:
            return environment.spec.max_episode_steps
        environment = environment.env
    return None


def _why_in_python(compiled: bool) -> str:
    if not compiled:
        return "as asked for"
    return NOT_BUILT if library() is None else "MuJoCo's library was not found"


class PhysicsBatch:
    """Environments whose physics are stepped one after another."""

    def __init__(self, task: PhysicsTask, rows: Arrays, area: Area) -> None:
        self._task = task
        (self._observations,), self._rewards, self._terminated, self._truncated, (actions,) = rows
        count = len(self._rewards)
        self._data = area.data(task.model, count)
        self._random: list[np.random.Generator | None] = [None] * count
        rules = task.rules
        around = area.zeros((2, count, view_of(task.data, rules.around).size))
        after = {name: area.zeros((count, view_of(task.data, part).size)) for name, part in rules.after.items()}
        self._healthy = area.zeros((count,))
        self._healthy[:] = 1.0
        seen = Seen(actions, around, after, self._healthy, self._observations, self._rewards)
        self._loop = (
            CompiledLoop(task.model, task.frame_skip, rules, self._data, seen, area)
            if task.compiled
            else PythonLoop(task.model, task.frame_skip, rules, self._data, seen)
        )
        self._offer, self._advance, self._reward = self._loop.offer, self._loop.advance, rules.reward(seen)
        self._ends = rules.ends
        # Whether any flag may still be set from the step before.
        self._flagged = False
        # First observations of episodes that have begun in a step, until they are shown: it may be broken off.
        self._begun: dict[int, NDArray[np.float64]] = {}
        # Steps of the batch, and at which of them each environment's episode is cut off; none is before the next.
        self._clock = 0
        self._limit = _NEVER if task.limit is None else task.limit
        self._cut_offs = [_NEVER] * count
        self._next_cut_off = 0

    @property
    def current(self) -> int:
        """Index of the environment in use now, or last."""
        return self._loop.current

    @current.setter
    def current(self, index: int) -> None:
        self._loop.current = index

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment, by Gymnasium's own code on its data."""
        self._loop.withdraw()
        self._begun.pop(index, None)
        self._observations[index] = self._begin(index, seed, self._clock)

    def _begin(self, index: int, seed: int | None, clock: int) -> NDArray[np.float64]:
        """Start a new episode, whose first step will be the next after ``clock``; return its first observation."""
        self._loop.current = index
        origin, data = self._task.origin, self._data[index]
        if seed is not None or self._random[index] is None:
            self._random[index], _ = seeding.np_random(seed)
        origin.data, origin.np_random = data, self._random[index]
        mujoco.mj_resetData(self._task.model, data)
        shown: NDArray[np.float64] = origin.reset_model()
        self._cut_offs[index] = clock + self._limit
        self._next_cut_off = min(self._next_cut_off, self._cut_offs[index])
        return shown

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments; return those that have ended their episodes. Those that rest begin a new one."""
        self._offer(resting)
        # Meanwhile another process that is free steps the others.
        for index in resting:
            if index not in self._begun:
                self._begun[index] = self._begin(index, None, self._clock + 1)
        unhealthy = self._advance()
        self._clock += 1
        self._reward()
        while self._begun:
            index, shown = self._begun.popitem()
            self._observations[index], self._rewards[index] = shown, 0.0
        if self._flagged:
            self._terminated[:] = self._truncated[:] = self._flagged = False
        ended = self._end_unhealthy(resting) if unhealthy and self._ends else []
        return ended if self._clock < self._next_cut_off else self._cut_off(resting, ended)

    def _end_unhealthy(self, resting: Sequence[int]) -> list[int]:
        ended = [index for index, healthy in enumerate(self._healthy.tolist()) if not healthy and index not in resting]
        self._terminated[ended] = self._flagged = True
        return ended

    def _cut_off(self, resting: Sequence[int], ended: list[int]) -> list[int]:
        """Cut off the episodes that have reached the limit; return these and those that ``ended`` otherwise."""
        due = [index for index, at in enumerate(self._cut_offs) if at == self._clock and index not in resting]
        self._next_cut_off = min((at for at in self._cut_offs if at > self._clock), default=_NEVER)
        if due:
            self._truncated[due] = self._flagged = True
        return sorted({*ended, *due})

    def frames(self, index: int) -> int:
        """Return the sub-steps of one environment's episode."""
        return int(round(self._data[index].time / self._task.model.opt.timestep))  # noqa: RUF046 - MuJoCo has no types

    def close(self) -> None:
        """Free the environments' data."""
        self._loop.close()
        # The class's own, or it would keep one of these.
        self._task.origin.data = self._task.data
        self._data = []
