"""Names the fault of a backend whose rows differ from the reference's.

Each known fault predicts the rows that the backend returns. A name is given if its prediction holds for every recorded
row, from the first that differs on. Other faults have no name: that row says what was expected, and what was found.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.suites import SUITES
from vebench.child.proof.following import FaultError
from vebench.child.proof.reference import Reference, Row, alike, digested
from vebench.child.record.recording import Began, CutOffError, Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from vebench.backends.interface import ArrayTree, Task
    from vebench.child.answers import Mismatch
    from vebench.child.proof.judge import Judge
    from vebench.child.record.recording import Record

NAMING_S = 10.0  # how long a name is sought
_AFTER = 24  # steps after the first row that differs that a name has to explain, too
_FRAME_SKIPS = range(1, 9)
_SEED_BITS = (16, 8)

# What a fault makes of the reference's row, given the row of the step before.
_ALTERED: dict[str, Callable[[Row, Row], Row]] = {
    "observations are one step stale": lambda now, before: now._replace(observation=before.observation),
    "whole rows are one step late": lambda _now, before: before,
    "rewards are one step stale": lambda now, before: now._replace(reward=before.reward),
    "rewards are always 0": lambda now, _: now._replace(reward=0.0),
    "rewards are clipped to their signs": lambda now, _: now._replace(reward=float(np.sign(now.reward))),
    "rewards are clipped to [-1, 1]": lambda now, _: now._replace(reward=float(np.clip(now.reward, -1, 1))),
    "rewards are rounded to float16": lambda now, _: now._replace(reward=float(np.float16(now.reward))),
    "an end is not reported": lambda now, _: now._replace(terminated=False, truncated=False),
    "terminated and truncated are confused": lambda now, _: now._replace(
        terminated=now.truncated, truncated=now.terminated
    ),
}
# What differs where all rows agree, by the field of the mismatch.
_MISCOUNTED = {
    "frames": "simulates {found} frames of {expected} claimed",
    "claimed frames": "claims {found} frames in a step where the reference simulates {expected}",
    "ends": "reports {found} ends where there were {expected}",
}


class TimeUpError(Exception):
    """The search has taken long enough."""


def name_fault(judge: Judge, records: Iterator[Record]) -> str | None:
    """Return the name of the known fault that explains the backend's rows, None if none does.

    Where several explain them, all are named. ``records`` are those that follow. The search ends after ``NAMING_S``.
    """
    if judge.mismatch is None:
        return None
    until = time.monotonic() + NAMING_S
    _look_on(judge, records, judge.mismatch, until)
    case = Case(judge, judge.mismatch, until)
    if case.mismatch.field in _MISCOUNTED:
        return _MISCOUNTED[case.mismatch.field].format(found=case.mismatch.found, expected=case.mismatch.expected)
    altered = [(name, predict) for name, predict in _altered(case) if case.explained(predict)]
    if names := [name for name, predict in altered if case.held_before(predict)]:
        return " or ".join(names)
    if altered:
        return f"from step {case.step} on {' or '.join(name for name, _ in altered)}"
    try:
        if name := next((name for name, rows in _stepped_otherwise(case) if case.explained_by(rows)), None):
            return name
    except TimeUpError:
        pass
    except Exception as error:  # noqa: BLE001 - an environment may not bear what a fault would do to it
        print(f"no name was found: {type(error).__name__}: {error}")  # noqa: T201 - for the log
    is_later_reset = case.step == 0 and len(judge.seeds) > 1
    return "a later reset does not begin as its seed says" if is_later_reset else None


def _look_on(judge: Judge, records: Iterator[Record], mismatch: Mismatch, until: float) -> None:
    """Let the judge take the ``_AFTER`` steps that follow a difference, but none of another history."""
    try:
        while judge.followed[mismatch.env_id].step < mismatch.step + _AFTER and time.monotonic() < until:
            record = next(records, None)
            if record is None or isinstance(record, (Began, Ended)):
                return
            judge.take(record)
    except (CutOffError, FaultError):
        pass  # what is there has to do


class Case:
    """The rows of the environment whose row differs, digested: the reference's (``expected``) and the backend's."""

    def __init__(self, judge: Judge, mismatch: Mismatch, until: float) -> None:
        self.judge, self.mismatch = judge, mismatch
        self.env_id, self.step = mismatch.env_id, mismatch.step
        self.found = judge.followed[self.env_id].found
        self.actions: list[ArrayTree] = list(judge.followed[self.env_id].actions(judge.now))
        self._until = until

    def expected(self, step: int, env_id: int | None = None) -> Row | None:
        """Return the reference's row of a step, None if it is not known any more, or not yet."""
        followed = self.judge.followed.get(self.env_id if env_id is None else env_id)
        return None if followed is None else followed.expected_at(step)

    def explained(self, predict: Callable[[int], Row | None]) -> bool:
        """Return whether a prediction holds for all recorded rows from the first that differs on."""
        return all(_is(predict(step), found) for step, found in self.found.items() if step >= self.step)

    def held_before(self, predict: Callable[[int], Row | None]) -> bool:
        """Return whether a prediction also holds for the recorded rows before, as far as it says anything of them."""
        before = [(predict(step), found) for step, found in self.found.items() if step < self.step]
        return all(_is(row, found) for row, found in before if row is not None)

    def explained_by(self, rows: Iterable[Row]) -> bool:
        """Return whether these rows, from the reset on, are the backend's wherever it was recorded."""
        seen = False
        for step, row in enumerate(rows):
            if time.monotonic() > self._until:
                raise TimeUpError
            if step in self.found and not _is(digested(row), self.found[step]):
                return False
            seen = seen or step == self.step
        return seen

    def stepped(  # noqa: PLR0913 - the ways in which a reference may do otherwise
        self,
        actions: Iterable[ArrayTree],
        *,
        task: Task | None = None,
        seed: int | None = None,
        variant: Mapping[str, int] | None = None,
        other_autoreset: bool = False,
        runs_on: bool = False,
    ) -> Iterator[Row]:
        """Yield the rows of another reference, from its reset on. With ``runs_on`` it is not reset at the mismatch."""
        ordinary = task is None and variant is None
        same_step = (self.judge.about.autoreset == "same_step") != other_autoreset
        if ordinary:
            reference = self.judge.references.take(self.env_id, same_step=same_step)
        else:
            reference = Reference(task or self.judge.task, self.env_id, None, variant or {}, same_step=same_step)
        try:
            yield reference.reset(self.judge.seeds[-1] if seed is None else seed)
            for step, action in enumerate(actions, 1):
                yield reference.step_on(action) if runs_on and step == self.step else reference.step(action)
        finally:
            if ordinary:
                self.judge.references.give_back(reference)
            else:
                reference.close()


def _altered(case: Case) -> Iterator[tuple[str, Callable[[int], Row | None]]]:
    """Yield the faults that change rows, each with its prediction of the row of a step."""
    for name, change in _ALTERED.items():

        def changed(step: int, change: Callable[[Row, Row], Row] = change) -> Row | None:
            now, before = case.expected(step), case.expected(step - 1)
            return None if now is None else change(now, before or now)

        yield name, changed
    first, expected = case.found[case.step], case.expected(case.step)
    if expected is not None and sum(step >= case.step for step in case.found) > 1:
        gap, by = first.reward - expected.reward, first.reward / (expected.reward or np.nan)
        yield f"rewards are off by {gap:.6g}", lambda step: _with_reward(case.expected(step), gap, 1.0)
        yield f"rewards are multiplied by {by:.6g}", lambda step: _with_reward(case.expected(step), 0.0, by)
        if _moves(case):
            yield "observations stand still", lambda step: _seeing(case.expected(step), first)
    for other in case.judge.followed:
        if other != case.env_id:
            name = _shown_as(case, other)
            yield name, lambda step, other=other: _seeing(case.found[step], case.expected(step, other))  # type: ignore[misc]


def _with_reward(row: Row | None, gap: float, factor: float) -> Row | None:
    """Return a row with its reward times a factor, plus a gap."""
    return None if row is None else row._replace(reward=row.reward * factor + gap)


def _seeing(row: Row | None, other: Row | None) -> Row | None:
    """Return a row with another row's observation."""
    return None if row is None or other is None else row._replace(observation=other.observation)


def _moves(case: Case) -> bool:
    """Return whether the reference's observations change where the backend's were recorded."""
    rows = [row for step in case.found if step >= case.step and (row := case.expected(step)) is not None]
    return any(not np.array_equal(rows[0].observation, row.observation) for row in rows)


def _shown_as(case: Case, other: int) -> str:
    """Return what the fault is called if the environment shows the rows of another one."""
    expected = case.expected(case.step, other)
    everywhere = [
        np.array_equal(followed.found[case.step].observation, expected.observation)
        for followed in case.judge.followed.values()
        if case.step in followed.found and expected is not None
    ]
    if len(everywhere) > 1 and all(everywhere):
        return f"row {other} stands for every environment"
    back, own = case.judge.followed[other].found.get(case.step), case.expected(case.step)
    if back is not None and own is not None and np.array_equal(back.observation, own.observation):
        return f"environments {case.env_id} and {other} are swapped"
    return f"environment {case.env_id} shows the rows of environment {other}"


def _stepped_otherwise(case: Case) -> Iterator[tuple[str, Iterator[Row]]]:
    """Yield the faults of backends that step otherwise, each with the rows that follow from it."""
    task, actions, since = case.judge.task, case.actions, max(0, case.step - 1)
    before = case.expected(case.step - 1)
    if before is not None and before.ended:
        yield "no reset after the end", case.stepped(actions[: case.step], runs_on=True)
    real, reported = (
        ("next_step", "same_step") if case.judge.about.autoreset == "same_step" else ("same_step", "next_step")
    )
    yield f"resets as {real}, but reports {reported}", case.stepped(actions, other_autoreset=True)
    if case.step == 0:
        for seed, name in _seeds(case).items():
            yield name, case.stepped((), seed=seed)
    for name, variant in case.judge.followed[case.env_id].reference.faulty_variants.items():
        yield name, case.stepped(actions, variant=variant)
    if actions and case.step:
        none = [trees.mapped(np.zeros_like, actions[0])] * len(actions)
        late = [none[0], *actions[:-1]]
        for name, instead in (("actions are ignored", none), ("actions are applied one step late", late)):
            yield name, case.stepped(instead)
            yield f"from step {case.step} on {name}", case.stepped([*actions[:since], *instead[since:]])
    if SUITES[task.suite].frames is not None and case.step:
        for frames in _FRAME_SKIPS:
            other = replace(task, frame_skip=frames)
            yield f"frame skip {frames} instead of {task.frame_skip}", case.stepped(actions, task=other)


def _seeds(case: Case) -> dict[int, str]:
    """Return other seeds that the reset may have taken, with the name of the fault."""
    seed, given = case.judge.seeds[-1], case.judge.about.constructor_seed
    ignored = "the reset ignores its seed: rows are those of seed"
    seeds = {
        ((seed + case.env_id) % (1 << bits)) - case.env_id: f"only {bits} bits of the seed count" for bits in _SEED_BITS
    }
    seeds |= {
        seed
        + other
        - case.env_id: f"environment {case.env_id} gets the seed of environment {other}, or ids are confused"
        for other in case.judge.followed
    }
    seeds |= {earlier: f"{ignored} {earlier}, an earlier reset's" for earlier in case.judge.seeds[:-1]}
    seeds[given] = f"{ignored} {given}, the constructor's"
    seeds.pop(seed, None)
    return seeds


def _is(predicted: Row | None, found: Row) -> bool:
    """Return whether a digested row is as predicted, but for the rounding of rewards."""
    if predicted is None:
        return False
    near = np.isclose(predicted.reward, found.reward, rtol=1e-6, atol=1e-12, equal_nan=True)
    return bool(near) and alike(predicted._replace(reward=found.reward), found)
