"""Makes environments for adapters, describes their spaces, and counts their frames."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.environments.suites import SUITES, load_target
from vebench.backends.interface import ActionSpace, ActionSpaceTree, BackendInfo, Batch, Setup, Task
from vebench.backends.trees import Tree

if TYPE_CHECKING:
    import gymnasium

NEXT_STEP, SAME_STEP, DISABLED = "next_step", "same_step", "disabled"  # autoreset modes of vector environments
_ARRAYS = "vebench steps Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"


def make(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``. Raises Gymnasium's error if there is none or a package is missing."""
    if task.module is not None:
        importlib.import_module(task.module)
    environment: gymnasium.Env[Any, Any] = load_target(SUITES[task.suite].make)(task)
    keep_opencv_to_one_thread()
    return environment


def keep_opencv_to_one_thread() -> None:
    """If OpenCV is loaded, prevent its pool of threads: every process of a cell would start one."""
    if (opencv := sys.modules.get("cv2")) is not None:
        opencv.setNumThreads(1)


def make_registered(task: Task) -> gymnasium.Env[Any, Any]:
    """Return an environment that Gymnasium registers, or that the suite's plugin registers on import."""
    import gymnasium
    from gymnasium.wrappers import FilterObservation

    suite, arguments = SUITES[task.suite], dict[str, Any](task.arguments)
    if suite.plugin is not None:
        importlib.import_module(suite.plugin)
    environment = gymnasium.make(task.name, disable_env_checker=True, **arguments)
    return FilterObservation(environment, suite.observed) if suite.observed else environment


def make_called(task: Task) -> gymnasium.Env[Any, Any]:
    """Return the environment that a user's callable returns, for a task ``module:callable``."""
    environment: gymnasium.Env[Any, Any] = load_target(task.name)(**task.arguments)
    return environment


def make_of_library(name: str, num_envs: int, seed: int) -> Any:
    """Return a vector environment of a task ``library:name``."""
    task = Task(name, name.partition(":")[0], 1)
    return load_target(SUITES[task.suite].make_vec)(task, num_envs, seed)


def parameters_of(function: Callable[..., Any]) -> set[str]:
    """Return the names of a function's parameters, with ``**`` if it takes any keywords. Empty if it is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature
        return set()
    return {"**" if one.kind is one.VAR_KEYWORD else one.name for one in parameters}


def mode_of(vector: Any) -> str:
    """Return the autoreset mode of a vector environment: the declared one, otherwise the usual one of its class."""
    from gymnasium.vector import VectorEnv

    usual = NEXT_STEP if isinstance(vector, VectorEnv) else SAME_STEP
    mode = (getattr(vector, "metadata", None) or {}).get("autoreset_mode", usual)
    words = str(getattr(mode, "value", mode)).lower().replace("_", "")
    return next((name for name in (SAME_STEP, DISABLED) if name.replace("_", "") in words), NEXT_STEP)


def frames_of(task: Task, environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return the number of frames in an environment's episode, None if its simulator does not count them."""
    target = SUITES[task.suite].frames
    return None if target is None else int(load_target(target)(environment))


def as_counts(frames: Sequence[int | None]) -> NDArray[np.int64] | None:
    """Return the frames of each environment as an array, None if one environment's frames are unknown."""
    return None if None in frames else np.array(frames, np.int64)


class CountsInside:
    """Counts the frames of environments in the calling process, ``_inside``."""

    _task: Task
    _inside: list[Any]

    def frames(self) -> NDArray[np.int64] | None:
        """Return the number of frames in each environment's episode, None if a simulator does not count them."""
        return as_counts([frames_of(self._task, environment) for environment in self._inside])


@dataclass(frozen=True)
class ArraySpec:
    """One array of an observation or action: its shape and type for one environment."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Spaces:
    """The spaces of one environment: a tree of ``ArraySpec`` for its observations, and a tree of action spaces."""

    observations: Tree
    actions: ActionSpaceTree

    def rows(self, count: int) -> Batch:
        """Return zeroed arrays for ``count`` environments, rewards in float64, ids counted from 0."""
        return Batch(
            trees.mapped(lambda spec: np.zeros((count, *spec.shape), spec.dtype), self.observations),
            np.zeros(count, np.float64),
            np.zeros(count, np.bool_),
            np.zeros(count, np.bool_),
            np.arange(count),
        )

    def info(self, setup: Setup, **reported: Any) -> BackendInfo:
        """Return an adapter's report: the fields in ``reported``, and others from the setup."""
        size = setup.batch_size
        counts = {"num_envs": size, "batch_size": size, **reported}
        return BackendInfo(action_space=self.actions, frame_skip=setup.task.frame_skip, **counts)


def read_spaces(task: Task, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> Spaces:
    """Return the spaces of one environment. Raises ValueError, with the leaf's name, if a leaf is not an array."""
    return Spaces(
        _tree("observations", observations, lambda space: ArraySpec(space.shape or (), np.dtype(space.dtype))),
        _tree("actions", actions, partial(action_space, task)),
    )


def spaces_of(task: Task) -> Spaces:
    """Return the spaces of ``task``. Makes an environment, and closes it."""
    with closing(make(task)) as example:
        return read_spaces(task, example.observation_space, example.action_space)


def _tree(name: str, space: gymnasium.Space[Any], read: Callable[[gymnasium.Space[Any]], Any]) -> Tree:
    """Return the tree of ``read(space)`` of each space that is one array."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: _tree(f"{name}/{key}", part, read) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(f"{name}/{place}", part, read) for place, part in enumerate(space.spaces))
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return read(space)
    wrapper = "TransformAction" if name.startswith("actions") else "TransformObservation"
    instead = f"make arrays of them with gymnasium.wrappers.{wrapper}"
    raise ValueError(f"{name} are {type(space).__name__}, not an array: {instead} ({_ARRAYS})")


def action_space(task: Task, actions: gymnasium.Space[Any]) -> ActionSpace:
    """Return the bounds of one action of ``task``. Raises ValueError if an action is not one array."""
    from gymnasium import spaces

    if isinstance(actions, spaces.Discrete):
        return ActionSpace.discrete(int(actions.n), int(actions.start))
    if isinstance(actions, spaces.Box):
        dtype = SUITES[task.suite].real_actions
        if dtype is None or not np.issubdtype(actions.low.dtype, np.floating):
            return ActionSpace(actions.low, actions.high)
        # Gymnasium declares bounds in float32, EnvPool often in float64. Both must yield the same space.
        return ActionSpace(*(bound.astype(np.float32).astype(dtype) for bound in (actions.low, actions.high)))
    if isinstance(actions, spaces.MultiDiscrete):
        low: NDArray[np.int64] = np.asarray(actions.start, np.int64)
        return ActionSpace(low, low + np.asarray(actions.nvec, np.int64) - 1)
    if isinstance(actions, spaces.MultiBinary):
        return ActionSpace(np.zeros(actions.shape, np.int64), np.ones(actions.shape, np.int64))
    raise ValueError(f"actions are {type(actions).__name__}, not one array: {_ARRAYS}")


def sample(spaces: ActionSpaceTree, seed: int, *count: int) -> Tree:
    """Return random actions from a space, or from each leaf of a tree of spaces: ``(*count, *action_shape)``.

    Integers and bounded reals are uniform. If a bound is infinite, reals are standard normal, cut off at the other
    bound. Reals between the bounds are exact in float32, so libraries that convert actions do not change them. First
    actions are the same for any count, because each leaf has generators of its own.
    """
    leaves = enumerate(trees.leaves(spaces))
    drawn = [_drawn(space, (seed, number), (*count, *space.low.shape)) for number, space in leaves]
    return trees.filled(trees.form(spaces), drawn)


def _drawn(space: ActionSpace, seeds: tuple[int, int], shape: tuple[int, ...]) -> NDArray[np.generic]:
    rng, unbounded = np.random.default_rng((*seeds, 0)), np.random.default_rng((*seeds, 1))
    if space.integer:
        low, high = space.low.astype(np.int64), space.high.astype(np.int64)
        return rng.integers(low, high, shape, endpoint=True).astype(space.low.dtype)
    least, most = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(least) & np.isfinite(most)
    uniform = rng.uniform(np.where(bounded, least, 0.0), np.where(bounded, most, 1.0), shape)
    normal = np.clip(unbounded.standard_normal(shape), least, most)
    with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
        drawn = np.where(bounded, uniform, normal).astype(np.float32)
    return np.clip(drawn.astype(space.low.dtype), space.low, space.high)
