"""Names the fault of a backend: known faults are tried, and each predicts the backend's rows from the reference's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf

import numpy as np

from vebench.child.equality.judge import BrokenBackendError, Followed, Judge, Row, alike
from vebench.child.equality.recording import Began, CutOffError, Ended, Record

# Returns an environment's row of a step as the fault makes it, None if what it is made from is not known.
Predict = Callable[[Followed, int], Row | None]

# A name must explain the row that differs, _AFTER steps after it if these take less than LOOK_ON_S, and up to
# _MOST_AFTER steps if these take less than _QUICK_S.
_AFTER, LOOK_ON_S = 24, 10.0
_MOST_AFTER, _QUICK_S = 2000, 0.5
# Known faults by name: each makes the backend's row from the reference's row and the row of the step before.
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
# Names of faults of counts, by the field of the mismatch.
_MISCOUNTED = {
    "frames": "simulates {found} frames but claims {expected}",
    "claimed frames": "claims {found} frames in a step where the reference simulates {expected}",
    "ends": "reports {found} ends of episodes instead of {expected}",
}


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
    with suppress(CutOffError, BrokenBackendError):  # the rows that are there have to do
        while time.monotonic() < began + (LOOK_ON_S if followed.step < step + _AFTER else _QUICK_S):
            record = next(records, None)
            if record is None or isinstance(record, (Began, Ended)) or followed.step > step + _MOST_AFTER:
                break
            judge.take(record)
    others = {env_id: _since(each) for env_id, each in judge.followed.items() if each is not followed}
    always, later = list[str](), list[str]()  # names that explain the rows before, too, and names that do not
    for name, (of_all, predict) in _predictions(judge, followed, step).items():
        if not _explains(predict, followed, step):
            continue
        if of_all and not all(
            _explains(predict, judge.followed[one], step if at is None else at) for one, at in others.items()
        ):
            if any(at is not None for at in others.values()):
                continue
            name = f"in environment {followed.env_id} {name}"  # noqa: PLW2901 - the others' rows are right
        (always if _explains(predict, followed, 0, step) else later).append(name)
    if always or later:
        return " or ".join(always) or f"from step {step} on {' or '.join(later)}"
    return f"wrong since a later reset, with seed {judge.seeds[-1]}" if step == 0 and len(judge.seeds) > 1 else None


def _since(of: Followed) -> int | None:
    """Return the first step in which a row differs from the reference's, None if none does."""
    rows = ((at, row, of.expected_at(at)) for at, row in of.found.items())
    return next((at for at, row, expected in rows if expected is not None and not _is(expected, row, expected)), None)


def _explains(predict: Predict, of: Followed, since: int, until: float = inf) -> bool:
    """Return whether the rows of these steps are as predicted, as far as the reference's are kept."""
    for at, row in of.found.items():
        expected, predicted = of.expected_at(at), predict(of, at)
        if expected is None or predicted is None or not since <= at < until:
            continue
        if not _is(predicted, row, expected):
            return False
    return True


def _predictions(judge: Judge, followed: Followed, step: int) -> dict[str, tuple[bool, Predict]]:
    """Return the faults that may explain a difference in ``step``, by name, and whether each is of all environments."""

    def altered(change: Callable[[Row, Row], Row]) -> Predict:
        def predict(of: Followed, at: int) -> Row | None:
            now = of.expected_at(at)
            return None if now is None else change(now, of.expected_at(at - 1) or now)

        return predict

    def frozen(of: Followed, at: int) -> Row | None:
        now = of.expected_at(at)
        return None if now is None else now._replace(observation=shown.get(of.env_id, now.observation))

    first, expected = followed.found[step], followed.expected_at(step)
    later = [row for at in followed.found if at >= step and (row := followed.expected_at(at)) is not None]
    found = {env_id: each.found[step].observation for env_id, each in judge.followed.items() if step in each.found}
    shown = {env_id: observation for env_id, observation in found.items() if observation}
    changes = dict(_ALTERED)
    if expected is not None and len(later) > 1:  # one row alone would always agree
        gap, factor = first.reward - expected.reward, first.reward / (expected.reward or np.nan)
        changes[f"rewards are off by {gap:.6g}"] = lambda now, _: now._replace(reward=now.reward + gap)
        if factor:  # otherwise they are 0
            changes[f"rewards are multiplied by {factor:.6g}"] = lambda now, _: now._replace(reward=now.reward * factor)
    predictions = {name: (True, altered(change)) for name, change in changes.items()}
    if len({row.observation for row in later}) > 1:
        predictions["observations never change"] = True, frozen
    rows = ((other, other.expected_at(step)) for other in judge.followed.values() if other is not followed)
    others = (_of_another(other, row, followed, shown) for other, row in rows if row is not None)
    return {**predictions, **dict(others)}


def _of_another(
    other: Followed, row: Row, followed: Followed, shown: dict[int, bytes]
) -> tuple[str, tuple[bool, Predict]]:
    """Return the fault that an environment, or each, returns the observations of another one."""

    def predict(of: Followed, at: int) -> Row | None:
        now = other.expected_at(at)
        return None if now is None else of.found[at]._replace(observation=now.observation)

    if len(shown) > 1 and all(each == row.observation for each in shown.values()):
        return f"every environment returns row {other.env_id}", (True, predict)
    return f"environment {followed.env_id} returns the rows of environment {other.env_id}", (False, predict)


def _is(predicted: Row, found: Row, expected: Row) -> bool:
    """Return whether a digested row is as predicted, but for a rounding of rewards that hides no difference."""
    seen = predicted.observation if found.observation else b""  # not every row shows its observation
    if not alike(predicted._replace(reward=found.reward, observation=seen), found):
        return False
    most = 0.01 * abs(found.reward - expected.reward)
    near = np.isclose(predicted.reward, found.reward, 1e-7, most if np.isfinite(most) else 0.0, equal_nan=True)
    return bool(near)
