"""Where things lie in a figure: ticks, limits, and texts that do not cover each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.charts import around, make_chart

from vebench.analysis.statistics import Estimate
from vebench.reports.chart import Chart, Mark, Series
from vebench.reports.plotting import axes

POSITIVE = st.floats(1e-6, 1e9)
WIDTH, SIZE = 330.0, 9.0


def chart_of(*points: tuple[float, Estimate], linear: bool = False, marks: tuple[Mark, ...] = ()) -> Chart:
    return make_chart("a", series=(Series("a", points),), linear=linear, marks=marks)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((10_000, 40_000), ["10k", "15k", "20k", "30k"]),
        ((1_000, 700_000), ["1k", "3k", "10k", "30k", "100k", "300k"]),
        ((9_500, 10_500), ["9.5k", "10k", "10.5k", "11k"]),
        ((0.9, 30), ["1", "2", "5", "10", "20"]),
    ],
)
def test_ticks_of_rates_are_round_and_plain(values: tuple[float, float], labels: list[str]) -> None:
    axis = axes.y_axis(chart_of(*((1.0 + i, Estimate(float(value))) for i, value in enumerate(values))))
    assert [text for _, text in axis.ticks] == labels


def test_a_linear_axis_begins_at_zero() -> None:
    axis = axes.y_axis(chart_of((1.0, around(0.97)), (2.0, around(0.5)), linear=True))
    assert (axis.low, axis.at(0.0)) == (0.0, 0.0)
    assert [text for _, text in axis.ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_an_interval_that_says_nothing_does_not_flatten_the_others() -> None:
    axis = axes.y_axis(chart_of((1.0, around(100.0)), (2.0, Estimate(120.0, 1e-9, 1e12))))
    assert axis.low > 40
    assert axis.high < 300
    assert axis.within(1e12) == axis.high


def test_doubling_numbers_of_workers_have_a_tick_each() -> None:
    axis = axes.x_axis(chart_of(*((float(2**i), around(1.0)) for i in range(9))), WIDTH, SIZE)
    assert [text for _, text in axis.ticks] == ["1", "2", "4", "8", "16", "32", "64", "128", "256"]


@given(st.sets(st.integers(1, 4096), min_size=1, max_size=60))
def test_ticks_of_workers_keep_apart_and_include_both_ends(workers: set[int]) -> None:
    axis = axes.x_axis(chart_of(*((float(count), around(1.0)) for count in sorted(workers))), WIDTH, SIZE)
    shown = [int(text) for _, text in axis.ticks]
    assert max(workers) in shown or min(workers) in shown
    for (one, text), (other, beside) in pairwise(axis.ticks):
        half = (axes.text_width(text, SIZE) + axes.text_width(beside, SIZE)) / 2
        assert (axis.at(other) - axis.at(one)) * WIDTH > half


@given(st.lists(st.floats(0, 200), max_size=12), st.floats(1, 15))
def test_names_keep_apart_stay_in_their_order_and_within_the_axes(wanted: list[float], gap: float) -> None:
    places = axes.apart(sorted(wanted), gap, 230.0)
    assert all(other - one >= gap - 1e-6 for one, other in pairwise(places))
    if places:
        assert places[0] >= 0
        assert places[-1] <= 230.0 + 1e-6


def test_names_that_are_far_apart_stay_where_they_want() -> None:
    assert axes.apart([10.0, 50.0, 52.0, 90.0], 12.0, 230.0) == [10.0, 45.0, 57.0, 90.0]


@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8, 16, 32, 64]), st.text(max_size=40)), max_size=8))
def test_texts_of_marks_do_not_cover_each_other(wanted: list[tuple[int, str]]) -> None:
    chart = chart_of((1.0, around(1.0)), (64.0, around(2.0)), marks=tuple(Mark(float(x), text) for x, text in wanted))
    axis = axes.x_axis(chart, WIDTH, SIZE)
    placed = axes.mark_texts(chart.marks, axis, WIDTH, SIZE)
    assert len(placed) == len(wanted)
    for one, other in pairwise(sorted(placed, key=lambda mark: (mark.row, mark.left))):
        assert one.row != other.row or one.right <= other.left
    for mark in placed:
        assert mark.line in (mark.left, mark.right)
        assert mark.right - mark.left > axes.text_width(mark.text, SIZE)


def test_no_line_of_a_mark_goes_through_the_text_of_another() -> None:
    marks = (Mark(2.0, "second threads begin"), Mark(4.0, "package ends"), Mark(8.0, "CPUs end"), Mark(64.0, "the end"))
    chart = chart_of((1.0, around(1.0)), (64.0, around(2.0)), marks=marks)
    placed = axes.mark_texts(marks, axes.x_axis(chart, WIDTH, SIZE), WIDTH, SIZE)
    assert {mark.text: mark.row for mark in placed} == {
        "CPUs end": 0, "package ends": 1, "second threads begin": 2, "the end": 0,
    }  # fmt: skip
    for mark in placed:
        assert not [other for other in placed if other.row > mark.row and mark.left < other.line < mark.right]


def test_a_mark_beyond_the_axis_is_not_drawn() -> None:
    chart = chart_of((1.0, around(1.0)), (4.0, around(2.0)), marks=(Mark(16.0, "CPUs end"),))
    assert axes.mark_texts(chart.marks, axes.x_axis(chart, WIDTH, SIZE), WIDTH, SIZE) == ()


@given(st.text(max_size=200))
def test_a_name_is_shortened_in_its_middle(text: str) -> None:
    short = axes.shortened(text)
    assert len(short) <= axes.LONGEST
    assert short.isprintable()


def test_names_that_differ_at_their_ends_differ_when_they_are_short() -> None:
    one, other = (axes.shortened(f"envpool-async[batch_size=16,num_threads=8,ratio={n}]") for n in (2, 3))
    assert one != other
