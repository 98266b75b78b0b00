"""Compares episodes instead of rows, for implementations that draw their starts by themselves.

``judged`` compares the recordings of a backend and of the reference, which have other seeds and actions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import eq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.interface import BackendInfo, Task
from vebench.child.actions import action_tape
from vebench.child.answers import Proof, WorkVerdict
from vebench.child.equality.judge import History, check_claims
from vebench.child.equality.recording import About, Acted, Began, BrokenInterfaceError, Rows, read_records

_FEWEST = 20  # ended episodes of each side that are enough to compare
_LEVEL = 0.05  # the level of significance, for all tests together
_LEVEL_OF_BACKENDS = 0.001  # Verdicts on backends are kept, and the tests are often repeated, so few may be false.
_TESTS = 4
_POWER = 1.645  # 95 % of runs detect a difference this many standard errors above the threshold of significance.
_SHUFFLES = 3_999
_FLOOR = 1e-4  # Smaller differences, in standard deviations of an outcome, may be rounding errors.
_FEW = 20  # A number with at most this many values has a column for each value.
_MOST_SEEN = 200  # larger observations are left out

# A row of an environment: whether it is a reset's; the action, the observation; reward and flags.
Row = tuple[bool, list[float], list[float], tuple[float, bool, bool]]
# The first observation; for each step, the observation before it, the action, the observation after it, reward, flags.
Episode = tuple[list[float], list[list[float]]]


class _Played:
    """The rows of a recording, by the numbers of the reset and of the environment."""

    info: BackendInfo

    def __init__(self, path: str) -> None:
        self.rows: dict[tuple[int, int], list[Row]] = {}
        resets = 0
        for record in read_records(path):
            if isinstance(record, About):
                self.info = info = record.info
                tape = action_tape(info.action_space, record.tape_seed, info.batch_size)
            elif isinstance(record, Began):
                history, resets = History(info, record, tape, range(info.num_envs)), resets + 1
            elif isinstance(record, Acted):
                history.acted.extend(record.batches)
            elif isinstance(record, Rows):
                history.add(record.number, record.env_ids[None])
                for place, index in enumerate(record.shown.tolist()):
                    env_id = int(record.env_ids[index])
                    rows = self.rows.setdefault((resets, env_id), [])
                    of_reset = not rows or (any(rows[-1][-1][1:]) and info.autoreset == "next_step")
                    action = [] if of_reset else numbers(trees.leaves(history.action(env_id, len(rows) - 1)))
                    seen = numbers(trees.leaves(trees.part(record.observations, place)))
                    flags = float(record.rewards[index]), bool(record.terminated[index]), bool(record.truncated[index])
                    rows.append((of_reset, action, seen, flags))

    def starts(self, reset: int) -> list[str]:
        """Return the first observation of each environment after a reset."""
        return [str(rows[0][2]) for (number, _), rows in self.rows.items() if number == reset]


def judged(path: str, reference: str, task: Task, chance: str) -> Proof:
    """Return the proof of a backend whose rows differ from the reference's by ``chance``, from both recordings."""
    try:
        theirs, ours = _Played(path), _Played(reference)
        if not (theirs.starts(1) and ours.starts(1)):
            return Proof("unverified")
        check_claims(theirs.info, task, ours.info.action_space)
    except BrokenInterfaceError as error:
        return Proof("different", fault=str(error))
    sizes = [len(next(iter(side.rows.values()))[0][2]) for side in (theirs, ours)]
    if sizes[0] != sizes[1]:
        return Proof("unverified", reason=f"{chance}; an observation has {sizes[0]} numbers instead of {sizes[1]}")
    # Both sides count up to the same step.
    shared = {key: min(len(rows), len(ours.rows[key])) for key, rows in theirs.rows.items() if key in ours.rows}
    both = [[side.rows[key][:most] for key, most in shared.items()] for side in (theirs, ours)]
    same_step = theirs.info.autoreset == "same_step"  # Then no last observation is shown.
    one = episodes(chain.from_iterable(both[0]), finals=not same_step, same_step=same_step)
    other = episodes(chain.from_iterable(both[1]), finals=not same_step)
    verdict, apart, why = compared(one, other, _LEVEL_OF_BACKENDS)
    fault = f"other {' and '.join(apart)}" if apart else None
    if all(len({*theirs.starts(n)}) == 1 < len({*ours.starts(n)}) == len(ours.starts(n)) for n, _ in shared):
        verdict = "different"
        fault = "its environments share a seed: all start alike, but copies with these seeds do not"
    flags = [[row[-1] for row in rows] for rows in both[0]]
    ends = [sum(terminated or truncated for _, terminated, truncated in each) for each in flags]
    return Proof(
        verdict,
        sum(shared.values()),
        sum(ends),
        fault=fault,
        reason=f"{chance}; {why}",
        engines=theirs.info.engines,
        own_classes=theirs.info.own_classes,
        fewest_ends=min(count for (reset, _), count in zip(shared, ends, strict=True) if reset == 1),
        cut_off=sum(truncated for each in flags for _, _, truncated in each),
    )


def numbers(arrays: Iterable[Any]) -> list[float]:
    """Return the numbers in all arrays of an observation or action, none if there are more than ``_MOST_SEEN``."""
    found = [number for array in arrays for number in np.asarray(array).ravel().tolist()]
    return found if len(found) <= _MOST_SEEN else []


def episodes(rows: Iterable[Row], *, finals: bool, same_step: bool = False) -> list[Episode]:
    """Return the episodes in the rows of one environment after another, each from a reset on.

    Without ``finals``, the last step of an episode repeats the step before it, except for its own reward and flags.
    With ``same_step``, a row that ends an episode has the first observation of the next one.
    """
    found: list[Episode] = []
    before: list[float] = []
    for of_reset, action, seen, flags in rows:
        ended = any(flags[1:])
        if not of_reset:
            steps = found[-1][1]
            step = [*before, *action, *seen]
            if ended and not finals:
                step = steps[-1][:-3] if steps else [*before, *action, *before]
            steps.append([*step, *flags])
        if of_reset or (ended and same_step):
            found.append((seen, []))
        before = seen
    return found


def complete(side: Iterable[Episode]) -> list[list[list[float]]]:
    """Return the steps of each episode that has ended."""
    return [steps for _, steps in side if steps and any(steps[-1][-2:])]


def compared(
    one: Sequence[Episode], other: Sequence[Episode], level: float = _LEVEL
) -> tuple[WorkVerdict, list[str], str]:
    """Return the verdict on two sides, the tests in which their episodes differ significantly, and the reason.

    Returns and lengths have a Kolmogorov-Smirnov test each. Starts and steps have a permutation test each. P-values are
    Bonferroni-corrected. The reason also says which differences 95 % of runs would detect.
    """
    whole = [complete(side) for side in (one, other)]
    if (fewest := min(map(len, whole))) < _FEWEST:
        return "unverified", [], f"only {fewest} episodes ended: use more --steps"
    returns = ([sum(step[-3] for step in steps) for steps in side] for side in whole)
    lengths = ([len(steps) for steps in side] for side in whole)
    # The least significant distance plus _POWER standard errors. At one point, a standard error is at most spread / 2.
    spread = math.sqrt(sum(1 / len(side) for side in whole))
    far = (math.sqrt(-0.5 * math.log(level / _TESTS / 2)) + _POWER / 2) * spread
    taken = [each for each in (*one, *other) if each[1]]
    labels = np.repeat([1.0, 0.0], [sum(bool(steps) for _, steps in side) for side in (one, other)])
    starts = _predictors(np.array([start for start, _ in taken], np.float64))
    # Environments of both sides may begin each episode as the one before (brax). Such a start is one sample.
    begun = [[tuple(start) for start, steps in side if steps] for side in (one, other)]
    repeats = all(2 * sum(map(eq, side, side[1:])) > len(side) and len({*side}) > 1 for side in begun)
    first = np.arange(len(taken))
    if repeats:
        first = np.unique(np.column_stack((starts, labels)), axis=0, return_index=True)[1]
    steps, shift = _steps_apart([steps for _, steps in taken], labels, len(taken[0][0]), level)
    chances = {
        "returns": _smirnov(*returns),
        "lengths": _smirnov(*lengths),
        "starts": _shuffled(starts[first], labels[first], level)[0],
        "steps": steps,
    }
    tests = {name: min(1.0, _TESTS * chance) for name, chance in chances.items()}
    words = ", ".join(f"{name} p = {chance:.3f}" for name, chance in tests.items())
    shows = f"a distance of {far:.2f} between returns, and steps with outcomes {shift:.2g} standard deviations off"
    why = f"{len(one):,} and {len(other):,} episodes: {words}; 95 % of runs would detect {shows}"
    apart = [name for name, chance in tests.items() if chance <= level]
    return "different" if apart else "same distribution", apart, why


def _smirnov(one: Iterable[float], other: Iterable[float]) -> float:
    """Return the p-value of a two-sample Kolmogorov-Smirnov test, by Stephens' approximation."""
    first, second = np.sort(np.array([*one], np.float64)), np.sort(np.array([*other], np.float64))
    both = np.concatenate([first, second])
    shares = [np.searchsorted(each, both, side="right") / len(each) for each in (first, second)]
    root = math.sqrt(len(first) * len(second) / len(both))
    far = (root + 0.12 + 0.11 / root) * float(np.abs(shares[0] - shares[1]).max())
    if far < 0.2:  # noqa: PLR2004 - the series converges slowly, and its sum is 1
        return 1.0
    return min(1.0, sum(2 * (-1.0) ** (k - 1) * math.exp(-2 * (k * far) ** 2) for k in range(1, 101)))


def _steps_apart(
    episodes: Sequence[list[list[float]]], labels: NDArray[Any], width: int, level: float
) -> tuple[float, float]:
    """Return the p-value of step outcomes, and the shift that 95 % of runs detect, in an outcome's standard deviations.

    One regression for both sides predicts outcomes. An episode's scores are sums of residuals times predictors.
    """
    every = 1 + sum(map(len, episodes)) // 20_000  # use each step, or one in ``every``, so at most about 20,000
    kept = [np.array(each[number % every % len(each) :: every]) for number, each in enumerate(episodes)]
    table = np.nan_to_num(np.concatenate(kept))
    places = np.cumsum([len(each) for each in kept])[:-1]
    outcomes = table[:, -width - 3 :]
    outcomes[:, :width] -= table[:, :width]  # The change is easier to predict than the observation.
    outcomes = (outcomes - outcomes.mean(0)) / np.maximum(outcomes.std(0), _FLOOR)
    inputs = _predictors(table[:, : -width - 3])
    left = outcomes - inputs @ np.linalg.lstsq(inputs, outcomes, rcond=None)[0]
    left = np.sign(left) * np.maximum(np.abs(left) - _FLOOR, 0)
    pairs = zip(np.split(inputs, places), np.split(left, places), strict=True)
    scores = np.array([np.append(given.T @ rest, (rest**2).sum(0)) for given, rest in pairs])
    chance, least = _shuffled(scores, labels, level)
    least += _POWER * math.sqrt(1 / labels.sum() + 1 / (1 - labels).sum())
    return chance, _FLOOR + least * float(scores[:, : left.shape[1]].std(0).max()) * len(kept) / len(table)


def _predictors(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the columns of the regression: a constant, the numbers, and products of two columns.

    A number with few values has an indicator column for each value but the first.
    """
    columns = [np.ones(len(numbers))]
    for number in numbers.T:
        values = np.unique(number)
        if 2 < len(values) <= _FEW and numbers.shape[1] <= _FEW:  # noqa: PLR2004 - a line fits two values
            columns += [number == value for value in values[1:]]
        elif len(values) > 1:
            columns.append((number - number.mean()) / number.std())
    all_pairs = len(columns) <= 24  # noqa: PLR2004 - with more, only squares
    pairs = [(i, j) for i in range(len(columns)) for j in range(i, len(columns)) if i in (0, j) or all_pairs]
    return np.stack([columns[i] * columns[j] for i, j in pairs], 1)


def _shuffled(scores: NDArray[Any], labels: NDArray[Any], level: float) -> tuple[float, float]:
    """Return the p-value of the largest difference of the groups' means, and the threshold, by a permutation test.

    Differences are in standard deviations of each column.
    """
    spread = scores.std(0)
    scores = (scores - scores.mean(0))[:, spread > _FLOOR] / spread[spread > _FLOOR]
    if not scores.size:
        return 1.0, 0.0
    rng = np.random.default_rng(0)
    groups = np.array([labels, *(rng.permutation(labels) for _ in range(_SHUFFLES))])
    weights = groups / labels.sum() - (1 - groups) / (1 - labels).sum()
    largest = np.abs(weights @ scores).max(1)
    return float(np.mean(largest >= largest[0])), float(np.quantile(largest, 1 - level / _TESTS))
