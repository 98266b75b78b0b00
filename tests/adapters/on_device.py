"""Adapters whose rows stay on a fake device: right ones, old ones, and rows that nobody can count there."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vebench.backends.environments.making import make, read_spaces
from vebench.backends.interface import Setup
from vebench.backends.one_in_flight import OneInFlight


class Array:
    """An array of a fake device. Whoever waits for it calls ``compute``."""

    def __init__(self, values: Any, compute: Callable[[], object] = lambda: None) -> None:
        self.values, self.block_until_ready = values, compute

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        self.block_until_ready()
        return self.values


class Honest(OneInFlight):
    """Gymnasium's vector environment. It takes only actions that were uploaded."""

    upload, autoreset = Array, "same_step"

    def __init__(self, setup: Setup) -> None:
        envs = [partial(make, setup.task)] * setup.batch_size
        self._vector = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.SAME_STEP)
        spaces = read_spaces(setup.task, self._vector.single_observation_space, self._vector.single_action_space)
        self._report(setup, spaces, autoreset=self.autoreset, on_device=True)

    def _reset(self, seed: int) -> Any:
        return Array(self._vector.reset(seed=seed)[0].copy())

    def _receive(self) -> Any:
        return tuple(Array(np.copy(row)) for row in self._vector.step(self._actions.values)[:4])  # type: ignore[union-attr]

    def _end(self) -> None:
        self._vector.close()


class Stale(Honest):
    """Returns the rows of the step before."""

    _rows: Any = None

    def _receive(self) -> Any:
        rows, self._rows = self._rows, super()._receive()
        return rows or self._rows


class ResetRows(Honest):
    """Has rows that only report resets."""

    autoreset = "next_step"
