"""Whether the episodes of two implementations come from the same distribution: ``--within distribution``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import ks_2samp

from vebench.child.equality.subject import RESET, array_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    # The observation at its start; for each step, the observation before, the action, the next one, reward and flags.
    Episode = tuple[list[float], list[list[float]]]

LEVEL = 0.05  # of all tests together
_TESTS = 4
_POWER = 1.645  # standard errors from a significant difference to one that 95 % of runs show
_SHUFFLES = 999
_FLOOR = 1e-4  # standard deviations of an outcome: less may be rounding
_FLAGS = 3  # reward, terminated and truncated at the end of a step's numbers
_MOST_STEPS, _FEW, _MOST_COLUMNS = 20_000, 20, 24


def episodes(answer: Mapping[str, Any], lanes: Sequence[Sequence[Any]], *, seen: bool) -> list[Episode]:
    """Return the episodes of environments that took the actions of ``lanes``; without observations if not ``seen``."""
    found: list[Episode] = []
    for rows, lane in zip(answer["rows"], lanes, strict=True):
        actions, before = iter(lane), list[float]()
        for _, kind, leaves, *flags, _, _ in rows:
            numbers = [number for _, *leaf in leaves or () if seen for number in array_of(leaf).ravel().tolist()]
            if kind == RESET:
                found.append((numbers, []))
            else:
                taken = [number for leaf in next(actions) for number in array_of(leaf).ravel().tolist()]
                found[-1][1].append([*before, *taken, *(numbers or before), *flags])  # the last one may be missing
            before = numbers
    return found


def distributions(one: Sequence[Episode], other: Sequence[Episode]) -> tuple[list[tuple[str, float]], str]:
    """Return p-values, each times the number of tests, and in words what would show in 95 % of runs.

    Returns and lengths are tested by Kolmogorov and Smirnov, starts and steps by shuffling episodes.
    """
    whole = [[steps for _, steps in side if steps and any(steps[-1][-2:])] for side in (one, other)]
    returns = ([sum(step[-3] for step in steps) for steps in side] for side in whole)
    lengths = ([len(steps) for steps in side] for side in whole)
    # The distance that is significant, and two standard errors of what is seen of it at one point.
    spread = math.sqrt(sum(1 / len(side) for side in whole))
    far = (math.sqrt(-0.5 * math.log(LEVEL / _TESTS / 2)) + _POWER / 2) * spread
    taken = [each for each in (*one, *other) if each[1]]
    labels = np.repeat([1.0, 0.0], [sum(bool(steps) for _, steps in side) for side in (one, other)])
    starts = _predictors(np.array([start for start, _ in taken], np.float64))
    steps, shift = _steps_apart([steps for _, steps in taken], labels, len(taken[0][0]))
    tests = {
        "returns": float(ks_2samp(*returns, method="asymp").pvalue),
        "lengths": float(ks_2samp(*lengths, method="asymp").pvalue),
        "starts": _shuffled(starts, labels)[0],
        "steps": steps,
    }
    words = f"a distance of {far:.2f} between returns, and steps with outcomes {shift:.2g} standard deviations off"
    return [(name, min(1.0, _TESTS * chance)) for name, chance in tests.items()], words


def _steps_apart(episodes: Sequence[list[list[float]]], labels: NDArray[Any], width: int) -> tuple[float, float]:
    """Return the p-value of step outcomes, and the shift of an outcome that 95 % of runs show, in standard deviations.

    One regression for both sides predicts outcomes from the observation, of ``width`` numbers, and the action. Its
    residuals are added up over each episode: times each predictor, and squared.
    """
    every = 1 + sum(map(len, episodes)) // _MOST_STEPS
    kept = [np.array(each[number % every % len(each) :: every]) for number, each in enumerate(episodes)]
    table = np.nan_to_num(np.concatenate(kept))
    places = np.cumsum([len(each) for each in kept])[:-1]
    outcomes = table[:, -width - _FLAGS :]
    outcomes[:, :width] -= table[:, :width]  # changes are predicted better than what is observed
    outcomes = (outcomes - outcomes.mean(0)) / np.maximum(outcomes.std(0), _FLOOR)
    inputs = _predictors(table[:, : -width - _FLAGS])
    left = outcomes - inputs @ np.linalg.lstsq(inputs, outcomes, rcond=None)[0]
    left = np.sign(left) * np.maximum(np.abs(left) - _FLOOR, 0)
    pairs = zip(np.split(inputs, places), np.split(left, places), strict=True)
    scores = np.array([np.append(given.T @ rest, (rest**2).sum(0)) for given, rest in pairs])
    chance, least = _shuffled(scores, labels)
    least += _POWER * math.sqrt(1 / labels.sum() + 1 / (1 - labels).sum())
    return chance, _FLOOR + least * float(scores[:, : left.shape[1]].std(0).max()) * len(kept) / len(table)


def _predictors(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return columns that predict: a constant, each number, or which of a few values it has, and products of two."""
    columns = [np.ones(len(numbers))]
    for number in numbers.T:
        values = np.unique(number)
        if 2 < len(values) <= _FEW and numbers.shape[1] <= _FEW:  # noqa: PLR2004 - of two values, both are a line
            columns += [number == value for value in values[1:]]
        elif len(values) > 1:
            columns.append((number - number.mean()) / number.std())
    all_pairs = len(columns) <= _MOST_COLUMNS
    pairs = [(i, j) for i in range(len(columns)) for j in range(i, len(columns)) if i in (0, j) or all_pairs]
    return np.stack([columns[i] * columns[j] for i, j in pairs], 1)


def _shuffled(scores: NDArray[Any], labels: NDArray[Any]) -> tuple[float, float]:
    """Return the p-value of the largest difference between the means of two groups, and which one is significant.

    Differences are in standard deviations of each column. Shuffled labels show what chance does: scores of episodes
    may have any distribution.
    """
    spread = scores.std(0)
    scores = (scores - scores.mean(0))[:, spread > _FLOOR] / spread[spread > _FLOOR]
    if not scores.size:
        return 1.0, 0.0
    rng = np.random.default_rng(0)
    groups = np.array([labels, *(rng.permutation(labels) for _ in range(_SHUFFLES))])
    weights = groups / labels.sum() - (1 - groups) / (1 - labels).sum()
    largest = np.abs(weights @ scores).max(1)
    return float(np.mean(largest >= largest[0])), float(np.quantile(largest, 1 - LEVEL / _TESTS))
