"""Our own classes for training code: ``make_vec``, which replaces ``gymnasium.make_vec`` and ``envpool.make``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import gymnasium
import numpy as np
from gymnasium import logger
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation

from vebench.backends.environments.making import keep_opencv_to_one_thread
from vebench.backends.environments.simulators import AtariScreen
from vebench.backends.environments.suites import SUITES, known_as, short_name
from vebench.backends.fast.backend import FastTask, build_task, make_share
from vebench.backends.fast.classes import class_of
from vebench.backends.interface import OwnClasses
from vebench.backends.shared_memory.memory_layout import Division, MakeShare
from vebench.backends.shared_memory.vector_env import (
    Environment,
    Seeds,
    SharedMemoryVectorEnv,
    checked_number,
    each_seed,
)


def make_vec(  # noqa: PLR0913 - a user's settings, by name
    id: str,  # noqa: A002 - as gymnasium.make_vec has it
    num_envs: int = 1,
    *,
    num_processes: int | None = None,
    batch_size: int | None = None,
    seed: int | Sequence[int | None] | None = None,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    context: str | None = None,
    daemon: bool = True,
    cpus: Sequence[int] | None = None,
    caller_steps: bool = True,
    spin: float | None = None,
    infos: bool = False,
    own_classes: bool | None = None,
    **settings: Any,
) -> FastVectorEnv:
    """Return a vector environment, stepped by vebench's own class if there is one for the task.

    >>> envs = make_vec("CartPole-v1", num_envs=4, seed=1)
    >>> envs.stepped_by
    'own classes for this task, steps compiled'
    >>> observations, infos = envs.reset()
    >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
    >>> observations.shape, rewards
    ((4, 4), array([1., 1., 1., 1.]))
    >>> envs.close()

    vebench's classes return the same observations, rewards and ends as Gymnasium's from the same seeds and actions.
    Gymnasium's class is used if vebench has none, or if vebench's class lacks a setting or was not verified with the
    installed versions of packages. ``stepped_by`` of the result names the class in use. If vebench has a class
    but does not use it, a warning says why, unless ``own_classes=False``.

    Parameters
    ----------
    id
        An id as for ``gymnasium.make``, or a short name, such as ``Pong`` for ``ALE/Pong-v5``. An id without a version
        names the latest.
    num_envs
        The number of environments.
    seed
        The seed of the first reset, unless that reset has its own. Environment ``i`` gets ``seed + i``, or
        ``seed[i]``. Later resets continue its random numbers.
    copy
        If False, ``reset`` and ``step`` return the same array each time, and the next step overwrites it. With
        vebench's classes the array is read-only, since they update rows in place.
    infos
        Whether to return infos, for which Gymnasium's class must step. ``SAME_STEP`` returns ``final_obs`` in either
        case.
    own_classes
        True requires vebench's class, False Gymnasium's.
    num_processes, batch_size, autoreset_mode, context, daemon, cpus, caller_steps, spin
        As for ``SharedMemoryVectorEnv``. With vebench's classes, threads of this process take the place of processes.
        By default, one thread for each usable CPU steps, the caller included.
    **settings
        Settings of the task, as for ``gymnasium.make``. An Atari game also takes arguments of ``AtariPreprocessing``
        (``frame_skip``, ``noop_max``, ``screen_size``, ``terminal_on_life_loss``, ``grayscale_obs``, ...), ``stack``
        (frames in an observation), and ``reward_clip``, which clips rewards to -1 and 1.

    Raises
    ------
    TypeError
        If the task does not have a setting.
    ValueError
        If an argument is invalid, or with ``own_classes=True`` if vebench's class cannot step the task.
    gymnasium.error.Error
        If Gymnasium cannot make the task.
    """
    if not isinstance(id, str):
        raise TypeError(f"id must be a name such as 'ALE/Pong-v5', not {id!r}")
    num_envs = checked_number("num_envs", num_envs, 1, 1 << 20)
    name = _known_name(id)
    example = _make_env(name, settings)
    if own_classes is False:
        own, steps = None, OwnClasses(refused="own_classes=False")
    elif infos:
        own, steps = None, OwnClasses(refused="our own classes have no infos")
    else:
        own, steps = build_task(name, settings)
    if own is None and own_classes:
        raise ValueError(f"own_classes=True: {steps.refused}")
    if own is None and own_classes is None and class_of(known_as(name) or name) is not None:
        why = f"{steps.refused}; own_classes=False silences this"
        logger.warn(f"{name} is stepped by Gymnasium's class: {why}", stacklevel=2)
    return FastVectorEnv(
        partial(_make_env, id, settings),
        num_envs,
        example,
        own,
        steps.words,
        each_seed(seed, num_envs),
        copy=copy,
        context=context,
        daemon=daemon,
        autoreset_mode=autoreset_mode,
        num_processes=num_processes,
        batch_size=batch_size,
        cpus=cpus,
        caller_steps=caller_steps,
        spin=spin,
        infos=infos,
    )


class FastVectorEnv(SharedMemoryVectorEnv):
    """The result of ``make_vec``: a ``SharedMemoryVectorEnv`` whose environments may be of vebench's own classes.

    ``stepped_by`` says which class steps them. ``spec`` is the spec of one environment, for ``gymnasium.make``.
    """

    def __init__(
        self,
        make_env: Callable[[], Environment],
        num_envs: int,
        example: Environment,
        own: FastTask | None,
        stepped_by: str,
        first_seeds: list[int | None],
        **options: Any,
    ) -> None:
        self.spec, self.stepped_by = example.spec, stepped_by
        self._example, self._own = example, own
        self._first_seeds: Seeds = first_seeds  # None after a reset
        super().__init__([make_env] * num_envs, **options)
        # With an own class and discrete actions: the number of actions, and a view of the last actions as unsigned
        # numbers. In the view, a negative action is a very large number.
        self._choices, self._chosen = 0, None
        if own is not None:
            self.observations = self.observations.view()
            self.observations.flags.writeable = False
            if isinstance(self.single_action_space, Discrete):
                self._choices, self._chosen = int(self.single_action_space.n), self._actions[0].view(np.uint64)

    def _make_share(self, division: Division, *, infos: bool) -> tuple[Division, MakeShare]:
        if self._own is None:
            return super()._make_share(division, infos=infos)
        return make_share(self._own, division, self.autoreset_mode.value)

    def _write_step(self, actions: Any) -> bool:
        if self._own is None:
            return super()._write_step(actions)
        self._write_actions(slice(None), self.num_envs, actions)
        return True

    def _write_actions(self, rows: slice | list[int], count: int, actions: Any) -> None:
        """Write the actions. Raises ValueError, before anything steps, if our class does not have a discrete action."""
        super()._write_actions(rows, count, actions)
        # Check all rows, which is faster than selecting some. The other rows have valid actions.
        if self._chosen is not None and np.maximum.reduce(self._chosen) >= self._choices:
            (written,) = self._actions
            wrong = np.flatnonzero(self._chosen >= self._choices)
            env_id, action = int(wrong[0]), int(written[wrong[0]])
            written[wrong] = 0
            raise ValueError(f"environment {env_id}: there is no action {action}, only 0 to {self._choices - 1}")

    def reset_async(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        """Start a reset. Raises ValueError for options that only Gymnasium's class takes: bounds of the first state."""
        refused = self._own.refuses.intersection(options or ()) if self._own is not None else ()
        if refused:
            raise ValueError(f"our own class takes no {', '.join(sorted(refused))}: use own_classes=False")
        super().reset_async(self._first_seeds if seed is None else seed, options)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Finish a reset. Raises TimeoutError after ``timeout`` seconds, and can then be called again."""
        result = super().reset_wait(timeout)
        self._first_seeds = None
        return result

    def _ask(self, name: str, argument: object, *, anew: bool = False) -> None:
        if self._own is not None and name == "apply":
            raise AttributeError("our own class has no attributes and methods to call: use own_classes=False")
        super()._ask(name, argument, anew=anew)


_SHORT_NAMES = {short_name(name): name for suite in SUITES.values() for name in suite.tasks}


def _known_name(env_id: str) -> str:
    """Import the module that registers an environment, and return the environment's id in Gymnasium's registry."""
    module, _, name = env_id.rpartition(":")
    name = _SHORT_NAMES.get(name, name)
    # An old id of a game lacks the namespace of its plugin, and the current id has it.
    known = known_as(name) or name
    plugins = {suite.plugin for suite in SUITES.values() if suite.namespace and known.startswith(suite.namespace)}
    for needed in (module, *plugins):
        if needed:
            import_module(needed)
    namespace, plain, version = parse_env_id(name)
    latest = find_highest_version(namespace, plain) if version is None else None
    return name if latest is None else get_env_id(namespace, plain, latest)


def _make_env(env_id: str, settings: Mapping[str, Any]) -> Environment:
    """Return an environment. Games have the usual wrappers, other tasks only the wrappers of ``gymnasium.make``."""
    name = _known_name(env_id)
    spec = gymnasium.registry.get(name)
    if spec is None or not str(spec.entry_point).startswith("ale_py."):
        return gymnasium.make(name, **{"disable_env_checker": True, **settings})
    given = dict(settings)
    stack, reward_clip = given.pop("stack", 4), given.pop("reward_clip", False)
    gaps = {key: bool(given.pop(key, False)) for key in ("last_frames", "any_noop")}
    of_the_screen = {key: given.pop(key) for key in given.keys() & signature(AtariPreprocessing).parameters.keys()}
    emulator = gymnasium.make(name, frameskip=1, disable_env_checker=True, **given)
    shown = FrameStackObservation(AtariScreen(emulator, **gaps, **of_the_screen), stack)
    keep_opencv_to_one_thread()
    return ClipReward(shown, -1.0, 1.0) if reward_clip else shown
