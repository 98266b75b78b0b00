"""Frames of an episode as the simulator itself counts them, to be compared with those that a backend claims."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.making import make
from vebench.backends.environments.suites import SUITES, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.interface import Task

THE_SIMULATOR = "the simulator"  # who counts frames, where the simulator itself is asked


def frames_of(task: Task, environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return the frames that the simulator of an environment has made in this episode, None if it cannot be asked."""
    target = SUITES[task.suite].frames
    return None if target is None else int(load(target)(environment))


def frames_of_all(task: Task, environments: Sequence[gymnasium.Env[Any, Any]]) -> NDArray[np.int64] | None:
    """Return ``frames_of`` each environment as an array, None if one of them cannot be asked."""
    return as_counts([frames_of(task, environment) for environment in environments])


def as_counts(frames: Sequence[int | None]) -> NDArray[np.int64] | None:
    """Return the frames of each environment as an array, None if those of one are not known."""
    known = [count for count in frames if count is not None]
    return np.array(known, np.int64) if len(known) == len(frames) else None


def make_counting(task: Task) -> gymnasium.Env[Any, Any]:
    """Return ``make(task)`` with a function ``frames_simulated`` on it, for callers that reach attributes only."""
    environment = make(task)
    environment.frames_simulated = partial(frames_of, task, environment)  # type: ignore[attr-defined] # its purpose
    return environment
