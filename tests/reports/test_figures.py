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
    assert figures.duration(seconds) == text
