"""The interface of policies, those that need no network, and how one is made by its name."""

from __future__ import annotations

import importlib
import time
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vebench.backends import trees

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace, ActionSpaceTree, ArrayTree
    from vebench.child.request import Settings


class Policy(Protocol):
    """What chooses actions, in three steps, because their times are told apart. Each returns when it is done."""

    def upload(self, observations: ArrayTree) -> Any:  # noqa: ANN401 - an array of its device
        """Bring observations, ``(rows, *observation_shape)`` or a dict or tuple of such, to where it computes."""

    def infer(self, there: Any) -> Any:  # noqa: ANN401 - likewise
        """Choose actions for what ``upload`` returned."""

    def download(self, chosen: Any) -> ArrayTree:  # noqa: ANN401 - likewise
        """Return the actions, ``(rows, *action_shape)``, of the action space's type, in an array of their own."""


class Called:
    """A user's function from observations to actions. What it copies is part of its time.

    Where observations or actions are a dict or tuple, it takes and returns such a one of arrays.
    """

    def __init__(self, function: Callable[[ArrayTree], Any], spaces: ActionSpaceTree) -> None:
        self._function, self._spaces = function, spaces

    @staticmethod
    def upload(observations: ArrayTree) -> ArrayTree:
        """Return the observations."""
        return observations

    def infer(self, there: ArrayTree) -> ArrayTree:
        """Return the function's actions. Raises ValueError if these are not one for each row."""
        rows = length(there)

        def checked(space: ActionSpace, actions: Any) -> NDArray[np.generic]:  # noqa: ANN401 - what can be an array
            low = space.low
            given = np.array(actions, dtype=low.dtype)  # a copy: the function may use its array again
            if given.shape != (rows, *low.shape):
                raise ValueError(f"the policy returned actions of shape {given.shape}, not {(rows, *low.shape)}")
            return given

        try:
            chosen: ArrayTree = trees.mapped(checked, self._spaces, self._function(there))
        except (KeyError, IndexError, TypeError) as error:
            words = trees.in_words(trees.form(self._spaces))
            raise ValueError(f"the policy did not return actions as {words}: {error!r}") from error
        return chosen

    @staticmethod
    def download(chosen: ArrayTree) -> ArrayTree:
        """Return the actions."""
        return chosen


class Sleeping:
    """Sleeps, as a process does whose device computes, and takes its actions from a tape."""

    def __init__(self, seconds: float, tape: Sequence[ArrayTree]) -> None:
        self._seconds, self._actions = seconds, cycle(tape)

    @staticmethod
    def upload(observations: ArrayTree) -> int:
        """Return how many rows there are."""
        return length(observations)

    def infer(self, there: int) -> ArrayTree:
        """Sleep, and return the next actions of the tape."""
        time.sleep(self._seconds)
        actions: ArrayTree = trees.part(next(self._actions), slice(there))
        return actions

    @staticmethod
    def download(chosen: ArrayTree) -> ArrayTree:
        """Return the actions."""
        return chosen


def length(observations: ArrayTree) -> int:
    """Return how many rows there are."""
    return len(trees.leaves(observations)[0])


def make_policy(
    settings: Settings,
    spaces: ActionSpaceTree,
    observations: ArrayTree,
    seed: int,
    tape: Sequence[ArrayTree],
) -> Policy:
    """Return the policy that ``settings`` name, for observations like these, ``(rows, *observation_shape)``.

    Its weights are drawn from ``seed``. Raises ValueError if it does not fit the environment or the machine.
    """
    chosen = settings.policy
    if chosen.kind == "sleep":
        return Sleeping(chosen.seconds, tape)
    if chosen.kind == "function":
        module, _, path = chosen.target.partition(":")
        function: Any = importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
        return Called(function, spaces)
    if isinstance(observations, (dict, tuple)) or isinstance(spaces, (dict, tuple)):
        taken = [trees.in_words(trees.form(tree)) for tree in (observations, spaces)]
        raise ValueError(  # noqa: TRY004 - by contract
            f"policy {chosen.name} takes one array of observations and one of actions, "
            f"not {taken[0]} and {taken[1]}: use MODULE:FUNCTION, or sleep:TIME"
        )
    from vebench.child.policies.network import Network  # noqa: PLC0415 - it needs torch

    return Network(chosen, spaces, observations, seed)
