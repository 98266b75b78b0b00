"""Follows the environments of a backend through a recording: which actions they got, and what the reference returns."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING

import numpy as np

from vebench.backends import trees
from vebench.child.equality.recording import NO_ROW, OUT_OF_ORDER, CutOffError, out_of_order
from vebench.child.equality.reference import SURVIVES, alike, not_repeatable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree
    from vebench.child.equality.recording import About, Acted, Began
    from vebench.child.equality.reference import Reference, Row, Shared

MOST_EXCUSED = 16  # rows after a reset that a declared difference may excuse. More could hide any other fault.
_KEPT = 4096  # the last steps of each environment


class FaultError(Exception):
    """The recording shows that the backend breaks the interface. The text says how."""


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
        """Use these actions in place of the tape."""
        self._acted = acted.actions
        self._batches_acted = len(trees.leaves(acted.actions)[0])

    def add(self, first: int, env_ids: NDArray[np.integer]) -> None:
        """Add the ids of batches from ``first`` on, ``(batches, batch_size)``. Known batches may come again."""
        if self.in_order:
            if any(out_of_order(ids, self._about.num_envs) for ids in env_ids):
                raise FaultError(f"{OUT_OF_ORDER}: batch {first} is not")
            return
        if first > self._known:
            raise CutOffError(f"the environments of batch {self._known} were not recorded")
        if self._about.fewest_rows is not None and env_ids.shape[-1] < self._about.batch_size:
            missing = self._about.batch_size - env_ids.shape[-1]
            env_ids = np.pad(env_ids.astype(np.int64), ((0, 0), (0, missing)), constant_values=NO_ROW)
        if env_ids.ndim != 2 or env_ids.shape[1] != self._about.batch_size:  # noqa: PLR2004 - batches and rows
            raise FaultError(f"a batch of {env_ids.shape[-1]} rows instead of {self._about.batch_size}")
        news = env_ids[self._known - first :]
        if not len(news):
            return
        least = 0 if self._about.fewest_rows is None else NO_ROW
        if news.min() < least or news.max() >= self._about.num_envs:
            raise FaultError(f"env_ids outside 0..{self._about.num_envs - 1}")
        ascending = np.sort(news, axis=1)
        twice = ascending[:, 1:][(ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] != NO_ROW)]
        if twice.size:
            raise FaultError(f"the same row twice in a batch: environment {twice[0]}")
        self.blocks.append((self._known, news))
        self._known += len(news)

    def action(self, number: int, place: int) -> ArrayTree:
        """Return the action that answered row ``place`` of batch ``number``."""
        if self._acted is not None:
            if number >= self._batches_acted:
                raise CutOffError(f"the actions for batch {number} were not recorded")
            chosen: ArrayTree = trees.part(self._acted, (number, place))
            return chosen
        action: ArrayTree = trees.part(self._tape[(self.tape_at + number) % len(self._tape)], place)
        return action


class Followed:
    """One environment of the backend since the last reset, and the reference that follows it."""

    def __init__(self, env_id: int, reference: Reference | Shared, history: History) -> None:
        self.env_id = env_id
        self.reference = reference
        self.step = -1  # since the reset; -1 before the row of the reset
        self.ends = 0
        self.fresh_for = 0  # rows since the first of an episode
        self.frames_at: int | None = None  # the backend's count when it was last looked at in this episode
        self.steps_since = 0  # transitions since then
        self.ages: Counter[int] = Counter()  # steps by the rows since the first of their episode
        self.miscounted: tuple[int, int] | None = None  # a step, and the frames that the reference made in it
        self.expected: deque[Row] = deque(maxlen=_KEPT)  # the last rows of the reference, digested
        self.found: dict[int, Row] = {}  # the last rows of the backend, digested, by step
        self._frames: int | None = None  # of the reference, after its last row
        self._places = array("q")  # batch and place of each row
        self._coming: deque[tuple[int, int]] = deque()
        self._blocks = 0
        self._next = 0
        reference.reset(history.seed, env_id)

    def unrepeatable(self, history: History, make: Callable[[], Reference]) -> str | None:
        """Return why new references do not give the same rows for the same actions, None if they do."""

        def rows(count: int) -> deque[Row]:
            made = [make() for _ in range(count)]
            for place, reference in enumerate(made):
                reference.reset(history.seed, self.env_id + place)
            found = deque([made[0].last], _KEPT)
            for at in range(0, 2 * self.step, 2):
                action = history.action(self._places[at], self._places[at + 1])
                for reference in made[::-1]:
                    reference.step(action)
                found.append(made[0].last)
            for reference in made:
                reference.close()
            return found

        # Environments that draw from a generator of their process depend on other environments.
        with_another = rows(2)
        if all(map(alike, self.expected, with_another)):
            return None
        return SURVIVES if all(map(alike, with_another, rows(1))) else not_repeatable()

    def expected_at(self, step: int) -> Row | None:
        """Return the reference's digested row of a step, None if it is not kept any more, or not there yet."""
        at = step - (self.step - len(self.expected) + 1)
        return self.expected[at] if 0 <= at < len(self.expected) else None

    def go_to(self, number: int, history: History, claim: int | None) -> Row:
        """Go as far as the environment is in batch ``number``, and return the reference's row there, digested.

        ``claim``: the frames that the backend claims to simulate in each step, None if not counted.
        """
        for at, place in self._rows_up_to(number, history):
            if self.step >= 0:
                self.reference.step(history.action(self._places[-2], self._places[-1]))
            self.expected.append(self.reference.last)
            if self.step >= 0:
                self._count(claim)
            self._places.extend((at, place))
            self.step += 1
            self._frames = self.reference.frames
        if not self._places or self._places[-2] != number:
            raise CutOffError(f"environment {self.env_id} is not in batch {number}")
        return self.expected[-1]

    def _rows_up_to(self, number: int, history: History) -> Iterator[tuple[int, int]]:
        if history.in_order:
            for at in range(self._next, number + 1):
                yield at, self.env_id
            self._next = number + 1
            return
        for first, env_ids in history.blocks[self._blocks :]:
            self._coming.extend((first + int(at), int(place)) for at, place in np.argwhere(env_ids == self.env_id))
        self._blocks = len(history.blocks)
        while self._coming and self._coming[0][0] <= number:
            yield self._coming.popleft()

    def _count(self, claim: int | None) -> None:
        ended = self.expected[-1].ended
        self.ends += ended
        self.fresh_for += 1
        if self.reference.fresh:
            self.fresh_for, self.frames_at, self.steps_since = 0, None, 0
        self.ages[min(self.fresh_for, MOST_EXCUSED)] += 1
        if self.reference.fresh:
            return
        self.steps_since += 1
        frames = self.reference.frames
        if claim is None or frames is None or self._frames is None or self.miscounted is not None:
            return
        count = frames - self._frames
        if not (1 if ended else claim) <= count <= claim:
            self.miscounted = self.step + 1, count

    def keep(self, found: Row) -> None:
        """Keep a row of the backend's, digested."""
        self.found[self.step] = found
        self.found.pop(self.step - _KEPT, None)
