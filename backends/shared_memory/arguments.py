"""Checks of arguments that users give to vector environments. Each error names the argument."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.errors import shown
from vebench.machine import pinning

if TYPE_CHECKING:
    from numpy.typing import NDArray

Seeds = int | Sequence[int | None] | None  # of the first environment, or one for each
_MOST_SPIN = 1_000_000
_MOST_SEED = (1 << 63) - 1  # the largest that an array of seeds holds


def whole(name: str, value: Any, least: int, most: int) -> int:
    """Return a whole number. Raises ValueError unless it is one, from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {shown(repr(value))}")
    return int(value)


def usable(cpus: Iterable[Any]) -> tuple[int, ...]:
    """Return CPUs that processes are to keep to. Raises ValueError unless this process may use all of them."""
    cpus, allowed = tuple(cpus), pinning.allowed()
    for cpu in cpus:
        number = isinstance(cpu, (int, np.integer)) and not isinstance(cpu, bool)
        if not number or (allowed is not None and cpu not in allowed):
            raise ValueError(f"cpus: this process may not use {shown(repr(cpu))}: choose from os.sched_getaffinity(0)")
    return tuple(int(cpu) for cpu in cpus)


def check_options(context: Any, spin: Any, **flags: Any) -> None:
    """Raise ValueError for an invalid start method, polling time or flag."""
    methods = multiprocessing.get_all_start_methods()
    if context is not None and context not in methods:
        raise ValueError(f"context must be None or one of {', '.join(methods)}, not {shown(repr(context))}")
    if spin is not None and not (isinstance(spin, (int, float, np.number)) and 0 <= spin <= _MOST_SPIN):
        raise ValueError(f"spin must be a number of microseconds from 0 to {_MOST_SPIN}, not {shown(repr(spin))}")
    for name, value in flags.items():
        if value not in (True, False):
            raise ValueError(f"{name} must be True or False, not {shown(repr(value))}")


def each_seed(seed: Seeds, count: int) -> list[int | None]:
    """Return a seed for each environment, ``seed + i`` or ``seed[i]``.

    Raises ValueError if there are not ``count``, or if one is not a whole number from 0 to 2^63 - 1.
    """
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        first = whole("seed", seed, 0, _MOST_SEED + 1 - count)
        return [first + index for index in range(count)]
    if not isinstance(seed, Sized):
        raise ValueError(f"seed must be a whole number, a list of them, or None, not {shown(repr(seed))}")  # noqa: TRY004 - as all
    if len(seed) != count:
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={count} but got length={len(seed)}."
        )
    return [None if one is None else whole("seed", one, 0, _MOST_SEED) for one in seed]


def reset_mask(mask: Any, count: int) -> NDArray[np.bool_]:
    """Return the mask of a reset. Raises TypeError or ValueError, as Gymnasium does, unless it is an array of bools."""
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


def each_value(values: Any, count: int) -> list[Any]:
    """Return a value for each environment: its own of a list or tuple of ``count``, or the same for all."""
    if not isinstance(values, (list, tuple)):
        return [values] * count
    if len(values) != count:
        raise ValueError(f"values must be one for each of {count} environments, not {len(values)}")
    return list(values)


def check_ids(env_ids: list[int], away: Sequence[int]) -> None:
    """Raise ValueError unless every id exists, is there once, and its environment is not ``away`` with an action."""
    for env_id in env_ids:
        if not 0 <= env_id < len(away):
            raise ValueError(f"environment {env_id} does not exist: there are {len(away)}")
        if away[env_id]:
            raise ValueError(f"environment {env_id} already has an action, and has not been received since")
    if len(set(env_ids)) != len(env_ids):
        raise ValueError(f"an environment cannot be sent two actions at once: {env_ids}")
