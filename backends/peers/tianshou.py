"""tianshou's vectorisers: a loop, a process for each environment with pipes or shared memory, or an actor of Ray's.

They never reset by themselves. As tianshou's ``Collector`` does, the adapters reset the environments whose episodes
have ended, in the step that ends them.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments.making import make
from vebench.backends.interface import ActionSpace
from vebench.backends.one_in_flight import CountsInside, OneInFlight, makers, spaces_of
from vebench.backends.peers.ray import local_ray
from vebench.backends.trees import is_leaf

if TYPE_CHECKING:
    from collections.abc import Callable

    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup
    from vebench.backends.one_in_flight import RowsOfAll


class _VectorEnv(OneInFlight):
    """What all have: an ``EnvWorker`` for each environment, and rewards in float64."""

    def _start(self, setup: Setup, make_vector: Callable[[], Any], processes: int) -> None:
        spaces = spaces_of(setup.task)
        if not is_leaf(spaces.observations) or not isinstance(spaces.actions, ActionSpace):
            raise ValueError("tianshou's adapter takes observations and actions that are one array each")
        self._report(setup, spaces, autoreset="same_step", processes=processes)
        self._vector = make_vector()

    def _reset(self, seed: int) -> NDArray[np.generic]:
        workers = self._vector.workers
        for index, worker in enumerate(workers):
            worker.send(None, seed=seed + index)  # the library's own reset gives all of them one seed
        return np.stack([worker.recv()[0] for worker in workers])

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
        from tianshou.env import DummyVectorEnv  # noqa: PLC0415 - imported on use

        self._start(setup, partial(DummyVectorEnv, [partial(make, setup.task)] * setup.batch_size), 1)
        self._task, self._inside = setup.task, [worker.env for worker in self._vector.workers]


class TianshouSubproc(_VectorEnv):
    """``SubprocVectorEnv``: a process for each environment; all data goes over pipes, including observations."""

    def __init__(self, setup: Setup) -> None:
        from tianshou.env import SubprocVectorEnv  # noqa: PLC0415 - imported on use

        self._start(setup, partial(SubprocVectorEnv, makers(setup)), setup.batch_size)


class TianshouShmem(_VectorEnv):
    """``ShmemVectorEnv``: the same, with observations in shared memory, from which they are copied."""

    def __init__(self, setup: Setup) -> None:
        from tianshou.env import ShmemVectorEnv  # noqa: PLC0415 - imported on use

        self._start(setup, partial(ShmemVectorEnv, makers(setup)), setup.batch_size)


class TianshouRay(_VectorEnv):
    """``RayVectorEnv``: an actor for each environment, on a Ray of its own, which ends with it."""

    def __init__(self, setup: Setup) -> None:
        self._ray = ExitStack()
        try:
            self._start(setup, partial(self._on_ray, setup), setup.batch_size)
        except BaseException:
            self._end()
            raise

    def _on_ray(self, setup: Setup) -> Any:  # noqa: ANN401 - the library need not be installed where types are checked
        self._ray.enter_context(local_ray(len(setup.cpus)))
        from tianshou.env import RayVectorEnv  # noqa: PLC0415 - imported on use

        return RayVectorEnv([partial(_ToBeMade, maker) for maker in makers(setup)])

    def _end(self) -> None:
        self._ray.close()  # and with it every actor


class _ToBeMade:
    """What an actor receives as an environment, which is made on arrival.

    The library makes environments in the calling process. Ray would send them with their buffers, in which one cannot
    write then, as ``AtariPreprocessing`` does.
    """

    def __init__(self, maker: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        self._maker = maker

    def __reduce__(self) -> tuple[Callable[[], gymnasium.Env[Any, Any]], tuple[()]]:
        return self._maker, ()
