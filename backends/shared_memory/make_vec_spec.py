"""How ``gymnasium.make_vec`` comes to make a ``SharedMemoryVectorEnv``: by the spec that it is given."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

from vebench.backends.shared_memory.vector_env import SharedMemoryVectorEnv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gymnasium.envs.registration import EnvSpec

    Environment = gymnasium.Env[Any, Any]
    Wrap = Callable[[Environment], Environment]


def shared_memory_spec(
    id: str | EnvSpec,  # noqa: A002 - as gymnasium.make_vec has it
    *,
    wrappers: Sequence[Wrap] = (),
    **vector_kwargs: Any,  # noqa: ANN401 - those of SharedMemoryVectorEnv
) -> EnvSpec:
    """Return the spec of an environment of which ``gymnasium.make_vec`` makes a ``SharedMemoryVectorEnv``.

    There ``vectorization_mode`` cannot have values of others. What it has for them is ``vector_entry_point``, its
    default for such a spec. In this mode it takes neither ``wrappers`` nor ``vector_kwargs``, so they are given here.
    What else it is given goes to ``gymnasium.make``, for each environment.
    """
    if isinstance(id, str):
        module, _, name = id.rpartition(":")
        if module:
            import_module(module)  # it registers the environment
        id = gymnasium.spec(name)  # noqa: A001 - likewise
    chosen = deepcopy(id)
    chosen.additional_wrappers = ()  # they are around each environment
    chosen.vector_entry_point = partial(_make, deepcopy(id), tuple(wrappers), vector_kwargs)
    return chosen


def _make(
    spec: EnvSpec, wrappers: Sequence[Wrap], vector_kwargs: Mapping[str, Any], *, num_envs: int, **kwargs: object
) -> SharedMemoryVectorEnv:
    return SharedMemoryVectorEnv([partial(_make_one, spec, wrappers, kwargs)] * num_envs, **vector_kwargs)


def _make_one(spec: EnvSpec, wrappers: Sequence[Wrap], kwargs: Mapping[str, Any]) -> Environment:
    environment: Environment = gymnasium.make(spec, **kwargs)
    for wrap in wrappers:
        environment = wrap(environment)
    return environment
