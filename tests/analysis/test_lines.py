"""A line through points with errors, and where it crosses a level."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from scipy import optimize

from vebench.analysis.lines import Point, line
from vebench.analysis.statistics import Error

PLACES = (0.1, 0.3, 1.0, 2.0, 4.0)


def points(intercept: float, slope: float, spread: float, luck: Random) -> list[Point]:
    return [
        Point(x, intercept + slope * x + luck.gauss(0, spread * (1 + x)), Error((spread * (1 + x)) ** 2, inf))
        for x in PLACES
    ]


def test_it_is_the_line_of_weighted_least_squares_where_its_points_fit() -> None:
    given = points(0.25, 0.5, 0.001, Random(2))  # noqa: S311 - to repeat
    found = line(given)
    assert found is not None
    errors = [point.error.variance**0.5 for point in given]
    values, covariance = optimize.curve_fit(
        lambda x, a, b: a + b * x, PLACES, [point.y for point in given], sigma=errors, absolute_sigma=True
    )
    assert (found.intercept, found.slope) == pytest.approx(tuple(values))
    scale = found.slope_variance / covariance[1][1]
    assert scale >= 1 - 1e-9
    assert found.covariance / covariance[0][1] == pytest.approx(scale)
    assert found.intercept_variance / covariance[0][0] == pytest.approx(scale)


def test_the_interval_of_a_crossing_holds_the_true_one_as_often_as_it_says() -> None:
    luck = Random(5)  # noqa: S311 - to repeat
    held = 0
    for _ in range(1000):
        found = line(points(0.25, 0.5, 0.02, luck))
        crossing = found and found.crossing(1.0)
        assert crossing is not None
        assert crossing.low is not None
        assert crossing.high is not None
        assert crossing.low < crossing.median < crossing.high
        held += crossing.low <= 1.5 <= crossing.high
    assert 930 <= held <= 1000


def test_a_line_whose_slope_may_be_zero_crosses_nowhere_that_is_known() -> None:
    found = line(points(0.25, 0.0, 0.02, Random(1)))  # noqa: S311 - to repeat
    assert found is not None
    assert found.crossing(1.0) is None


def test_points_that_are_on_no_line_make_its_interval_wider() -> None:
    bent = [Point(x, x**2, Error(1e-6, inf)) for x in PLACES]
    straight = [Point(x, x, Error(1e-6, inf)) for x in PLACES]
    wide, narrow = line(bent), line(straight)
    assert wide is not None
    assert narrow is not None
    assert wide.slope_variance > 1000 * narrow.slope_variance


def test_two_points_make_no_line() -> None:
    assert line([Point(1.0, 1.0, Error(1e-6, inf)), Point(2.0, 2.0, Error(1e-6, inf))]) is None
