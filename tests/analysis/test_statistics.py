"""Estimates, intervals and ratios."""

from __future__ import annotations

from math import exp, log, pi, sqrt
from random import Random
from statistics import geometric_mean, stdev
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from vebench.analysis.statistics import (
    PROCESS_SPREAD,
    Estimate,
    Sample,
    correlation_factor,
    estimate,
    middle_of,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

rates = st.lists(st.floats(1e-3, 1e12), min_size=2, max_size=12)


def several(values: Sequence[float]) -> Sample:
    """Return one rate of each of several processes."""
    return Sample(tuple(values), one_process=False)


def single(values: Sequence[float]) -> Sample:
    """Return the windows of one process."""
    return Sample(tuple(values), one_process=True)


def test_the_interval_is_the_documented_one() -> None:
    sample = [100.0, 110.0, 95.0, 105.0]
    student = 3.182446305284263  # the 97.5 % quantile with 3 degrees of freedom, from a printed table
    half = student * stdev([log(rate) for rate in sample]) / sqrt(4)
    found = estimate(several(sample))
    assert found is not None
    assert found.median == pytest.approx(geometric_mean(sample))
    assert found.low == pytest.approx(found.median * exp(-half))
    assert found.high == pytest.approx(found.median * exp(half))


def test_one_window_has_no_interval() -> None:
    assert estimate(several([7.0])) == Estimate(7.0, None, None)


def test_no_window_has_no_estimate() -> None:
    assert estimate(several([])) is None


def test_windows_that_agree_have_an_interval_of_no_width() -> None:
    found = estimate(several([5.0, 5.0, 5.0]))
    assert found is not None
    assert (found.low, found.median, found.high) == pytest.approx((5.0, 5.0, 5.0))


def test_a_window_without_transitions_does_not_crash() -> None:
    found = estimate(several([0.0, 100.0, 110.0]))
    assert found is not None
    assert found.low == 0.0
    assert found.high is not None
    assert found.high > found.median == 100.0


def test_windows_without_any_transition_are_zero() -> None:
    assert estimate(several([0.0, 0.0])) == Estimate(0.0, 0.0, 0.0)


def test_an_estimate_changes_its_unit_with_its_interval() -> None:
    assert Estimate(2.0, 1.0, 3.0).scaled(4) == Estimate(8.0, 4.0, 12.0)
    assert Estimate(2.0).scaled(4) == Estimate(8.0)


@pytest.mark.parametrize(
    ("sample", "middle"), [([4.0], 4.0), ([1.0, 9.0, 2.0], 2.0), ([4.0, 9.0], 6.0), ([0.0, 4.0], 0.0)]
)
def test_the_middle_of_two_rates_is_their_geometric_mean(sample: list[float], middle: float) -> None:
    assert middle_of(sample) == middle


def test_the_half_width_is_the_larger_one_over_the_median() -> None:
    assert Estimate(100.0, 80.0, 125.0).half_width == 0.25
    assert Estimate(100.0, 50.0, 125.0).half_width == 0.5
    assert (Estimate(100.0).half_width, Estimate(0.0, 0.0, 5.0).half_width) == (None, None)


@given(rates)
def test_the_median_lies_in_its_interval(sample: list[float]) -> None:
    found = estimate(several(sample))
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low <= found.median * (1 + 1e-9)
    assert found.median * (1 - 1e-9) <= found.high < float("inf")


@given(rates, st.floats(0.001, 1000))
def test_an_interval_does_not_depend_on_the_unit(sample: list[float], factor: float) -> None:
    one, other = estimate(several(sample)), estimate(several([rate * factor for rate in sample]))
    assert one is not None
    assert other is not None
    scaled = one.scaled(factor)
    assert (other.median, other.low, other.high) == pytest.approx((scaled.median, scaled.low, scaled.high), rel=1e-6)


@given(rates, rates)
def test_a_ratio_the_other_way_round_is_the_inverse(one: list[float], other: list[float]) -> None:
    there, back = ratio(several(one), several(other)), ratio(several(other), several(one))
    assert there is not None
    assert back is not None
    assert there.low is not None
    assert back.high is not None
    assert there.median * back.median == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)


def test_a_ratio_has_the_degrees_of_freedom_of_welch() -> None:
    one, other = [exp(x) for x in (0.0, 0.1, 0.2)], [exp(x) for x in (1.0, 1.1, 1.2)]
    # Equal spreads and sizes: 2 + 2 degrees of freedom, whose quantile is 2.776445 in a printed table.
    half = 2.776445105 * 0.1 * sqrt(2 / 3)
    found = ratio(several(one), several(other))
    assert found is not None
    assert (found.low, found.median, found.high) == pytest.approx((exp(-1 - half), exp(-1), exp(-1 + half)))


def test_a_ratio_to_nothing_or_to_zero_is_none() -> None:
    assert ratio(several([1.0, 2.0]), several([])) is None
    assert ratio(several([]), several([1.0, 2.0])) is None
    assert ratio(several([1.0, 2.0]), several([0.0, 0.0])) is None


def test_a_ratio_of_single_windows_has_no_interval() -> None:
    assert ratio(several([4.0]), several([2.0, 2.0])) == Estimate(2.0)


def test_a_ratio_with_a_window_at_zero_is_bounded_by_both_intervals() -> None:
    found = ratio(several([0.0, 10.0, 10.0]), several([10.0, 10.0, 10.0]))
    assert found is not None
    assert found.low == 0.0
    assert found.median == pytest.approx(1.0)
    assert found.high is not None
    assert found.high > 1.0
    unbounded = ratio(several([10.0, 10.0, 10.0]), several([0.0, 10.0, 10.0]))
    assert unbounded is not None
    assert (unbounded.median, unbounded.low, unbounded.high) == (pytest.approx(1.0), None, None)


def test_a_ratio_of_exact_windows_is_exact() -> None:
    found = ratio(several([4.0, 4.0]), several([2.0, 2.0]))
    assert found is not None
    assert (found.low, found.median, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_one_process_cannot_tell_how_far_others_would_differ_so_its_interval_allows_for_that() -> None:
    steady = estimate(single([100.0] * 6))
    assert steady is not None
    assert steady.high == pytest.approx(100 * exp(1.959964 * PROCESS_SPREAD))  # the normal quantile, from a table
    exact = estimate(several([100.0] * 6))
    assert exact is not None
    assert exact.low == exact.high


def test_the_interval_of_one_process_adds_up_what_its_windows_and_other_processes_vary_by() -> None:
    sample = [100.0, 110.0, 95.0, 105.0]
    own = correlation_factor(4) * pi / 2 * stdev([log(rate) for rate in sample]) ** 2 / 4
    total = own + PROCESS_SPREAD**2
    freedom = 3 * (total / own) ** 2
    found = estimate(single(sample))
    assert found is not None
    assert found.high is not None
    assert log(found.high / found.median) / sqrt(total) == pytest.approx(float(stdtrit(freedom, 0.975)))


def test_windows_that_are_alike_count_for_less() -> None:
    assert correlation_factor(6, 0.0) == 1.0
    # Two values: their mean varies by (1 + r) / 2, their half squared difference is 1 - r.
    assert correlation_factor(2, 0.3) == pytest.approx(1.3 / 0.7)
    assert correlation_factor(10_000, 0.3) == pytest.approx(1.3 / 0.7, rel=1e-3)


def test_a_process_without_a_window_is_none() -> None:
    assert Sample.of({0: [], 1: [1.0, 4.0], 2: []}) == Sample((1.0, 4.0), one_process=True, passes=(1,))
    assert Sample.of({0: [1.0, 4.0], 1: [], 2: [9.0]}) == Sample((2.0, 9.0), one_process=False, passes=(0, 2))
    assert Sample.of({}) == several([])


def simulated(random: Random, windows: int, processes: int) -> Sample:
    """Return a cell whose true median is 100: 3 % noise that is correlated by 0.3, and the spread of processes."""
    found = []
    for _ in range(processes):
        luck, noise, logs = random.gauss(0, PROCESS_SPREAD), random.gauss(0, 0.03), []
        for _ in range(windows):
            logs.append(luck + noise)
            noise = 0.3 * noise + sqrt(1 - 0.3**2) * random.gauss(0, 0.03)
        found.append([100 * exp(value) for value in logs])
    return Sample.of(dict(enumerate(found)))


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("windows", [3, 10])
def test_the_interval_holds_the_true_median_as_often_as_it_says(windows: int, processes: int) -> None:
    random = Random(1)  # noqa: S311 - a simulation to repeat, no secret
    trials = 2000
    found = [estimate(simulated(random, windows, processes)) for _ in range(trials)]
    held = sum(one.low <= 100 <= one.high for one in found if one and one.low and one.high)
    assert 0.92 <= held / trials <= 0.98
