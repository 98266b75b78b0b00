"""Checks of what the methods of ``SharedMemoryVectorEnv`` are given. Each error names the argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector.utils import iterate

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


def checked_processes(processes: int | None, at_once: int | None, otherwise: int) -> int:
    """Return how many processes step: as many as asked for or, without, ``otherwise``, but ``at_once`` at most.

    Raises ValueError if ``at_once`` is no number of processes, or if more than that are asked for.
    """
    if at_once is None:
        return otherwise if processes is None else processes
    if not isinstance(at_once, (int, np.integer)):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(at_once)}")  # noqa: TRY004 - as Gymnasium
    if at_once < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {at_once}")
    if processes is not None and processes > at_once:
        raise ValueError(f"num_processes must be at most max_concurrency, {at_once}, not {processes}")
    return min(int(at_once), otherwise) if processes is None else processes


def checked_seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return a seed for each environment, ``seed + i`` or ``seed[i]``. Raises ValueError if there are not ``count``."""
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + index for index in range(count)]
    if len(seed) != count:
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={count} but got length={len(seed)}."
        )
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
        raise ValueError(
            f"`options['reset_mask']` must contain a boolean array with at least one True value, got reset_mask={mask}"
        )
    return mask


def checked_values(values: Value, count: int) -> list[Any]:
    """Return a value for each environment: its own of a list or tuple, or the same for all.

    Raises ValueError if there are not ``count``.
    """
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
            raise ValueError(f"environment {env_id} has been sent an action already, and not been received since")
    if len(set(env_ids)) != len(env_ids):
        raise ValueError(f"no environment can be sent two actions at once: {env_ids}")


def write_as_they_are(space: gymnasium.Space[Any], leaves: Leaves, actions: Value) -> bool:
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
    if len(values) != len(leaves):
        return False
    for leaf, value in zip(leaves, values, strict=True):
        if type(value) is not np.ndarray or value.dtype != leaf.dtype or value.shape != leaf.shape:
            return False
    for leaf, value in zip(leaves, values, strict=True):
        leaf[...] = value
    return True


def one_by_one(space: gymnasium.Space[Any], count: int, actions: Value) -> Value:
    """Return a sequence of ``count`` actions, one for each environment, out of a batch of the ``space`` of all.

    Raises what Gymnasium does for a batch that it cannot take apart, and ValueError if there are not ``count``.
    """
    each = list(iterate(space, actions))
    if len(each) != count:
        raise ValueError(f"actions must be {count}, one for each environment, not {len(each)}")
    return actions if type(actions) is np.ndarray else each  # an array is sent as a whole, which is faster


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
