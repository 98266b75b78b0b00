"""Adapters of environments that observe and take dicts and tuples: one fault each, in one array. ``odd/Nested-v0``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch

if TYPE_CHECKING:
    from vebench.backends.interface import ActionSpaceTree, Setup

    Tree = Any  # an array, or a dict or tuple of such

LATE = 40  # batches


class Honest(ForLoop):
    """Returns new arrays each time, in dicts whose keys are in another order."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, reuses_buffers=False)
        self.batches = 0

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.batches = 0

    def recv(self) -> Batch:
        batch = super().recv()
        observations, *others = (trees.mapped(np.copy, array) for array in batch)
        self.batches += 1
        return Batch(self.alter({key: observations[key] for key in reversed(observations)}), *others)

    def alter(self, observations: dict[str, Tree]) -> Tree:
        return observations


class OtherType(Honest):
    """Has one array in another type."""

    def alter(self, observations: dict[str, Tree]) -> Tree:
        position, count = observations["arm"]
        return {**observations, "arm": (position.astype(np.float32), count)}


class Rounded(Honest):
    """Rounds one array."""

    def alter(self, observations: dict[str, Tree]) -> Tree:
        position, count = observations["arm"]
        return {**observations, "arm": (position.astype(np.float16).astype(np.float64), count)}


class Blind(Honest):
    """Lacks one array."""

    def alter(self, observations: dict[str, Tree]) -> Tree:
        return {"arm": observations["arm"]}


class Lists(Honest):
    """Has a list where there is to be a tuple."""

    def alter(self, observations: dict[str, Tree]) -> Tree:
        return {**observations, "arm": list(observations["arm"])}


class Numbered(Honest):
    """Has a key that is no text."""

    def alter(self, observations: dict[str, Tree]) -> Tree:
        return {1: observations["arm"], **observations}


class Short(Honest):
    """Has fewer rows in one array."""

    def alter(self, observations: dict[str, Tree]) -> Tree:
        return {**observations, "camera": observations["camera"][:-1]}


class StaleCamera(Honest):
    """Shows the camera of the step before."""

    _last: Any = None

    def alter(self, observations: dict[str, Tree]) -> Tree:
        now = observations["camera"]
        shown, self._last = now if self._last is None else self._last, now
        return {**observations, "camera": shown}


class Dirty(Honest):
    """Has one wrong byte in one array, from a step on."""

    def alter(self, observations: dict[str, Tree]) -> Tree:
        if self.batches > LATE:
            observations["camera"][0, 2, 3] += 1
        return observations


class DirtyLater(Dirty):
    """The same while it is timed only: the exact variant is what is compared before a run."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._exact = setup.task.exact

    def alter(self, observations: dict[str, Tree]) -> Tree:
        return observations if self._exact else super().alter(observations)


class Overwrites(Honest):
    """Writes into an array that it has handed out."""

    _handed: Any = None

    def alter(self, observations: dict[str, Tree]) -> Tree:
        if self._handed is not None:
            self._handed["arm"][1][:] = 3
        self._handed = observations
        return observations


class Loose(Honest):
    """Never closes its grip."""

    def send(self, actions: Tree) -> None:
        super().send({**actions, "grip": np.zeros_like(actions["grip"])})


class Deaf(Honest):
    """Takes the same action whatever it is sent."""

    def send(self, actions: Tree) -> None:
        super().send(trees.mapped(np.zeros_like, actions))


class Narrow(Honest):
    """Draws one of its actions from a smaller space."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        space: Any = self.info.action_space
        move: ActionSpaceTree = replace(space["move"], high=np.zeros_like(space["move"].high))
        self.info = replace(self.info, action_space={**space, "move": move})
