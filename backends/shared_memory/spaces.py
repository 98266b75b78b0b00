"""Values of Gymnasium's spaces as arrays in shared memory.

The arrays of a space lie in the order of ``Dict`` keys and ``Tuple`` places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array, iterate

from vebench.backends import trees
from vebench.backends.environments.making import ArraySpec
from vebench.backends.trees import Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Leaves = Sequence[NDArray[Any]]

_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def array_specs(space: spaces.Space[Any]) -> tuple[ArraySpec, ...]:
    """Return the arrays that hold a value of the space. Raises ValueError if a part has no fixed shape."""
    parts = list(flatten(space, space))
    shapeless = sorted({type(part).__name__ for part in parts if not isinstance(part, _ARRAYS)})
    if shapeless:
        raise ValueError(f"values of {' and '.join(shapeless)} spaces have no fixed shape: use AsyncVectorEnv")
    return tuple(ArraySpec(tuple(part.shape or ()), np.dtype(part.dtype)) for part in parts)


def batch_of(space: spaces.Space[Any], arrays: Sequence[NDArray[Any]]) -> Tree:
    """Return arrays, which have a row for each environment, as a batch of the space."""
    left = iter(arrays)
    return create_empty_array(space, fn=lambda *_, **__: next(left))


def flatten(space: spaces.Space[Any], value: Any) -> Iterator[Any]:
    """Return the leaves of a value of the space, of a batch of them, or of the space itself."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from flatten(part, value[key])
    elif isinstance(space, spaces.Tuple):
        for part, item in zip(space.spaces, value, strict=True):
            yield from flatten(part, item)
    else:
        yield value


def reader(batch: Tree) -> Callable[[int], Any]:
    """Return a function that reads one row, as a value that stays as it is when the row changes."""
    if not trees.is_leaf(batch):
        return lambda index: trees.mapped(lambda array: array[index].copy(), batch)
    # Numbers out of an array are copies already.
    return batch.__getitem__ if batch.ndim == 1 else lambda index: batch[index].copy()


def write_unchanged(space: spaces.Space[Any], leaves: Leaves, actions: Any) -> bool:
    """Write a batch of actions if all are arrays of the types and shapes of ``leaves``; return whether they are."""
    if type(actions) is np.ndarray and len(leaves) == 1:  # as in nearly all steps
        (leaf,) = leaves
        if actions.dtype != leaf.dtype or actions.shape != leaf.shape:
            return False
        leaf[...] = actions
        return True
    try:
        values = list(flatten(space, actions))
    except (KeyError, TypeError, ValueError):
        return False
    if len(values) != len(leaves):
        return False
    for leaf, value in zip(leaves, values, strict=True):
        if type(value) is not np.ndarray or value.dtype != leaf.dtype or value.shape != leaf.shape:
            return False
    for leaf, value in zip(leaves, values, strict=True):
        leaf[...] = value
    return True


def each_action(space: spaces.Space[Any], count: int, actions: Any) -> Any:
    """Return a sequence of ``count`` actions, one for each environment, out of a batch of the ``space`` of all.

    Raises what Gymnasium does for a batch that it cannot take apart, and ValueError if there are not ``count``.
    """
    each = list(iterate(space, actions))
    if len(each) != count:
        raise ValueError(f"actions must be {count}, one for each environment, not {len(each)}")
    return actions if type(actions) is np.ndarray else each  # an array is sent as a whole, which is faster


def write_cast(space: spaces.Space[Any], leaves: Leaves, rows: slice | list[int], count: int, actions: Any) -> None:
    """Write a batch of ``count`` actions into rows of ``leaves``. Raises TypeError or ValueError if they do not fit."""
    for leaf, given in zip(leaves, flatten(space, actions), strict=True):
        values = np.asarray(given)
        shape = (count, *leaf.shape[1:])
        if values.shape != shape:
            wrong = TypeError if values.ndim == 0 else ValueError
            raise wrong(f"actions must have the shape {shape}, not {values.shape}")
        if values.dtype != leaf.dtype and not _fit(values, leaf.dtype):
            raise TypeError(f"actions must be {leaf.dtype}, or numbers that it holds, not {values.dtype}")
        leaf[rows] = values


def _fit(values: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether values of another type can be written as ``dtype``: whole numbers only if none is changed."""
    if np.issubdtype(values.dtype, np.integer) and np.issubdtype(dtype, np.integer):
        return bool((values.astype(dtype) == values).all())
    return np.can_cast(values.dtype, dtype, "same_kind")
