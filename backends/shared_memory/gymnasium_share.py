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

Mode = Literal["NextStep", "SameStep", "Disabled"]
Info = dict[str, Any]


class Job(NamedTuple):
    """What every share of a vector environment is given.

    ``same``: environments must have equal observation spaces, not only ones of equal shape and type. ``infos``: whether
    anyone wants to know them.
    """

    env_fns: Sequence[CloudpickleWrapper]
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    same: bool
    mode: Mode
    infos: bool


class GymnasiumShare:
    """Steps environments as ``gymnasium.vector.SyncVectorEnv`` does. Remarks are ``[(env_id, info), ...]``."""

    def __init__(self, job: Job, arrays: Arrays, start: int, stop: int) -> None:
        self.at: int | None = 0
        self._job = job
        self._start, self._count = start, stop - start
        self._environments: list[gymnasium.Env[Any, Any]] = []
        self._write = writer(job.observation_space, iter(arrays.observations))
        self._read = reader(job.action_space, arrays.actions)
        self._rewards, self._terminated, self._truncated = arrays.rewards, arrays.terminated, arrays.truncated
        self._ended = [False] * self._count

    def open(self) -> tuple[bool, bool]:
        """Build the environments; return whether their observations and their actions are as they should be."""
        for index in range(self._count):
            self.at = index
            self._environments.append(self._job.env_fns[self._start + index].fn())
        equal: Callable[[Any, Any], bool] = (lambda a, b: a == b) if self._job.same else is_space_dtype_shape_equiv
        return (
            all(equal(env.observation_space, self._job.observation_space) for env in self._environments),
            all(env.action_space == self._job.action_space for env in self._environments),
        )

    def step(self) -> list[tuple[int, Info]] | None:
        """Step every environment."""
        remarks = [
            (self._start + index, info)
            for index in range(self._count)
            if (info := self._step(index)) and self._job.infos
        ]
        return remarks or None

    def step_one(self, index: int) -> list[tuple[int, Info]] | None:
        """Step one environment."""
        info = self._step(index)
        return [(self._start + index, info)] if info and self._job.infos else None

    def _step(self, index: int) -> Info:
        self.at = index
        environment, mode = self._environments[index], self._job.mode
        if self._ended[index]:
            if mode != "NextStep":
                raise AssertionError(
                    "the episode is over: reset(options={'reset_mask': ...}) comes before the next step"
                )
            observation, info = environment.reset()
            self._write(index, observation)
            self._rewards[index] = 0.0
            self._terminated[index] = self._truncated[index] = self._ended[index] = False
            return info
        observation, self._rewards[index], terminated, truncated, info = environment.step(self._read(index))
        self._terminated[index] = terminated
        self._truncated[index] = truncated
        if terminated or truncated:
            if mode == "SameStep":
                final = {"final_obs": observation, "final_info": info}
                observation, info = environment.reset()
                info = {**final, **info}
            else:
                self._ended[index] = True
        self._write(index, observation)
        return info

    def answer(self, name: str, argument: Any) -> Any:  # noqa: ANN401 - each request has an argument of its own
        """Do what ``reset``, ``call`` or ``set_attr`` asks of every environment."""
        if name == "reset":
            return self._reset(*argument)
        results = []
        for index, environment in enumerate(self._environments):
            self.at = index
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
            self.at = index
            env_id = self._start + index
            if mask is not None and not mask[env_id]:
                continue
            observation, info = environment.reset(seed=seeds[env_id], options=options)
            self._write(index, observation)
            self._rewards[index] = 0.0
            self._terminated[index] = self._truncated[index] = self._ended[index] = False
            if info and self._job.infos:
                remarks.append((env_id, info))
        return remarks

    def close(self) -> None:
        """Close every environment."""
        while self._environments:
            self._environments.pop().close()
