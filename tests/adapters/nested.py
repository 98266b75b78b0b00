"""Adapters of environments that observe and take dicts and tuples: one fault each, in one array. ``odd/Nested-v0``."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from vebench.backends import trees
from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch, Setup

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


def showing(about: str, alter: Callable[[dict[str, Tree]], Tree]) -> type[Honest]:
    """Return an adapter that shows something else in each batch."""
    return type("Showing", (Honest,), {"__doc__": about, "alter": lambda _, observations: alter(observations)})


def with_position(seen: dict[str, Tree], dtype: type, shown: type) -> Tree:
    """Return what is seen, with the position of the arm brought to a type, and shown in another."""
    position, count = seen["arm"]
    return {**seen, "arm": (position.astype(dtype).astype(shown), count)}


OtherType = showing("Has one array in another type.", lambda seen: with_position(seen, np.float32, np.float32))
Rounded = showing("Rounds one array.", lambda seen: with_position(seen, np.float16, np.float64))
Blind = showing("Lacks one array.", lambda seen: {"arm": seen["arm"]})
Lists = showing("Has a list where there is to be a tuple.", lambda seen: {**seen, "arm": list(seen["arm"])})
Numbered = showing("Has a key that is no text.", lambda seen: {1: seen["arm"], **seen})
Short = showing("Has fewer rows in one array.", lambda seen: {**seen, "camera": seen["camera"][:-1]})


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
        move = replace(space["move"], high=np.zeros_like(space["move"].high))
        self.info = replace(self.info, action_space={**space, "move": move})
