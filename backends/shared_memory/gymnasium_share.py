"""One process's share of a ``SharedMemoryVectorEnv``: Gymnasium environments that write into rows of shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gymnasium.spaces.utils import is_space_dtype_shape_equiv

from vebench.backends.shared_memory.spaces import reader, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import gymnasium
    from gymnasium.vector.utils import CloudpickleWrapper

    from vebench.backends.shared_memory.memory_layout import Arrays

Autoreset = Literal["NextStep", "SameStep", "Disabled"]
Info = dict[str, Any]


class ShareConfig(NamedTuple):
    """What all shares of a vector environment have in common.

    ``same``: environments must have equal observation spaces, not only spaces of equal shape and type. ``infos``:
    whether anybody reads them; without, there is only the last observation of an episode, for ``SameStep``.
    """

    env_fns: Sequence[CloudpickleWrapper]
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    same: bool
    autoreset: Autoreset
    infos: bool


class GymnasiumShare:
    """Steps environments as ``gymnasium.vector.SyncVectorEnv`` does. Remarks are ``[(env_id, info), ...]``."""

    def __init__(self, config: ShareConfig, arrays: Arrays, start: int, stop: int) -> None:
        self.current: int | None = 0
        self._config = config
        self._start, self._count = start, stop - start
        self._environments: list[gymnasium.Env[Any, Any]] = []
        self._write = writer(config.observation_space, iter(arrays.observations))
        self._read = reader(config.action_space, arrays.actions)
        self._rewards, self._terminated, self._truncated = arrays.rewards, arrays.terminated, arrays.truncated
        self._ended = [False] * self._count

    def open(self) -> tuple[bool, bool]:
        """Build the environments; return whether their observations and their actions are as they should be."""
        for index in range(self._count):
            self.current = index
            self._environments.append(self._config.env_fns[self._start + index].fn())
        equal: Callable[[Any, Any], bool] = (lambda a, b: a == b) if self._config.same else is_space_dtype_shape_equiv
        return (
            all(equal(env.observation_space, self._config.observation_space) for env in self._environments),
            all(env.action_space == self._config.action_space for env in self._environments),
        )

    def step(self) -> list[tuple[int, Info]] | None:
        """Step every environment."""
        remarks = [(self._start + index, info) for index in range(self._count) if (info := self._step(index))]
        return remarks or None

    def step_one(self, index: int) -> list[tuple[int, Info]] | None:
        """Step one environment."""
        info = self._step(index)
        return [(self._start + index, info)] if info else None

    def _step(self, index: int) -> Info:
        """Step one environment, or reset it; return what is to be said about it."""
        self.current = index
        environment, autoreset = self._environments[index], self._config.autoreset
        if self._ended[index]:
            if autoreset != "NextStep":
                raise AssertionError(
                    "the episode is over: reset(options={'reset_mask': ...}) comes before the next step"
                )
            observation, info = environment.reset()
            self._write(index, observation)
            self._rewards[index] = 0.0
            self._terminated[index] = self._truncated[index] = self._ended[index] = False
            return self._told(info)
        observation, self._rewards[index], terminated, truncated, info = environment.step(self._read(index))
        self._terminated[index] = terminated
        self._truncated[index] = truncated
        info = self._told(info)
        if terminated or truncated:
            if autoreset == "SameStep":
                final = {"final_obs": observation, "final_info": info}
                observation, info = environment.reset()
                info = {**final, **self._told(info)}
            else:
                self._ended[index] = True
        self._write(index, observation)
        return info

    def _told(self, info: Info) -> Info:
        return info if self._config.infos else {}

    def answer(self, name: str, argument: Any) -> Any:  # noqa: ANN401 - each request has an argument of its own
        """Do what ``reset``, ``call`` or ``set_attr`` asks of every environment."""
        if name == "reset":
            return self._reset(*argument)
        results = []
        for index, environment in enumerate(self._environments):
            self.current = index
            if name == "set_attr":
                attribute, values = argument
                environment.set_wrapper_attr(attribute, values[self._start + index])
            else:
                attribute, args, kwargs = argument
                found = environment.get_wrapper_attr(attribute)
                results.append(found(*args, **kwargs) if callable(found) else found)
        return results

    def _reset(
        self, seeds: Sequence[int | None], mask: Sequence[bool] | None, options: Info | None
    ) -> list[tuple[int, Info]]:
        remarks = []
        for index, environment in enumerate(self._environments):
            self.current = index
            env_id = self._start + index
            if mask is not None and not mask[env_id]:
                continue
            observation, info = environment.reset(seed=seeds[env_id], options=options)
            self._write(index, observation)
            self._rewards[index] = 0.0
            self._terminated[index] = self._truncated[index] = self._ended[index] = False
            if info := self._told(info):
                remarks.append((env_id, info))
        return remarks

    def close(self) -> None:
        """Close every environment."""
        while self._environments:
            self._environments.pop().close()
