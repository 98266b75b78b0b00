"""Adapters whose rows stay on a fake device: right ones, and those that return other rows or cannot be counted."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vebench.backends import trees
from vebench.backends.environments.making import make, read_spaces
from vebench.backends.interface import Setup
from vebench.backends.one_in_flight import OneInFlight, RowsOfAll


class Array:
    """An array of a fake device, whose numbers are there once somebody has waited for them. ``compute`` then runs."""

    def __init__(self, values: Any, compute: Callable[[], object] = lambda: None) -> None:
        self.values, self.nbytes, self._compute = values, values.nbytes, compute

    def block_until_ready(self) -> None:
        self._compute()

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        self._compute()
        return self.values


class Honest(OneInFlight):
    """Gymnasium's vector environment. It takes only actions that were uploaded."""

    def __init__(self, setup: Setup) -> None:
        envs = [partial(make, setup.task)] * setup.batch_size
        self._vector = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.SAME_STEP)
        spaces = read_spaces(setup.task, self._vector.single_observation_space, self._vector.single_action_space)
        self._report(setup, spaces, autoreset="same_step", on_device=True)

    def upload(self, actions: trees.Tree) -> Array:
        return Array(actions)

    def _reset(self, seed: int) -> Array:
        return Array(self._vector.reset(seed=seed)[0].copy())

    def _receive(self) -> RowsOfAll:
        rows: Any = self._vector.step(self._actions.values)[:4]
        return tuple(Array(np.copy(row)) for row in rows)  # type: ignore[return-value]

    def _end(self) -> None:
        self._vector.close()


class Stale(Honest):
    """Returns the rows of the step before."""

    _rows: Any = None

    def _receive(self) -> RowsOfAll:
        rows, self._rows = self._rows, super()._receive()
        return rows or self._rows


class ResetRows(Honest):
    """Has rows that only report resets, which nobody can count without looking at them."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, autoreset="next_step")
