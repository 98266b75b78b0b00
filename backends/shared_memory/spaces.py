"""Spaces as arrays in shared memory: which leaves a space has, and how values are written to and read from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from vebench.backends.shared_memory.memory_layout import Leaf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import gymnasium
    from numpy.typing import NDArray

    Leaves = Sequence[NDArray[Any]]

Value = Any  # a value of a space, or of an attribute of an environment


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
        if isinstance(mode, tuple):
            if [isinstance(space, spaces.Space) for space in mode] != [True, True]:
                raise TypeError(f"observation_mode must be two spaces, batched and single, not {mode}")
        elif mode not in ("same", "different"):
            raise ValueError(f"observation_mode must be 'same', 'different' or two spaces, not {mode!r}")
        example = env_fns[0]()
        alike = cls.of(example, len(env_fns))
        if isinstance(mode, tuple):
            batched, single = mode
            alike = replace(alike, observation=batched, single_observation=single, same=False)
        elif mode == "different":
            others = (_observation_space(function) for function in env_fns[1:])
            batched = batch_differing_spaces([alike.single_observation, *others])
            alike = replace(alike, observation=batched, same=False)
        example.close()
        return alike

    @classmethod
    def of(cls, example: gymnasium.Env[Any, Any], count: int) -> VectorSpaces:
        """Return what so many environments have that are all like this one."""
        single, action = example.observation_space, example.action_space
        return cls(
            single,
            batch_space(single, count),
            action,
            batch_space(action, count),
            dict(example.metadata),
            example.render_mode,
            same=True,
        )

    def problem(self, opened: Iterable[tuple[bool, bool]]) -> str | None:
        """Return what is wrong, if anything, given whether observations and actions of each share are as here."""
        if not all(actions for _, actions in opened):
            return f"some environments have an action space other than {self.single_action}"
        if all(observations for observations, _ in opened):
            return None
        what = "not equal: observation_mode='different' allows that" if self.same else "not of one shape and type"
        return f"the environments' observation spaces are {what} (the first: {self.single_observation})"


def _observation_space(function: Callable[[], gymnasium.Env[Any, Any]]) -> spaces.Space[Any]:
    environment = function()
    environment.close()
    return environment.observation_space


_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def leaves(space: spaces.Space[Any]) -> tuple[Leaf, ...]:
    """Return the arrays that a space's values are made of, in the order of ``Dict`` keys and ``Tuple`` places.

    Raises ValueError for a space whose values are not arrays of one shape.
    """
    if isinstance(space, _ARRAYS):
        return (Leaf(tuple(space.shape or ()), np.dtype(space.dtype)),)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return tuple(leaf for part in _parts(space) for leaf in leaves(part))
    raise ValueError(
        f"{type(space).__name__} values cannot be in shared memory: SharedMemoryVectorEnv takes Box, Discrete, "
        "MultiDiscrete, MultiBinary, and Dict and Tuple of these; AsyncVectorEnv(shared_memory=False) takes any"
    )


def _parts(space: spaces.Dict | spaces.Tuple[Any]) -> tuple[spaces.Space[Any], ...]:
    return tuple(space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces)


def assemble(space: spaces.Space[Any], arrays: Iterator[Any]) -> Value:
    """Return a value of the space, or a batch of them, out of its leaves, which are taken from ``arrays``."""
    if isinstance(space, spaces.Dict):
        return {key: assemble(part, arrays) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(assemble(part, arrays) for part in space.spaces)
    return next(arrays)


def writer(space: spaces.Space[Any], arrays: Iterator[NDArray[Any]]) -> Callable[[int, Value], None]:
    """Return a function that writes a value of the space into its leaves, given the row's index and the value."""
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return next(arrays).__setitem__
    keys = tuple(space.spaces) if isinstance(space, spaces.Dict) else tuple(range(len(space.spaces)))
    writers = tuple((key, writer(part, arrays)) for key, part in zip(keys, _parts(space), strict=True))

    def write(index: int, value: Value) -> None:
        for key, write_part in writers:
            write_part(index, value[key])

    return write


def reader(space: spaces.Space[Any], arrays: Leaves) -> Callable[[int], Any]:
    """Return a function that reads a row, given its index, as a value that stays as it is when the row changes."""
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        (array,) = arrays
        # Numbers out of an array are copies already.
        return array.__getitem__ if array.ndim == 1 else lambda index: array[index].copy()
    return lambda index: assemble(
        space, iter([array[index].copy() if array.ndim > 1 else array[index] for array in arrays])
    )


def flatten(space: spaces.Space[Any], value: Value) -> Iterator[Any]:
    """Return the leaves of a value of the space, or of a batch of them."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from flatten(part, value[key])
    elif isinstance(space, spaces.Tuple):
        for part, item in zip(space.spaces, value, strict=True):
            yield from flatten(part, item)
    else:
        yield value
