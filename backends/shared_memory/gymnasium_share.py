"""One process's share of a ``SharedMemoryVectorEnv``: Gymnasium environments that write into rows of shared memory."""

from __future__ import annotations

import traceback
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import VectorEnv

from vebench.backends import trees
from vebench.backends.shared_memory.spaces import ValueColumn, columns, reader, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import gymnasium
    from gymnasium.vector.utils import CloudpickleWrapper
    from numpy.typing import NDArray

    from vebench.backends.shared_memory.memory_layout import RowArrays

Autoreset = Literal["NextStep", "SameStep", "Disabled"]
Info = dict[str, Any]
Remarks = list[tuple[int, Info]]  # infos, each with the id of its environment


class Received(NamedTuple):
    """The environments that ``recv`` returns: a row for each, and ``infos`` in Gymnasium's form with as many rows."""

    observations: Any
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: dict[str, Any]
    env_ids: NDArray[np.int64]


def batch_infos(count: int, infos: Iterable[tuple[int, Info]]) -> dict[str, Any]:
    """Return infos, each given with its row, as one dict of arrays with ``count`` rows, and a mask for each array."""
    form: VectorEnv[Any, Any, Any] = VectorEnv()
    form.num_envs = count
    batched: dict[str, Any] = {}
    for row, info in infos:
        batched = form._add_info(batched, info, row)  # noqa: SLF001 - what defines that form
    return batched


class ShareConfig(NamedTuple):
    """What all shares of a vector environment have in common.

    ``same``: environments must have equal observation spaces, not only spaces of equal shape and type. ``infos``:
    whether anybody reads them; without, there is only the last observation of an episode, for ``SameStep``.
    """

    env_fns: Sequence[CloudpickleWrapper]
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    same: bool
    autoreset: Autoreset
    infos: bool


class GymnasiumShare:
    """Steps environments as ``gymnasium.vector.AsyncVectorEnv`` does. Remarks are ``[(env_id, info), ...]``.

    If observations have parts without a fixed shape, the remark on a step or reset of all is that and these columns.
    """

    def __init__(self, config: ShareConfig, arrays: RowArrays, start: int, stop: int) -> None:
        self.current: int | None = 0
        self._config = config
        self._start, self._count = start, stop - start
        self._environments: list[gymnasium.Env[Any, Any]] = []
        self._columns = columns(config.observation_space, self._count)
        self._rows = rows_of(config.observation_space, arrays.observations, self._columns)
        self._write: Callable[[int, Any], None] = trees.as_rows(self._rows).__setitem__
        self._read = reader(rows_of(config.action_space, arrays.actions, columns(config.action_space, 0)))
        self._rewards, self._terminated, self._truncated = arrays.rewards, arrays.terminated, arrays.truncated
        self._ended = [False] * self._count

    def open(self) -> tuple[bool, bool]:
        """Build the environments; return whether their observations and their actions are as they should be."""
        for index in range(self._count):
            self.current = index
            self._environments.append(self._config.env_fns[self._start + index].fn())
        equal: Callable[[Any, Any], bool] = (lambda a, b: a == b) if self._config.same else is_space_dtype_shape_equiv
        return (
            all(equal(env.observation_space, self._config.observation_space) for env in self._environments),
            all(env.action_space == self._config.action_space for env in self._environments),
        )

    def step(self) -> Remarks | tuple[Remarks, Sequence[ValueColumn]] | None:
        """Step every environment with its row of the actions."""
        return self._step_all(self._read) or None

    def _step_all(self, action_of: Callable[[int], Any]) -> Remarks | tuple[Remarks, Sequence[ValueColumn]]:
        start = self._start
        remarks = [(start + index, info) for index in range(self._count) if (info := self._step(index, action_of))]
        return (remarks, self._columns) if self._columns else remarks

    def step_one(self, index: int) -> Remarks | None:
        """Step one environment with its row of the actions."""
        info = self._step(index, self._read)
        return [(self._start + index, info)] if info else None

    def _step(self, index: int, action_of: Callable[[int], Any]) -> Info:
        """Step one environment, or reset it; return what is to be said about it."""
        self.current = index
        environment, autoreset = self._environments[index], self._config.autoreset
        if self._ended[index]:
            return self._begin(index, *environment.reset())
        observation, reward, terminated, truncated, info = environment.step(action_of(index))
        try:
            self._rewards[index] = reward
        except (TypeError, ValueError):  # an array with one element
            self._rewards[index] = np.asarray(reward).item()
        self._terminated[index] = terminated
        self._truncated[index] = truncated
        info = self._told(info)
        if terminated or truncated:
            if autoreset == "SameStep":
                last, final = observation, info
                observation, info = environment.reset()
                # A copy: what the caller steps itself need not be sent, and the environment may go on with its array.
                info = {"final_obs": deepcopy(last), "final_info": final, **self._told(info)}
            elif autoreset == "NextStep":
                self._ended[index] = True
        try:  # what _put does, without a call in every step
            self._write(index, observation)
        except ValueError:
            self._put(index, observation)
        return info

    def _begin(self, index: int, observation: Any, info: Info) -> Info:  # noqa: ANN401 - of the user's space
        """Write what a reset has returned; return what is to be said about it."""
        self._put(index, observation)
        self._rewards[index] = 0.0
        self._terminated[index] = self._truncated[index] = self._ended[index] = False
        return self._told(info)

    def _put(self, index: int, observation: Any) -> None:  # noqa: ANN401 - of the user's space
        """Write an observation, also one of another shape than its space has if it has as many elements."""

        def write(rows: Any, value: Any) -> None:  # noqa: ANN401 - an array, or a column
            rows[index] = value if isinstance(rows, ValueColumn) else np.reshape(value, rows.shape[1:])

        try:
            self._write(index, observation)
        except ValueError:
            trees.mapped(write, self._rows, observation)

    def _told(self, info: Info) -> Info:
        return info if self._config.infos else {}

    def answer(self, name: str, argument: Any) -> Any:  # noqa: ANN401 - each request has an argument of its own
        """Do what ``reset``, ``call`` or ``set_attr`` asks of every environment, or ``step`` or ``apply``."""
        if name == "reset":
            return self._reset(*argument)
        if name == "step":  # with actions that do not lie in memory, one for each environment of all shares
            return self._step_all(argument[self._start : self._start + self._count].__getitem__)
        if name == "apply":
            return self._apply(*argument)
        results = []
        for index, environment in enumerate(self._environments):
            self.current = index
            if name == "set_attr":
                attribute, values = argument
                environment.set_wrapper_attr(attribute, values[self._start + index])
            else:
                attribute, args, kwargs = argument
                found = environment.get_wrapper_attr(attribute)
                results.append(found(*args, **kwargs) if callable(found) else found)
        return results

    def _apply(self, function: Callable[..., Any], env_ids: Sequence[int], args: Sequence[Any]) -> list[Any]:
        """Return the function's results for the environments of this share that are named, each with its id."""
        results = []
        for env_id in env_ids:
            if 0 <= (index := env_id - self._start) < self._count:
                self.current = index
                results.append((env_id, function(self._environments[index], *args)))
        return results

    def _reset(
        self, seeds: Sequence[int | None], mask: Sequence[bool] | None, options: Info | None
    ) -> Remarks | tuple[Remarks, Sequence[ValueColumn]]:
        remarks = []
        for index, environment in enumerate(self._environments):
            self.current = index
            env_id = self._start + index
            if mask is None or mask[env_id]:
                begun = environment.reset(seed=seeds[env_id], options=options)
                if info := self._begin(index, *begun):
                    remarks.append((env_id, info))
        return (remarks, self._columns) if self._columns else remarks

    def close(self) -> None:
        """Close every environment. An exception there is shown and keeps no other from being closed."""
        while self._environments:
            try:
                self._environments.pop().close()
            except Exception:  # noqa: BLE001, PERF203 - whatever it is, there is nobody to handle it any more
                traceback.print_exc()
