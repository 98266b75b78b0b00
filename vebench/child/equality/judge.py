"""Judges what a backend returned: computes it anew with the reference, finds where they first differ, and names why.

The judge is not in the process that steps the backend, and takes nothing from there but the records. The reference
steps one environment at a time, with the for-loop's own code, so that it can follow a backend that returns rows in any
order: the comparison is always of environment i after its k-th step.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import ActionSpace, Difference, Engine, OwnClasses
from vebench.child.actions import action_tape
from vebench.child.answers import Mismatch, Proof
from vebench.child.equality import reference
from vebench.child.equality.compare import Comparer
from vebench.child.equality.recording import About, Acted, Began, CutOffError, Ended, Order, Rows
from vebench.child.equality.reference import MOST_EXCUSED, FaultError, Followed, History, Reference, Row, alike, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpaceTree, ArrayTree, Task
    from vebench.child.answers import WorkVerdict
    from vebench.child.equality.recording import Record

    _Predict = Callable[[Followed, int], Row | None]

MOST_SHARE = 0.2  # of all rows that declared differences may excuse. More could hide any other fault.
# Steps after the first row that differs which a name must explain, too, and how long they may take; if quick, more.
_AFTER, LOOK_ON_S = 24, 10.0
_MOST_AFTER, _QUICK_S = 2000, 0.5
# Names of faults, each with what it makes of the reference's row, given the row of the step before.
_ALTERED: dict[str, Callable[[Row, Row], Row]] = {
    "observations are one step stale": lambda now, before: now._replace(observation=before.observation),
    "whole rows are one step late": lambda _now, before: before,
    "rewards are one step stale": lambda now, before: now._replace(reward=before.reward),
    "rewards are always 0": lambda now, _: now._replace(reward=0.0),
    "rewards are clipped to their signs": lambda now, _: now._replace(reward=float(np.sign(now.reward))),
    "rewards are clipped to [-1, 1]": lambda now, _: now._replace(reward=float(np.clip(now.reward, -1, 1))),
    "rewards are rounded to float16": lambda now, _: now._replace(reward=float(np.float16(now.reward))),
    "an end is not reported": lambda now, _: now._replace(terminated=False, truncated=False),
    "terminated and truncated are swapped": lambda now, _: now._replace(
        terminated=now.truncated, truncated=now.terminated
    ),
}
# What differs where all rows agree, by the field of the mismatch.
_MISCOUNTED = {
    "frames": "simulates {found} frames but claims {expected}",
    "claimed frames": "claims {found} frames in a step where the reference simulates {expected}",
    "ends": "reports {found} ends of episodes instead of {expected}",
}


class Judge:
    """What is known of a recording so far: the environments since the last reset, and the first row that differs.

    Declared differences may excuse ``most_share`` of the rows that are compared; ``of_steps``: they may apply to this
    share of all steps instead, since rows that are recorded are not drawn evenly. What follows a reset with the first
    seed is ``known`` where others have had it. ``spare`` references are used before others are made.
    """

    def __init__(
        self,
        task: Task,
        *,
        most_share: float = MOST_SHARE,
        of_steps: bool = False,
        known: reference.Known | None = None,
        spare: list[Reference] | None = None,
    ) -> None:
        self.task = task
        self.mismatch: Mismatch | None = None
        self.followed: dict[int, Followed] = {}
        self.seeds: list[int] = []  # of the resets
        self.batch = -1  # the last since then
        self._known = known
        self._references: list[Reference] = [] if known is None else known.used
        self._spare: list[Reference] = [] if spare is None else spare  # it takes time to make one
        self._own: dict[int, Reference] = {}  # by environment: what a reset leaves of its state is the backend's, too
        self._history: History | None = None
        self._tape: list[ArrayTree] = []
        self._about: About | None = None
        self._declared: tuple[Difference, ...] = ()
        self._most_share, self._of_steps = most_share, of_steps
        # Of the rows that were compared, and the frames that were counted.
        self._rows = self._ends = self._cut_off = self._excused = self._fewest_ends = 0
        self._comparer = Comparer()
        self._allowed: dict[str, None] = {}
        self._first_excused: Mismatch | None = None
        self._claim: int | None = None  # frames in each step, None if they are not counted
        self._simulated: int | None = None
        self._claimed = 0

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
        """Judge one record. Raises FaultError for what breaks the interface, CutOffError for what is no recording."""
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
            self._spare += [] if self._spare else [self._reference()]
            space = _declared_space(record, self.task, self._spare[0].actions)
            self._tape = action_tape(space, record.tape_seed, record.batch_size)
        elif record.fault:
            raise FaultError(record.fault)

    def leave(self) -> None:
        """Follow no environment any more: the references are spare."""
        self._spare += self._own.values()
        self._own.clear()
        self.followed.clear()

    def _reference(self) -> Reference:
        self._references.append(Reference(self.task, 0, same_step=self.about.autoreset == "same_step"))
        return self._references[-1]

    def _following(self, env_id: int) -> Reference | reference.Shared:
        if self._known is not None and self.now.seed == self.seeds[0]:
            return reference.Shared(self._known, self._reference)
        if env_id not in self._own:
            if self._spare:
                self._own[env_id] = self._spare.pop()
                self._references.append(self._own[env_id])
            else:
                self._own[env_id] = self._reference()
        return self._own[env_id]

    def _count_ends(self) -> None:
        """Remember how often each environment has ended at least, in the history in which that is most."""
        fewest = min((followed.ends for followed in self.followed.values()), default=0)
        self._fewest_ends = max(self._fewest_ends, fewest)

    def _compare(self, rows: Rows) -> None:
        """Compare a batch, up to its first row that differs; all its rows are kept for the fault's name."""
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
            found = Row(
                digest(trees.part(rows.observations, places[index])) if shown else expected.observation,
                float(rows.rewards[index]),
                bool(rows.terminated[index]),
                bool(rows.truncated[index]),
            )
            followed.keep(found)
            if self.mismatch is not None:
                continue
            self._rows += 1
            self._ends += expected.ended
            self._cut_off += expected.truncated
            if not alike(expected, found):
                seen = found._replace(observation=trees.part(rows.observations, places[index]))
                self.mismatch = self._difference(followed, seen)
            self.mismatch = self.mismatch or self._miscount(followed, rows)

    def _difference(self, followed: Followed, found: Row) -> Mismatch | None:
        """Return where a row differs from the reference's, None if it is equal or excused."""
        expected = followed.reference.row
        gaps = list(self._comparer.gaps(expected.beside(found)))
        for gap in gaps:
            field, _, leaf = gap.field.partition("/")
            mismatch = Mismatch(followed.env_id, followed.step, field, gap.expected, gap.found, gap.size, leaf)
            # No declaration excuses a different end, because steps are counted by ends.
            hidden = mismatch.field in ("terminated", "truncated") and expected.ended != found.ended
            excuse = None if hidden else _excuse(self._declared, mismatch.field, expected, followed.fresh_for)
            if excuse is None:
                return mismatch
            self._first_excused = self._first_excused or mismatch
            self._allowed[excuse] = None
        self._excused += bool(gaps)
        return None

    def _miscount(self, followed: Followed, rows: Rows) -> Mismatch | None:
        """Count the frames since the last look. Returns a mismatch, None if frames and ends are as claimed.

        The mismatch's field is ``frames`` if the backend has not simulated as many frames as it claims, which is its
        frame skip in each step. It is ``claimed frames`` if it claims another number than the reference has simulated.
        A step that ends an episode may take fewer frames. Not every suite's simulator counts. It is ``ends`` if the
        environment has reported another number of ends since the reset.
        """

        def miscount(step: int, field: str, expected: int, found: int) -> Mismatch:
            return Mismatch(followed.env_id, step, field, str(expected), str(found), abs(found - expected))

        claim = self._claim
        if claim is not None and len(rows.frames) and rows.frames[followed.env_id] >= 0:  # below 0: not known now
            steps, followed.steps_since = followed.steps_since, 0
            now, before = int(rows.frames[followed.env_id]), followed.frames_at
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
        if len(rows.ends) and int(rows.ends[followed.env_id]) != followed.ends:
            return miscount(followed.step, "ends", followed.ends, int(rows.ends[followed.env_id]))
        return None

    def proof(self) -> Proof:
        """Return the result so far, without the fault's name."""
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
        """Return to how many steps the differences that occurred apply, and how many steps there were.

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
        """Return why the reference does not give the same rows again, None if it does, as on all tasks of vebench's."""
        if SUITES[self.task.suite].ours or self.mismatch is None:
            return None
        return self.followed[self.mismatch.env_id].unrepeatable(self.now, self._reference)


def _declared_space(about: About, task: Task, actions: ActionSpaceTree) -> ActionSpaceTree:
    """Return the space of actions that the backend reports, which is the task's. Raises FaultError if it is not.

    A measurement draws actions from the reported space, and its frames/s are steps/s times the reported frame skip. For
    suites whose simulators count frames, the frame skip is not checked here but compared with what they count.
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
    """Return which declared difference excuses this field of this row, if any: not one that is of every row."""
    for difference in declared:
        at_start = difference.rows == "start" and since_reset < min(difference.count, MOST_EXCUSED)
        if difference.field == field and (at_start or (difference.rows == "end" and expected.ended)):
            return difference.text
    return None


def name_fault(judge: Judge, records: Iterator[Record]) -> str | None:
    """Return the names of the known faults that predict the backend's rows, None if none does.

    ``records`` are those after the row that differs. A prediction must hold for every row from there on, of all
    environments unless the name has one; if not for those before, the name says from which step on it does.
    """
    mismatch = judge.mismatch
    if mismatch is None:
        return None
    if mismatch.field in _MISCOUNTED:
        return _MISCOUNTED[mismatch.field].format(found=mismatch.found, expected=mismatch.expected)
    followed, step = judge.followed[mismatch.env_id], mismatch.step
    began = time.monotonic()
    with suppress(CutOffError, FaultError):  # the rows that are there have to do
        while time.monotonic() < began + (LOOK_ON_S if followed.step < step + _AFTER else _QUICK_S):
            record = next(records, None)
            if record is None or isinstance(record, (Began, Ended)) or followed.step > step + _MOST_AFTER:
                break
            judge.take(record)
    others = [(each, _since(each)) for each in judge.followed.values() if each is not followed]
    right = all(since is None for _, since in others)
    names: dict[bool, list[str]] = {True: [], False: []}  # by whether they explain the rows before, too
    for name, (of_all, predict) in _predictions(judge, followed, step).items():
        if not _explains(predict, followed, step):
            continue
        in_all = not of_all or all(_explains(predict, each, step if at is None else at) for each, at in others)
        if in_all or right:
            before = _explains(predict, followed, 0, step)
            names[before].append(name if in_all else f"in environment {followed.env_id} {name}")
    if names[True] or names[False]:
        return " or ".join(names[True]) or f"from step {step} on {' or '.join(names[False])}"
    return f"wrong since a later reset, with seed {judge.seeds[-1]}" if step == 0 and len(judge.seeds) > 1 else None


def _since(of: Followed) -> int | None:
    """Return the first step whose row is not the reference's, None if there is none."""
    rows = ((at, row, of.expected_at(at)) for at, row in of.found.items())
    return next((at for at, row, expected in rows if expected is not None and not _is(expected, row, expected)), None)


def _explains(predict: _Predict, of: Followed, since: int, until: float = np.inf) -> bool:
    """Return whether the rows of these steps are as predicted, as far as the reference's are kept."""
    for at, row in of.found.items():
        expected = of.expected_at(at)
        if since <= at < until and expected is not None and not _is(predict(of, at), row, expected):
            return False
    return True


def _predictions(judge: Judge, followed: Followed, step: int) -> dict[str, tuple[bool, _Predict]]:
    """Return the known faults that may explain a difference in ``step``.

    Each has its prediction of an environment's row in any step, and whether that is of all environments.
    """
    changes = dict(_ALTERED)
    first, expected = followed.found[step], followed.expected_at(step)
    later = [row for at in followed.found if at >= step and (row := followed.expected_at(at)) is not None]
    if expected is not None and len(later) > 1:  # one row alone would always agree
        gap, factor = first.reward - expected.reward, first.reward / (expected.reward or np.nan)
        changes[f"rewards are off by {gap:.6g}"] = lambda now, _: now._replace(reward=now.reward + gap)
        if factor:  # otherwise they are 0
            changes[f"rewards are multiplied by {factor:.6g}"] = lambda now, _: now._replace(reward=now.reward * factor)

    def altered(change: Callable[[Row, Row], Row], of: Followed, at: int) -> Row | None:
        now, before = of.expected_at(at), of.expected_at(at - 1)
        return None if now is None else change(now, before or now)

    def frozen(of: Followed, at: int) -> Row | None:
        now = of.expected_at(at)
        return None if now is None else now._replace(observation=shown.get(of.env_id, now.observation))

    def of_another(other: Followed, of: Followed, at: int) -> Row | None:
        row = other.expected_at(at)
        return None if row is None else of.found[at]._replace(observation=row.observation)

    shown = {each.env_id: each.found[step].observation for each in judge.followed.values() if step in each.found}
    predictions: dict[str, tuple[bool, _Predict]] = {
        name: (True, partial(altered, change)) for name, change in changes.items()
    }
    if len({row.observation for row in later}) > 1:  # same reason
        predictions["observations never change"] = True, frozen
    for other in judge.followed.values():
        row = other.expected_at(step)
        if other is followed:
            continue
        is_all = row is not None and len(shown) > 1 and all(each == row.observation for each in shown.values())
        one = f"environment {followed.env_id} returns the rows of environment {other.env_id}"
        name = f"every environment returns row {other.env_id}" if is_all else one
        predictions[name] = is_all, partial(of_another, other)
    return predictions


def _is(predicted: Row | None, found: Row, expected: Row) -> bool:
    """Return whether a digested row is as predicted, but for a rounding of rewards that hides no difference."""
    if predicted is None or not alike(predicted._replace(reward=found.reward), found):
        return False
    most = 0.01 * abs(found.reward - expected.reward)
    near = np.isclose(predicted.reward, found.reward, 1e-7, most if np.isfinite(most) else 0.0, equal_nan=True)
    return bool(near)
