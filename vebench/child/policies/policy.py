"""The interface of policies, those that need no network, and how one is made by its name."""

from __future__ import annotations

import importlib
import time
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vebench.child.policies.named import parse_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace
    from vebench.child.request import Settings


class Policy(Protocol):
    """What chooses actions, in three steps, because their times are told apart. Each returns when it is done."""

    def upload(self, observations: NDArray[np.generic]) -> Any:  # noqa: ANN401 - an array of its device
        """Bring observations, ``(rows, *observation_shape)``, to where the policy computes."""

    def infer(self, there: Any) -> Any:  # noqa: ANN401 - likewise
        """Choose actions for what ``upload`` returned."""

    def download(self, chosen: Any) -> NDArray[np.generic]:  # noqa: ANN401 - likewise
        """Return the actions, ``(rows, *action_shape)``, of the action space's type, in an array of their own."""


class Called:
    """A user's function from observations to actions. What it copies is part of its time."""

    def __init__(self, function: Callable[[NDArray[np.generic]], Any], space: ActionSpace) -> None:
        self._function, self._space = function, space

    @staticmethod
    def upload(observations: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the observations."""
        return observations

    def infer(self, there: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the function's actions. Raises ValueError if these are not one for each row."""
        low = self._space.low
        given = np.array(self._function(there), dtype=low.dtype)  # a copy: the function may use its array again
        if given.shape != (len(there), *low.shape):
            raise ValueError(f"the policy returned actions of shape {given.shape}, not {(len(there), *low.shape)}")
        return given

    @staticmethod
    def download(chosen: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the actions."""
        return chosen


class Sleeping:
    """Sleeps, as a process does whose device computes, and takes its actions from a tape."""

    def __init__(self, seconds: float, tape: Sequence[NDArray[np.generic]]) -> None:
        self._seconds, self._actions = seconds, cycle(tape)

    @staticmethod
    def upload(observations: NDArray[np.generic]) -> int:
        """Return how many rows there are."""
        return len(observations)

    def infer(self, there: int) -> NDArray[np.generic]:
        """Sleep, and return the next actions of the tape."""
        time.sleep(self._seconds)
        return next(self._actions)[:there]

    @staticmethod
    def download(chosen: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the actions."""
        return chosen


def make_policy(
    settings: Settings,
    space: ActionSpace,
    observations: NDArray[np.generic],
    seed: int,
    tape: Sequence[NDArray[np.generic]],
) -> Policy:
    """Return the policy that ``settings`` name, for observations like these, ``(rows, *observation_shape)``.

    Its weights are drawn from ``seed``. Raises ValueError if it does not fit the environment or the machine.
    """
    name = parse_policy(settings.policy)
    if name.kind == "sleep":
        return Sleeping(name.seconds, tape)
    if name.kind == "function":
        module, _, path = name.target.partition(":")
        function: Any = importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
        return Called(function, space)
    from vebench.child.policies.network import Network  # noqa: PLC0415 - it needs torch

    return Network(name, settings, space, observations, seed)
