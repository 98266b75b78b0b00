"""Gymnasium's own vector environments, whose observations are not copied (``copy=False``). Rewards are float64."""

from __future__ import annotations

import signal
from functools import partial
from multiprocessing import connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends.environments.making import THE_SIMULATOR, as_counts, make
from vebench.backends.interface import Setup
from vebench.backends.one_in_flight import CLOSE_S, CountsInside, OneInFlight, RowsOfAll, kill_all, makers, spaces_of
from vebench.backends.trees import Tree


class GymSync(CountsInside, OneInFlight):
    """``SyncVectorEnv``: all environments in the calling process."""

    def __init__(self, setup: Setup) -> None:
        from gymnasium.vector import SyncVectorEnv

        self._report(setup, spaces_of(setup.task), reuses_buffers=True)
        self._vector: Any = SyncVectorEnv([partial(make, setup.task)] * setup.batch_size, copy=False)
        self._task, self._inside = setup.task, self._vector.envs

    def _reset(self, seed: int) -> Tree:
        return self._vector.reset(seed=seed)[0]

    def _receive(self) -> RowsOfAll:
        rows: RowsOfAll = self._vector.step(self._actions)[:4]
        return rows

    def _end(self) -> None:
        self._vector.close()


class GymAsync(OneInFlight):
    """``AsyncVectorEnv``: a process for each environment, shared memory on.

    ``max_concurrency`` limits how many environments step at any one time (Gymnasium 1.4 and later; None is no limit).
    ``context`` is the start method of the processes, ``fork``, ``forkserver`` or ``spawn`` (None is Python's default).
    """

    frames_from = THE_SIMULATOR

    def __init__(self, setup: Setup, *, max_concurrency: int | None = None, context: str | None = None) -> None:
        from gymnasium.vector import AsyncVectorEnv

        self._report(setup, spaces_of(setup.task), processes=setup.batch_size, reuses_buffers=True)
        # Gymnasium before 1.4 does not have the argument.
        limit: dict[str, Any] = {} if max_concurrency is None else {"max_concurrency": max_concurrency}
        self._vector: Any = AsyncVectorEnv(makers(setup), shared_memory=True, copy=False, context=context, **limit)

    def _reset(self, seed: int) -> Tree:
        return self._vector.reset(seed=seed)[0]

    def _send(self, actions: Tree) -> None:
        self._vector.step_async(actions)

    def _receive(self) -> RowsOfAll:
        try:
            rows: RowsOfAll = self._vector.step_wait()[:4]
        except (EOFError, ConnectionError) as error:
            # Gymnasium's error does not name the process, so find the one that has ended.
            ended = connection.wait([process.sentinel for process in self._vector.processes], CLOSE_S)
            for number, process in enumerate(self._vector.processes):
                if process.sentinel in ended:
                    process.join()
                    code = process.exitcode or 0
                    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                    raise RuntimeError(f"environment {number}: its process died ({how})") from error
            raise
        return rows

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames that each environment has simulated in its episode, None if one of them is not known."""
        return as_counts(self._vector.call("frames_simulated"))

    def _end(self) -> None:
        if self._vector.closed:
            return
        try:
            if self._stepping:
                self._vector.step_wait(timeout=CLOSE_S)
            self._vector.close()
        except Exception:  # noqa: BLE001 - the processes must end after any error
            kill_all(self._vector.processes)
            self._vector.closed = True
