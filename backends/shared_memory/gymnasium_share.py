"""One process's share of a ``SharedMemoryVectorEnv``, and the layout of values of Gymnasium's spaces in shared memory.

The arrays of a space are in the order of ``Dict`` keys and ``Tuple`` places.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper, create_empty_array
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.environments.making import ArraySpec
from vebench.backends.shared_memory.memory_layout import RowArrays
from vebench.backends.trees import Tree

Autoreset = Literal["NextStep", "SameStep", "Disabled"]
_Info = dict[str, Any]
Remarks = list[tuple[int, _Info]]  # infos, each with the id of its environment


def flatten(space: spaces.Space[Any], value: Any) -> Iterator[Any]:
    """Yield the leaves of a value of the space, of a batch of values, or of the space itself."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from flatten(part, value[key])
    elif isinstance(space, spaces.Tuple):
        for part, item in zip(space.spaces, value, strict=True):
            yield from flatten(part, item)
    else:
        yield value


def array_specs(space: spaces.Space[Any]) -> list[ArraySpec]:
    """Return the arrays that hold a value of the space. Raises ValueError if a part has no fixed shape."""
    parts = list(flatten(space, space))
    arrays = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    shapeless = {type(part).__name__ for part in parts if not isinstance(part, arrays)}
    if shapeless:
        raise ValueError(f"values of {' and '.join(shapeless)} spaces have no fixed shape: use AsyncVectorEnv")
    return [ArraySpec(tuple(part.shape or ()), np.dtype(part.dtype)) for part in parts]


def batch_of(space: spaces.Space[Any], arrays: Sequence[NDArray[Any]]) -> Tree:
    """Return the batch of the space that consists of these arrays, which have a row for each environment."""
    left = iter(arrays)
    return create_empty_array(space, fn=lambda *_, **__: next(left))


def call_on(environment: gymnasium.Env[Any, Any], name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return an attribute of an environment, or the result of a method."""
    found = environment.get_wrapper_attr(name)
    return found(*args, **kwargs) if callable(found) else found


def batch_infos(count: int, infos: Iterable[tuple[int, _Info]]) -> dict[str, Any]:
    """Return one dict of the infos, each given with its row: arrays of ``count`` rows, and a mask for each array."""
    form: VectorEnv[Any, Any, Any] = VectorEnv()
    form.num_envs = count
    batched: dict[str, Any] = {}
    for row, info in infos:
        batched = form._add_info(batched, info, row)  # noqa: SLF001 - it defines the form of infos
    return batched


class GymnasiumShare:
    """Steps environments as ``gymnasium.vector.AsyncVectorEnv`` does. Its remarks are ``Remarks``."""

    def __init__(  # noqa: PLR0913 - all but the rows are bound by a partial
        self,
        env_fns: Sequence[CloudpickleWrapper],
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        arrays: RowArrays,
        start: int,
        stop: int,
        *,
        same: bool,  # environments must have equal observation spaces, not only spaces of equal shape and type
        autoreset: Autoreset,
        infos: bool,  # False: return none but the last observation of an episode with ``SameStep``
    ) -> None:
        self.current: int = 0
        self._env_fns, self._same, self._autoreset, self._infos = env_fns[start:stop], same, autoreset, infos
        self._observation_space, self._action_space = observation_space, action_space
        self._start, self._indices = start, range(stop - start)
        self._environments: list[gymnasium.Env[Any, Any]] = []
        self._rows = batch_of(observation_space, arrays.observations)
        self._write: Callable[[int, Any], None] = trees.as_rows(self._rows).__setitem__
        # Copy actions, since their rows change. Single numbers of an array are copies already.
        actions = batch_of(action_space, arrays.actions)
        numbers = trees.is_leaf(actions) and actions.ndim == 1
        self._read: Callable[[int], Any] = (
            actions.__getitem__ if numbers else lambda index: trees.mapped(lambda leaf: leaf[index].copy(), actions)
        )
        self._rewards, self._terminated, self._truncated = arrays.rewards, arrays.terminated, arrays.truncated
        self._ended = [False] * len(self._indices)

    def open(self) -> None:
        """Build the environments. Raises RuntimeError, in Gymnasium's words, if an environment has other spaces."""
        declared = self._observation_space
        for index, env_fn in enumerate(self._env_fns):
            self.current = index
            environment = env_fn.fn()
            self._environments.append(environment)
            found = environment.observation_space
            if environment.action_space != self._action_space:
                raise RuntimeError(f"Some environments have an action space different from `{self._action_space}`.")
            if found != declared and (self._same or not is_space_dtype_shape_equiv(found, declared)):
                hint = ". If this is intentional, use `observation_mode='different'` instead." if self._same else ""
                both = f"They have {found} and {declared}{hint}"
                raise RuntimeError(f"the sub-environments observation spaces are not equivalent. {both}")

    def step(self) -> Remarks | None:
        """Step every environment with its row of the actions."""
        return self._step_all(map(self._read, self._indices)) or None

    def _step_all(self, actions: Iterable[Any]) -> Remarks:
        infos = [self._step(index, action) for index, action in enumerate(actions)]
        return [(self._start + index, info) for index, info in enumerate(infos) if info]

    def step_one(self, index: int) -> Remarks | None:
        """Step one environment with its row of the actions."""
        info = self._step(index, self._read(index))
        return [(self._start + index, info)] if info else None

    def _step(self, index: int, action: Any) -> _Info:
        """Step one environment, or reset it after an end. Return its info."""
        self.current = index
        environment = self._environments[index]
        if self._ended[index]:
            return self._begin(index, *environment.reset())
        observation, reward, terminated, truncated, info = environment.step(action)
        try:
            self._rewards[index] = reward
        except (TypeError, ValueError):  # an array with one element
            self._rewards[index] = np.asarray(reward).item()
        self._terminated[index] = terminated
        self._truncated[index] = truncated
        if not self._infos:
            info = {}
        if terminated or truncated:
            if self._autoreset == "SameStep":
                last, final = observation, info
                observation, first = environment.reset()
                # Copy the observation: in the caller's process nothing is pickled, and the environment may reuse it.
                info = {"final_obs": deepcopy(last), "final_info": final, **(first if self._infos else {})}
            elif self._autoreset == "NextStep":
                self._ended[index] = True
        self._put(index, observation)
        return info

    def _begin(self, index: int, observation: Any, info: _Info) -> _Info:
        """Write the result of a reset. Return its info."""
        self._put(index, observation)
        self._rewards[index] = 0.0
        self._terminated[index] = self._truncated[index] = self._ended[index] = False
        return info if self._infos else {}

    def _put(self, index: int, observation: Any) -> None:
        """Write an observation. Its shape may differ from its space's if the number of elements is the same."""
        try:
            self._write(index, observation)
        except ValueError:
            shaped = trees.mapped(lambda rows, value: np.reshape(value, rows.shape[1:]), self._rows, observation)
            self._write(index, shaped)

    def answer(self, name: str, argument: Any) -> Remarks | list[tuple[int, Any]]:
        """Answer ``reset``, ``step`` or ``apply``. Their arguments are for the environments of all shares."""
        if name == "step":  # with actions that shared memory does not hold
            return self._step_all(argument[self._start : self._start + len(self._indices)])
        if name == "reset":
            seeds, mask, options = argument
            calls = [(env_id, (seed,)) for env_id, seed in enumerate(seeds) if mask is None or mask[env_id]]
        else:
            function, calls = argument
        results = []
        for env_id, further in calls:
            index = env_id - self._start
            if index not in self._indices:
                continue
            self.current = index
            environment = self._environments[index]
            if name == "reset":
                found = self._begin(index, *environment.reset(seed=further[0], options=options))
            else:
                found = function(environment, *further)
            results.append((env_id, found))
        return results

    def close(self) -> None:
        """Close every environment. Print an exception, and go on with the others."""
        while self._environments:
            try:
                self._environments.pop().close()
            except Exception:  # noqa: BLE001, PERF203 - no caller is left to handle it
                traceback.print_exc()
