"""Compares a recording with the reference, row by row, up to the first difference that nothing excuses.

The judge is not in the process that steps the backend, and takes nothing from there but the records. A reference steps
one environment at a time, so that it can follow a backend that returns rows in any order: the comparison is always of
environment i after its k-th step.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import ActionSpace, Difference, Engine, OwnClasses
from vebench.child.actions import action_tape
from vebench.child.answers import Mismatch, Proof
from vebench.child.equality.compare import Comparer
from vebench.child.equality.following import MOST_EXCUSED, FaultError, Followed, History
from vebench.child.equality.recording import About, Acted, Began, CutOffError, Order, Rows
from vebench.child.equality.reference import Reference, Row, Shared, alike, digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpaceTree, ArrayTree, Task
    from vebench.child.answers import WorkVerdict
    from vebench.child.equality.recording import Record
    from vebench.child.equality.reference import Known

MOST_SHARE = 0.2  # of all rows that declared differences may excuse. More could hide any other fault.


class Judge:
    """Follows the environments of a recording, and finds the first row that differs."""

    def __init__(
        self,
        task: Task,
        *,
        most_share: float = MOST_SHARE,
        of_steps: bool = False,
        known: Known | None = None,
        spare: list[Reference] | None = None,
    ) -> None:
        """Begin with an empty recording.

        Parameters
        ----------
        task
            The task of the reference.
        most_share
            The share of all compared rows that declared differences may excuse.
        of_steps
            Apply the limit to all steps rather than to compared rows, which are a biased sample.
        known
            Reference steps shared with other recordings that start from the same seed.
        spare
            Idle references, which are used before others are made.
        """
        self.task = task
        self.mismatch: Mismatch | None = None
        self.followed: dict[int, Followed] = {}  # since the last reset, by environment
        self.seeds: list[int] = []  # of the resets
        self.batch = -1  # the last since the last reset
        self._known = known
        self._references: list[Reference] = [] if known is None else known.used
        self._spare: list[Reference] = [] if spare is None else spare
        # By environment: state that survives a reset of the backend's environment survives in its reference, too.
        self._own: dict[int, Reference] = {}
        self._history: History | None = None
        self._tape: list[ArrayTree] = []
        self._about: About | None = None
        self._declared: tuple[Difference, ...] = ()
        self._most_share, self._of_steps = most_share, of_steps
        self._comparer = Comparer()
        self._rows = 0  # compared
        self._ends = 0  # of episodes in these rows
        self._cut_off = 0  # of these ends, by a limit
        self._excused = 0  # rows for which a difference was declared
        self._fewest_ends = 0  # of one environment
        self._allowed: dict[str, None] = {}  # declared differences that occurred
        self._first_excused: Mismatch | None = None
        self._claim: int | None = None  # frames in each step, None if they are not counted
        self._claimed = 0  # frames
        self._simulated: int | None = None  # frames

    @property
    def about(self) -> About:
        """The first record. Raises CutOffError if there was none."""
        if self._about is None:
            raise CutOffError("the recording does not begin with the backend's description of itself")
        return self._about

    @property
    def now(self) -> History:
        """The history since the last reset. Raises CutOffError if there was none."""
        if self._history is None:
            raise CutOffError("rows come before the first reset")
        return self._history

    def take(self, record: Record) -> None:
        """Judge one record. Raises FaultError for a broken interface, CutOffError for a damaged recording."""
        if isinstance(record, Rows):
            self._compare(record)
        elif isinstance(record, Order):
            self.now.add(record.first, record.env_ids)
        elif isinstance(record, Acted):
            self.now.act(record)
        elif isinstance(record, Began):
            self._count_ends()
            self._history = History(self.about, record, self._tape)
            self.seeds.append(record.seed)
            self.batch = -1
            self.followed.clear()
        elif isinstance(record, About):
            self._about = record
            self._declared = tuple(Difference(*each) for each in record.differences)
            self._claim = None if SUITES[self.task.suite].frames is None else record.frame_skip
            self._spare += [] if self._spare else [self.reference()]
            space = _declared_space(record, self.task, self._spare[0].actions)
            self._tape = action_tape(space, record.tape_seed, record.batch_size)
        elif record.fault:
            raise FaultError(record.fault)

    def leave(self) -> None:
        """Follow no environment any more, so that others can use the references."""
        self._spare += self._own.values()
        self._own.clear()
        self.followed.clear()

    def reference(self) -> Reference:
        """Make a reference."""
        self._references.append(Reference(self.task, 0, same_step=self.about.autoreset == "same_step"))
        return self._references[-1]

    def _following(self, env_id: int) -> Reference | Shared:
        if self._known is not None and self.now.seed == self.seeds[0]:
            return Shared(self._known, self.reference)
        if env_id not in self._own:
            if self._spare:
                self._own[env_id] = self._spare.pop()
                self._references.append(self._own[env_id])
            else:
                self._own[env_id] = self.reference()
        return self._own[env_id]

    def _count_ends(self) -> None:
        """Count the ends of the environment with the fewest, in the history with the most."""
        fewest = min((followed.ends for followed in self.followed.values()), default=0)
        self._fewest_ends = max(self._fewest_ends, fewest)

    def _compare(self, rows: Rows) -> None:
        """Compare a batch, up to its first row that differs. All its rows are kept for the name of the fault."""
        self.batch = rows.number
        self.now.add(rows.number, rows.env_ids[None])
        places = {int(index): place for place, index in enumerate(rows.shown)}
        for index, env_id in enumerate(rows.env_ids.tolist()):
            shown = index in places
            if not shown and (self.mismatch is None or env_id != self.mismatch.env_id):
                continue
            if env_id not in self.followed:
                self.followed[env_id] = Followed(env_id, self._following(env_id), self.now)
            followed = self.followed[env_id]
            expected = followed.go_to(rows.number, self.now, self._claim)
            seen: Any = trees.part(rows.observations, places[index]) if shown else None
            flags = float(rows.rewards[index]), bool(rows.terminated[index]), bool(rows.truncated[index])
            found = Row(digest(seen) if shown else expected.observation, *flags)
            followed.keep(found)
            if self.mismatch is not None:
                continue
            self._rows += 1
            self._ends += expected.ended
            self._cut_off += expected.truncated
            if not alike(expected, found):
                self.mismatch = self._difference(followed, Row(seen, *flags))
            self.mismatch = self.mismatch or self._miscount(followed, rows)

    def _difference(self, followed: Followed, found: Row) -> Mismatch | None:
        """Return where a row differs from the reference's, None if it is equal or excused."""
        expected = followed.reference.row
        gaps = list(self._comparer.gaps(expected.in_pairs(found)))
        for gap in gaps:
            field, _, leaf = gap.field.partition("/")
            mismatch = Mismatch(followed.env_id, followed.step, field, gap.expected, gap.found, gap.size, leaf)
            # No declaration excuses a different end, because steps are counted by ends.
            hidden = field in ("terminated", "truncated") and expected.ended != found.ended
            excuse = None if hidden else _excuse(self._declared, field, expected, followed.fresh_for)
            if excuse is None:
                return mismatch
            self._first_excused = self._first_excused or mismatch
            self._allowed[excuse] = None
        self._excused += bool(gaps)
        return None

    def _miscount(self, followed: Followed, rows: Rows) -> Mismatch | None:
        """Count frames and ends. Returns a mismatch, None if they are as claimed.

        Its field is ``frames`` if the backend has simulated another number of frames than it claims, which is its frame
        skip in each step. It is ``claimed frames`` if the claim is not the number of the reference, and ``ends`` for
        another number of ends since the reset. A step that ends an episode may take fewer frames. Not every suite's
        simulator counts frames.
        """

        def miscount(step: int, field: str, expected: int, found: int) -> Mismatch:
            return Mismatch(followed.env_id, step, field, str(expected), str(found), abs(found - expected))

        claim, env_id = self._claim, followed.env_id
        if claim is not None and len(rows.frames) and rows.frames[env_id] >= 0:  # below 0: not known now
            steps, followed.steps_since = followed.steps_since, 0
            now, before = int(rows.frames[env_id]), followed.frames_at
            followed.frames_at = now
            if before is not None and steps:
                most, made = claim * steps, now - before
                self._claimed += most
                self._simulated = (self._simulated or 0) + max(0, made)
                least = most - (claim - 1 if followed.expected[-1].ended else 0)
                if not least <= made <= most:
                    return miscount(followed.step, "frames", most, made)
        if claim is not None and followed.miscounted is not None:
            step, made = followed.miscounted
            return miscount(step, "claimed frames", made, claim)
        if len(rows.ends) and int(rows.ends[env_id]) != followed.ends:
            return miscount(followed.step, "ends", followed.ends, int(rows.ends[env_id]))
        return None

    def proof(self) -> Proof:
        """Return the result so far, without the name of the fault."""
        if self._about is None:
            return Proof("unverified")
        self._count_ends()
        mismatch = self.mismatch
        fault: str | None = None
        excused, of = self._applied() if self._of_steps else (self._excused, self._rows)
        verdict: WorkVerdict = "equivalent" if self._allowed else "equal" if self._comparer.casts else "identical"
        if mismatch is not None:
            verdict = "different"
        elif excused > self._most_share * of:
            verdict, mismatch = "different", self._first_excused
            fault = too_many_excused(excused / of, self._most_share)
        own, counted = self._about.own_classes, self._simulated is not None
        return Proof(
            verdict,
            self._rows,
            self._ends,
            tuple(self._allowed),
            mismatch,
            fault,
            engines=tuple(Engine(**engine) for engine in self._about.engines),
            own_classes=None if own is None else OwnClasses(**own),
            simulated=self._simulated,
            claimed=self._claimed if counted else None,
            frames_from=self._about.frames_from if counted else None,
            fewest_ends=self._fewest_ends,
            cut_off=self._cut_off,
            excused=self._excused,
            invalid=next((reference.invalid for reference in self._references if reference.invalid), None),
        )

    def _applied(self) -> tuple[int, int]:
        """Return to how many steps the differences that occurred apply, and the number of all steps.

        The first start and the first end of each environment are left out, since little may follow.
        """
        ages: Counter[int] = Counter()  # steps by the rows since the first of their episode
        for followed in self.followed.values():
            ages.update(followed.ages)
            ages.subtract(range(min(MOST_EXCUSED, followed.step)))
        ages = +ages
        seen = [each for each in self._declared if each.text in self._allowed]
        first = max((min(each.count, MOST_EXCUSED) for each in seen if each.rows == "start"), default=0)
        count = sum(ages[age] for age in range(first))
        if any(each.rows == "end" for each in seen):
            count += sum(max(0, followed.ends - 1) for followed in self.followed.values())
        return count, max(1, sum(ages.values()))

    def unrepeatable(self) -> str | None:
        """Return why the reference does not give the same rows again, None if it does, as on all tasks of vebench."""
        if SUITES[self.task.suite].ours or self.mismatch is None:
            return None
        return self.followed[self.mismatch.env_id].unrepeatable(self.now, self.reference)


def _declared_space(about: About, task: Task, actions: ActionSpaceTree) -> ActionSpaceTree:
    """Return the space of actions that the backend reports. Raises FaultError if it is not the task's.

    A measurement draws actions from the reported space, and its frames/s are steps/s times the reported frame skip. For
    suites whose simulators count frames, the frame skip is compared with that count instead.
    """
    bounds = [about.action_dtype], [about.low], [about.high]
    if about.action_form is not None:
        bounds = about.action_dtype, about.low, about.high
    spaces = [ActionSpace(np.asarray(low, of), np.asarray(high, of)) for of, low, high in zip(*bounds, strict=True)]
    own: ActionSpaceTree = trees.filled(about.action_form, spaces)
    if trees.form(own) != trees.form(actions):
        words = (trees.in_words(trees.form(space)) for space in (own, actions))
        raise FaultError(f"the action space is not the task's: {', not '.join(words)}")
    for (name, one), other in zip(trees.named_leaves(own), trees.leaves(actions), strict=True):
        if one.integer != other.integer or not (_one_bound(one.low, other.low) and _one_bound(one.high, other.high)):
            differ = f"bounds, shape or type differ{f' ({name})' if name else ''}"
            raise FaultError(f"the action space is not the task's: {differ}")
    if SUITES[task.suite].frames is None and about.frame_skip != task.frame_skip:
        raise FaultError(f"claims {about.frame_skip} frames per step instead of {task.frame_skip}")
    return own


def _one_bound(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    kind = np.int64 if np.issubdtype(one.dtype, np.integer) else np.float32
    return one.shape == other.shape and bool(np.array_equal(one.astype(kind), other.astype(kind)))


def too_many_excused(share: float, most: float) -> str:
    """Return the fault of declared differences that apply to this share of all rows, where ``most`` is allowed."""
    return f"declared differences affect {share:.0%} of all rows; at most {most:.0%} are allowed"


def _excuse(declared: tuple[Difference, ...], field: str, expected: Row, since_reset: int) -> str | None:
    """Return the declared difference that excuses this field of this row, if any: never one of every row."""
    for difference in declared:
        at_start = difference.rows == "start" and since_reset < min(difference.count, MOST_EXCUSED)
        if difference.field == field and (at_start or (difference.rows == "end" and expected.ended)):
            return difference.text
    return None
