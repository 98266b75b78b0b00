"""Checks of what the methods of ``SharedMemoryVectorEnv`` are given. Each error names the argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.shared_memory.spaces import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.shared_memory.spaces import Leaves, Value


def checked_batch_size(batch_size: int | None, count: int) -> int:
    """Return the batch size, ``count`` by default. Raises ValueError if it is not from 1 to ``count``."""
    size = count if batch_size is None else batch_size
    if not 1 <= size <= count:
        raise ValueError(f"batch_size must be from 1 to the number of environments, {count}, not {batch_size}")
    return size


def checked_seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return a seed for each environment, ``seed + i`` or ``seed[i]``. Raises ValueError if there are not ``count``."""
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + index for index in range(count)]
    if len(seed) != count:
        raise ValueError(f"seeds must be one for each of {count} environments, not {len(seed)}")
    return list(seed)


def checked_mask(mask: Value, count: int) -> NDArray[np.bool_]:
    """Return the mask of a reset, ``(count,)``. Raises as Gymnasium does if it is none."""
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (count,):
        raise ValueError(f"`options['reset_mask']` must have shape `({count},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(f"`options['reset_mask']` must contain at least one True value, got reset_mask={mask}")
    return mask


def checked_values(values: Value, count: int) -> list[Any]:
    """Return a value for each environment: its own of a list or tuple, or the same for all.

    Raises ValueError if there are not ``count``.
    """
    if not isinstance(values, (list, tuple)):
        return [values] * count
    if len(values) != count:
        raise ValueError(f"values must be one for each of {count} environments, not {len(values)}")
    return list(values)


def check_free(env_ids: list[int], away: Sequence[int]) -> None:
    """Raise ValueError unless every id exists, is there once, and its environment is not ``away`` with an action."""
    for env_id in env_ids:
        if not 0 <= env_id < len(away):
            raise ValueError(f"environment {env_id} does not exist: there are {len(away)}")
        if away[env_id]:
            raise ValueError(f"environment {env_id} has been sent an action already, and not been received since")
    if len(set(env_ids)) != len(env_ids):
        raise ValueError(f"no environment can be sent two actions at once: {env_ids}")


def write_actions(
    space: gymnasium.Space[Any], leaves: Leaves, rows: slice | list[int], count: int, actions: Value
) -> None:
    """Write ``actions``, a batch of ``count`` of ``space``, into those rows of its leaves.

    Raises ValueError or TypeError if a shape or a type is wrong.
    """
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
