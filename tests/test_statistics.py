"""Estimates, intervals and ratios."""

from __future__ import annotations

from math import exp, log, pi, sqrt
from random import Random
from statistics import median, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.analysis.statistics import Estimate, estimate, middle_of, ratio

rates = st.lists(st.floats(1e-3, 1e12), min_size=2, max_size=12)


def test_the_interval_is_the_documented_one() -> None:
    sample = [100.0, 110.0, 95.0, 105.0]
    student = 3.182446305284263  # the 97.5 % quantile with 3 degrees of freedom, from a printed table
    half = student * sqrt(pi / 2) * stdev([log(rate) for rate in sample]) / sqrt(4)
    found = estimate(sample)
    assert found is not None
    assert found.median == median(sample) == 102.5
    assert found.low == pytest.approx(102.5 * exp(-half))
    assert found.high == pytest.approx(102.5 * exp(half))


def test_one_window_has_no_interval() -> None:
    assert estimate([7.0]) == Estimate(7.0, None, None)


def test_no_window_has_no_estimate() -> None:
    assert estimate([]) is None


def test_windows_that_agree_have_an_interval_of_no_width() -> None:
    assert estimate([5.0, 5.0, 5.0]) == Estimate(5.0, 5.0, 5.0)


def test_a_window_without_transitions_does_not_crash() -> None:
    found = estimate([0.0, 100.0, 110.0])
    assert found is not None
    assert found.low == 0.0
    assert found.high is not None
    assert found.high > found.median == 100.0


def test_windows_without_any_transition_are_zero() -> None:
    assert estimate([0.0, 0.0]) == Estimate(0.0, 0.0, 0.0)


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
    found = estimate(sample)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low <= found.median <= found.high < float("inf")


@given(rates, st.floats(0.001, 1000))
def test_an_interval_does_not_depend_on_the_unit(sample: list[float], factor: float) -> None:
    one, other = estimate(sample), estimate([rate * factor for rate in sample])
    assert one is not None
    assert other is not None
    scaled = one.scaled(factor)
    assert (other.median, other.low, other.high) == pytest.approx((scaled.median, scaled.low, scaled.high), rel=1e-6)


@given(rates, rates)
def test_a_ratio_the_other_way_round_is_the_inverse(one: list[float], other: list[float]) -> None:
    there, back = ratio(one, other), ratio(other, one)
    assert there is not None
    assert back is not None
    assert there.low is not None
    assert back.high is not None
    assert there.median * back.median == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)


def test_a_ratio_has_the_degrees_of_freedom_of_welch() -> None:
    one, other = [exp(x) for x in (0.0, 0.1, 0.2)], [exp(x) for x in (1.0, 1.1, 1.2)]
    # Equal spreads and sizes: 2 + 2 degrees of freedom, whose quantile is 2.776445 in a printed table.
    half = 2.776445105 * sqrt(pi / 2) * 0.1 * sqrt(2 / 3)
    found = ratio(one, other)
    assert found is not None
    assert (found.low, found.median, found.high) == pytest.approx((exp(-1 - half), exp(-1), exp(-1 + half)))


def test_a_ratio_to_nothing_or_to_zero_is_none() -> None:
    assert ratio([1.0, 2.0], []) is None
    assert ratio([], [1.0, 2.0]) is None
    assert ratio([1.0, 2.0], [0.0, 0.0]) is None


def test_a_ratio_of_single_windows_has_no_interval() -> None:
    assert ratio([4.0], [2.0, 2.0]) == Estimate(2.0)


def test_a_ratio_with_a_window_at_zero_is_bounded_by_both_intervals() -> None:
    found = ratio([0.0, 10.0, 10.0], [10.0, 10.0, 10.0])
    assert found is not None
    assert found.low == 0.0
    assert found.median == 1.0
    assert found.high is not None
    assert found.high > 1.0
    assert ratio([10.0, 10.0, 10.0], [0.0, 10.0, 10.0]) == Estimate(1.0)


def test_a_ratio_of_exact_windows_is_exact() -> None:
    assert ratio([4.0, 4.0], [2.0, 2.0]) == Estimate(2.0, 2.0, 2.0)


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    random = Random(1)  # noqa: S311 - a simulation to repeat, no secret
    samples = [[100 * exp(random.gauss(0, 0.05)) for _ in range(6)] for _ in range(1000)]
    held = sum(found.low <= 100 <= found.high for found in map(estimate, samples) if found and found.low and found.high)
    assert 930 <= held <= 990
