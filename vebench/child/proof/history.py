"""What happened since a reset: which environments were in which batch, and which actions they got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vebench.backends import trees
from vebench.child.proof.batches import OUT_OF_ORDER, out_of_order
from vebench.child.proof.recording import CutOffError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree
    from vebench.child.proof.recording import About, Acted, Began

NO_ROW = -1  # in place of an id, where a batch has fewer rows than others


class FaultError(Exception):
    """What was recorded breaks the interface. The text says how."""


class History:
    """The batches since a reset: which environments are in which, and which actions they got."""

    def __init__(self, about: About, began: Began, tape: list[ArrayTree]) -> None:
        self.seed = began.seed
        self.in_order = about.in_order
        self.blocks: list[tuple[int, NDArray[np.integer]]] = []  # the first batch of each, and the ids of its batches
        self.tape_at = began.tape_at
        self._about = about
        self._tape = tape
        self._known = 0
        self._acted: ArrayTree | None = None
        self._batches_acted = 0

    def act(self, acted: Acted) -> None:
        """Take these actions, and not those of the tape. Raises CutOffError if they are no actions of this backend."""
        if trees.form(acted.actions) != trees.form(self._tape[0]):
            raise CutOffError(f"actions are {trees.in_words(trees.form(acted.actions))}")
        for actions, known in zip(trees.leaves(acted.actions), trees.leaves(self._tape[0]), strict=True):
            expected = (self._about.batch_size, *known.shape[1:])
            if actions.shape[1:] != expected or actions.dtype != known.dtype:
                raise CutOffError(f"actions of {actions.dtype} and shape {actions.shape[1:]}, not {expected}")
        self._acted = acted.actions
        self._batches_acted = len(trees.leaves(acted.actions)[0])

    def add(self, first: int, env_ids: NDArray[np.integer]) -> None:
        """Add the ids of batches from ``first`` on, ``(batches, batch_size)``. What is known already may come again."""
        if self.in_order:
            if any(out_of_order(ids, self._about.num_envs) for ids in env_ids):
                raise FaultError(f"{OUT_OF_ORDER}: batch {first} is not")
            return
        if first > self._known:
            raise CutOffError(f"nothing says which environments are in batch {self._known}")
        if self._about.fewest_rows is not None and env_ids.shape[-1] < self._about.batch_size:
            missing = self._about.batch_size - env_ids.shape[-1]
            env_ids = np.pad(env_ids.astype(np.int64), ((0, 0), (0, missing)), constant_values=NO_ROW)
        if env_ids.ndim != 2 or env_ids.shape[1] != self._about.batch_size:  # noqa: PLR2004 - batches and rows
            raise FaultError(f"a batch of {env_ids.shape[-1]} rows, where {self._about.batch_size} are reported")
        news = env_ids[self._known - first :]
        if not len(news):
            return
        self._check(news)
        self.blocks.append((self._known, news))
        self._known += len(news)

    def _check(self, env_ids: NDArray[np.integer]) -> None:
        least = 0 if self._about.fewest_rows is None else NO_ROW
        if env_ids.min() < least or env_ids.max() >= self._about.num_envs:
            raise FaultError(f"env_ids that are not in 0..{self._about.num_envs - 1}")
        ascending = np.sort(env_ids, axis=1)
        twice = ascending[:, 1:][(ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] != NO_ROW)]
        if twice.size:
            raise FaultError(f"the same row twice in a batch: environment {twice[0]}")

    def action(self, number: int, place: int) -> ArrayTree:
        """Return the action that answered row ``place`` of batch ``number``."""
        if self._acted is not None:
            if number >= self._batches_acted:
                raise CutOffError(f"nothing says which actions answered batch {number}")
            chosen: ArrayTree = trees.part(self._acted, (number, place))
            return chosen
        action: ArrayTree = trees.part(self._tape[(self.tape_at + number) % len(self._tape)], place)
        return action
