"""Adapters whose rows stay on a fake device: right ones, old ones, and rows that nobody can count there."""

from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vebench.backends.batched.vectors import Native
from vebench.backends.environments.making import make
from vebench.backends.interface import Setup


class Array:
    """An array of a fake device. Whoever waits for it calls ``compute``."""

    def __init__(self, values: Any, compute: Callable[[], object] = lambda: None) -> None:
        self.values, self.block_until_ready = values, compute

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        self.block_until_ready()
        return self.values


class Honest(Native):
    """Gymnasium's vector environment. It takes only actions that were uploaded."""

    upload, mode = Array, AutoresetMode.SAME_STEP  # type: ignore[assignment]

    def __init__(self, setup: Setup) -> None:
        envs = [partial(make, setup.task)] * setup.batch_size
        self._adopt(setup, lambda _seed: SyncVectorEnv(envs, autoreset_mode=self.mode), "device")

    def _receive(self) -> Any:
        actions: Any = self._actions
        return tuple(map(Array, self._batch.vector.step(actions.values)[:4]))


class Stale(Honest):
    """Returns the rows of the step before."""

    _rows: Any = None

    def _receive(self) -> Any:
        rows, self._rows = self._rows, super()._receive()
        return rows or self._rows


class ResetRows(Honest):
    """Has rows that only report resets."""

    mode = AutoresetMode.NEXT_STEP
