"""A bisection under noise: how often it is right, how many steps it takes, and what it says if it cannot decide."""

from math import exp, hypot, log
from random import Random

import pytest

from vebench.analysis.statistics import Estimate
from vebench.gates.bisection import BIAS, CERTAIN, LogRatio, Posterior, look, mean_of_cells, mean_of_steps

MOST_STEPS = 40


def bisected(number: int, *, last: int, ratio: float, wild: float, bias: float) -> tuple[int, Posterior, int]:
    """Return where the change was, what was found, and in how many steps, of a bisection with noise of its own.

    Every ratio has an error of 2 %, known from few passes only; a share of them is ``wild``, off by 20 %. Each build is
    faster or slower by its ``bias``, a standard deviation.
    """
    noise = Random(number)
    true = noise.randint(1, last)
    builds = [noise.gauss(0, bias) for _ in range(last + 1)]

    def measured(at: int) -> LogRatio:
        off = noise.choice((-0.2, 0.2)) if noise.random() < wild else 0.0
        level = log(ratio) if at >= true else 0.0
        return LogRatio(level + builds[at] - builds[0] + off + noise.gauss(0, 0.02), noise.uniform(0.01, 0.03))

    steps: list[tuple[int, LogRatio]] = []
    change = LogRatio(log(ratio) + builds[-1] - builds[0] + noise.gauss(0, 0.005), hypot(0.005, BIAS))
    while True:
        found = look(last, change, steps)
        if found.next is None or len(steps) == MOST_STEPS:
            return true, found, len(steps)
        steps.append((found.next, measured(found.next)))


@pytest.mark.parametrize(
    ("last", "ratio", "wild", "bias", "decided", "most"),
    [
        (30, 0.9, 0.05, 0.007, 0.98, 12),
        (7, 1.1, 0.05, 0.007, 0.95, 9),
        (30, 0.95, 0.0, 0.007, 0.3, 40),  # builds differ by a seventh of the change
    ],
)
def test_99_percent_of_decided_bisections_are_right(
    last: int, ratio: float, wild: float, bias: float, decided: float, most: float
) -> None:
    all_found = [bisected(number, last=last, ratio=ratio, wild=wild, bias=bias) for number in range(20)]
    answers = [(true, one) for true, one, _ in all_found if one.found]
    assert len(answers) >= decided * len(all_found)
    assert sum((one.first, one.last) == (true, true) for true, one in answers) >= CERTAIN * len(answers)
    assert sum(steps for _, _, steps in all_found) / len(all_found) <= most


def test_without_a_step_the_middle_is_compared_first() -> None:
    found = look(4, LogRatio(log(0.9), 0.01), [])
    assert found.chances == [0, 0.25, 0.25, 0.25, 0.25]
    assert (found.next, found.first, found.last, found.chance, found.certain) == (2, 1, 4, 1.0, False)


def test_skipped_candidates_are_never_asked_and_stay_in_the_answer() -> None:
    change = LogRatio(log(0.8), 0.01)
    found = look(6, change, 2 * [(1, LogRatio(0.0, 0.01)), (4, change)], skipped=(2, 3))
    assert (found.first, found.last, found.certain, found.next) == (2, 4, True, None)
    assert look(6, change, [], skipped=(2, 3)).next == 4


def test_no_single_ratio_decides_however_clear_and_two_that_agree_do() -> None:
    change = LogRatio(log(0.9), 0.005)
    for ratio, position in ((change, 1), (LogRatio(0.0, 0.005), 2), (LogRatio(log(0.5), 0.005), 1)):
        once, twice = (look(2, change, [(1, ratio)] * times).chances[position] for times in (1, 2))
        assert 0.5 < once < CERTAIN
        assert (twice > CERTAIN) == (ratio.log > change.log - 0.01)


def test_ratios_of_cells_and_of_steps_are_averaged_with_their_errors() -> None:
    mean = mean_of_cells([Estimate(median, median * exp(-0.0196), median * exp(0.0196)) for median in (0.8, 0.9)])
    assert mean.log == pytest.approx(log(0.8 * 0.9) / 2)
    assert mean.error == pytest.approx(0.01 / 2**0.5)
    assert mean.estimate.median == pytest.approx((0.8 * 0.9) ** 0.5)
    one, two = (mean_of_steps([mean] * steps).error ** 2 - BIAS**2 for steps in (1, 2))  # the bias of a build stays
    assert two == pytest.approx(one / 2, rel=1e-3)
    wild = mean_of_steps([*3 * [LogRatio(0.0, 0.02)], LogRatio(-0.2, 0.02)])
    assert wild.log == pytest.approx(0.0, abs=0.005)
