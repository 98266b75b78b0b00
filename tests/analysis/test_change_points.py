"""Change points: found where they are, not where they are not, and whatever the unit."""

from __future__ import annotations

from math import exp, log, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.analysis.history import FEWEST, LEAST, SHORTEST, WINDOW, change_points, parts

DRAWS = range(20)


def steady(seed: int, count: int = 60, noise: float = 0.03) -> list[float]:
    """Return log levels that only noise sets apart."""
    random = Random(seed)  # noqa: S311 - a series to repeat, no secret
    return [random.gauss(0, noise) for _ in range(count)]


def stepped(levels: list[float], at: int, ratio: float) -> list[float]:
    """Return ``levels`` with those from ``at`` on times ``ratio``."""
    return [level + (log(ratio) if index >= at else 0.0) for index, level in enumerate(levels)]


def places(levels: list[float]) -> list[int]:
    return [change.at for change in change_points(levels)]


def test_a_drop_of_8_percent_is_found_where_it_is_and_nothing_else_is() -> None:
    found = [change_points(stepped(steady(seed), 40, 0.92)) for seed in DRAWS]
    good = [len(changes) == 1 and abs(changes[0].at - 40) <= 5 and changes[0].worse for changes in found]
    assert sum(good) >= 19
    assert sum(changes[0].ratio.low <= 0.92 <= changes[0].ratio.high for changes in found if changes) >= 17


def test_a_drop_is_found_within_five_runs_in_nine_of_ten_series() -> None:
    series = [stepped(steady(seed), 40, 0.92) for seed in range(100)]
    assert sum(any(places(levels[:runs]) for runs in (43, 44, 45)) for levels in series) >= 90


def test_in_steady_series_nothing_is_found() -> None:
    assert sum(bool(places(steady(seed))) for seed in DRAWS) <= 1


@pytest.mark.parametrize("correlation", [0.3, 0.6])
def test_runs_that_resemble_the_one_before_seldom_show_a_change(correlation: float) -> None:
    found = 0
    for seed in range(30):
        levels = [0.0]
        for noise in steady(seed, 79):
            levels.append(correlation * levels[-1] + sqrt(1 - correlation**2) * noise)
        found += any(places(levels[20:end]) for end in range(20 + FEWEST, 81, 6))
    assert found <= 2


def test_a_gain_is_no_change_for_the_worse() -> None:
    (change,) = change_points(stepped(steady(1), 30, 1.1))
    assert not change.worse
    assert change.ratio.median == pytest.approx(1.1, abs=0.03)


def test_each_of_several_changes_is_found_however_long_the_series() -> None:
    levels = stepped(stepped(stepped(steady(7, 300), 60, 0.85), 120, 1.2), 290, 0.85)
    found = change_points(levels)
    assert [round(change.at, -1) for change in found] == [60, 120, 290]
    assert [change.worse for change in found] == [True, False, True]


def test_a_drop_that_lasted_a_while_is_two_changes() -> None:
    levels = stepped(stepped(steady(3, WINDOW + 20), 30, 0.9), 36, 1 / 0.9)
    assert places(levels) == pytest.approx([30, 36], abs=1)


@pytest.mark.parametrize("size", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("at", [0, 20, 57, 58, 59])
def test_a_single_value_that_lies_apart_is_no_change(size: float, at: int) -> None:
    levels = steady(4)
    levels[at] += log(size)
    assert places(levels) == []


def test_a_new_level_needs_three_values() -> None:
    quiet = steady(5, 40, noise=0.01)
    lower = [log(0.8) + level for level in quiet[:SHORTEST]]
    assert places([*quiet, lower[0]]) == []
    assert places([*quiet, *lower]) == [40]


def test_a_change_too_small_to_matter_is_left_alone_however_certain() -> None:
    quiet = steady(6, noise=0.001)
    assert places(stepped(quiet, 30, 1 - LEAST / 2)) == []
    assert places(stepped(quiet, 30, 1 - 2 * LEAST)) == [30]


@pytest.mark.parametrize("levels", [[], [1.0], [1.0] * 100, [0.0, 5.0, 0.0, 5.0, 0.0]], ids=len)
def test_where_nothing_can_be_said_nothing_is(levels: list[float]) -> None:
    assert change_points(levels) == ()


def test_equal_values_on_either_side_are_a_change_beyond_doubt() -> None:
    (change,) = change_points([0.0] * SHORTEST + [-1.0] * SHORTEST)
    assert (change.at, change.chance, change.ratio.median) == (SHORTEST, 0.0, pytest.approx(exp(-1)))
    assert FEWEST == 2 * SHORTEST


@given(st.integers(0, 10**6), st.integers(0, 80), st.floats(0.5, 2.0), st.floats(1e-9, 1e12))
def test_the_unit_of_rates_does_not_matter(seed: int, count: int, ratio: float, unit: float) -> None:
    levels = stepped(steady(seed, count), count // 2, ratio)
    assert places([level + log(unit) for level in levels]) == places(levels)


@given(st.lists(st.floats(-20, 20), max_size=70))
def test_levels_are_kept_apart_by_the_changes_that_are_reported(levels: list[float]) -> None:
    found = change_points(levels)
    sides = parts(levels, [change.at for change in found])
    assert sum(map(len, sides)) == len(levels)
    if found:
        assert min(map(len, sides)) >= SHORTEST
        assert all(change.ratio.low <= change.ratio.median <= change.ratio.high for change in found)
        assert all(abs(change.ratio.median - 1) >= LEAST * 0.99 for change in found)
