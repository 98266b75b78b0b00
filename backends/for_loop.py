"""A Python loop in one process: the reference that every other backend is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vebench.backends.environments.making import CountsInside, make, read_spaces
from vebench.backends.interface import Batch, Setup
from vebench.backends.trees import Tree, as_rows
from vebench.errors import message_of


class EnvironmentLoop:
    """Environments of equal spaces, stepped one after another. Each writes into its row of the arrays given.

    After the end of an episode the next step is a reset, which drops the action (``AutoresetMode.NEXT_STEP``). If an
    environment raises an exception, RuntimeError names its id.
    """

    def __init__(self, environments: Sequence[Any], rows: Batch) -> None:
        self._environments = environments
        self._rows: Any = rows._replace(observations=as_rows(rows.observations))
        self._ended = [False] * len(environments)

    def reset(self, seed: int) -> None:
        """Start a new episode in each environment, seeded with ``seed`` plus its id."""
        observations, rewards, terminated, truncated, env_ids = self._rows
        for index, environment in enumerate(self._environments):
            try:
                observations[index], _ = environment.reset(seed=seed + int(env_ids[index]))
            except Exception as error:  # noqa: PERF203 - the error names the environment
                raise _failure(int(env_ids[index]), error) from error
        rewards.fill(0.0)
        terminated.fill(False)
        truncated.fill(False)
        self._ended = [False] * len(self._environments)

    def step(self, actions: Tree) -> None:
        """Step each environment with its row of ``actions``, or reset it if its episode has ended."""
        observations, rewards, terminated, truncated, env_ids = self._rows
        ended = self._ended
        index = 0
        try:
            for index, (environment, action) in enumerate(zip(self._environments, as_rows(actions), strict=True)):
                if ended[index]:
                    observations[index], _ = environment.reset()
                    rewards[index] = 0.0
                    terminated[index] = truncated[index] = ended[index] = False
                else:
                    observations[index], rewards[index], at_end, cut_off, _ = environment.step(action)
                    terminated[index] = at_end
                    truncated[index] = cut_off
                    ended[index] = at_end or cut_off
        except Exception as error:
            raise _failure(int(env_ids[index]), error) from error


def _failure(env_id: int, error: Exception) -> RuntimeError:
    return RuntimeError(f"environment {env_id}: {type(error).__name__}: {message_of(error)}")


class ForLoop(CountsInside):
    """All environments in the calling process, accessible as ``environments``. Rewards are float64."""

    def __init__(self, setup: Setup) -> None:
        self._task = setup.task
        self.environments = self._inside = [make(setup.task) for _ in range(setup.batch_size)]
        spaces = read_spaces(setup.task, self.environments[0].observation_space, self.environments[0].action_space)
        self._batch = spaces.rows(setup.batch_size)
        self._loop = EnvironmentLoop(self.environments, self._batch)
        self._actions: Tree | None = None
        self.info = spaces.info(setup, in_order=True, reuses_buffers=True)

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        self._loop.reset(seed)
        self._actions = None

    def send(self, actions: Tree) -> None:
        """Keep the actions until ``recv``."""
        self._actions = actions

    def recv(self) -> Batch:
        """Step every environment and return all rows, in the order of ids. After a reset, return its rows."""
        if self._actions is not None:
            actions, self._actions = self._actions, None
            self._loop.step(actions)
        return self._batch

    def close(self) -> None:
        """Close every environment."""
        while self.environments:
            self.environments.pop().close()
