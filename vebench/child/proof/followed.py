"""One environment of a backend, and what the reference returns for it: stepped, or remembered from another backend."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vebench.backends import trees
from vebench.child.proof.recording import CutOffError
from vebench.child.proof.reference import Reference
from vebench.child.proof.rows import Row, digested

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.backends.interface import ActionSpaceTree, ArrayTree, Task
    from vebench.child.proof.history import History

# What a declared difference may excuse: rows after a reset. More could hide any other fault.
MOST_EXCUSED = 16
KEPT = 4096  # the last steps of each environment
MOST_REMEMBERED = 1 << 17  # some 60 MB


class Step(NamedTuple):
    """What a reference returned: the row with a digest of its observation, its frames, whether an episode begins."""

    row: Row
    frames: int | None
    fresh: bool


class References:
    """References of one task that nobody uses now and, with ``remembers``, what those in use have returned.

    A reference's row follows from the seed and the actions so far, wherever a task is repeatable. So backends that are
    asked for the same are compared with rows that were computed once.
    """

    def __init__(self, task: Task, *, remembers: bool = False) -> None:
        self.task = task
        self._spare: list[Reference] = []
        self._known: dict[bytes, Step] | None = {} if remembers else None
        self.invalid: str | None = None  # the first value that the environment's spaces do not allow

    @property
    def actions(self) -> ActionSpaceTree:
        """The space of one action."""
        self.make(1)
        return self._spare[0].actions

    def make(self, count: int) -> None:
        """See to it that so many can be had at once, since it takes time to make one."""
        self._spare += [Reference(self.task, env_id) for env_id in range(len(self._spare), count)]

    def take(self, env_id: int, *, same_step: bool) -> Reference:
        """Return a reference for an environment, which is not reset yet."""
        reference = self._spare.pop() if self._spare else Reference(self.task, env_id)
        reference.stand_for(env_id, same_step=same_step)
        return reference

    def give_back(self, reference: Reference) -> None:
        """Leave a reference to others."""
        self._spare.append(reference)

    def recall(self, key: bytes) -> Step | None:
        """Return what a reference returned after these actions, None if none was asked."""
        return None if self._known is None else self._known.get(key)

    def remember(self, key: bytes, step: Step) -> None:
        """Keep what a reference has returned."""
        if self._known is not None and len(self._known) < MOST_REMEMBERED:
            self._known[key] = step


class Followed:
    """One environment of the backend, and the reference that follows it.

    ``step``: steps since the reset, -1 before the row of the reset. ``fresh_for``: rows since the first of an episode.
    ``expected`` and ``found``: the last rows of both, digested; ``found`` by step.
    """

    def __init__(self, references: References, env_id: int, *, same_step: bool) -> None:
        self.env_id = env_id
        self._references = references
        self._same_step = same_step
        self._reference: Reference | None = None
        self._history: History | None = None
        self.end()

    def end(self) -> None:
        """Forget the history."""
        self.begun = self._is_here = False
        self.step = -1
        self.ends = self.fresh_for = 0
        self.frames_at: int | None = None  # the backend's count when it was last looked at in this episode
        self.steps_since = 0  # transitions since then
        self.ages: Counter[int] = Counter()  # steps by the rows since the first of their episode
        self.miscounted: tuple[int, int] | None = None  # a step, and the frames that the reference made in it
        self.expected: deque[Row] = deque(maxlen=KEPT)
        self.found: dict[int, Row] = {}
        self._frames: int | None = None  # of the reference, after its last row
        self._places = array("q")  # batch and place of each row
        self._coming: deque[tuple[int, int]] = deque()
        self._blocks = 0
        self._next = 0

    def begin(self, history: History) -> None:
        """Begin a history."""
        self.begun = True
        self._history = history
        dtypes = " ".join(leaf.dtype.str for leaf in trees.leaves(history.action(0, 0)))
        start = f"{self.env_id} {history.seed} {self._same_step} {dtypes}"
        self._key = blake2b(start.encode(), digest_size=16).digest()
        self._first = self._recalled() or self._asked()

    @property
    def reference(self) -> Reference:
        """The reference, after the last row. It is stepped up to there if its rows were remembered so far."""
        if self._reference is None:
            self._reference = self._references.take(self.env_id, same_step=self._same_step)
        if not self._is_here and self._history is not None:
            self._is_here = True
            self._reference.reset(self._history.seed)
            for action in self.actions(self._history):
                self._reference.step(action)
        return self._reference

    def give_back(self) -> None:
        """Leave the reference to others."""
        if self._reference is not None:
            self._references.give_back(self._reference)
        self._reference = None

    def actions(self, history: History, place: int | None = None) -> Iterator[ArrayTree]:
        """Yield the action of each step so far, or that of another row of the same batch."""
        for at in range(0, 2 * self.step, 2):
            yield history.action(self._places[at], self._places[at + 1] if place is None else place)

    def batch(self, step: int) -> int:
        """Return the number of the batch in which the row of a step was."""
        return self._places[2 * step]

    def place(self, step: int) -> int:
        """Return its place in that batch."""
        return self._places[2 * step + 1]

    def expected_at(self, step: int) -> Row | None:
        """Return the reference's row of a step, digested; None if it is not kept any more, or not there yet."""
        at = step - (self.step - len(self.expected) + 1)
        return self.expected[at] if 0 <= at < len(self.expected) else None

    def go_to(self, number: int, history: History, claim: int | None) -> Row:
        """Go as far as the environment is in batch ``number``, and return the reference's row there, digested.

        ``claim``: the frames that the backend claims to simulate in each step, None if nobody counts them.
        """
        for at, place in self._rows_up_to(number, history):
            if self.step >= 0:
                made = self._stepped(history.action(self._places[-2], self._places[-1]))
                self._count(made, claim)
            else:
                made = self._first
            self._places.extend((at, place))
            self.step += 1
            self._frames = made.frames
            self.expected.append(made.row)
        if not self._places or self._places[-2] != number:
            raise CutOffError(f"environment {self.env_id} is not in batch {number}")
        return self.expected[-1]

    def _stepped(self, action: ArrayTree) -> Step:
        """Return what the reference returns for the next action."""
        given = b"".join(leaf.tobytes() for leaf in trees.leaves(action))
        self._key = blake2b(self._key + given, digest_size=16).digest()
        known = self._recalled()
        if known is None:
            self.reference.step(action)
        return known or self._asked()

    def _recalled(self) -> Step | None:
        return None if self._is_here else self._references.recall(self._key)

    def _asked(self) -> Step:
        """Return what the reference has returned."""
        reference = self.reference
        self._references.invalid = self._references.invalid or reference.invalid
        made = Step(digested(reference.rows[-1]), reference.frames, reference.fresh)
        self._references.remember(self._key, made)
        return made

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

    def _count(self, made: Step, claim: int | None) -> None:
        self.ends += made.row.ended
        self.fresh_for += 1
        if made.fresh:
            self.fresh_for, self.frames_at, self.steps_since = 0, None, 0
        self.ages[min(self.fresh_for, MOST_EXCUSED)] += 1
        if made.fresh:
            return
        self.steps_since += 1
        if claim is None or made.frames is None or self._frames is None or self.miscounted is not None:
            return
        count = made.frames - self._frames
        if not (1 if made.row.ended else claim) <= count <= claim:
            self.miscounted = self.step + 1, count

    def keep(self, found: Row) -> None:
        """Keep a row of the backend's, digested."""
        self.found[self.step] = found
        self.found.pop(self.step - KEPT, None)
