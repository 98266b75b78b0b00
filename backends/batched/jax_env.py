"""Environments of JAX libraries, in compiled batches that stay on the device: one function for each library.

Functions are compiled as the libraries' documentation does it: ``jax.jit`` of a step of the whole batch, automatic
resets included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np

from vebench.backends import trees
from vebench.backends.batched.vectors import Native
from vebench.backends.environments.making import read_spaces
from vebench.backends.interface import ActionSpace, Batch, Setup, Task
from vebench.backends.one_in_flight import RowsOfAll
from vebench.backends.trees import Tree
from vebench.errors import did_you_mean


class Functions(NamedTuple):
    """The environments of a task as functions of arrays with a row for each environment.

    A step that ends an episode returns the first observation of the next one.
    """

    reset: Callable[[Any], tuple[Any, Tree]]  # from keys to the state and the observations
    step: Callable[[Any, Tree], tuple[Any, RowsOfAll]]  # from the state and actions to the next state and the rows
    observations: gymnasium.Space[Any]
    actions: gymnasium.Space[Any]


def _check_name(name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"no environment {name}{did_you_mean(name, known)}")


def _paired(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a batch, which computes a batch of one as two rows: its last argument twice.

    XLA rounds a batch of one differently from every larger batch, so that no copy would equal a row.
    """

    def of_two(*arguments: Any) -> Any:
        *state, last = arguments
        if len(jax.tree.leaves(last)[0]) > 1:
            return function(*arguments)
        after, rows = function(*state, jax.tree.map(lambda array: array.repeat(2, axis=0), last))
        return after, jax.tree.map(lambda array: array[:1], rows)

    return of_two


def _gymnax(name: str, arguments: Mapping[str, Any]) -> Functions:
    """Return the functions of a gymnax environment. Arguments replace its parameters, or go to ``gymnax.make``."""
    import gymnax
    from gymnax.environments.spaces import gymnax_space_to_gym_space

    _check_name(name, gymnax.registered_envs)
    known = {field.name for field in fields(gymnax.make(name)[1])}
    env, params = gymnax.make(name, **{key: value for key, value in arguments.items() if key not in known})
    params = params.replace(**{key: value for key, value in arguments.items() if key in known})

    def reset(key: Any) -> tuple[Any, Tree]:
        key, drawn = jax.random.split(key)
        observation, state = env.reset(drawn, params)
        return (key, state), observation

    def step(keyed: Any, action: Tree) -> tuple[Any, RowsOfAll]:
        key, drawn = jax.random.split(keyed[0])
        observation, state, reward, terminated, truncated, _ = env.step(drawn, keyed[1], action, params)
        return (key, state), (observation, reward, terminated, truncated)

    spaces = map(gymnax_space_to_gym_space, (env.observation_space(params), env.action_space(params)))
    return Functions(_paired(jax.vmap(reset)), _paired(jax.vmap(step)), *spaces)


def _jaxtari(name: str, arguments: Mapping[str, Any]) -> Functions:
    """Return the functions of a JAXtari game with its wrappers' defaults: four frames of objects, flattened."""
    import jaxtari
    from jaxtari.gym_wrapper import to_gymnasium_space
    from jaxtari.wrappers import AtariWrapper, ObjectCentricWrapper

    _check_name(name, jaxtari.list_available_games())
    env = ObjectCentricWrapper(AtariWrapper(jaxtari.make(name, **arguments)))

    def reset(key: Any) -> tuple[Any, Tree]:
        observation, state = env.reset(key)
        return state, observation

    def step(state: Any, action: Tree) -> tuple[Any, RowsOfAll]:
        observation, state, reward, terminated, truncated, _ = env.step(state, action)
        return state, (observation, reward, terminated, truncated)

    spaces = map(to_gymnasium_space, (env.observation_space(), env.action_space()))
    return Functions(_paired(jax.vmap(reset)), _paired(jax.vmap(step)), *spaces)


def _brax(name: str, arguments: Mapping[str, Any]) -> Functions:
    """Return the functions of a brax environment as its training code wraps it: resets return to the first state."""
    from brax import envs

    _check_name(name, envs._envs)  # noqa: SLF001 - brax has no public list
    given = {"episode_length": 1000, "action_repeat": 1, **arguments}
    wrapping = {key: given.pop(key) for key in ("episode_length", "action_repeat")}
    env = envs.get_environment(name, **given)
    return _as_brax(envs.training.wrap(env, **wrapping), env.sys.actuator.ctrl_range)


def _playground(name: str, arguments: Mapping[str, Any]) -> Functions:
    """Return the functions of an environment of MuJoCo Playground as its training code wraps it."""
    from mujoco_playground import registry, wrapper

    _check_name(name, registry.ALL_ENVS)
    config = registry.get_default_config(name)
    env = registry.load(name, config, {**arguments})
    wrapped = wrapper.wrap_for_brax_training(env, config.episode_length, config.action_repeat)
    return _as_brax(wrapped, [(-1, 1)] * env.action_size)


def _as_brax(env: Any, bounds: Any) -> Functions:
    """Return the functions of a batch with brax's interface. ``bounds`` has the range of each action."""

    def reset(keys: Any) -> tuple[Any, Tree]:
        state = env.reset(keys)
        return state, state.obs

    def step(state: Any, actions: Tree) -> tuple[Any, RowsOfAll]:
        state = env.step(state, actions)
        cut_off = state.info["truncation"].astype(bool)
        return state, (state.obs, state.reward, state.done.astype(bool) & ~cut_off, cut_off)

    def unbounded(array: Any) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(-np.inf, np.inf, array.shape[1:], np.float32)

    shown = trees.mapped(unbounded, jax.eval_shape(reset, _keys(0, 1))[1])
    observations = gymnasium.spaces.Dict(shown) if isinstance(shown, dict) else shown
    low, high = np.asarray(bounds, np.float32).T
    return Functions(reset, step, observations, gymnasium.spaces.Box(low, high, dtype=np.float32))


_LIBRARIES = {"gymnax": _gymnax, "jaxtari": _jaxtari, "brax": _brax, "playground": _playground}


@cache
def _compiled(task: Task) -> Functions:
    """Return the compiled functions of a task, which all copies of its environments share."""
    library, _, name = task.name.partition(":")
    functions = _LIBRARIES[library](name, task.arguments)
    return functions._replace(reset=jax.jit(functions.reset), step=jax.jit(functions.step))


def _keys(seed: int, count: int) -> Any:
    return jax.vmap(jax.random.PRNGKey)(np.arange(seed, seed + count, dtype=np.uint32))


class JaxVector:
    """A batch of environments of a JAX library. Environment ``i`` draws from the key of ``seed + i``."""

    def __init__(self, task: Task, num_envs: int, seed: int = 0) -> None:
        self._functions, self._size, self._seed = _compiled(task), num_envs, seed
        self.single_observation_space = self._functions.observations
        self.single_action_space = self._functions.actions
        self._spaces = read_spaces(task, self.single_observation_space, self.single_action_space).actions
        self._scan = jax.jit(self._scanned, static_argnums=2)
        self._state: Any = None
        self._drawing: Any = None  # the key of random actions

    def reset(self, *, seed: int | None = None, **_: Any) -> tuple[Tree, dict[str, Any]]:
        """Start a new episode in every environment."""
        seed = self._seed if seed is None else seed
        self._drawing = jax.random.PRNGKey(seed)
        self._state, observations = self._functions.reset(_keys(seed, self._size))
        return observations, {}

    def step(self, actions: Tree) -> tuple[Any, ...]:
        """Make one step in every environment."""
        self._state, rows = self._functions.step(self._state, actions)
        return (*rows, {})

    def rollout(self, length: int) -> tuple[Tree, RowsOfAll]:
        """Make ``length`` steps with random actions. Return the actions and the rows, all rows of a step together."""
        (self._drawing, self._state), steps = self._scan(self._drawing, self._state, length)
        found: tuple[Tree, RowsOfAll] = steps
        return found

    def _scanned(self, key: Any, state: Any, length: int) -> Any:
        def step(carried: Any, _: None) -> Any:
            key, drawn = jax.random.split(carried[0])
            actions = self._sample(drawn)
            state, rows = self._functions.step(carried[1], actions)
            return (key, state), (actions, rows)

        carried, steps = jax.lax.scan(step, (key, state), None, length)
        return carried, jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), steps)

    def _sample(self, key: Any) -> Tree:
        """Return random actions, drawn from the same distributions as the tapes of other backends."""
        spaces = trees.leaves(self._spaces)
        drawn = [self._drawn(*each) for each in zip(jax.random.split(key, len(spaces)), spaces, strict=True)]
        return trees.filled(trees.form(self._spaces), drawn)

    def _drawn(self, key: Any, space: ActionSpace) -> Any:
        shape, low, high = (self._size, *space.low.shape), space.low, space.high
        if space.integer:
            return jax.random.randint(key, shape, low, high + 1)
        bounded = np.isfinite(low) & np.isfinite(high)
        uniform = jax.random.uniform(key, shape, low.dtype, np.where(bounded, low, 0), np.where(bounded, high, 1))
        return jax.numpy.where(bounded, uniform, jax.random.normal(key, shape, low.dtype).clip(low, high))

    def close(self) -> None:
        """Free the state."""
        self._state = None


class Jax(Native):
    """A batch of environments of a JAX library. ``rollout=K``: K steps in one call, with random actions.

    The rows of a rollout are those of PureJaxRL's: observations, rewards and flags of each step, on the device.
    """

    def __init__(self, setup: Setup, *, deliver: str = "host", rollout: int = 0) -> None:
        super().__init__(setup, deliver="device" if rollout else deliver)
        self._length = rollout
        self.info = replace(self.info, threads=setup.at_once)
        if rollout:
            ids = np.tile(np.arange(setup.batch_size), rollout)
            space = ActionSpace.discrete(1)  # its actions are ignored
            self.info = replace(self.info, batch_size=len(ids), action_space=space, in_order=False)
            self._ids = ids

    def upload(self, actions: Tree) -> Tree:
        """Return actions as arrays of the device."""
        return actions if self._length else super().upload(actions)

    def recv(self) -> Batch:
        """Return the rows of a step, or of all steps of a rollout."""
        batch = super().recv()
        return batch._replace(env_ids=self._ids[: len(batch.rewards)]) if self._length else batch

    def _receive(self) -> RowsOfAll:
        if not self._length:
            return super()._receive()
        rows: RowsOfAll = self._vector.rollout(self._length)[1]
        return rows
