"""The rows of a backend around the first that differs, and how they would be if something were otherwise.

Hypotheses on its fault (``faults.py``, ``casts.py``, ``again.py``) ask this.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from vebench.backends import trees
from vebench.child.proof.reference import Reference
from vebench.child.proof.rows import DIGEST, Row, alike, digested

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from vebench.backends.interface import ArrayTree, Task
    from vebench.child.answers import Mismatch
    from vebench.child.proof.bench import Bench
    from vebench.child.proof.followed import Followed
    from vebench.child.proof.recording import Record

SINCE_RESET = 16  # a fault of the first rows of an episode is one of no more than these


class Rerun(NamedTuple):
    """What the backend is to be stepped with once more, and until when, by ``time.monotonic``."""

    seed: int
    tape_at: int
    tape_seed: int
    until: float


class Again(Protocol):
    """How the backend is stepped once more."""

    def __call__(self, rerun: Rerun) -> Iterator[Record]:
        """Return what it returns."""


class SteppedAgain(NamedTuple):
    """The rows of the environment when the backend is stepped again, and the batch and place of each."""

    rows: list[Row]
    places: list[tuple[int, int]]
    is_long: bool  # whether it goes as far as to the row that differs


class TimeUpError(Exception):
    """The search has taken long enough."""


@dataclass(frozen=True)
class Case:
    """The backend's rows around the first that differs, and what is needed to compute them in other ways.

    With ``leaf``, rows are seen as if they showed nothing but the array of that name.
    """

    bench: Bench
    mismatch: Mismatch
    again: Again | None
    until: float
    look: Callable[[int], None] = lambda _: None  # takes the rows of more steps after the first that differs
    kept: list[Reference] = field(default_factory=list)  # references of the task that are not in use
    reruns: dict[tuple[int, int, int], SteppedAgain] = field(default_factory=dict)  # by seeds, and which of these
    leaf: str = ""

    @property
    def of_leaf(self) -> Case:
        """The same, seen by the leaf that differs alone; itself where observations are one array, or of other forms."""
        return replace(self, leaf=self.mismatch.leaf) if self.mismatch.leaf else self

    @property
    def rows(self) -> tuple[Row, Row] | None:
        """The reference's row and the backend's, the first that differ, with whole observations."""
        if self.bench.rows is None or not self.leaf:
            return self.bench.rows
        expected, found = self.bench.rows
        return self._of_leaf(expected), self._of_leaf(found)

    def _of_leaf(self, row: Row) -> Row:
        return row._replace(observation=trees.leaf_of(row.observation, self.leaf))

    def digested(self, row: Row) -> Row:
        """Return a row of this case with the digest of its observation."""
        return digested(row, self.leaf)

    def _seen(self, row: Row | None) -> Row | None:
        """Return a digested row as it is seen: of all leaves, or of one."""
        if row is None or not self.leaf:
            return row
        first = DIGEST * self._names.index(self.leaf)
        return row._replace(observation=row.observation[first : first + DIGEST])

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in trees.named_leaves(self.followed.reference.spaces.observations)]

    @property
    def differs_in_leaf_alone(self) -> bool:
        """Whether nothing but one leaf of observations differs, wherever rows were recorded."""
        if not self.mismatch.leaf:
            return False
        others = [replace(self, leaf=name) for name in self._names if name != self.mismatch.leaf]
        pairs = [pair for other in others for pair in both(other, self.later)]
        return all(sees(*pair) for pair in pairs)

    @property
    def task(self) -> Task:
        """The task."""
        return self.bench.task

    @property
    def env_id(self) -> int:
        """The environment whose row differs."""
        return self.mismatch.env_id

    @property
    def step(self) -> int:
        """The step of that row."""
        return self.mismatch.step

    @property
    def followed(self) -> Followed:
        """That environment."""
        return self.bench.followed[self.env_id]

    @property
    def seed(self) -> int:
        """The seed of the last reset."""
        return self.bench.seeds[-1]

    @property
    def same_step(self) -> bool:
        """Whether the backend reports that the row of an end shows the next episode."""
        return self.bench.about.autoreset == "same_step"

    def expected(self, step: int, env_id: int | None = None) -> Row | None:
        """Return the reference's row of a step, None if it is not known any more, or not yet."""
        followed = self.bench.followed.get(self.env_id if env_id is None else env_id)
        return None if followed is None else self._seen(followed.expected_at(step))

    def found(self, step: int, env_id: int | None = None) -> Row | None:
        """Return the backend's row of a step, None if it was not recorded."""
        followed = self.bench.followed.get(self.env_id if env_id is None else env_id)
        return None if followed is None else self._seen(followed.found.get(step))

    @property
    def in_later_reset(self) -> bool:
        """Whether the backend was reset before the reset whose rows differ."""
        return len(self.bench.seeds) > 1

    @property
    def begins_otherwise(self) -> bool:
        """Whether it is the observation of a reset that differs."""
        found, expected = self.found(0), self.expected(0)
        return self.step == 0 and found is not None and expected is not None and not sees(found, expected)

    @property
    def later(self) -> list[int]:
        """The recorded steps from the first row that differs on."""
        return sorted(step for step in self.followed.found if step >= self.step)

    @property
    def earlier(self) -> list[int]:
        """The recorded steps before it."""
        return sorted(step for step in self.followed.found if step < self.step)

    @property
    def actions(self) -> list[ArrayTree]:
        """The actions that the environment got."""
        return list(self.followed.actions(self.bench.now))

    def stepped(  # noqa: PLR0913 - the ways in which another reference may differ
        self,
        actions: Iterable[ArrayTree],
        *,
        task: Task | None = None,
        seed: int | None = None,
        variant: Mapping[str, int] | None = None,
        other_autoreset: bool = False,
        runs_on_at: int = -1,
        resets_at: int = -1,
    ) -> Generator[Row]:
        """Yield the rows of the environment as another reference gives them, from its reset on, digested.

        At the step ``runs_on_at`` it goes on where an episode is over, at ``resets_at`` it is reset where it is not.
        Raises TimeUpError.
        """
        rows = self.made(
            actions,
            task=task,
            seed=seed,
            variant=variant,
            other_autoreset=other_autoreset,
            runs_on_at=runs_on_at,
            resets_at=resets_at,
        )
        with closing(rows):
            for row in rows:
                yield self.digested(row)

    def made(  # noqa: PLR0913 - likewise
        self,
        actions: Iterable[ArrayTree],
        *,
        task: Task | None = None,
        seed: int | None = None,
        variant: Mapping[str, int] | None = None,
        other_autoreset: bool = False,
        runs_on_at: int = -1,
        resets_at: int = -1,
    ) -> Generator[Row]:
        """Yield the same, not digested."""
        shown: Callable[[Row], Row] = self._of_leaf if self.leaf else lambda row: row
        ordinary = task is None and variant is None
        reference = (
            self.kept.pop()
            if ordinary and self.kept
            else Reference(task or self.task, self.env_id, None, variant or {})
        )
        reference.stand_for(self.env_id, same_step=self.same_step != other_autoreset)
        try:
            row = reference.reset(self.seed if seed is None else seed)
            yield shown(reference.begin_anew() if resets_at == 0 else row)
            for step, action in enumerate(actions, 1):
                self.check_time()
                if step == resets_at:
                    yield shown(reference.begin_anew())
                else:
                    yield shown(reference.step_on(action) if step == runs_on_at else reference.step(action))
        finally:
            if ordinary:
                self.kept.append(reference)
            else:
                reference.close()

    def check_time(self) -> None:
        """Raise TimeUpError if the search has taken long enough."""
        if time.monotonic() > self.until:
            raise TimeUpError

    def explained_by(self, rows: Iterable[Row]) -> bool:
        """Return whether these rows, from the reset on, are the backend's wherever it was recorded."""
        seen = False
        for step, row in enumerate(rows):
            found = self.found(step)
            if found is not None and not alike(row, found):
                return False
            seen = seen or step == self.step
        return seen

    @property
    def differs_in_sight_alone(self) -> bool:
        """Whether nothing but observations differs, as far as was recorded."""
        return all(found[1:] == expected[1:] for found, expected in both(self, self.later))

    @property
    def begins_late(self) -> bool:
        """Whether rows before the first that counts were the reference's; a difference there may be excused."""
        pairs = list(both(self, self.earlier))
        return bool(pairs) and all(alike(*pair) for pair in pairs)

    def returned(self, step: int) -> float:
        """Return the sum of the reference's rewards of an episode up to a step, as far as they are known."""
        total = 0.0
        age = self.bench.age(self.env_id, step)
        for at in range(step - (age or 0), step + 1):
            row = self.expected(at)
            total += row.reward if row is not None else 0.0
        return total

    def late(self, text: str) -> str:
        """Return the fault with the step from which on it is there."""
        return f"from step {self.step} on {text}" if self.step else f"after a later reset {text}"


def where(case: Case, differ: list[int]) -> str:
    """Return in which rows something differs, empty if it does in all."""
    if len(differ) == len(case.later):
        return ""
    if all((row := case.expected(step)) is not None and row.ended for step in differ):
        return " in the rows of ends"
    ages = [case.bench.age(case.env_id, step) for step in differ]
    oldest = max((SINCE_RESET if age is None else age) for age in ages)
    if oldest < SINCE_RESET and len(case.later) - len(differ) > 1:
        return " in the first row of an episode" if not oldest else f" in the first {oldest + 1} rows of an episode"
    return f" in {len(differ)} of {len(case.later)} rows from step {case.step} on"


def both(case: Case, steps: Iterable[int]) -> Iterator[tuple[Row, Row]]:
    """Yield the backend's and the reference's row of each step for which both are known."""
    for step in steps:
        found, expected = case.found(step), case.expected(step)
        if found is not None and expected is not None:
            yield found, expected


def near(one: float, other: float) -> bool:
    """Return whether two rewards are the same but for rounding."""
    return bool(np.isclose(one, other, rtol=1e-6, atol=1e-12, equal_nan=True))


def sees(one: Row, other: Row) -> bool:
    """Return whether two rows show the same observation."""
    return bool(np.array_equal(one.observation, other.observation))
