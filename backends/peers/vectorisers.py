"""Vectorisers of Stable-Baselines3, tianshou and PufferLib. Each adapter imports its library on use.

The package ``pufferlib-core`` has the same vectoriser as the package ``pufferlib``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import numpy as np

from vebench.backends.interface import Difference, Setup
from vebench.backends.one_in_flight import (
    CLOSE_S,
    FLOAT32_REWARDS,
    OneInFlight,
    RowsOfAll,
    kill_all,
    makers,
    reseed,
    spaces_for,
)
from vebench.backends.trees import Tree

ONE_FLAG = Difference("an end that is also a time limit is reported as terminated only", "truncated", "end")


class SB3Dummy(OneInFlight):
    """Stable-Baselines3's ``DummyVecEnv``: all environments in the calling process. Rewards are float32."""

    kind = "DummyVecEnv"
    differences: tuple[Difference, ...] = (FLOAT32_REWARDS, ONE_FLAG)

    def __init__(self, setup: Setup) -> None:
        from stable_baselines3.common import vec_env

        spaces = spaces_for(setup, "Stable-Baselines3", dicts=True)
        processes = 1 if self.kind == "DummyVecEnv" else setup.batch_size
        self._report(setup, spaces, autoreset="same_step", processes=processes, differences=self.differences)
        self._vector = getattr(vec_env, self.kind)(makers(setup))

    def _reset(self, seed: int) -> Tree:
        self._vector.seed(seed)  # takes effect at the next reset
        return self._vector.reset()

    def _send(self, actions: Tree) -> None:
        self._vector.step_async(actions)

    def _receive(self) -> RowsOfAll:
        observations, rewards, ended, infos = self._vector.step_wait()
        truncated = np.zeros_like(ended)
        if ended.any():
            truncated[:] = [info["TimeLimit.truncated"] for info in infos]
        return observations, np.asarray(rewards, self._blank.rewards.dtype), ended & ~truncated, truncated

    def _end(self) -> None:
        self._vector.close()


class SB3Subproc(SB3Dummy):
    """``SubprocVecEnv``: a process for each environment, started by ``forkserver``. Rewards are float64."""

    kind = "SubprocVecEnv"
    differences = (ONE_FLAG,)

    def _end(self) -> None:
        if not self._stepping:  # otherwise the library would wait for answers that may never come
            with suppress(OSError, EOFError):
                self._vector.close()
        if not self._vector.closed:
            kill_all(self._vector.processes)
            for remote in self._vector.remotes:
                remote.close()
            self._vector.closed = True


class TianshouDummy(OneInFlight):
    """tianshou's ``DummyVectorEnv``: all environments in the calling process. Rewards are float64.

    The library never resets by itself. Like its ``Collector``, the adapters reset ended environments in the same step.
    """

    def __init__(self, setup: Setup, environments: list[Any] | None = None, *, kind: str = "DummyVectorEnv") -> None:
        from tianshou import env

        spaces = spaces_for(setup, "tianshou")
        processes = 1 if kind == "DummyVectorEnv" else setup.batch_size
        self._report(setup, spaces, autoreset="same_step", processes=processes)
        self._vector = getattr(env, kind)(environments or makers(setup))

    def _reset(self, seed: int) -> Tree:
        for index, worker in enumerate(self._vector.workers):
            worker.send(None, seed=seed + index)  # the library's own reset gives all of them one seed
        return np.stack([worker.recv()[0] for worker in self._vector.workers])

    def _receive(self) -> RowsOfAll:
        observations, rewards, terminated, truncated, _ = self._vector.step(self._actions)
        (ended,) = np.nonzero(terminated | truncated)
        if len(ended):
            observations[ended], _ = self._vector.reset(ended)
        return observations, np.asarray(rewards, np.float64), terminated, truncated

    def _end(self) -> None:
        if not self._vector.is_closed:
            self._vector.close()


# A process for each environment. Observations go over pipes, or are copied from shared memory.
TianshouSubproc = partial(TianshouDummy, kind="SubprocVectorEnv")
TianshouShmem = partial(TianshouDummy, kind="ShmemVectorEnv")


class TianshouRay(TianshouDummy):
    """``RayVectorEnv``: an actor for each environment, in a separate Ray, which ends with the adapter."""

    def __init__(self, setup: Setup) -> None:
        from vebench.backends.peers.ray import local_ray

        with ExitStack() as ray:
            ray.enter_context(local_ray(len(setup.cpus)))
            made_there = [partial(_ToBeMade, maker) for maker in makers(setup)]
            super().__init__(setup, made_there, kind="RayVectorEnv")
            self._ray = ray.pop_all()

    def _end(self) -> None:
        self._ray.close()  # ends every actor


class _ToBeMade:
    """Unpickling this makes the environment. If Ray sent a made environment, its buffers would be read-only."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return self._maker, ()


class PufferMultiprocessing(OneInFlight):
    """PufferLib's ``Multiprocessing``: ``workers`` processes, shared memory, and flags that all processes poll.

    Rewards are float32. The library does not notice the death of a worker: the caller polls forever.
    """

    def __init__(self, setup: Setup) -> None:
        from pufferlib import vector

        spaces, made = spaces_for(setup, "PufferLib"), makers(setup)
        creators = [
            partial(_emulated, made[worker], worker * (setup.envs_per_worker - 1))
            for worker in range(setup.workers)
            for _ in range(setup.envs_per_worker)
        ]
        self._vector: Any = vector.make(
            creators,
            env_args=[[]] * setup.batch_size,
            env_kwargs=[{}] * setup.batch_size,
            backend=vector.Multiprocessing,
            num_envs=setup.batch_size,
            num_workers=setup.workers,
            batch_size=setup.batch_size,
            overwork=True,  # more workers than cores is the user's choice
        )
        self._action_type = self._vector.single_action_space.dtype
        self._report(setup, spaces, processes=setup.workers, reuses_buffers=True, differences=(FLOAT32_REWARDS,))

    def _reset(self, seed: int) -> Tree:
        self._vector.waiting_workers = []  # otherwise it waits for an ``info`` that the last ``recv`` has taken
        self._vector.async_reset(seed)
        observations, *_ = self._vector.recv()
        return np.asarray(observations)

    def _send(self, actions: Tree) -> None:
        self._vector.send(np.asarray(actions, self._action_type))

    def _receive(self) -> RowsOfAll:
        rows: RowsOfAll = self._vector.recv()[:4]
        return rows

    def _end(self) -> None:
        processes, self._vector.processes = self._vector.processes, []
        if processes:
            self._vector.driver_env.close()
        for process in processes:
            process.terminate()
        kill_all(processes, CLOSE_S)


def _emulated(maker: Callable[[], Any], offset: int, **given: object) -> Any:
    """Return an environment in PufferLib's wrapper. Without ``offset``, workers would repeat each other's seeds."""
    from pufferlib.emulation import GymnasiumPufferEnv

    environment = maker()
    reseed(environment, lambda seed: None if seed is None else seed + offset)
    return GymnasiumPufferEnv(env=environment, **given)
