"""The adapter of simulators that step a whole batch in one call, and one of their copies as a single environment.

A vector environment has ``reset``, ``step``, ``close`` and the single spaces of ``gymnasium.vector.VectorEnv``. Its
arrays may belong to any library.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from vebench.backends import trees
from vebench.backends.batched import arrays
from vebench.backends.environments.making import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    mode_of,
    parameters_of,
    read_spaces,
    sample,
)
from vebench.backends.environments.suites import SUITES, load_target
from vebench.backends.interface import Setup, Task
from vebench.backends.one_in_flight import FLOAT32_REWARDS, OneInFlight
from vebench.backends.trees import Tree

_NEEDED = ("reset", "step", "close", "single_observation_space", "single_action_space")
_SEED = 1_000_003  # of the batch that ``drawn_together`` makes


def make_vector(task: Task, num_envs: int, seed: int = 0) -> Any:
    """Return the vector environment of a task, as its suite makes it."""
    return load_target(SUITES[task.suite].make_vec)(task, num_envs, seed)


def make_called(task: Task, num_envs: int, seed: int) -> Any:
    """Return the vector environment of a user's callable, which takes ``num_envs``, and perhaps ``seed``."""
    function = load_target(task.name)
    given = {"seed": seed} if "seed" in parameters_of(function) else {}
    vector = function(num_envs=num_envs, **given, **task.arguments)
    if lacking := [name for name in _NEEDED if not hasattr(vector, name)]:
        raise ValueError(f"it returns a {type(vector).__name__}, which has no {', '.join(lacking)}")
    if (made := getattr(vector, "num_envs", num_envs)) != num_envs:
        raise ValueError(f"it makes {made} environments instead of {num_envs}")
    return vector


def make_single(task: Task) -> Single:
    """Return one copy of the environments of a batched task."""
    return Single(partial(make_vector, task, 1))


def drawn_together(task: Task) -> bool:
    """Return whether one generator draws for all environments of a batch.

    Then a batch of two starts unlike two single copies with the same seeds, or a batch of four goes on unlike it.
    """
    two, four = (_first_rows(task, count) for count in (2, 4))
    for index in range(2):
        with closing(make_single(task)) as copy:
            if _apart(trees.part(two[0], index), copy.reset(seed=_SEED + index)[0]):
                return True
    for some, more in zip(two, four, strict=True):
        for index in range(2):  # in any order: a row in another's place is a fault, which a comparison of rows names
            if all(_apart(trees.part(some, index), trees.part(more, other)) for other in range(4)):
                return True
    return False


def _first_rows(task: Task, count: int) -> list[Tree]:
    """Return the observations of a batch after its reset and in its first steps."""
    with closing(Native(Setup(task, count, seed=_SEED))) as batch:
        batch.reset(_SEED)
        seen = [trees.mapped(np.copy, batch.recv().observations)]
        for actions in trees.as_rows(sample(batch.info.action_space, 0, 20, 4)):
            batch.send(trees.part(actions, slice(count)))
            seen.append(trees.mapped(np.copy, batch.recv().observations))
    return seen


def _apart(one: Tree, other: Tree) -> bool:
    """Return whether observations differ by more than rounding, a fault that a comparison of rows names."""
    pairs = zip(*(map(np.asarray, trees.leaves(side)) for side in (one, other)), strict=True)
    return any(a.shape == b.shape and not np.allclose(a, b, 0.01, 1e-6, equal_nan=True) for a, b in pairs)


class _Seeded:
    """A vector environment. If its ``reset`` takes no seed, it is made anew for each seed."""

    def __init__(self, make: Callable[[int], Any], seed: int = 0) -> None:
        self.vector, self._make = make(seed), make
        self._takes_seed = bool({"seed", "**"} & parameters_of(self.vector.reset))
        self._unused: int | None = seed  # the seed with which it was made, before its first reset
        self.example: Any = None  # observations, which show the library and device of its arrays

    def reset(self, seed: int | None = None) -> Tree:
        """Start a new episode in every environment. Return the observations."""
        if not self._takes_seed and seed not in (None, self._unused):
            self.vector.close()
            self.vector = self._make(seed)
        self._unused = None
        self.example = self.vector.reset(**({"seed": seed} if self._takes_seed else {}))[0]
        return self.example

    def reset_ended(self, ends: Any) -> Tree:
        """Reset the environments of a mask. Return the observations of all."""
        mask = arrays.to_device(ends, self.example)
        return self.vector.reset(options={"reset_mask": mask})[0]


class Single(gymnasium.Env[Any, Any]):
    """One copy of a batched environment, with Gymnasium's interface for a single environment.

    ``make`` returns a batch of one, given a seed. After an end, a reset without a seed returns the observation
    with which the batch goes on, so that its generator goes on as in a larger batch.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._batch = _Seeded(make)
        vector = self._batch.vector
        self._mode = mode_of(vector)
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        self._actions: Any = None
        self._next: Any = None  # the observations of the last step: in mode ``same_step``, perhaps of the next episode
        self._ended = False

    def reset(self, *, seed: int | None = None, **_: Any) -> tuple[Any, dict[str, Any]]:
        """Start a new episode."""
        if seed is not None or not self._ended:
            observations = self._batch.reset(seed)
        elif self._mode == SAME_STEP:
            observations = self._next
        elif self._mode == NEXT_STEP:
            observations = self._batch.vector.step(self._actions)[0]
        else:
            observations = self._batch.reset_ended(np.ones(1, np.bool_))
        self._ended = False
        return trees.part(arrays.to_host(observations), 0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one step."""
        batch = trees.mapped(lambda leaf: np.asarray(leaf)[None], action)
        self._actions = arrays.to_device(batch, self._batch.example)
        observations, *others = self._batch.vector.step(self._actions)[:4]
        reward, terminated, truncated = (arrays.to_host(array)[0] for array in others)
        self._next, self._ended = observations, bool(terminated or truncated)
        return trees.part(arrays.to_host(observations), 0), float(reward), bool(terminated), bool(truncated), {}

    def close(self) -> None:
        """Close the batch."""
        self._batch.vector.close()


class Native(OneInFlight):
    """A vector environment of a batched task. ``deliver=device``: rows and actions stay arrays of its library."""

    def __init__(self, setup: Setup, *, deliver: str = "host") -> None:
        self._adopt(setup, partial(make_vector, setup.task, setup.batch_size), deliver)

    def _adopt(self, setup: Setup, make: Callable[[int], Any], deliver: str = "host", **reported: Any) -> None:
        self._batch = _Seeded(make, setup.seed)
        vector = self._batch.vector
        self._mode, self._stays = mode_of(vector), deliver == "device"
        spaces = read_spaces(setup.task, vector.single_observation_space, vector.single_action_space)
        autoreset = NEXT_STEP if self._mode == NEXT_STEP else SAME_STEP
        self._report(setup, spaces, autoreset=autoreset, reuses_buffers=True, on_device=self._stays, **reported)

    def upload(self, actions: Tree) -> Tree:
        """Return NumPy arrays of actions as the simulator takes them."""
        return arrays.to_device(actions, self._batch.example)

    def _reset(self, seed: int) -> Tree:
        observations = self._batch.reset(seed)
        self._is_numpy = all(type(leaf) is np.ndarray for leaf in trees.leaves(observations))
        return observations if self._stays else arrays.to_host(observations)

    def _receive(self) -> Any:
        actions = self._actions if self._stays or self._is_numpy else self.upload(self._actions)
        rows = self._batch.vector.step(actions)[:4]
        if self._mode == DISABLED:
            flags = [np.array(arrays.to_host(array)) for array in rows[2:]]  # the reset may clear the simulator's own
            ends = flags[0] | flags[1]
            if ends.any():
                kept = rows[1:] if self._stays else (np.array(arrays.to_host(rows[1])), *flags)
                rows = (self._batch.reset_ended(ends), *kept)
        if not self._stays:
            plain = self._is_numpy and all(type(array) is np.ndarray for array in rows[1:])
            return rows if plain else arrays.to_host(rows)
        if isinstance(rows[1], np.ndarray):
            raise TypeError("its rows are NumPy arrays, on the host: leave out deliver=device")
        return rows

    def _end(self) -> None:
        self._batch.vector.close()


class GymVector(Native):
    """The vector environment that Gymnasium registers for an id, its ``vector_entry_point``."""

    def __init__(self, setup: Setup) -> None:
        arguments: dict[str, Any] = {**setup.task.arguments, "vectorization_mode": "vector_entry_point"}
        make = partial(gymnasium.make_vec, setup.task.name, setup.batch_size, **arguments)
        self._adopt(setup, lambda _seed: make(), differences=(FLOAT32_REWARDS,))
