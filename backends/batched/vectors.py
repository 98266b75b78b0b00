"""The adapter of simulators that step a whole batch in one call, and one of their copies as a single environment.

A vector environment has ``reset``, ``step``, ``close`` and the single spaces of ``gymnasium.vector.VectorEnv``. Its
arrays may be those of any library.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import gymnasium
import numpy as np

from vebench.backends import trees
from vebench.backends.batched import arrays
from vebench.backends.environments.making import read_spaces
from vebench.backends.environments.suites import SUITES, load_target
from vebench.backends.interface import Setup, Task
from vebench.backends.one_in_flight import OneInFlight, RowsOfAll
from vebench.backends.trees import Tree

NEXT_STEP, SAME_STEP, DISABLED = "next_step", "same_step", "disabled"
_MODES = {"NextStep": NEXT_STEP, "SameStep": SAME_STEP, "Disabled": DISABLED}  # by the values of ``AutoresetMode``


def mode_of(vector: Any) -> str:
    """Return how a vector environment resets finished environments. Without a declaration, in the same step."""
    mode = (getattr(vector, "metadata", None) or {}).get("autoreset_mode", "SameStep")
    return _MODES[getattr(mode, "value", mode)]


def make_vector(task: Task, num_envs: int, seed: int = 0) -> Any:
    """Return the vector environment of a task, as its suite makes it."""
    return load_target(str(SUITES[task.suite].make_vec))(task, num_envs, seed)


def make_called(task: Task, num_envs: int, seed: int) -> Any:
    """Return the vector environment of a user's callable, which takes ``num_envs``, and perhaps ``seed``."""
    function = load_target(task.name)
    given = {"seed": seed} if "seed" in signature(function).parameters else {}
    return function(num_envs=num_envs, **given, **task.arguments)


def make_single(task: Task) -> Single:
    """Return one copy of the environments of a batched task."""
    return Single(make_vector(task, 1))


class Single(gymnasium.Env[Any, Any]):
    """One copy of a batched environment, with Gymnasium's interface for a single environment.

    Without a seed, a reset after an end returns what the batch returned: its generator goes on as in a batch.
    """

    def __init__(self, vector: Any) -> None:
        self._vector, self._mode = vector, mode_of(vector)
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        self._actions: Any = None
        self._example: Any = None
        self._next: Any = None  # the first observation of the next episode, if the last step has returned it
        self._ended = False

    def reset(self, *, seed: int | None = None, **_: Any) -> tuple[Any, dict[str, Any]]:
        """Start a new episode."""
        if seed is not None or not self._ended:
            observations = self._vector.reset(seed=seed)[0]
        elif self._mode == SAME_STEP:
            observations = self._next
        elif self._mode == NEXT_STEP:
            observations = self._vector.step(self._actions)[0]
        else:
            observations = self._vector.reset(options={"reset_mask": np.ones(1, np.bool_)})[0]
        self._example, self._ended, self._next = observations, False, None
        return trees.part(arrays.to_host(observations), 0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one step."""
        batch = trees.mapped(lambda leaf: np.asarray(leaf)[None], action)
        self._actions = arrays.to_device(batch, self._example)
        observations, *others = self._vector.step(self._actions)[:4]
        reward, terminated, truncated = (arrays.to_host(array)[0] for array in others)
        self._next, self._ended = observations, bool(terminated or truncated)
        return trees.part(arrays.to_host(observations), 0), float(reward), bool(terminated), bool(truncated), {}

    def close(self) -> None:
        """Close the batch."""
        self._vector.close()


class Native(OneInFlight):
    """A vector environment of a batched task. ``deliver=device``: rows and actions stay arrays of its library."""

    def __init__(self, setup: Setup, *, deliver: str = "host") -> None:
        self._adopt(setup, make_vector(setup.task, setup.batch_size, setup.seed), deliver)

    def _adopt(self, setup: Setup, vector: Any, deliver: str = "host") -> None:
        self._vector, self._mode, self._stays = vector, mode_of(vector), deliver == "device"
        self._example: Any = None  # observations, which show the library and device of its arrays
        spaces = read_spaces(setup.task, vector.single_observation_space, vector.single_action_space)
        autoreset = NEXT_STEP if self._mode == NEXT_STEP else SAME_STEP
        self._report(setup, spaces, autoreset=autoreset, reuses_buffers=True, on_device=self._stays)

    def upload(self, actions: Tree) -> Tree:
        """Return actions as arrays of the simulator's device."""
        return arrays.to_device(actions, self._example)

    def _reset(self, seed: int) -> Tree:
        self._example = self._vector.reset(seed=seed)[0]
        return self._example if self._stays else arrays.to_host(self._example)

    def _receive(self) -> RowsOfAll:
        actions = self._actions if self._stays else self.upload(self._actions)
        rows: RowsOfAll = self._vector.step(actions)[:4]
        if self._mode == DISABLED:
            ends = arrays.to_host(rows[2]) | arrays.to_host(rows[3])
            if ends.any():
                rows = (self._vector.reset(options={"reset_mask": ends})[0], *rows[1:])
        return rows if self._stays else arrays.to_host(rows)

    def _end(self) -> None:
        self._vector.close()


class GymVector(Native):
    """The vector environment that Gymnasium registers for an id, its ``vector_entry_point``."""

    def __init__(self, setup: Setup) -> None:
        arguments: dict[str, Any] = {**setup.task.arguments, "vectorization_mode": "vector_entry_point"}
        self._adopt(setup, gymnasium.make_vec(setup.task.name, setup.batch_size, **arguments))
