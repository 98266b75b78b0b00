"""Environments of JAX libraries, in compiled batches that stay on the device: one function for each library.

Functions are compiled as in the libraries' documentation: ``jax.jit`` of a step of the whole batch, automatic resets
included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np

from vebench.backends import trees
from vebench.backends.batched.vectors import Native
from vebench.backends.interface import Batch, Setup, Task
from vebench.backends.one_in_flight import RowsOfAll
from vebench.backends.trees import Tree
from vebench.errors import did_you_mean


class Functions(NamedTuple):
    """The environments of a task as functions of arrays with a row for each environment.

    A step that ends an episode returns the first observation of the next one.
    """

    reset: Callable[..., tuple[Any, ...]]  # from keys to observations and the state
    # From the state and actions to observations, the next state, rewards, flags, and perhaps more.
    step: Callable[..., tuple[Any, ...]]
    observations: gymnasium.Space[Any]
    actions: gymnasium.Space[Any]


def _check_name(name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"no environment {name}{did_you_mean(name, known)}")


def _batched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a batch, given the function of one environment.

    It computes a batch of one as two rows. XLA rounds a batch of one differently, so no copy would equal a row.
    """

    def batched(*arguments: Any) -> Any:
        *state, last = arguments
        if len(last) > 1:
            return jax.vmap(function)(*arguments)
        observations, after, *flags = jax.vmap(function)(*state, last.repeat(2, axis=0))
        first, *rest = jax.tree.map(lambda array: array[:1], (observations, *flags))
        return first, after, *rest

    return batched


def _gymnax(name: str, arguments: Mapping[str, Any]) -> Functions:
    """Return the functions of a gymnax environment. Arguments replace its parameters."""
    import gymnax
    from gymnax.environments.spaces import gymnax_space_to_gym_space

    _check_name(name, gymnax.registered_envs)
    env, params = gymnax.make(name)
    params = params.replace(**arguments)

    def reset(key: Any) -> tuple[Any, ...]:
        observation, state = env.reset(jax.random.fold_in(key, 0), params)
        return observation, (key, jax.numpy.int32(1), state)

    def step(counted: Any, action: Any) -> tuple[Any, ...]:
        key, count, state = counted
        # Derive one key for each step: a split of the key would make two, and one is enough.
        observation, state, *flags = env.step(jax.random.fold_in(key, count), state, action, params)
        return observation, (key, count + 1, state), *flags

    spaces = env.observation_space(params), env.action_space(params)
    return Functions(_batched(reset), _batched(step), *map(gymnax_space_to_gym_space, spaces))


def _jaxtari(name: str, arguments: Mapping[str, Any]) -> Functions:
    """Return the functions of a JAXtari game with its wrappers' defaults: four frames of objects, flattened."""
    import jaxtari
    from jaxtari.gym_wrapper import to_gymnasium_space
    from jaxtari.wrappers import AtariWrapper, ObjectCentricWrapper

    _check_name(name, jaxtari.list_available_games())
    env = ObjectCentricWrapper(AtariWrapper(jaxtari.make(name, **arguments)))
    spaces = env.observation_space(), env.action_space()
    return Functions(_batched(env.reset), _batched(env.step), *map(to_gymnasium_space, spaces))


def _brax(name: str, arguments: Mapping[str, Any]) -> Functions:
    """Return the functions of a brax environment as its training code wraps it: resets return to the first state."""
    from brax import envs

    _check_name(name, envs._envs)  # noqa: SLF001 - brax has no public list
    env = envs.get_environment(name, **arguments)
    low, high = np.asarray(env.sys.actuator.ctrl_range, np.float32).T
    return _as_brax(envs.training.wrap(env), low, high)


def _playground(name: str, arguments: Mapping[str, Any]) -> Functions:
    """Return the functions of an environment of MuJoCo Playground as its training code wraps it."""
    from mujoco_playground import registry, wrapper

    _check_name(name, registry.ALL_ENVS)
    config = registry.get_default_config(name)
    env = registry.load(name, config, {**arguments})
    high = np.ones(env.action_size, np.float32)
    limits = {"episode_length": config.episode_length, "action_repeat": config.action_repeat}
    return _as_brax(wrapper.wrap_for_brax_training(env, **limits), -high, high)


def _as_brax(env: Any, low: Any, high: Any) -> Functions:
    """Return the functions of a batch with brax's interface, with these bounds of an action."""

    def reset(keys: Any) -> tuple[Any, ...]:
        state = env.reset(keys)
        return state.obs, state

    def step(state: Any, actions: Any) -> tuple[Any, ...]:
        state = env.step(state, actions)
        cut_off = state.info["truncation"].astype(bool)
        return state.obs, state, state.reward, state.done.astype(bool) & ~cut_off, cut_off

    def unbounded(array: Any) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(-np.inf, np.inf, array.shape[1:], np.float32)

    shown = trees.mapped(unbounded, jax.eval_shape(reset, _keys(0, 1))[0])
    observations = gymnasium.spaces.Dict(shown) if isinstance(shown, dict) else shown
    return Functions(reset, step, observations, gymnasium.spaces.Box(low, high, dtype=np.float32))


_LIBRARIES = {"gymnax": _gymnax, "jaxtari": _jaxtari, "brax": _brax, "playground": _playground}


@cache
def _compiled(task: Task) -> Functions:
    """Return the compiled functions of a task, which all copies of its environments share."""
    library, _, name = task.name.partition(":")
    found = _LIBRARIES[library](name, task.arguments)

    def step(state: Any, actions: Any) -> tuple[Any, ...]:
        observations, state, rewards, terminated, truncated, *_ = found.step(state, actions)
        return observations, state, rewards.astype(np.float32), terminated, truncated

    return found._replace(reset=jax.jit(found.reset), step=jax.jit(step))


def _keys(seed: int, count: int) -> Any:
    return jax.vmap(jax.random.PRNGKey)(np.arange(seed, seed + count, dtype=np.uint32))


def _drawn(space: Any, key: Any, count: int) -> Any:
    """Return random actions of a batch, from a ``Discrete`` space or a bounded ``Box``."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return jax.random.randint(key, (count,), space.start, space.start + space.n)
    return jax.random.uniform(key, (count, *space.shape), None, space.low, space.high)


class JaxVector:
    """A batch of environments of a JAX library. Environment ``i`` draws from the key of ``seed + i``."""

    def __init__(self, task: Task, num_envs: int, _seed: int = 0) -> None:
        self._functions, self._size = _compiled(task), num_envs
        self.single_observation_space = self._functions.observations
        self.single_action_space = self._functions.actions
        self._scan = jax.jit(self._scanned, static_argnums=2)
        self._state: Any = None
        self._drawing: Any = None  # the key of random actions

    def reset(self, *, seed: int | None = None, **_: Any) -> tuple[Tree, dict[str, Any]]:
        """Start a new episode in every environment."""
        self._drawing = jax.random.PRNGKey(seed or 0)
        observations, self._state = self._functions.reset(_keys(seed or 0, self._size))
        return observations, {}

    def step(self, actions: Tree) -> tuple[Any, ...]:
        """Make one step in every environment."""
        observations, self._state, *flags = self._functions.step(self._state, actions)
        return observations, *flags, {}

    def rollout(self, length: int) -> tuple[Tree, RowsOfAll]:
        """Make ``length`` steps with random actions. Return the actions and the rows, all rows of a step together."""
        (self._drawing, self._state), (actions, *rows) = self._scan(self._drawing, self._state, length)
        return actions, tuple(rows)

    def _scanned(self, key: Any, state: Any, length: int) -> Any:
        def step(carried: Any, _: None) -> Any:
            key, drawn = jax.random.split(carried[0])
            actions = _drawn(self.single_action_space, drawn, self._size)
            observations, state, *flags = self._functions.step(carried[1], actions)
            return (key, state), (actions, observations, *flags)

        carried, steps = jax.lax.scan(step, (key, state), None, length)
        return carried, jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), steps)

    def close(self) -> None:
        """Free the state."""
        self._state = None


class Jax(Native):
    """A batch of environments of a JAX library. ``rollout=K``: K steps in one call, with random actions.

    A rollout returns what PureJaxRL collects: observations, rewards and flags of each step, on the device.
    """

    def __init__(self, setup: Setup, *, deliver: str = "host", rollout: int = 0) -> None:
        super().__init__(setup, deliver="device" if rollout else deliver)
        self._length = rollout
        self.info = replace(self.info, threads=setup.at_once)
        if rollout:
            self._ids = np.tile(np.arange(setup.batch_size), rollout)
            self.info = replace(self.info, batch_size=len(self._ids), in_order=False)

    def upload(self, actions: Tree) -> Tree:
        """Return actions as arrays of the device, or else as NumPy arrays: a compiled function takes these faster."""
        if self._stays:
            return super().upload(actions)
        return trees.mapped(lambda array: array.astype(np.int32) if array.dtype == np.int64 else array, actions)

    def recv(self) -> Batch:
        """Return the rows of a step, or of all steps of a rollout."""
        batch = super().recv()
        return batch._replace(env_ids=self._ids[: len(batch.rewards)]) if self._length else batch

    def _receive(self) -> RowsOfAll:
        rows: RowsOfAll = self._batch.vector.rollout(self._length)[1] if self._length else super()._receive()
        return rows
