"""``SharedMemoryVectorEnv`` as a ``VecEnv`` of Stable-Baselines3, in place of its ``SubprocVecEnv``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from operator import methodcaller
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.vec_env import VecEnv

from vebench.backends.shared_memory.gymnasium_share import call_on
from vebench.backends.shared_memory.vector_env import Environment, SharedMemoryVectorEnv

_Info = dict[str, Any]
Indices = int | Iterable[int] | None
Wrapper = type[gymnasium.Wrapper[Any, Any, Any, Any]]


class StableBaselinesVecEnv(VecEnv):  # type: ignore[misc]  # it is typed where Stable-Baselines3 is installed
    """A ``VecEnv`` of Stable-Baselines3, used like ``SubprocVecEnv`` and stepped by a ``SharedMemoryVectorEnv``.

    Parameters
    ----------
    envs
        Functions that make environments, or a ``SharedMemoryVectorEnv``. The latter needs
        ``autoreset_mode="SameStep"``, since Stable-Baselines3 resets within the step that ends an episode.
    start_method
        The ``context`` of the ``SharedMemoryVectorEnv``.
    **arguments
        Other arguments of the ``SharedMemoryVectorEnv``.

    Notes
    -----
    The info of a step that ends an episode has ``terminal_observation``. Every info has ``TimeLimit.truncated``.
    ``reset_infos`` has the infos of the last resets. ``seed`` and ``set_options`` apply to the next reset.
    """

    def __init__(
        self,
        envs: Sequence[Callable[[], Environment]] | SharedMemoryVectorEnv,
        start_method: str | None = None,
        **arguments: Any,
    ) -> None:
        if not isinstance(envs, SharedMemoryVectorEnv):
            same_step = AutoresetMode.SAME_STEP
            envs = SharedMemoryVectorEnv(envs, context=start_method, autoreset_mode=same_step, **arguments)
        if envs.autoreset_mode != AutoresetMode.SAME_STEP:
            raise ValueError(f"Stable-Baselines3 needs autoreset_mode='SameStep', not {envs.autoreset_mode.value!r}")
        if envs.batch_size < envs.num_envs:
            raise ValueError("Stable-Baselines3 steps all environments at once: leave out batch_size")
        self.envs: Any = envs  # untyped, since its infos have another form
        envs.form_infos = _info_of_each
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Reset all environments. Return their observations."""
        if not any(self._options):
            observations, self.reset_infos = self.envs.reset(seed=self._seeds)
        else:  # each environment has its own options
            for env_id, options in enumerate(self._options):
                mask = np.arange(self.num_envs) == env_id
                observations, infos = self.envs.reset(seed=self._seeds, options={**options, "reset_mask": mask})
                self.reset_infos[env_id] = infos[env_id]
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: Any) -> None:
        """Let every environment step."""
        self.envs.step_async(actions)

    def step_wait(self) -> tuple[Any, Any, Any, list[_Info]]:
        """Return observations, rewards ``(n,)``, flags of ended episodes ``(n,)``, and a list of infos."""
        observations, rewards, terminated, truncated, infos = self.envs.step_wait()
        ended = terminated | truncated
        for env_id in np.flatnonzero(ended).tolist():
            self.reset_infos[env_id] = info = infos[env_id]
            last = info.pop("final_obs")
            infos[env_id] = {**info.pop("final_info"), "terminal_observation": last}
        for info, cut in zip(infos, (truncated & ~terminated).tolist(), strict=True):
            info["TimeLimit.truncated"] = cut
        return observations, rewards, ended, infos

    def close(self) -> None:
        """Close every environment, and end their processes."""
        self.envs.close()

    # Attributes and methods of environments, by name.

    def has_attr(self, attr_name: str) -> bool:
        """Return whether every environment has the attribute."""
        try:
            return all(self.envs.apply(methodcaller("has_wrapper_attr", attr_name), range(self.num_envs)))
        except AttributeError:  # vebench's own classes have no attributes
            return False

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute of these environments, by default of all."""
        ids = list(self._get_indices(indices))
        if attr_name == "render_mode":
            return [self.envs.render_mode] * len(ids)
        return list(self.envs.apply(methodcaller("get_wrapper_attr", attr_name), ids))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of these environments, by default of all, to one value."""
        self.envs.apply(setattr, self._get_indices(indices), attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of these environments, by default of all."""
        return list(self.envs.apply(call_on, self._get_indices(indices), method_name, method_args, method_kwargs))

    def env_is_wrapped(self, wrapper_class: Wrapper, indices: Indices = None) -> list[bool]:
        """Return whether each of these environments, by default all, has a wrapper of this class."""
        ids = list(self._get_indices(indices))
        try:
            return list(self.envs.apply(is_wrapped, ids, wrapper_class))
        except AttributeError:  # vebench's own classes have no wrappers
            return [False] * len(ids)

    def get_images(self) -> Sequence[Any]:
        """Return the rendered image of each environment, None if the render mode makes no images."""
        if self.render_mode != "rgb_array":
            warnings.warn(f"render_mode is {self.render_mode!r}, and images need 'rgb_array'", stacklevel=2)
            return [None] * self.num_envs
        return self.env_method("render")


def _info_of_each(count: int, infos: Iterable[tuple[int, _Info]]) -> list[_Info]:
    """Return the info of each of ``count`` environments, an empty one where there is none."""
    each: list[_Info] = [{} for _ in range(count)]
    for env_id, info in infos:
        each[env_id] = deepcopy(info)  # the environment may have kept the info, or an object in it
    return each
