"""One process's share of a ``SharedMemoryVectorEnv``: Gymnasium environments that write into rows of shared memory.

Then spaces as trees of arrays in shared memory, whose parts lie in the order of ``Dict`` keys and ``Tuple`` places, and
checks of what users give.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Sized
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_differing_spaces, batch_space, iterate

from vebench.backends import trees
from vebench.backends.environments.making import ArraySpec
from vebench.errors import shown
from vebench.machine import pinning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import gymnasium
    from gymnasium.vector.utils import CloudpickleWrapper
    from numpy.typing import NDArray

    from vebench.backends.shared_memory.memory_layout import RowArrays
    from vebench.backends.trees import Tree

    Leaves = Sequence[NDArray[Any]]
    Rows = slice | list[int]
    Seeds = int | Sequence[int | None] | None  # that of the first environment, or one for each

Autoreset = Literal["NextStep", "SameStep", "Disabled"]
Info = dict[str, Any]
Remarks = list[tuple[int, Info]]  # infos, each with the id of its environment
Value = Any  # a value of a space, or of an attribute of an environment


class Received(NamedTuple):
    """The environments that ``recv`` returns: a row for each, and ``infos`` in Gymnasium's form with as many rows."""

    observations: Any
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: dict[str, Any]
    env_ids: NDArray[np.int64]


def call_on(environment: gymnasium.Env[Any, Any], name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Return an attribute of an environment, or what it returns if it is a method."""
    found = environment.get_wrapper_attr(name)
    return found(*args, **kwargs) if callable(found) else found


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
    """Steps environments as ``gymnasium.vector.AsyncVectorEnv`` does. Remarks are ``[(env_id, info), ...]``."""

    def __init__(self, config: ShareConfig, arrays: RowArrays, start: int, stop: int) -> None:
        self.current: int | None = 0
        self._config = config
        self._start, self._count = start, stop - start
        self._environments: list[gymnasium.Env[Any, Any]] = []
        self._rows = rows_of(config.observation_space, iter(arrays.observations))
        self._write: Callable[[int, Any], None] = trees.as_rows(self._rows).__setitem__
        self._read = reader(rows_of(config.action_space, iter(arrays.actions)))
        self._rewards, self._terminated, self._truncated = arrays.rewards, arrays.terminated, arrays.truncated
        self._ended = [False] * self._count

    def open(self) -> None:
        """Build the environments. Raises RuntimeError if the spaces of one are not as they should be."""
        _, observation_space, action_space, same, *_ = self._config
        for index in range(self._count):
            self.current = index
            environment = self._config.env_fns[self._start + index].fn()
            self._environments.append(environment)
            found = environment.observation_space
            if environment.action_space != action_space:
                raise RuntimeError(f"Some environments have an action space different from `{action_space}`.")
            if found != observation_space if same else not is_space_dtype_shape_equiv(found, observation_space):
                hint = ". If this is intentional, use `observation_mode='different'` instead." if same else ""
                both = f"{found} and {observation_space}"
                raise RuntimeError(
                    f"the sub-environments observation spaces are not equivalent. They have {both}{hint}"
                )

    def step(self) -> Remarks | None:
        """Step every environment with its row of the actions."""
        return self._step_all(self._read) or None

    def _step_all(self, action_of: Callable[[int], Any]) -> Remarks:
        start = self._start
        return [(start + index, info) for index in range(self._count) if (info := self._step(index, action_of))]

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

        def write(rows: NDArray[Any], value: Value) -> None:
            rows[index] = np.reshape(value, rows.shape[1:])

        try:
            self._write(index, observation)
        except ValueError:
            trees.mapped(write, self._rows, observation)

    def _told(self, info: Info) -> Info:
        return info if self._config.infos else {}

    def answer(self, name: str, argument: Any) -> Any:  # noqa: ANN401 - each request has an argument of its own
        """Do what ``reset``, ``step`` or ``set_attr`` asks of every environment, or ``apply`` of some."""
        if name == "reset":
            return self._reset(*argument)
        if name == "step":  # with actions that do not lie in memory, one for each environment of all shares
            return self._step_all(argument[self._start : self._start + self._count].__getitem__)
        if name == "set_attr":
            attribute, values = argument
            for index, environment in enumerate(self._environments):
                self.current = index
                environment.set_wrapper_attr(attribute, values[self._start + index])
            return None
        function, env_ids, further = argument
        results = []
        for env_id in env_ids:
            if 0 <= (index := env_id - self._start) < self._count:
                self.current = index
                results.append((env_id, function(self._environments[index], *further)))
        return results

    def _reset(self, seeds: Sequence[int | None], mask: Sequence[bool] | None, options: Info | None) -> Remarks:
        remarks = []
        for index, environment in enumerate(self._environments):
            self.current = index
            env_id = self._start + index
            if mask is None or mask[env_id]:
                begun = environment.reset(seed=seeds[env_id], options=options)
                if info := self._begin(index, *begun):
                    remarks.append((env_id, info))
        return remarks

    def close(self) -> None:
        """Close every environment. An exception there is shown and keeps no other from being closed."""
        while self._environments:
            try:
                self._environments.pop().close()
            except Exception:  # noqa: BLE001, PERF203 - no caller is left to handle it
                traceback.print_exc()


# Spaces.


@dataclass(frozen=True)
class VectorSpaces:
    """The spaces of one environment and of all, and what else the first environment says of all."""

    single_observation: spaces.Space[Any]
    observation: spaces.Space[Any]
    single_action: spaces.Space[Any]
    action: spaces.Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    same: bool

    @classmethod
    def read(
        cls,
        env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
        mode: str | tuple[spaces.Space[Any], spaces.Space[Any]],
    ) -> VectorSpaces:
        """Return what the environments have, from the first of them, or from all if ``mode`` is ``different``."""
        two_spaces = isinstance(mode, tuple) and [isinstance(space, spaces.Space) for space in mode] == [True, True]
        if not two_spaces and mode not in ("same", "different"):
            raise ValueError(
                "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation "
                f"space, actual got {mode}"
            )
        example = env_fns[0]()
        alike = cls.of(example, len(env_fns))
        if isinstance(mode, tuple):
            batched, single = mode
            alike = replace(alike, observation=batched, single_observation=single, same=False)
        elif mode == "different":
            each = [alike.single_observation]
            for function in env_fns[1:]:
                environment = function()
                each.append(environment.observation_space)
                environment.close()
            batched = batch_differing_spaces(each)
            alike = replace(alike, observation=batched, same=False)
        example.close()
        return alike

    @classmethod
    def of(cls, example: gymnasium.Env[Any, Any], count: int) -> VectorSpaces:
        """Return what ``count`` environments have that are all like this one."""
        single, action = example.observation_space, example.action_space
        batched = batch_space(single, count), batch_space(action, count)
        return cls(single, batched[0], action, batched[1], dict(example.metadata), example.render_mode, same=True)


_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def leaves_of(space: spaces.Space[Any]) -> tuple[ArraySpec, ...]:
    """Return the arrays that a space's values are made of. Raises ValueError if a part has no fixed shape."""
    parts = list(flatten(space, space))
    if shapeless := sorted({type(part).__name__ for part in parts if not isinstance(part, _ARRAYS)}):
        raise ValueError(f"values of {' and '.join(shapeless)} spaces have no fixed shape: use AsyncVectorEnv")
    return tuple(ArraySpec(tuple(part.shape or ()), np.dtype(part.dtype)) for part in parts)


def rows_of(space: spaces.Space[Any], arrays: Iterator[NDArray[Any]]) -> Tree:
    """Return the tree of the space's arrays, which are taken one after another."""
    if isinstance(space, spaces.Dict):
        return {key: rows_of(part, arrays) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple([rows_of(part, arrays) for part in space.spaces])
    return next(arrays)


def flatten(space: spaces.Space[Any], value: Value) -> Iterator[Any]:
    """Return the leaves of a value of the space, of a batch of them, or of the space itself."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from flatten(part, value[key])
    elif isinstance(space, spaces.Tuple):
        for part, item in zip(space.spaces, value, strict=True):
            yield from flatten(part, item)
    else:
        yield value


def reader(rows: Tree) -> Callable[[int], Any]:
    """Return a function that reads a row, given its index, as a value that stays as it is when the row changes."""
    if not trees.is_leaf(rows):
        return lambda index: trees.mapped(lambda array: array[index].copy(), rows)
    # Numbers out of an array are copies already.
    return rows.__getitem__ if rows.ndim == 1 else lambda index: rows[index].copy()


# Checks of arguments. Each error names the argument.

MOST_PROCESSES = 1 << 16
_MOST_SPIN = 1_000_000
_MOST_SEED = (1 << 63) - 1  # what an array of seeds can hold


def checked_whole(name: str, value: Value, least: int, most: int) -> int:
    """Return a whole number. Raises ValueError unless it is one, from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {shown(repr(value))}")
    return int(value)


def checked_cpus(cpus: Iterable[Value]) -> tuple[int, ...]:
    """Return CPUs that processes are to keep to. Raises ValueError unless this process may use all of them."""
    cpus, usable = tuple(cpus), pinning.allowed()
    for cpu in cpus:
        whole = isinstance(cpu, (int, np.integer)) and not isinstance(cpu, bool)
        if not whole or (usable is not None and cpu not in usable):
            raise ValueError(f"cpus: this process may not use {shown(repr(cpu))}: choose from os.sched_getaffinity(0)")
    return tuple(map(int, cpus))


def check_options(context: Value, spin: Value, **flags: Value) -> None:
    """Raise ValueError for an invalid start method, polling time or flag."""
    if context not in (None, *(methods := multiprocessing.get_all_start_methods())):
        raise ValueError(f"context must be None or one of {', '.join(methods)}, not {shown(repr(context))}")
    if spin is not None and not (isinstance(spin, (int, float, np.number)) and 0 <= spin <= _MOST_SPIN):
        raise ValueError(f"spin must be a number of microseconds from 0 to {_MOST_SPIN}, not {shown(repr(spin))}")
    for name, value in flags.items():
        if value not in (True, False):
            raise ValueError(f"{name} must be True or False, not {shown(repr(value))}")


def checked_processes(processes: int, at_once: int | None) -> int:
    """Return how many processes step: ``at_once`` at most. Raises ValueError in words that Gymnasium's tests expect."""
    if at_once is None:
        return processes
    if not isinstance(at_once, (int, np.integer)):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(at_once)}")  # noqa: TRY004 - as Gymnasium
    if at_once < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {at_once}")
    return min(int(at_once), processes)


def checked_seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return a seed for each environment, ``seed + i`` or ``seed[i]``.

    Raises ValueError if there are not ``count``, or if one is not a whole number from 0 to 2^63 - 1.
    """
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        first = checked_whole("seed", seed, 0, _MOST_SEED + 1 - count)
        return [first + index for index in range(count)]
    if not isinstance(seed, Sized):
        raise ValueError(f"seed must be a whole number, a list of them, or None, not {shown(repr(seed))}")  # noqa: TRY004 - as all
    if len(seed) != count:
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={count} but got length={len(seed)}."
        )
    return [one if one is None else checked_whole("seed", one, 0, _MOST_SEED) for one in seed]


def checked_mask(mask: Value, count: int) -> NDArray[np.bool_]:
    """Return the mask of a reset, ``(count,)``. Raises as Gymnasium does if it is none."""
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (count,):
        raise ValueError(f"`options['reset_mask']` must have shape `({count},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(
            f"`options['reset_mask']` must contain a boolean array with at least one True value, got reset_mask={mask}"
        )
    return mask


def checked_values(values: Value, count: int) -> list[Any]:
    """Return a value for each environment: its own of a list or tuple of ``count``, or the same for all."""
    if not isinstance(values, (list, tuple)):
        return [values] * count
    if len(values) != count:
        raise ValueError(
            "Values must be a list or tuple with length equal to the number of environments. "
            f"Got `{len(values)}` values for {count} environments."
        )
    return list(values)


def check_free(env_ids: list[int], away: Sequence[int]) -> None:
    """Raise ValueError unless every id exists, is there once, and its environment is not ``away`` with an action."""
    for env_id in env_ids:
        if not 0 <= env_id < len(away):
            raise ValueError(f"environment {env_id} does not exist: there are {len(away)}")
        if away[env_id]:
            raise ValueError(f"environment {env_id} already has an action, and has not been received since")
    if len(set(env_ids)) != len(env_ids):
        raise ValueError(f"an environment cannot be sent two actions at once: {env_ids}")


# Actions.


def write_as_they_are(space: spaces.Space[Any], leaves: Leaves, actions: Value) -> bool:
    """Write a batch of actions, one for each environment, if memory holds them as they are; return whether it does.

    It holds arrays of the very types and shapes that ``leaves``, those of ``space``, have.
    """
    if type(actions) is np.ndarray and len(leaves) == 1:
        (leaf,) = leaves
        if actions.dtype != leaf.dtype or actions.shape != leaf.shape:
            return False
        leaf[...] = actions
        return True
    try:
        values = list(flatten(space, actions))
    except (KeyError, TypeError, ValueError):
        return False
    if len(values) != len(leaves) or not all(
        type(value) is np.ndarray and value.dtype == leaf.dtype and value.shape == leaf.shape
        for leaf, value in zip(leaves, values, strict=True)
    ):
        return False
    for leaf, value in zip(leaves, values, strict=True):
        leaf[...] = value
    return True


def one_by_one(space: spaces.Space[Any], count: int, actions: Value) -> Value:
    """Return a sequence of ``count`` actions, one for each environment, out of a batch of the ``space`` of all.

    Raises what Gymnasium does for a batch that it cannot take apart, and ValueError if there are not ``count``.
    """
    each = list(iterate(space, actions))
    if len(each) != count:
        raise ValueError(f"actions must be {count}, one for each environment, not {len(each)}")
    return actions if type(actions) is np.ndarray else each  # an array is sent as a whole, which is faster


def write_actions(space: spaces.Space[Any], leaves: Leaves, rows: Rows, count: int, actions: Value) -> None:
    """Write a batch of ``count`` actions into those rows of its leaves. Raises ValueError or TypeError."""
    for leaf, given in zip(leaves, flatten(space, actions), strict=True):
        values = np.asarray(given)
        if values.shape != (count, *leaf.shape[1:]):
            wrong = TypeError if values.ndim == 0 else ValueError
            raise wrong(f"actions must have the shape {(count, *leaf.shape[1:])}, not {values.shape}")
        if values.dtype != leaf.dtype and not _fit(values, leaf.dtype):
            raise TypeError(f"actions must be {leaf.dtype}, or numbers that it holds, not {values.dtype}")
        leaf[rows] = values


def _fit(values: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether values of another type can be written as ``dtype``: whole numbers only if none is changed."""
    if np.issubdtype(values.dtype, np.integer) and np.issubdtype(dtype, np.integer):
        return bool((values.astype(dtype) == values).all())
    return np.can_cast(values.dtype, dtype, "same_kind")
