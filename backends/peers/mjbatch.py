"""mjbatch: many MuJoCo simulations on a pool of C++ threads. It has only physics, so vebench computes the rows.

Observations and rewards equal ``fast-sync``'s. The code of Gymnasium's class begins episodes, one after another in the
calling process. The state of each new episode is copied to mjbatch.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vebench.backends.environments.making import make, read_spaces
from vebench.backends.fast.physics_tasks import RULES, Seen, Slice
from vebench.backends.interface import Setup
from vebench.backends.one_in_flight import OneInFlight, RowsOfAll
from vebench.backends.trees import Tree
from vebench.machine import kernel


class MjBatch(OneInFlight):
    """``mjbatch.Batch`` with ``min(workers, CPUs owned)`` threads, including the caller's. Rewards are float64."""

    def __init__(self, setup: Setup) -> None:
        import mujoco
        from mjbatch import Batch as Simulations

        environment: Any = make(setup.task)
        spaces = read_spaces(setup.task, environment.observation_space, environment.action_space)
        threads = min(setup.workers, len(setup.cpus))
        self._report(setup, spaces, threads=threads, reuses_buffers=True)
        # Observations are one array in all of MuJoCo's tasks.
        self._rows = cast("Any", spaces.rows(setup.batch_size))
        self._mujoco = mujoco
        self._origin = environment.unwrapped
        self._limit = environment.spec.max_episode_steps or np.inf
        self._substeps = setup.task.frame_skip
        self._random: list[np.random.Generator] = [np.random.default_rng()] * setup.batch_size
        before = kernel.own_threads()
        self._batch = Simulations(self._origin.model, setup.batch_size, num_threads=threads)
        if setup.pinned:  # the caller is the first thread, and keeps the first CPU
            started = [thread for thread in kernel.own_threads() if thread not in before]
            kernel.pin_threads(started, setup.cpus[1:])
        self._state, self._control = self._batch.bind("state"), self._batch.bind("ctrl")
        self._age = np.zeros(setup.batch_size, np.int64)
        self._ended: NDArray[np.intp] = np.empty(0, np.intp)
        self._rules = rules = RULES[setup.task.id](self._origin)
        parts = [self._numbers(part) for part in rules.row]
        bounds = np.cumsum([0, *(part.shape[1] for part in parts)])
        columns = [self._rows.observations[:, start:stop] for start, stop in pairwise(bounds)]
        self._shown = list(zip(rules.row, parts, columns, strict=True))
        self._moved = self._numbers(rules.around)
        self._around = np.zeros((2, *self._moved.shape))
        self._healthy = np.ones(setup.batch_size)
        self._healthy_parts = [(bound, self._numbers(bound.part)) for bound in rules.healthy]
        after = {name: self._numbers(part) for name, part in rules.after.items()}
        # A row's action is the simulation's control.
        observations, rewards = self._rows.observations, self._rows.rewards
        self._seen = Seen(self._control, self._around, after, self._healthy, observations, rewards)

    def _numbers(self, part: Slice) -> NDArray[np.float64]:
        """Return a part of all simulations as a view, ``(simulations, numbers)``."""
        field = self._batch.bind(part.field)
        numbers: NDArray[np.float64] = field.reshape(len(field), -1)[:, part.start : part.stop]
        return numbers

    def _reset(self, seed: int) -> Tree:
        from gymnasium.utils import seeding

        for index in range(len(self._age)):
            self._random[index], _ = seeding.np_random(seed + index)
            self._begin(index)
        self._ended = np.empty(0, np.intp)
        return self._rows.observations

    def _begin(self, index: int) -> None:
        """Start a new episode with the code of Gymnasium's class, and copy its state to mjbatch."""
        origin, mujoco = self._origin, self._mujoco
        origin.np_random = self._random[index]
        mujoco.mj_resetData(origin.model, origin.data)
        self._rows.observations[index] = origin.reset_model()
        around = self._rules.around
        self._around[0, index] = getattr(origin.data, around.field).reshape(-1)[around.start : around.stop]
        # The state includes the controls. mjbatch only writes controls that have changed since the last step.
        origin.data.ctrl[:] = self._control[index]
        mujoco.mj_getState(origin.model, origin.data, self._state[index], mujoco.mjtState.mjSTATE_INTEGRATION)
        _, rewards, terminated, truncated, _ = self._rows
        terminated[index] = truncated[index] = False
        rewards[index] = self._age[index] = 0

    def _receive(self) -> RowsOfAll:
        actions: Any = self._actions
        if len(self._ended):
            stepping = np.setdiff1d(np.arange(len(self._age)), self._ended)
            self._control[stepping] = actions[stepping]
            if len(stepping):
                self._batch.step(stepping, self._substeps)
        else:
            self._control[:] = actions
            self._batch.step(nstep=self._substeps)
        self._age += 1
        for part, source, target in self._shown:
            if part.low > -np.inf or part.high < np.inf:
                np.clip(source, part.low, part.high, out=target)
            else:
                target[:] = source
        self._around[1] = self._moved
        self._healthy[:] = True
        for bound, numbers in self._healthy_parts:  # NaN never lies between limits
            between = np.less_equal if bound.closed else np.less
            inside = between(bound.low, numbers) & between(numbers, bound.high)
            self._healthy *= (inside != bound.outside).all(axis=1)
        self._rules.reward(self._seen)
        self._around[0] = self._around[1]
        if self._rules.ends:
            np.equal(self._healthy, 0.0, out=self._rows.terminated)
        np.greater_equal(self._age, self._limit, out=self._rows.truncated)
        for index in self._ended.tolist():
            self._begin(index)
        self._ended = np.flatnonzero(self._rows.terminated | self._rows.truncated)
        rows: RowsOfAll = self._rows[:4]
        return rows

    def _end(self) -> None:
        # Forget all but the report: the threads end with the last reference to mjbatch's arrays.
        self.__dict__ = {"info": self.info}
