"""How numbers are written."""

from __future__ import annotations

import pytest

from vebench.analysis.statistics import Estimate
from vebench.reports import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [(13120.4, "13,120"), (99.96, "100"), (42.34, "42.3"), (2.3149, "2.31"), (0.411, "0.41"), (0.0042, "0.0042")],
)
def test_numbers_keep_three_digits_or_more(value: float, text: str) -> None:
    assert figures.number(value) == text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(100.0, 98.6, 101.4), "±1.4%"),
        (Estimate(100.0, 80.0, 125.0), "±25%"),
        (Estimate(100.0, 10.0, 1000.0), "±>100%"),
        (Estimate(100.0, 99.99, 100.01), "±<0.1%"),
        (Estimate(100.0), "(no interval)"),
        (Estimate(0.0, 0.0, 12.0), "(to 12.0)"),
    ],
)
def test_a_spread_is_the_larger_half_of_the_interval(estimate: Estimate, text: str) -> None:
    assert figures.spread(estimate) == text


@pytest.mark.parametrize(("seconds", "text"), [(45.4, "45 s"), (320, "5 min 20 s"), (3659.7, "1 h 01 min")])
def test_durations_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert figures.long_time(seconds) == text


def test_a_sparkline_has_a_bar_for_each_value_and_shows_a_drop_but_not_noise() -> None:
    assert figures.sparkline([0.0, 0.0, -0.4, -0.4]) == "▇▇▁▁"
    assert len(set(figures.sparkline([0.0, 0.001, -0.001]))) == 1
    assert figures.sparkline([]) == ""


def test_a_sparkline_of_many_values_has_the_means_of_neighbours() -> None:
    line = figures.sparkline([0.0] * 300 + [1.0] * 300)
    half = figures.LONGEST_SPARKLINE // 2
    assert line == "▁" * half + "▇" * half
