"""tianshou's vectorisers: a loop, a process for each environment with pipes or shared memory, or an actor of Ray's.

They never reset by themselves. Like tianshou's ``Collector``, the adapters reset ended environments in the same step.
``tianshou.env`` imports Ray, which reads its settings then: adapters import it on use.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.making import make
from vebench.backends.one_in_flight import CountsInside, OneInFlight, makers, spaces_for
from vebench.backends.trees import is_leaf

if TYPE_CHECKING:
    from collections.abc import Callable

    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup
    from vebench.backends.one_in_flight import RowsOfAll


class _VectorEnv(OneInFlight):
    """Each environment has an ``EnvWorker``. Rewards are float64."""

    _vector: Any

    def _start(self, setup: Setup, make_vector: Callable[[], Any], processes: int) -> None:
        spaces = spaces_for(setup, "tianshou", is_leaf)
        self._report(setup, spaces, autoreset="same_step", processes=processes)
        self._vector = make_vector()

    def _reset(self, seed: int) -> NDArray[np.generic]:
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


class TianshouDummy(CountsInside, _VectorEnv):
    """``DummyVectorEnv``: all environments in the calling process."""

    def __init__(self, setup: Setup) -> None:
        from tianshou.env import DummyVectorEnv

        self._start(setup, partial(DummyVectorEnv, [partial(make, setup.task)] * setup.batch_size), 1)
        self._task, self._inside = setup.task, [worker.env for worker in self._vector.workers]


class TianshouSubproc(_VectorEnv):
    """``SubprocVectorEnv``: a process for each environment; observations, too, go over pipes."""

    def __init__(self, setup: Setup) -> None:
        from tianshou.env import SubprocVectorEnv

        self._start(setup, partial(SubprocVectorEnv, makers(setup)), setup.batch_size)


class TianshouShmem(_VectorEnv):
    """``ShmemVectorEnv``: the same, with observations copied from shared memory."""

    def __init__(self, setup: Setup) -> None:
        from tianshou.env import ShmemVectorEnv

        self._start(setup, partial(ShmemVectorEnv, makers(setup)), setup.batch_size)


class TianshouRay(_VectorEnv):
    """``RayVectorEnv``: an actor for each environment, on a Ray of its own, which ends with it."""

    def __init__(self, setup: Setup) -> None:
        from vebench.backends.peers.ray import local_ray

        self._ray = ExitStack()
        try:
            self._ray.enter_context(local_ray(len(setup.cpus)))
            from tianshou.env import RayVectorEnv

            made = [partial(_ToBeMade, maker) for maker in makers(setup)]
            self._start(setup, partial(RayVectorEnv, made), setup.batch_size)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._ray.close()  # ends every actor


class _ToBeMade:
    """An environment that is made where it is unpickled.

    The library makes environments in the calling process. Ray would send them with read-only buffers, which
    ``AtariPreprocessing`` writes to.
    """

    def __init__(self, maker: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        self._maker = maker

    def __reduce__(self) -> tuple[Callable[[], gymnasium.Env[Any, Any]], tuple[()]]:
        return self._maker, ()
